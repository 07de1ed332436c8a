"""A regression: has the mean reward dropped against another run, task by task.

Tasks are paired by their ids, and only where both sides measured the same thing: the same task, environment and checks.
The difference of a task is of its means; a drop is one that the one-sided 95 % bound of the mean difference shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import msgspec

from pytest_rollout.decisions.figures import counted
from pytest_rollout.decisions.rows import Row, Rows, by_task
from pytest_rollout.decisions.statistics import Estimate, estimate

__all__ = ["Regression", "regression"]


class Regression(msgspec.Struct, frozen=True, kw_only=True):
    """``new`` less ``base`` over the ``common`` tasks.

    ``changed`` are tasks that are in both and not comparable: their task, environment or checks differ, or are unknown.
    ``only_new`` and ``only_base`` are tasks that only one side measured. ``upper`` is the upper one-sided bound of the
    difference; None where fewer than two tasks are common.
    """

    base: str
    common: tuple[str, ...]
    changed: tuple[str, ...]
    only_new: tuple[str, ...]
    only_base: tuple[str, ...]
    difference: Estimate | None
    upper: float | None


def regression(new: Rows, base: Rows, *, untrusted: bool = False, confidence: float = 0.95) -> Regression:
    """The difference of two runs; what does not count is left out on both sides."""
    sides = [
        {
            task: found
            for task, rows in by_task(side.rows).items()
            if (found := [row for row in rows if counted(row, untrusted=untrusted)])
        }
        for side in (new, base)
    ]
    first, second = sides
    both = sorted(first.keys() & second.keys())
    common = [task for task in both if _same(first[task], second[task])]
    difference = estimate([_mean(first[task]) - _mean(second[task]) for task in common])
    return Regression(
        base=base.name,
        common=tuple(common),
        changed=tuple(sorted(set(both) - set(common))),
        only_new=tuple(sorted(first.keys() - second.keys())),
        only_base=tuple(sorted(second.keys() - first.keys())),
        difference=difference,
        upper=difference.upper(confidence) if difference is not None else None,
    )


def _mean(rows: Sequence[Row]) -> float:
    return fmean(row.reward for row in rows if row.reward is not None)


def _same(first: Sequence[Row], second: Sequence[Row]) -> bool:
    """Whether every row of both was measured on one environment by one evaluator, all known.

    A row of which nothing is known has no evidence: it is infra that is looked at as a failure.
    """
    found = {_revisions(row) for row in (*first, *second)} - {(None, None, None)}
    return len(found) == 1 and None not in found.pop()


def _revisions(row: Row) -> tuple[str | None, str | None, str | None]:
    pins = row.pins
    digest, environment = (pins.task_digest, pins.environment_revision) if pins is not None else (None, None)
    return digest, environment, row.evaluator_revision
