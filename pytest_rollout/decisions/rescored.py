"""Old against new: what scoring stored bundles again changed, task by task."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec

from pytest_rollout.store.records import Result, Source

__all__ = ["Rescoring", "TaskRescored", "compare_scores"]

_SAME = 1e-9


class TaskRescored(msgspec.Struct, frozen=True, kw_only=True):
    """One task's rollouts, scored then (``old``) and again (``new``): means over those that were measured, or None.

    ``changed`` counts rollouts whose reward or outcome is another one now. ``old_measured`` and ``new_measured`` are
    the denominators; the revisions are those of the checks.
    """

    task: str
    rollouts: int
    changed: int
    old_mean: float | None
    old_measured: int
    new_mean: float | None
    new_measured: int
    old_revisions: tuple[str, ...]
    new_revisions: tuple[str, ...]

    @property
    def differs(self) -> bool:
        """Whether anything came out otherwise."""
        return self.changed > 0


class Rescoring(msgspec.Struct, frozen=True, kw_only=True):
    """All tasks together, and each of them; ``total`` is called so for its task.

    The means of ``total`` are over tasks, as the mean reward of a run is everywhere.
    """

    total: TaskRescored
    tasks: tuple[TaskRescored, ...]


def compare_scores(results: Iterable[Result]) -> Rescoring | None:
    """What results with a source say against that source; None where there are no such results."""
    pairs: dict[str, list[tuple[Result, Source]]] = {}
    for result in results:
        if result.source is not None:
            pairs.setdefault(result.task, []).append((result, result.source))
    if not pairs:
        return None
    tasks = tuple(_compared(task, found) for task, found in pairs.items())
    total = msgspec.structs.replace(
        _compared("total", [pair for found in pairs.values() for pair in found]),
        old_mean=_mean([task.old_mean for task in tasks if task.old_mean is not None]),
        new_mean=_mean([task.new_mean for task in tasks if task.new_mean is not None]),
    )
    return Rescoring(total=total, tasks=tasks)


def _compared(task: str, pairs: Sequence[tuple[Result, Source]]) -> TaskRescored:
    old = [source.reward for _, source in pairs if source.reward is not None]
    new = [result.reward for result, _ in pairs if result.reward is not None]
    return TaskRescored(
        task=task,
        rollouts=len(pairs),
        changed=sum(_changed(result, source) for result, source in pairs),
        old_mean=_mean(old),
        old_measured=len(old),
        new_mean=_mean(new),
        new_measured=len(new),
        old_revisions=_revisions(source.evaluator_revision for _, source in pairs),
        new_revisions=_revisions(result.evaluator_revision for result, _ in pairs),
    )


def _changed(result: Result, source: Source) -> bool:
    if result.reward is None or source.reward is None:
        return result.reward is not source.reward or result.kind != source.kind
    return abs(result.reward - source.reward) > _SAME or result.outcome != source.outcome


def _mean(rewards: Sequence[float]) -> float | None:
    return math.fsum(rewards) / len(rewards) if rewards else None


def _revisions(found: Iterable[str | None]) -> tuple[str, ...]:
    return tuple(sorted({revision for revision in found if revision is not None}))
