"""What counts as the data of a suite, for the facts of control runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_rollout.evaluation import surroundings as module
from pytest_rollout.evaluation.surroundings import Surroundings


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A suite with tests in a folder of it, and data beside and above them."""
    for name in (
        *("pyproject.toml", "data/cases.json", "data/make.py", "tests/test_a.py", "tests/table.csv", "README"),
        *(
            "tests/.hidden/x",
            ".pytest_cache/x",
            "tests/hidden/test_h.py",
            "tests/solutions/right.sh",
            ".git/index",
            "tests/__pycache__/test_a.pyc",
        ),
        *(".venv/lib/a.txt", "env/pyvenv.cfg", "env/lib/b.txt", "node_modules/c.js", "results/old.json"),
    ):
        place = tmp_path / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("1", encoding="utf-8")
    os.symlink("../data/cases.json", tmp_path / "tests/link")
    os.symlink("nowhere", tmp_path / "tests/broken")
    return tmp_path


def digest(root: Path, folder: str = "tests") -> str | None:
    return Surroundings(root, {}, [root / "results"]).digest(root / folder)


@pytest.mark.parametrize(
    "name",
    [
        *("pyproject.toml", "data/cases.json", "tests/table.csv", "tests/hidden/test_h.py", "tests/solutions/right.sh"),
        *("data/make.py", "tests/test_a.py", "tests/.hidden/x"),
    ],
)
def test_a_file_that_counts(root: Path, name: str) -> None:
    before = digest(root)
    assert before is not None and before == digest(root)
    (root / name).write_text("22", encoding="utf-8")
    longer = digest(root)
    os.utime(root / name, ns=(5, 5))
    later = digest(root)
    (root / name).unlink()
    assert len({before, longer, later, digest(root)}) == 4


@pytest.mark.parametrize(
    "name",
    [
        *(".git/index", "tests/__pycache__/test_a.pyc", ".venv/lib/a.txt", ".pytest_cache/x"),
        *("env/lib/b.txt", "node_modules/c.js", "results/old.json"),
    ],
)
def test_a_file_that_does_not_count(root: Path, name: str) -> None:
    before = digest(root)
    (root / name).write_text("22", encoding="utf-8")
    assert digest(root) == before


def test_a_new_file_counts_and_a_log_that_is_open_does_not(root: Path) -> None:
    before = digest(root)
    with open(root / "out.log", "w", encoding="utf-8") as log:
        log.write("x")
        assert digest(root) == before
    assert digest(root) != before


def test_a_file_that_is_open_to_be_read_counts(root: Path) -> None:
    before = digest(root)
    with open(root / "data/cases.json", encoding="utf-8") as cases:
        (root / "data/cases.json").write_text("22", encoding="utf-8")
        assert digest(root) != before
        cases.read()


def test_a_change_that_keeps_size_and_time(root: Path) -> None:
    before, info = digest(root), os.stat(root / "data/cases.json")
    (root / "data/cases.json").write_text("2", encoding="utf-8")
    os.utime(root / "data/cases.json", ns=(info.st_atime_ns, info.st_mtime_ns))
    assert digest(root) != before


def test_folders_behind_links_count_once(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "cases.json").touch()
    os.symlink(elsewhere, root / "more")
    os.symlink(root, elsewhere / "back")
    before = digest(root)
    (elsewhere / "cases.json").write_text("2", encoding="utf-8")
    assert digest(root) != before


def test_options_and_the_environment_count(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = digest(root)
    assert Surroundings(root, {"cases": "all"}, [root / "results"]).digest(root) != before
    monkeypatch.setenv("CASES", "all")
    assert digest(root) != before
    monkeypatch.delenv("CASES")
    monkeypatch.setenv("_CASES", "all")
    assert digest(root) != before
    monkeypatch.delenv("_CASES")
    monkeypatch.setenv("SHLVL", "17")
    assert digest(root) == before


def test_tests_outside_the_root_have_their_own(root: Path) -> None:
    known = Surroundings(root / "tests")
    assert known.digest(root / "tests") == known.digest(root / "tests/hidden") != known.digest(root / "data")


def test_too_many_files_are_not_known(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_FILES", 5)
    assert digest(root) is None
