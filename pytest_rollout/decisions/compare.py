"""Is B better than A? Differences with intervals over the tasks that both sides measured under the same conditions.

The unit is the task: a figure of a side is the mean of its tasks' means, and a difference is the mean of the
differences of tasks, so sides may have different numbers of samples. The exact test is the sign test of tasks whose
success rate rose or fell, which with one sample a task is McNemar's. Single tasks are tested by Fisher's exact test of
passes and failures, adjusted by Holm for the number of tasks that were looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import isclose
from statistics import fmean
from typing import Literal

import msgspec

from pytest_rollout.decisions.exact import fisher, holm
from pytest_rollout.decisions.pairs import Contrast, NotComparable, Pair, Pairing, Side, measured
from pytest_rollout.decisions.rows import Row
from pytest_rollout.decisions.statistics import (
    Estimate,
    Interval,
    bootstrap,
    detectable_of_tasks,
    difference,
    estimate,
    sign_test,
    tasks_needed,
)
from pytest_rollout.outcome import SLACK

__all__ = ["Comparison", "Failure", "Figure", "Sign", "TaskChange", "compare"]

Unit = Literal["", "s", "bytes", "USD"]


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of both sides over the ``tasks`` for which both know it, and the difference B − A.

    ``old``, ``new`` and ``difference`` are None where there is no such task. ``bootstrap`` is the interval of the
    reward's difference by drawing tasks anew.
    """

    name: str
    unit: Unit = ""
    old: float | None
    new: float | None
    difference: Estimate | None
    bootstrap: Interval | None = None
    tasks: int


class Sign(msgspec.Struct, frozen=True, kw_only=True):
    """How many tasks have a higher, a lower and the same success rate in B, with the two-sided ``p``.

    ``p`` is None where no task changed.
    """

    higher: int
    lower: int
    same: int
    p: float | None


class TaskChange(msgspec.Struct, frozen=True, kw_only=True):
    """One task that was measured on both sides: mean rewards, and of how many samples how many passed, A and B.

    ``p`` is that of Fisher's exact test, ``adjusted`` the same by Holm for all tasks that were compared.
    """

    task: str
    old: float
    new: float
    difference: float
    samples: tuple[int, int]
    passed: tuple[int, int]
    p: float
    adjusted: float


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A rollout that failed, of a task whose success rate changed; ``folder`` is below its run's."""

    task: str
    rollout: str
    reward: float
    termination: str | None
    folder: str | None


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two sides, compared. ``tasks`` are sorted by their difference, the worst first.

    ``gained`` are failures of B in tasks that it passes less often than A, ``mended`` those of A in tasks that B passes
    more often. ``detectable`` is the smallest difference in the reward that so many tasks would show with ``power``
    (None where they have no spread), ``needed`` how many tasks would show the one that was seen. ``unmeasured`` are
    tasks of both sides in which one, or the other, has nothing that was measured.
    """

    old: Side
    new: Side
    contrasts: tuple[Contrast, ...]
    confidence: float
    power: float
    seed: int
    figures: tuple[Figure, ...]
    sign: Sign
    detectable: float | None
    needed: int | None
    tasks: tuple[TaskChange, ...]
    single: int
    by_chance: float
    gained: tuple[Failure, ...]
    mended: tuple[Failure, ...]
    changed: tuple[NotComparable, ...]
    unmeasured: tuple[tuple[str, ...], tuple[str, ...]]
    only_old: tuple[str, ...]
    only_new: tuple[str, ...]

    @property
    def reward(self) -> Figure:
        """The figure of the reward."""
        return self.figures[0]


def compare(pairing: Pairing, *, seed: int = 0, confidence: float = 0.95, power: float = 0.8) -> Comparison:
    """Compare the sides of a pairing."""
    figures = tuple(_figures(pairing.pairs, seed, confidence))
    both = [pair for pair in pairing.pairs if measured(pair.old) and measured(pair.new)]
    tasks = _adjusted([_task(pair) for pair in both])
    rates = [difference(task.passed[1] / task.samples[1], task.passed[0] / task.samples[0]) for task in tasks]
    higher, lower = sum(rate > 0 for rate in rates), sum(rate < 0 for rate in rates)
    gained = {task.task for task, rate in zip(tasks, rates, strict=True) if rate < 0}
    mended = {task.task for task, rate in zip(tasks, rates, strict=True) if rate > 0}
    return Comparison(
        old=pairing.old,
        new=pairing.new,
        contrasts=pairing.contrasts,
        confidence=confidence,
        power=power,
        seed=seed,
        figures=figures,
        sign=Sign(higher=higher, lower=lower, same=len(rates) - higher - lower, p=sign_test(higher, lower)),
        detectable=_detectable(figures[0].difference, confidence, power),
        needed=_needed(figures[0].difference, confidence, power),
        tasks=tuple(sorted(tasks, key=lambda task: (task.difference, task.task))),
        single=sum(task.p <= 1 - confidence for task in tasks),
        by_chance=len(tasks) * (1 - confidence),
        gained=tuple(_failures(row for pair in both if pair.task in gained for row in pair.new)),
        mended=tuple(_failures(row for pair in both if pair.task in mended for row in pair.old)),
        changed=pairing.changed,
        unmeasured=(
            tuple(pair.task for pair in pairing.pairs if not measured(pair.old)),
            tuple(pair.task for pair in pairing.pairs if not measured(pair.new)),
        ),
        only_old=pairing.only_old,
        only_new=pairing.only_new,
    )


def _detectable(found: Estimate | None, confidence: float, power: float) -> float | None:
    if found is None or not found.error:  # no spread is no knowledge of 0
        return None
    return detectable_of_tasks(found.error, found.count, confidence=confidence, power=power, sides=2)


def _needed(found: Estimate | None, confidence: float, power: float) -> int | None:
    if found is None or not found.error or abs(found.mean) <= SLACK:
        return None
    return tasks_needed(found.error * found.count**0.5, abs(found.mean), confidence=confidence, power=power)


Value = Callable[[Sequence[Row], int], float | None]


def _mean_of(of: Callable[[Row], float | None]) -> Value:
    """The mean over the measured rows of a task that know a value."""

    def mean(rows: Sequence[Row], _: int) -> float | None:
        values = [value for row in rows if row.reward is not None and (value := of(row)) is not None]
        return fmean(values) if values else None

    return mean


def _used(name: str) -> Value:
    return _mean_of(lambda row: None if row.usage is None else getattr(row.usage, name))


def _infra(rows: Sequence[Row], missing: int) -> float | None:
    """The share of a task's rollouts that was not measured."""
    number = len(rows) + missing
    return (sum(row.reward is None for row in rows) + missing) / number if number else None


_FIGURES: tuple[tuple[str, Unit, Value], ...] = (
    ("reward", "", _mean_of(lambda row: row.reward)),
    ("success", "", _mean_of(lambda row: float(row.outcome == "passed"))),
    ("unmeasured", "", _infra),
    ("invalid_actions", "", _used("invalid_actions")),
    ("steps", "", _used("steps")),
    ("wall", "s", _used("wall")),
    ("cpu", "s", _used("cpu")),
    ("peak_memory", "bytes", _used("peak_memory")),
    ("tokens", "", _used("tokens")),
    ("cost", "USD", _used("cost")),
)


_SHARES = ("reward", "success", "unmeasured")
_SIX = 1e-5


def _figures(pairs: Sequence[Pair], seed: int, confidence: float) -> list[Figure]:
    found = []
    for name, unit, value in _FIGURES:
        sides = [(value(pair.old, pair.missing[0]), value(pair.new, pair.missing[1])) for pair in pairs]
        known = [(old, new) for old, new in sides if old is not None and new is not None]
        used = name not in _SHARES  # a baseline file has six digits of it
        differences = [0.0 if used and isclose(new, old, rel_tol=_SIX) else difference(new, old) for old, new in known]
        found.append(
            Figure(
                name=name,
                unit=unit,
                old=fmean(old for old, _ in known) if known else None,
                new=fmean(new for _, new in known) if known else None,
                difference=estimate(differences, confidence),
                bootstrap=bootstrap(differences, seed, confidence=confidence) if name == "reward" else None,
                tasks=len(known),
            )
        )
    return found


def _task(pair: Pair) -> TaskChange:
    sides = [measured(pair.old), measured(pair.new)]
    old, new = (fmean(row.reward for row in rows if row.reward is not None) for rows in sides)
    samples = (len(sides[0]), len(sides[1]))
    passed = (sum(row.outcome == "passed" for row in sides[0]), sum(row.outcome == "passed" for row in sides[1]))
    p = fisher(passed[0], samples[0], passed[1], samples[1])
    return TaskChange(
        task=pair.task,
        old=old,
        new=new,
        difference=difference(new, old),
        samples=samples,
        passed=passed,
        p=p,
        adjusted=p,
    )


def _adjusted(tasks: Sequence[TaskChange]) -> list[TaskChange]:
    adjusted = holm([task.p for task in tasks])
    return [msgspec.structs.replace(task, adjusted=p) for task, p in zip(tasks, adjusted, strict=True)]


def _failures(rows: Iterable[Row]) -> Iterator[Failure]:
    for row in rows:
        if row.reward is not None and row.outcome != "passed":
            yield Failure(
                task=row.task, rollout=row.rollout, reward=row.reward, termination=row.termination, folder=row.folder
            )
