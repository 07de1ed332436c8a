"""The attempts at one sample: what leads to the next one, what is kept of those before, and how an end is met."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from pytest_rollout.attempt import Attempt
from pytest_rollout.bundle import BundleRecord, Usage
from pytest_rollout.errors import InfraError, ProviderError, StageError
from pytest_rollout.executors.cancel import Cancel
from pytest_rollout.outcome import Infra
from pytest_rollout.store.journal import AttemptJournal
from pytest_rollout.store.records import Earlier
from pytest_rollout.tries import RetryPolicy, backoff, joined, next_number, persist

STAGE = Infra(kind="stage", message="no room")
PROVIDER = Infra(kind="provider", message="429")
POLICY = RetryPolicy(retries={"stage": 1, "provider": 2})


class Made:
    """Attempts that end as they are told: by an Infra, an error, or (None) in evidence."""

    def __init__(self, folder: Path, ends: Sequence[Infra | InfraError | None], record: BundleRecord) -> None:
        self._folder, self._ends, self._record = folder, list(ends), record
        self.numbers: list[int] = []
        self.pauses: list[int] = []
        self.away: list[int] = []
        self.cancelled = False

    def once(self, number: int) -> Attempt:
        self.numbers.append(number)
        end = self._ends.pop(0)
        if isinstance(end, InfraError):
            raise end
        folder = self._folder / f"a{number}"
        folder.mkdir()
        attempt = Attempt(folder, AttemptJournal(folder / "journal.jsonl"))
        attempt.number, attempt.infra = number, end
        attempt.record = self._record if end is None or end.kind == "provider" else None
        return attempt

    def pause(self, retry: int) -> bool:
        self.pauses.append(retry)
        return self.cancelled

    def put_away(self, attempt: Attempt) -> list[str]:
        self.away.append(attempt.number)
        return [f"a{attempt.number} was hard to remove", *attempt.finish(keep=False)]

    def persist(self, policy: RetryPolicy = POLICY, before: Sequence[Earlier] = ()) -> Attempt:
        return persist(
            before,
            self.once,
            policy,
            pause=self.pause,
            put_away=self.put_away,
            relative=lambda attempt: f"rollouts/{attempt.folder.name}",
        )


Make = Callable[..., Made]


@pytest.fixture
def make(tmp_path: Path, make_record: Callable[..., BundleRecord]) -> Make:
    """Attempts with these ends; those with evidence used 2 dollars."""
    return lambda *ends: Made(tmp_path, ends, make_record(usage=Usage(cost=2.0)))


def test_a_measured_attempt_is_the_only_one(make: Make) -> None:
    made = make(None)
    attempt = made.persist()
    assert (attempt.number, attempt.earlier, attempt.notes) == (1, (), [])
    assert (made.numbers, made.pauses, made.away) == ([1], [], [])


def test_attempts_before_the_last_are_kept_with_their_cause_and_cost(make: Make) -> None:
    made = make(STAGE, PROVIDER, PROVIDER, None)
    attempt = made.persist()
    assert (made.numbers, made.pauses, made.away) == ([1, 2, 3, 4], [1, 2, 3], [1, 2, 3])
    assert attempt.number == 4
    assert attempt.earlier == (
        Earlier(attempt=1, kind="stage", message="no room", folder="rollouts/a1"),
        Earlier(attempt=2, kind="provider", message="429", folder="rollouts/a2", usage=Usage(cost=2.0)),
        Earlier(attempt=3, kind="provider", message="429", folder="rollouts/a3", usage=Usage(cost=2.0)),
    )
    assert attempt.notes == [f"a{number} was hard to remove" for number in (1, 2, 3)]
    assert attempt.finish(keep=False) == attempt.notes or attempt.notes == []


@pytest.mark.parametrize(
    ("policy", "ends", "numbers"),
    [
        pytest.param(POLICY, [STAGE, STAGE], [1, 2], id="each kind has its own number"),
        pytest.param(POLICY, [STAGE, PROVIDER, STAGE], [1, 2, 3], id="of all attempts"),
        pytest.param(POLICY, [Infra(kind="spawn", message="no")], [1], id="a kind without one"),
        pytest.param(POLICY, [Infra(kind="stage", message="no", forgeable=True)], [1], id="forgeable"),
        pytest.param(
            RetryPolicy(retries={"agent": 1}, forgeable=True),
            [Infra(kind="agent", message="75", forgeable=True), None],
            [1, 2],
            id="forgeable, asked for",
        ),
    ],
)
def test_what_leads_to_the_next(make: Make, policy: RetryPolicy, ends: list[Infra | None], numbers: list[int]) -> None:
    made = make(*ends)
    attempt = made.persist(policy)
    assert made.numbers == numbers
    assert attempt.infra == ends[-1]
    assert [each.attempt for each in attempt.earlier] == numbers[:-1]
    assert made.away == numbers[:-1], "the stage of the last one is the judge's"


def test_attempts_count_on_from_those_of_another_session(make: Make) -> None:
    before = [Earlier(attempt=2, kind="stage"), Earlier(attempt=1, kind="worker")]
    assert next_number(before) == 3
    made = make(STAGE, None)
    attempt = made.persist(before=before)
    assert made.numbers == [3, 4], "what another session spent is not this one's"
    assert [each.attempt for each in attempt.earlier] == [2, 1, 3]


def test_attempts_that_two_know_of() -> None:
    first, second, third = (Earlier(attempt=number, kind="stage") for number in (1, 2, 3))
    better = Earlier(attempt=2, kind="worker")
    assert joined((third, second, first), (better,)) == (first, better, third)
    assert joined((), ()) == ()


def test_an_attempt_that_left_nothing_is_one_too(make: Make) -> None:
    made = make(StageError("no room"), ProviderError("down"), None)
    attempt = made.persist()
    assert [(e.attempt, e.kind, e.message, e.folder) for e in attempt.earlier] == [
        (1, "stage", "no room", None),
        (2, "provider", "down", None),
    ]
    last = StageError("still none")
    with pytest.raises(StageError) as caught:
        make(StageError("no room"), last).persist()
    assert caught.value is last
    assert [each.message for each in last.earlier] == ["no room"]


def test_a_session_that_ends_makes_no_further_attempt(make: Make) -> None:
    made = make(STAGE, None)
    made.cancelled = True
    attempt = made.persist()
    assert (made.numbers, made.away) == ([1], [])
    assert (attempt.infra, attempt.earlier) == (STAGE, ())
    attempt.journal.event("scored")  # it can still be recorded


def test_the_wait_grows_and_differs() -> None:
    assert [backoff(retry, lambda: 0.0) for retry in (1, 2, 3, 7, 99)] == [0.5, 1.0, 2.0, 30.0, 30.0]
    assert [backoff(retry, lambda: 1.0) for retry in (1, 2, 3, 7, 99)] == [1.0, 2.0, 4.0, 60.0, 60.0]


def test_a_wait_ends_at_once_when_the_session_does() -> None:
    cancel = Cancel()
    assert not cancel.wait(0)
    waiting: list[bool] = []
    thread = threading.Thread(target=lambda: waiting.append(cancel.wait(600)))
    thread.start()
    cancel.set()
    thread.join(20)
    assert waiting == [True]
    assert cancel.wait(600)
    cancel.close()
    assert cancel.wait(600)


def test_what_a_policy_allows() -> None:
    policy = RetryPolicy(retries={"stage": 2})
    stage, forged = (Infra(kind="stage", message="x", forgeable=forgeable) for forgeable in (False, True))
    assert [policy.allows(stage, spent) for spent in range(4)] == [True, True, False, False]
    assert not policy.allows(Infra(kind="agent", message="x"), 0)
    assert not policy.allows(forged, 0)
    assert RetryPolicy(retries={"stage": 2}, forgeable=True).allows(forged, 1)
