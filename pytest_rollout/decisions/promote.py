"""Promote B in place of A? A rule that is written down before the figures are seen, on held-out tasks alone.

The difference B − A of mean rewards, over tasks of the split ``held-out``, has a one-sided lower and upper bound by
Student's t over tasks. Promote where the lower bound is above the margin, reject where the upper bound is below it,
else undecided. Of fewer tasks than an exact sign test needs nothing is decided. Infrastructure that B could have
brought about itself must not help it: the answer has to be the same with that counted as 0.

A rare failure that no task has shown yet is in no spread. Where the bounds would rest on its absence (a margin below 0,
or differences without spread), a promotion has to hold with one more task that B fails; and a rejection, with a margin
above 0 or without spread, with one more that B solves.

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
from pytest_rollout.decisions.statistics import (
    Estimate,
    detectable,
    difference,
    estimate,
    student_quantile,
    tasks_needed,
)
from pytest_rollout.outcome import SLACK
from pytest_rollout.store.heldout import HELD_OUT

__all__ = ["Answer", "Promotion", "Rule", "Spread", "promote"]

_LEAST_MEASURED = 0.95
_NAMED = 3
_ROUND: tuple[int, ...] = (
    *range(5, 10),
    *(first * 10**zeros for zeros in range(4) for first in range(10, 100)),
)  # numbers of tasks

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
    values = [difference(_mean(pair.new), _mean(pair.old)) for pair in pairs]
    level = fmean(_mean(pair.old) for pair in pairs)
    estimated, answer, reason = _decide(values, level, rule)
    forged, guarded, hangs = _guarded(pairing.pairs), None, False
    if forged is not None:
        guarded, certain, _ = _decide(forged, level, rule)
        hangs = answer == "promote" != certain
    if hangs:
        answer = "undecided"
        reason = "the answer hangs on infrastructure failures that B could have brought about itself"
    found = Promotion(
        answer=answer,
        reasons=(reason,),
        rule=rule,
        difference=estimated,
        low=estimated.lower(rule.confidence),
        high=estimated.upper(rule.confidence),
        guarded=guarded,
        spread=_spread(pairs, estimated),
    )
    return found if answer != "undecided" or hangs else _what_would_decide(found, pairs, level)


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


def _decide(values: Sequence[float], level: float, rule: Rule) -> tuple[Estimate, Answer, str]:
    """What differences of tasks say, where A's mean reward is ``level``."""
    found = estimate(values, 2 * rule.confidence - 1)
    assert found is not None, "there are tasks"
    low, high = found.lower(rule.confidence), found.upper(rule.confidence)
    if found.count < rule.fewest or low is None or high is None:
        few = f"{found.count} held-out tasks decide nothing at {rule.confidence:.4g}: {rule.fewest} are the fewest"
        return found, "undecided", few
    promotes, rejects = low > rule.margin, high < rule.margin
    more = _one_more(found, level, rule, down=promotes)
    if (promotes or rejects) and more is not None and not _beyond(found, [*values, more], rule, down=promotes):
        what = "fails" if promotes else "solves"
        said = f"the bounds are {low:+.4f} and {high:+.4f}, and one more task that B {what} would change the answer"
        return found, "undecided", said
    if promotes:
        return found, "promote", f"the lower bound {low:+.4f} is above the margin {rule.margin:g}"
    if rejects:
        return found, "reject", f"the upper bound {high:+.4f} is below the margin {rule.margin:g}"
    between = f"the margin {rule.margin:g} lies between the bounds {low:+.4f} and {high:+.4f}"
    return found, "undecided", between


def _one_more(found: Estimate, level: float, rule: Rule, *, down: bool) -> float | None:
    """The difference of a task that B fails (``down``) or solves; None where the answer need not hold with it."""
    if found.error and (rule.margin >= 0 if down else rule.margin <= 0):
        return None
    return -level if down else 1 - level


def _beyond(found: Estimate, values: Sequence[float], rule: Rule, *, down: bool) -> bool:
    """Whether an answer holds with these differences too; what is shown without any margin needs no other proof."""
    again = estimate(values)
    assert again is not None and again.error is not None
    bound = again.lower(rule.confidence) if down else again.upper(rule.confidence)
    assert bound is not None
    if bound > rule.margin if down else bound < rule.margin:
        return True
    plain = found.lower(rule.confidence) if down else found.upper(rule.confidence)
    return bool(found.error) and plain is not None and (plain > 0 if down else plain < 0)


def _guarded(pairs: Sequence[Pair]) -> list[float] | None:
    """The differences with what B could have brought about itself as 0; None where there is no such."""
    if not any(row.reward is None and row.forgeable for pair in pairs for row in pair.new):
        return None
    values = []
    for pair in pairs:
        rewards = [
            0.0 if row.reward is None else row.reward for row in pair.new if row.reward is not None or row.forgeable
        ]
        if rewards and measured(pair.old):
            values.append(difference(fmean(rewards), _mean(pair.old)))
    return values


def _within(rows: Sequence[Row]) -> tuple[float, int] | None:
    rewards = [row.reward for row in rows if row.reward is not None]
    return (variance(rewards), len(rewards)) if len(rewards) > 1 else None


def _spread(pairs: Sequence[Pair], found: Estimate) -> Spread | None:
    """What the variance of the differences consists of; None unless tasks have two samples on both sides."""
    if found.error is None:
        return None
    parts = []
    for pair in pairs:
        old, new = _within(pair.old), _within(pair.new)
        if old is None or new is None:
            return None
        parts.append(old[0] / old[1] + new[0] / new[1])
    whole, within = found.error**2 * found.count, fmean(parts)
    return Spread(within=min(within, whole), between=max(0.0, whole - within))


def _what_would_decide(found: Promotion, pairs: Sequence[Pair], level: float) -> Promotion:
    """With the numbers of tasks, or of samples a task, that would decide at the spread that was seen."""
    estimated, rule = found.difference, found.rule
    assert estimated is not None
    effect = abs(estimated.mean - rule.margin)
    if estimated.error is None or effect <= SLACK:
        return found
    deviation = estimated.error * math.sqrt(estimated.count)
    tasks = tasks_needed(deviation, effect, confidence=rule.confidence, power=rule.power, sides=1)
    more = _one_more(estimated, level, rule, down=estimated.mean > rule.margin)
    if more is not None and tasks is not None:
        tasks = _outweighing(estimated, deviation, more, rule, tasks)
    samples = None
    wide = found.low is not None and found.high is not None and found.low <= rule.margin <= found.high
    if found.spread is not None and estimated.count >= rule.fewest and wide:
        per_sample = fmean(_per_sample(pair) for pair in pairs)
        error = effect / detectable(1.0, confidence=rule.confidence, power=rule.power, sides=1)
        left = error**2 * estimated.count - found.spread.between
        samples = max(1, math.ceil(per_sample / left)) if left > 0 else None
    return msgspec.structs.replace(found, tasks=None if tasks is None else max(tasks, rule.fewest), samples=samples)


def _outweighing(found: Estimate, deviation: float, more: float, rule: Rule, tasks: int) -> int | None:
    """How many tasks of this mean and deviation, ``tasks`` at least, decide with one ``more`` beside them."""
    for count in _ROUND:
        if count >= tasks:
            mean = (count * found.mean + more) / (count + 1)
            squares = (count - 1) * deviation**2 + count / (count + 1) * (found.mean - more) ** 2
            reach = student_quantile(rule.confidence, count) * math.sqrt(squares / count / (count + 1))
            if mean - reach > rule.margin if more < found.mean else mean + reach < rule.margin:
                return count
    return None


def _per_sample(pair: Pair) -> float:
    """The variance of a difference of one sample on either side."""
    return sum(found[0] for rows in (pair.old, pair.new) if (found := _within(rows)) is not None)
