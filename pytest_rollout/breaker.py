"""End a run that does not measure: so many rollouts in a row with the same infrastructure failure.

A night of them costs as much as a night of results. Two failures are the same where their kind and the first line of
their message are, apart from numbers, ids and the names of the tests.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["Breaker", "same_cause"]

_VARIES = re.compile(r"(?<![a-z])(?=[0-9a-f]*\d)[0-9a-f]{6,}|\d+", re.IGNORECASE)
_SHOWN = 300  # characters


def same_cause(kind: str, message: str, names: Iterable[str] = ()) -> str:
    """What is equal for equal causes; ``names`` are left out, the longest first."""
    line = message.split("\n")[0]
    for name in sorted(filter(None, names), key=len, reverse=True):
        line = line.replace(name, "…")
    return f"{kind}: {_VARIES.sub('#', line)}"


class Breaker:
    """Counts causes; with a limit of 0 it never ends a run."""

    def __init__(self, limit: int) -> None:
        self._limit, self._cause, self._count = limit, "", 0

    def note(self, kind: str | None, message: str, names: Iterable[str] = ()) -> str:
        """Count a rollout; ``kind`` is None where it was measured. Gives why the run ends, or nothing."""
        if kind == "cancelled":  # the session ends by itself
            return ""
        cause = "" if kind is None else same_cause(kind, message, names)
        self._count = self._count + 1 if cause and cause == self._cause else int(bool(cause))
        self._cause = cause
        if not self._limit or self._count < self._limit:
            return ""
        line = message.split("\n")[0][:_SHOWN]
        return (
            f"{self._count} rollouts in a row ended by the same failure of infrastructure, {kind}: {line} "
            "(--rollout-max-infra)"
        )
