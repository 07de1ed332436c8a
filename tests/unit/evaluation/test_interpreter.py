"""The Python that evaluates: found by the name that it is shown by; one that does not start is nobody's failure."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_rollout.errors import CandidateError, EvaluatorError
from pytest_rollout.evaluation.interpreter import own_interpreter

if TYPE_CHECKING:
    from tests.unit.evaluation.conftest import Court

HIDDEN = {"test_a.py": "from calc import add\n\ndef test_add():\n    assert add(2, 3) == 5\n"}
RIGHT = "echo 'def add(a, b): return a + b' > calc.py"


@pytest.fixture
def started_as(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Lets this Python have been started by another name."""

    def start(name: str) -> None:
        monkeypatch.setattr(sys, "executable", name)
        own_interpreter.cache_clear()

    yield start
    own_interpreter.cache_clear()


def test_a_python_that_was_started_by_a_way_around(
    any_court: Court, started_as: Callable[[str], None], tmp_path: Path, proxy: tuple[str, ...]
) -> None:
    started_as(f"{tmp_path}/{os.path.relpath(sys.executable, tmp_path)}")
    bundle = any_court.bundle(agent=RIGHT)
    assert bundle.call("calc:add", 2, 3) == 5
    assert bundle.run_tests(HIDDEN, proxy=proxy).passed
    code = "import sys; sys.path.insert(0, '.'); import calc; print(calc.add(2, 3))"
    assert bundle.run([sys.executable, "-c", code]).stdout == "5\n"


def test_a_python_that_does_not_start_is_no_failure_of_the_candidates(
    court: Court, started_as: Callable[[str], None], tmp_path: Path, proxy: tuple[str, ...]
) -> None:
    unseen = tmp_path / "python"
    unseen.symlink_to(sys.executable)
    started_as(str(unseen))
    bundle = court.bundle(agent=RIGHT)
    said = f"the Python of this session, {unseen}, does not start in an evaluation: "
    for judge in (
        lambda: bundle.call("calc:add", 2, 3),
        lambda: bundle.call_many("calc:add", [(2, 3)] * 2),
        lambda: bundle.run_tests(HIDDEN, proxy=proxy),
    ):
        with pytest.raises(EvaluatorError, match=said) as caught:
            judge()
        assert not caught.value.asked


def test_a_candidate_that_gives_no_answer_is_told_from_that(court: Court) -> None:
    bundle = court.bundle(agent="printf 'import os\\nos._exit(127)\\n' > calc.py")
    with pytest.raises(CandidateError, match="gave no result: its process ended before that"):
        bundle.call("calc:add", 2, 3)
    assert bundle.run_tests(HIDDEN).problem.startswith("the process of the hidden tests ended early")
