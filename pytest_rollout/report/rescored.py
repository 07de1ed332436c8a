"""Old against new as text: for the closing block, and for the list of runs."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_rollout.decisions.rescored import Rescoring, TaskRescored
from pytest_rollout.report.inert import one_line
from pytest_rollout.report.terminal import figure, plural

__all__ = ["rescored_lines", "short_change"]

_MAX_TASKS = 20
_DIGITS = len("sha256:") + 8


def rescored_lines(run: str, found: Rescoring | None) -> list[str]:
    """The lines: all together, then the tasks that came out otherwise."""
    if found is None:
        return []
    total = found.total
    lines = [f"scored again: {plural(total.rollouts, 'rollout')} of {run}; {_means(total)}; {_count(total)}"]
    differing = [task for task in found.tasks if task.differs]
    lines += [
        one_line(f"  {task.task}: {_means(task)}; {_count(task)}; {_checks(task)}") for task in differing[:_MAX_TASKS]
    ]
    if len(differing) > _MAX_TASKS:
        lines.append(f"  … and {len(differing) - _MAX_TASKS} more tasks")
    return lines


def short_change(found: Rescoring) -> str:
    """``mean reward 0.5 → 0.75, 3 of 4 changed``."""
    return f"{_means(found.total)}, {found.total.changed} of {found.total.rollouts} changed"


def _means(task: TaskRescored) -> str:
    """Both means, with their denominators where those are not all."""
    sides = [(task.old_mean, task.old_measured), (task.new_mean, task.new_measured)]
    words = [f"{figure(mean)} of {number}" if number != task.rollouts else figure(mean) for mean, number in sides]
    return f"mean reward {' → '.join(words)}"


def _count(task: TaskRescored) -> str:
    return f"{task.changed} of {plural(task.rollouts, 'score')} changed"


def _checks(task: TaskRescored) -> str:
    old, new = _named(task.old_revisions), _named(task.new_revisions)
    return f"the same checks, {new}" if old == new else f"checks {old} → {new}"


def _named(revisions: Sequence[str]) -> str:
    return ", ".join(revision[:_DIGITS] for revision in revisions) or "of an unknown revision"
