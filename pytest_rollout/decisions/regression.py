"""A regression: has the mean reward dropped against another run, task by task.

Tasks are paired by their ids, and only where both sides measured the same thing: the same task, environment and checks.
The difference of a task is of its means; a drop is one that the one-sided 95 % bound of the mean difference shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import msgspec

from pytest_rollout.decisions.pairs import pair
from pytest_rollout.decisions.rows import Row, Rows
from pytest_rollout.decisions.statistics import Estimate, difference, estimate

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
    """The difference of two runs over the tasks that :func:`pair` finds comparable, and that both measured."""
    found = pair(base, new, untrusted=untrusted)
    means = {each.task: (_mean(each.old), _mean(each.new)) for each in found.pairs}
    pairs = {task: (old, now) for task, (old, now) in means.items() if old is not None and now is not None}
    not_old = [task for task, (old, now) in means.items() if old is None and now is not None]
    not_new = [task for task, (old, now) in means.items() if now is None and old is not None]
    estimated = estimate([difference(now, old) for old, now in pairs.values()])
    return Regression(
        base=base.name,
        common=tuple(pairs),
        changed=tuple(each.task for each in found.changed),
        only_new=tuple(sorted([*found.only_new, *not_old])),
        only_base=tuple(sorted([*found.only_old, *not_new])),
        difference=estimated,
        upper=estimated.upper(confidence) if estimated is not None else None,
    )


def _mean(rows: Sequence[Row]) -> float | None:
    rewards = [row.reward for row in rows if row.reward is not None]
    return fmean(rewards) if rewards else None
