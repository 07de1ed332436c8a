"""The evaluator revision: which data counts with the modules that name it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_rollout.evaluation.revision import evaluator_revision

MODULE = """
import json
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ODD = ["", ".", "..", "/etc/hostname", "../../x", "a\\nb", "\\ud800", "x" * 300, "a\\0b"]

@pytest.mark.rollout(workspace="work", hidden="hidden", oracle="solve.sh", prompt="notes.txt")
def test_it(bundle):
    cases = json.loads((HERE / "cases.json").read_text())
    assert bundle.run_tests(files="more").passed
    assert [path.name for path in HERE.glob("tables/*.csv")]
    assert f"{HERE}/texts/{bundle.sample}.txt"
    assert Path("data/of_root.txt").exists()
"""
COUNTED = (
    "suite/cases.json",
    "suite/more/test_a.py",
    "suite/more/deep/x.txt",
    "suite/tables/a.csv",
    "data/of_root.txt",
)
OTHERS = ("suite/work/calc.py", "suite/solve.sh", "suite/notes.txt", "suite/other.json", "suite/data/x", "README")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in (*COUNTED, *OTHERS):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1", encoding="utf-8")
    (tmp_path / "suite/test_it.py").write_text(MODULE, encoding="utf-8")
    return tmp_path


def revision(root: Path, module: str = "suite/test_it.py") -> str:
    return evaluator_revision([root / module], root, None, {})


@pytest.mark.parametrize("name", COUNTED)
def test_data_that_a_module_names(root: Path, name: str) -> None:
    before = revision(root)
    (root / name).write_text("2", encoding="utf-8")
    changed = revision(root)
    (root / name).write_text("1", encoding="utf-8")
    assert changed != before == revision(root)


@pytest.mark.parametrize("name", OTHERS)
def test_data_that_it_does_not_name_or_the_marker_does(root: Path, name: str) -> None:
    before = revision(root)
    (root / name).write_text("2", encoding="utf-8")
    assert revision(root) == before


def test_a_new_case_in_a_named_folder_and_a_file_that_goes(root: Path) -> None:
    before = revision(root)
    (root / "suite/tables/b.csv").touch()
    added = revision(root)
    (root / "suite/cases.json").unlink()
    assert len({before, added, revision(root)}) == 3


def test_data_that_can_not_be_read_or_is_large(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = revision(root)
    monkeypatch.setattr("pytest_rollout.evaluation.revision._LARGEST", 0)
    assert revision(root) != before


def test_hidden_files_outside_the_root_folder(root: Path) -> None:
    top = root / "suite"
    (top / "test_it.py").write_text('def test_it(b): assert b.run_tests(files="../data").passed\n', encoding="utf-8")
    before = revision(top, "test_it.py")
    (root / "data/of_root.txt").write_text("2", encoding="utf-8")
    assert revision(top, "test_it.py") != before
    (root / "README").write_text("2", encoding="utf-8")
    changed = revision(top, "test_it.py")
    (root / "README").write_text("3", encoding="utf-8")
    assert revision(top, "test_it.py") == changed
