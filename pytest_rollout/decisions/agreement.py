"""How far people's scores agree with the computed ones.

``mean absolute difference`` is over rewards. Cohen's kappa is over pass and fail at the task's threshold:
(p_o - p_e) / (1 - p_e), where p_o is the share of equal verdicts and p_e the one that chance would give both raters
(J. Cohen, "A coefficient of agreement for nominal scales", 1960). It is None where chance explains everything, as
where both say the same of every rollout and never anything else.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec

from pytest_rollout.outcome import SLACK

__all__ = ["Agreement", "Pair", "agreement", "agreements", "kappa"]


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """A rollout's computed reward beside a person's; ``threshold`` is what a pass is."""

    by: str
    computed: float
    human: float
    threshold: float = 1.0

    @property
    def verdicts(self) -> tuple[bool, bool]:
        """Whether it passes, computed and for the person."""
        return self.computed >= self.threshold - SLACK, self.human >= self.threshold - SLACK


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """Of ``labels`` pairs: the mean absolute difference, how many verdicts are equal, and Cohen's kappa of those."""

    by: str | None
    labels: int
    mean_absolute_difference: float | None
    equal_verdicts: int
    kappa: float | None


def agreements(pairs: Sequence[Pair]) -> list[Agreement]:
    """Each person's by name; then, where they are several, all together (``by`` is None)."""
    people = sorted({pair.by for pair in pairs})
    found = [agreement([pair for pair in pairs if pair.by == name], name) for name in people]
    return [*found, agreement(pairs, None)] if len(people) != 1 else found


def agreement(pairs: Sequence[Pair], by: str | None) -> Agreement:
    """What these pairs come to."""
    verdicts = [pair.verdicts for pair in pairs]
    differences = [abs(pair.computed - pair.human) for pair in pairs]
    return Agreement(
        by=by,
        labels=len(pairs),
        mean_absolute_difference=math.fsum(differences) / len(pairs) if pairs else None,
        equal_verdicts=sum(first == second for first, second in verdicts),
        kappa=kappa(verdicts),
    )


def kappa(verdicts: Iterable[tuple[bool, bool]]) -> float | None:
    """Cohen's kappa of two raters; None where there is nothing, or where chance explains all."""
    pairs = list(verdicts)
    n = len(pairs)
    if not n:
        return None
    equal = sum(first == second for first, second in pairs)
    first, second = (sum(pair[rater] for pair in pairs) for rater in (0, 1))
    by_chance = first * second + (n - first) * (n - second)  # of n * n
    return None if by_chance == n * n else (equal * n - by_chance) / (n * n - by_chance)
