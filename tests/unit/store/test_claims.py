"""Who begins a rollout: one worker of a session, and another one where the controller gave it back."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_rollout.bundle import Usage
from pytest_rollout.store.claims import Claims
from pytest_rollout.store.folder import RunFolder
from pytest_rollout.store.records import Earlier

TASK = "test_x.py::test_x"
LOST = (Earlier(attempt=1, kind="worker", message="it died", usage=Usage(cost=1.5)),)


class Clock:
    """Time that passes when somebody sleeps; ``then`` happens in the first sleep."""

    def __init__(self) -> None:
        self.now = 0.0
        self.then: list[object] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.then:
            self.then.pop()()  # type: ignore[operator]


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path)


def claims(run: RunFolder, session: str = "one", clock: Clock | None = None) -> Claims:
    clock = clock or Clock()
    return Claims(run, session, sleep=clock.sleep, clock=clock)


def test_the_first_one_begins_it(run: RunFolder) -> None:
    assert claims(run).take(TASK, 0) == ()
    assert claims(run).take(TASK, 1) == ()
    clock = Clock()
    assert claims(run, clock=clock).take(TASK, 0) is None
    assert clock.now >= 30, "the controller may be slower"
    assert claims(run, "another session").take(TASK, 0) == ()


def test_what_was_given_back_is_begun_once_more(run: RunFolder) -> None:
    assert claims(run).take(TASK, 0) == ()
    assert claims(run).give_back(TASK, 0, LOST)
    assert claims(run).take(TASK, 0) == LOST
    assert claims(run).take(TASK, 0) is None
    twice = (*LOST, Earlier(attempt=2, kind="worker"))
    assert claims(run).give_back(TASK, 0, twice)
    assert claims(run).take(TASK, 0) == twice


def test_a_worker_that_died_before_it_claimed(run: RunFolder) -> None:
    assert claims(run).give_back(TASK, 0, LOST)
    assert claims(run).take(TASK, 0) == LOST
    claims(run).close(TASK, 1)
    assert claims(run).take(TASK, 1) is None


@pytest.mark.parametrize("again", [True, False])
def test_a_worker_that_is_faster_than_the_controller_waits(run: RunFolder, *, again: bool) -> None:
    assert claims(run).take(TASK, 0) == ()
    clock, controller = Clock(), claims(run)
    clock.then = [lambda: controller.give_back(TASK, 0, LOST) if again else controller.close(TASK, 0)]
    assert claims(run, clock=clock).take(TASK, 0) == (LOST if again else None)
    assert clock.now < 1


def test_what_is_over_is_not_begun(run: RunFolder) -> None:
    assert claims(run).take(TASK, 0) == ()
    claims(run).close(TASK, 0)
    claims(run).close(TASK, 0)
    clock = Clock()
    assert claims(run, clock=clock).take(TASK, 0) is None
    assert clock.now == 0


def test_where_no_claim_can_be_made(tmp_path: Path) -> None:
    gone = claims(RunFolder(tmp_path / "gone"))
    assert gone.take(TASK, 0) == ()
    assert not (tmp_path / "gone").exists()
    (tmp_path / "claims").write_text("a file")
    assert claims(RunFolder(tmp_path)).take(TASK, 0) == ()
    assert not claims(RunFolder(tmp_path)).give_back(TASK, 0, LOST)
    claims(RunFolder(tmp_path)).close(TASK, 0)
