"""The climb: the best rung that holds, and the reasons against the better ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_rollout.errors import HostError, InfraError, IsolationError, StageError
from pytest_rollout.executors.ladder import ISOLATED, NONE, Climb, Rejected, climb, make, none_holds
from pytest_rollout.executors.local import LocalExecutor
from pytest_rollout.executors.protocol import Executor
from pytest_rollout.stage.root import StageRoot

REFUSED = IsolationError("namespaces are refused", hint="allow them")
NO_MOUNT = StageError("the stage can't be mounted")


def where(problems: dict[int, InfraError]) -> tuple[list[int], Callable[[StageRoot, int], Executor]]:
    """A machine on which some rungs have problems; the list is of those that were tried."""
    tried: list[int] = []

    def attempt(root: StageRoot, rung: int) -> Executor:
        tried.append(rung)
        if rung in problems:
            raise problems[rung]
        return make(root, NONE)

    return tried, attempt


def test_the_first_that_holds_is_taken_and_the_others_are_not_tried(stage_root: StageRoot) -> None:
    tried, attempt = where({1: REFUSED, 2: NO_MOUNT})
    executor, climbed = climb(stage_root, (*ISOLATED, NONE), attempt)
    assert isinstance(executor, LocalExecutor)
    assert tried == [1, 2, 3]
    assert climbed == Climb(
        rung=3,
        rejected=(
            Rejected(rung=1, kind="isolation", message="namespaces are refused", hint="allow them"),
            Rejected(rung=2, kind="stage", message="the stage can't be mounted"),
        ),
    )


def test_none_that_holds(stage_root: StageRoot) -> None:
    tried, attempt = where(dict.fromkeys(ISOLATED, REFUSED) | {2: NO_MOUNT})
    executor, climbed = climb(stage_root, ISOLATED, attempt)
    assert (executor, climbed.rung, tried) == (None, None, list(ISOLATED))
    error = none_holds(climbed.rejected)
    assert error.message == "namespaces are refused"
    assert error.hint == "Rung 2: the stage can't be mounted\nallow them"


def test_a_machine_without_room_ends_the_climb(stage_root: StageRoot) -> None:
    tried, attempt = where({1: REFUSED, 2: HostError("no process could be started")})
    with pytest.raises(HostError, match="no process could be started"):
        climb(stage_root, ISOLATED, attempt)
    assert tried == [1, 2]


def test_here_the_best_one_holds(stage_root: StageRoot) -> None:
    executor, climbed = climb(stage_root, ISOLATED)
    assert executor is not None
    assert (executor.info.rung, climbed) == (1, Climb(rung=1))
