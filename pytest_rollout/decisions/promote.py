"""Promote B in place of A? A rule that is written down before the figures are seen, on held-out tasks alone.

The difference B − A of mean rewards, over tasks of the split ``held-out``, has a one-sided lower and upper bound by
Student's t over tasks. Promote where the lower bound is above the margin, reject where the upper bound is below it,
else undecided. Of fewer tasks than an exact sign test needs nothing is decided. Infrastructure that B could have
brought about itself must not help it: the answer has to be the same with that counted as 0.

No answer is given where the evidence doesn't allow one: other revisions, other tasks, too little measured, untrusted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, variance
from typing import Literal

import msgspec

from pytest_rollout.decisions.pairs import Pair, Pairing, measured
from pytest_rollout.decisions.rows import Row
from pytest_rollout.decisions.statistics import Estimate, detectable, estimate, tasks_needed
from pytest_rollout.store.heldout import HELD_OUT

__all__ = ["Answer", "Promotion", "Rule", "Spread", "promote"]

_LEAST_MEASURED = 0.95
_NAMED = 3

Answer = Literal["promote", "reject", "undecided", "refused"]


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """The rule's numbers: B − A has to be above ``margin`` with one-sided ``confidence``.

    A margin below 0 asks only that B is not worse by more. ``power`` is that of the numbers that would decide.
    """

    margin: float = 0.0
    confidence: float = 0.95
    power: float = 0.8

    @property
    def fewest(self) -> int:
        """How many tasks an exact sign test needs at least, were they all to agree."""
        return math.ceil(math.log(1 - self.confidence) / math.log(0.5))


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """The variance of a task's difference: what samples of a task differ by, and what tasks differ by beyond that.

    ``within`` shrinks with the number of samples, ``between`` only counts for less with more tasks.
    """

    within: float
    between: float


class Promotion(msgspec.Struct, frozen=True, kw_only=True):
    """The answer, why, and what it rests on.

    ``guarded`` is the difference with forgeable infra of B as 0, None where there is none. ``tasks`` is about how many
    tasks would decide at the spread that was seen, with as many samples as now; ``samples`` how many samples a task
    would with these tasks, None where no number would, or where that is not known.
    """

    answer: Answer
    reasons: tuple[str, ...]
    rule: Rule
    difference: Estimate | None = None
    low: float | None = None
    high: float | None = None
    guarded: Estimate | None = None
    spread: Spread | None = None
    tasks: int | None = None
    samples: int | None = None


def promote(pairing: Pairing, rule: Rule) -> Promotion:
    """Apply the rule to a pairing of the held-out split, untrusted results included so that they are seen."""
    refused = _refusals(pairing)
    if refused:
        return Promotion(answer="refused", reasons=tuple(refused), rule=rule)
    pairs = [pair for pair in pairing.pairs if measured(pair.old) and measured(pair.new)]
    difference = estimate([_mean(pair.new) - _mean(pair.old) for pair in pairs], 2 * rule.confidence - 1)
    assert difference is not None, "there are tasks"
    answer, reason = _decide(difference, rule)
    guarded = _guarded(pairing.pairs, rule)
    if guarded is not None and answer == "promote" and _decide(guarded, rule)[0] != "promote":
        answer = "undecided"
        reason = "the answer hangs on infrastructure failures that B could have brought about itself"
    found = Promotion(
        answer=answer,
        reasons=(reason,),
        rule=rule,
        difference=difference,
        low=difference.lower(rule.confidence),
        high=difference.upper(rule.confidence),
        guarded=guarded,
        spread=_spread(pairs, difference),
    )
    return _what_would_decide(found, pairs) if answer == "undecided" else found


def _refusals(pairing: Pairing) -> list[str]:
    """Why the evidence allows no answer."""
    if not pairing.pairs and not pairing.changed:
        return [f'there is no task with split="{HELD_OUT}" in both sides']
    found = []
    if pairing.changed:
        names = _named([f"{each.task}: {each.why}" for each in pairing.changed])
        found.append(f"tasks are not the same on both sides: {names}")
    only = [(name, tasks) for name, tasks in (("A", pairing.only_old), ("B", pairing.only_new)) if tasks]
    found += [f"tasks that only {name} has: {_named(tasks)}" for name, tasks in only]
    moved = [pair.task for pair in pairing.pairs if any(row.split != HELD_OUT for row in (*pair.old, *pair.new))]
    if moved:
        found.append(f"tasks that are held out on one side only: {_named(moved)}")
    for letter, side in (("A", pairing.old), ("B", pairing.new)):
        if side.share is None or side.share < _LEAST_MEASURED:
            found.append(
                f"{letter} measured {side.measured} of {side.rollouts} rollouts, and {_LEAST_MEASURED:.0%} is the least"
            )
        if side.untrusted:
            found.append(f"{letter} has {side.untrusted} untrusted rollouts: their agents were not isolated as asked")
    if pairing.old.name == pairing.new.name:
        found.append("A and B are the same run")
    return found


def _named(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _mean(rows: Sequence[Row]) -> float:
    return fmean(row.reward for row in rows if row.reward is not None)


def _decide(difference: Estimate, rule: Rule) -> tuple[Answer, str]:
    low, high = difference.lower(rule.confidence), difference.upper(rule.confidence)
    if difference.count < rule.fewest or low is None or high is None:
        return "undecided", (
            f"{difference.count} held-out tasks decide nothing at {rule.confidence:.4g}: {rule.fewest} are the fewest"
        )
    if low > rule.margin:
        return "promote", f"the lower bound {low:+.4f} is above the margin {rule.margin:g}"
    if high < rule.margin:
        return "reject", f"the upper bound {high:+.4f} is below the margin {rule.margin:g}"
    return "undecided", f"the margin {rule.margin:g} lies between the bounds {low:+.4f} and {high:+.4f}"


def _guarded(pairs: Sequence[Pair], rule: Rule) -> Estimate | None:
    """The difference with what B could have brought about itself as 0; None where there is no such."""
    if not any(row.reward is None and row.forgeable for pair in pairs for row in pair.new):
        return None
    values = []
    for pair in pairs:
        rewards = [
            0.0 if row.reward is None else row.reward for row in pair.new if row.reward is not None or row.forgeable
        ]
        if rewards and measured(pair.old):
            values.append(fmean(rewards) - _mean(pair.old))
    return estimate(values, 2 * rule.confidence - 1)


def _within(rows: Sequence[Row]) -> tuple[float, int] | None:
    rewards = [row.reward for row in rows if row.reward is not None]
    return (variance(rewards), len(rewards)) if len(rewards) > 1 else None


def _spread(pairs: Sequence[Pair], difference: Estimate) -> Spread | None:
    """What the variance of the differences consists of; None unless tasks have two samples on both sides."""
    if difference.error is None:
        return None
    parts = []
    for pair in pairs:
        old, new = _within(pair.old), _within(pair.new)
        if old is None or new is None:
            return None
        parts.append(old[0] / old[1] + new[0] / new[1])
    whole, within = difference.error**2 * difference.count, fmean(parts)
    return Spread(within=min(within, whole), between=max(0.0, whole - within))


def _what_would_decide(found: Promotion, pairs: Sequence[Pair]) -> Promotion:
    """With the numbers of tasks, or of samples a task, that would decide at the spread that was seen."""
    difference, rule = found.difference, found.rule
    assert difference is not None
    effect = abs(difference.mean - rule.margin)
    if difference.error is None or effect == 0:
        return found
    deviation = difference.error * math.sqrt(difference.count)
    tasks = tasks_needed(deviation, effect, confidence=rule.confidence, power=rule.power, sides=1)
    samples = None
    if found.spread is not None and difference.count >= rule.fewest:
        per_sample = fmean(_per_sample(pair) for pair in pairs)
        error = effect / detectable(1.0, confidence=rule.confidence, power=rule.power, sides=1)
        left = error**2 * difference.count - found.spread.between
        samples = max(1, math.ceil(per_sample / left)) if left > 0 else None
    return msgspec.structs.replace(found, tasks=None if tasks is None else max(tasks, rule.fewest), samples=samples)


def _per_sample(pair: Pair) -> float:
    """The variance of a difference of one sample on either side."""
    return sum(found[0] for rows in (pair.old, pair.new) if (found := _within(rows)) is not None)
