"""The union of results: of many lines of one rollout, the one that counts.

The rule is an order of the lines themselves, so it does not matter in which order journals and shards are read, nor
whether one is read twice: a measured line counts before an unmeasured one; of measured ones the first attempt, of
unmeasured ones the last; then the earlier line.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

__all__ = ["Line", "counting"]


class Line(Protocol):
    """What the rule looks at."""

    @property
    def reward(self) -> float | None: ...
    @property
    def attempt(self) -> int: ...
    @property
    def time(self) -> str: ...
    @property
    def outcome(self) -> str: ...


L = TypeVar("L", bound=Line)


def counting(first: L, second: L) -> L:
    """The one of two lines of a rollout that counts."""
    return min(first, second, key=_order)


def _order(line: Line) -> tuple[bool, int, str, str, str]:
    unmeasured = line.reward is None
    return unmeasured, -line.attempt if unmeasured else line.attempt, line.time, line.outcome, repr(line.reward)
