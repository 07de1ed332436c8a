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
        *("tests/hidden/test_h.py", "tests/solutions/right.sh", ".git/index", "tests/__pycache__/test_a.pyc"),
        *(".venv/lib/a.txt", "env/pyvenv.cfg", "env/lib/b.txt", "node_modules/c.js", "results/old.json"),
    ):
        place = tmp_path / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("1", encoding="utf-8")
    os.symlink("../data/cases.json", tmp_path / "tests/link")
    os.symlink("nowhere", tmp_path / "tests/broken")
    return tmp_path


def digest(root: Path, folder: str = "tests") -> str | None:
    return Surroundings(root, [root / "results"]).digest(root / folder)


@pytest.mark.parametrize(
    "name",
    ["pyproject.toml", "data/cases.json", "tests/table.csv", "tests/hidden/test_h.py", "tests/solutions/right.sh"],
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
        *("data/make.py", "tests/test_a.py", ".git/index", "tests/__pycache__/test_a.pyc", ".venv/lib/a.txt"),
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


def test_each_folder_of_tests_has_its_own(root: Path) -> None:
    known = Surroundings(root)
    assert known.digest(root / "tests") != known.digest(root / "data") != known.digest(root)
    elsewhere = Surroundings(root / "tests").digest(root / "data")
    assert elsewhere == Surroundings(root / "data").digest(root / "data")


def test_too_many_files_are_not_known(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_FILES", 5)
    assert digest(root) is None
