"""The attempts at one sample: another one after an infrastructure failure, and never after a model's.

What is decided here is decided before any check has run, from :attr:`Attempt.infra` alone. Every attempt has a number,
a folder and a fresh stage of its own; those before the last stay as evidence, with their cause and what they used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import msgspec

from pytest_rollout.attempt import Attempt
from pytest_rollout.errors import InfraError
from pytest_rollout.outcome import Infra
from pytest_rollout.plain import clean_text
from pytest_rollout.store.records import Earlier

__all__ = ["RetryPolicy", "backoff", "joined", "next_number", "persist"]

_FIRST, _LONGEST = 1.0, 60.0  # seconds


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How many retries a rollout has for each kind; ``forgeable``: also of what a candidate can forge."""

    retries: Mapping[str, int]
    forgeable: bool = False

    def allows(self, infra: Infra, spent: int) -> bool:
        """Whether an attempt that ended so is followed by another, after ``spent`` retries for this kind."""
        return (self.forgeable or not infra.forgeable) and spent < self.retries.get(infra.kind, 0)


def backoff(retry: int, jitter: Callable[[], float]) -> float:
    """Seconds before a retry, which count from 1: doubled each time up to a minute, of that a half to the whole.

    ``jitter`` gives a number in [0, 1): rollouts that failed together shall not come back together.
    """
    return float(min(_FIRST * 2 ** (min(retry, 30) - 1), _LONGEST) * (0.5 + jitter() / 2))


def next_number(earlier: Sequence[Earlier]) -> int:
    """The number of the attempt that comes after these."""
    return 1 + max((each.attempt for each in earlier), default=0)


def joined(one: Sequence[Earlier], other: Sequence[Earlier]) -> tuple[Earlier, ...]:
    """The attempts of both, in the order of their numbers; of one that both know what the second says."""
    return tuple(sorted({each.attempt: each for each in (*one, *other)}.values(), key=lambda each: each.attempt))


def persist(
    before: Sequence[Earlier],
    once: Callable[[int], Attempt],
    policy: RetryPolicy,
    *,
    pause: Callable[[int], bool],
    put_away: Callable[[Attempt], Sequence[str]],
    relative: Callable[[Attempt], str],
) -> Attempt:
    """The last attempt, which knows those before it, also those of ``before``.

    ``once`` makes the attempt of that number. ``pause`` waits before a retry (they count from 1), and says whether the
    session ended meanwhile: then there is none. ``put_away`` ends the stage of an attempt that another one follows, and
    gives warnings; ``relative`` gives its folder for the records.

    Raises the InfraError that left no attempt, with ``earlier``.
    """
    earlier, notes = list(before), list[str]()
    spent = Counter[str]()
    while True:
        number = next_number(earlier)
        attempt, error = _made(once, number)
        infra = _infra_of(attempt, error)
        again = infra is not None and policy.allows(infra, spent[infra.kind])
        if infra is None or not again or pause(spent.total() + 1):
            if attempt is None:
                assert error is not None
                error.earlier = tuple(earlier)
                raise error
            attempt.earlier = tuple(earlier)
            attempt.notes += notes
            return attempt
        spent[infra.kind] += 1
        if attempt is not None:
            notes += put_away(attempt)
        record = attempt.record if attempt is not None else None
        earlier.append(
            Earlier(
                attempt=number,
                kind=infra.kind,
                forgeable=infra.forgeable,
                message=infra.message,
                folder=relative(attempt) if attempt is not None else None,
                usage=record.usage if record is not None else None,
            )
        )


def _made(once: Callable[[int], Attempt], number: int) -> tuple[Attempt | None, InfraError | None]:
    try:
        return once(number), None
    except InfraError as error:
        return None, error


def _infra_of(attempt: Attempt | None, error: InfraError | None) -> Infra | None:
    if attempt is not None:
        return attempt.infra
    assert error is not None
    return Infra(kind=error.kind, message=clean_text(str(error)), forgeable=error.forgeable)  # type: ignore[arg-type]
