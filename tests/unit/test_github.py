"""The glue to GitHub Actions: when it speaks, into which file, and that a failure is only a note."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_rollout._github import GitHub, line_of, on_github
from pytest_rollout.redaction.redactor import Redactor
from pytest_rollout.report.github import SUMMARY_BYTES
from pytest_rollout.store.load import LoadedRun
from pytest_rollout.store.records import Result

SUITE = """\
import pytest

class TestA:
    @pytest.mark.x
    def test_b(self): ...

async def test_c(): ...
"""


class Gate:
    """Another ending."""

    def end(self, loaded: LoadedRun, status: int) -> tuple[int, list[str]]:
        return 76, ["gate: does not hold"]


def github(folder: Path, summary: Path | None, *others: Any, **environ: str) -> GitHub:
    (folder / "evals").mkdir(exist_ok=True)
    (folder / "evals" / "test_a.py").write_text(SUITE)
    run: Any = SimpleNamespace(redactor=Redactor(), folder=SimpleNamespace(path=folder / "run"))
    config: Any = SimpleNamespace(rootpath=folder / "evals")
    where = {} if summary is None else {"GITHUB_STEP_SUMMARY": str(summary)}
    return GitHub(config, run, others, {"GITHUB_WORKSPACE": str(folder), **where, **environ})


def loaded(node: str = "test_a.py::TestA::test_b[x]") -> LoadedRun:
    result = Result(
        rollout="r", task="t", sample=0, attempt=1, node=node, agent="a", outcome="infra", kind="stage", message="m"
    )
    return LoadedRun(results=(result,))


@pytest.mark.parametrize(
    ("environ", "setting", "expected"),
    [
        ({"GITHUB_ACTIONS": "true"}, "auto", True),
        ({"GITHUB_ACTIONS": "true"}, "none", False),
        ({"GITHUB_ACTIONS": "false"}, "auto", False),
        ({"CI": "true", "GITLAB_CI": "true"}, "auto", False),
    ],
)
def test_when_it_speaks(environ: dict[str, str], setting: str, expected: bool) -> None:
    assert on_github(environ, setting) is expected


def test_the_summary_is_appended_and_the_others_are_heard(tmp_path: Path) -> None:
    place = tmp_path / "summary.md"
    place.write_text("before")
    status, lines = github(tmp_path, place, Gate()).end(loaded(), 0)
    assert (status, lines) == (
        76,
        [
            "gate: does not hold",
            "::error file=evals/test_a.py,line=5,title=1 rollout not measured%3A stage::m%0Ar",
        ],
    )
    text = place.read_text()
    assert text.startswith("before\n\n### 1 rollout\n")
    assert "| exit status | 76: a gate does not hold |" in text
    assert "gate&#58; does not hold" in text


def test_without_a_file_there_are_only_annotations(tmp_path: Path) -> None:
    status, (line,) = github(tmp_path, None).end(loaded("gone.py::test"), 75)
    assert (status, line) == (75, "::error title=1 rollout not measured%3A stage::m%0Ar")


def test_a_file_outside_the_repository_is_not_named(tmp_path: Path) -> None:
    _, (line,) = github(tmp_path, None, GITHUB_WORKSPACE=str(tmp_path / "other")).end(loaded(), 75)
    assert line.startswith("::error title=")


def test_a_full_summary_is_left_alone(tmp_path: Path) -> None:
    place = tmp_path / "summary.md"
    place.write_bytes(b"x" * (SUMMARY_BYTES - 50))
    _, lines = github(tmp_path, place).end(loaded(), 75)
    assert lines[0] == "warning: GitHub's step summary is full: nothing was added"
    assert place.stat().st_size == SUMMARY_BYTES - 50


@pytest.mark.parametrize("kind", ["folder", "fifo", "no folder"])
def test_what_cannot_be_written_is_a_note(kind: str, tmp_path: Path) -> None:
    place = tmp_path / "summary"
    if kind == "folder":
        place.mkdir()
    elif kind == "fifo":
        os.mkfifo(place)
    else:
        place = place / "below"
    status, lines = github(tmp_path, place).end(loaded(), 75)
    assert status == 75
    assert lines[0].startswith("warning: GitHub's step summary could not be written: ")


@pytest.mark.parametrize(
    ("names", "line"), [("TestA::test_b[a::b]", 5), ("test_c", 7), ("TestA", 3), ("test_d", None), ("test_c::x", None)]
)
def test_the_line_of_a_test(names: str, line: int | None, tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text(SUITE)
    assert line_of(tmp_path / "test_a.py", names) == line


def test_a_module_that_does_not_parse_has_no_lines(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def (")
    assert (line_of(tmp_path / "a.py", "x"), line_of(tmp_path / "b.py", "x")) == (None, None)
