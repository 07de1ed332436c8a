"""The figures of a run as text: what is known, how sure that is, and what was left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_rollout.decisions.figures import Figures, TaskFigures
from pytest_rollout.decisions.statistics import Interval, pass_at_k, pass_hat_k
from pytest_rollout.report.inert import one_line
from pytest_rollout.report.terminal import figure, plural

__all__ = ["figure_lines", "group_table", "task_table"]

_WIDTH = 15
_UNKNOWN = "–"


def figure_lines(name: str, found: Figures) -> list[str]:
    """The figures of a run, or of the part of it that ``name`` says."""
    pairs = [
        ("run", one_line(name)),
        ("rollouts", _counts(found)),
        ("tasks", f"{found.tasks}" + (f", {found.tasks_measured} measured" if _some_lack(found) else "")),
        ("mean reward", f"{figure(found.mean_reward)}{_interval(_within(found.interval))}"),
    ]
    if found.error:
        drawn = f"; by drawing tasks anew: {_ends(found.bootstrap_interval)}" if found.bootstrap_interval else ""
        pairs.append(("", f"standard error {found.error:.4f} over {plural(found.tasks_measured, 'task')}{drawn}"))
    if found.pooled_error is not None and found.most_samples > 1:
        pairs.append(("", f"every sample alike: {figure(found.pooled_mean)}, clustered error {found.pooled_error:.4f}"))
    pairs.append(("success rate", f"{figure(found.success_rate)}{_interval(_within(found.success_interval))}"))
    for each in found.passes:
        known = f"{figure(each.at)}, {figure(each.hat)} over {plural(each.tasks, 'task')} of {found.tasks}"
        nothing = f"none: no task has {plural(each.k, 'measured sample')}"
        pairs.append((f"pass@{each.k}, ^{each.k}", known if each.tasks else nothing))
    pairs += _unmeasured(found)
    pairs += _sure(found)
    return [f"{label:<{_WIDTH - 1}} {text}" for label, text in pairs]


def _counts(found: Figures) -> str:
    apart = [
        (found.infra, "infra"),
        (found.missing, "missing"),
        (found.untrusted, "untrusted (--untrusted counts them)"),
    ]
    more = "".join(f", {number} {what}" for number, what in apart if number)
    cut = " (cut short, skipped, or not over)" if found.missing else ""
    return f"{found.measured} measured of {found.planned} planned{more}{cut}"


def _some_lack(found: Figures) -> bool:
    return found.tasks_measured != found.tasks


def _unmeasured(found: Figures) -> list[tuple[str, str]]:
    if found.measured == found.planned:
        return []
    pairs = []
    if found.infra:
        kinds = ", ".join(f"{number} {kind}" for kind, number in found.kinds.items())
        pairs.append(("infra rate", f"{figure(found.infra_rate)}: {kinds}"))
    if found.forgeable:
        pairs.append(("forgeable as 0", f"{figure(found.forgeable_mean)} with {found.forgeable} forgeable infra as 0"))
    pairs.append(("bounds", f"{figure(found.lowest)} to {figure(found.highest)}, with all that is left out as 0 or 1"))
    return pairs


def _sure(found: Figures) -> list[tuple[str, str]]:
    pairs = []
    if not found.forgeable and found.forgeable_mean != found.mean_reward:
        pairs.append(("forgeable as 0", f"{figure(found.forgeable_mean)} with what came after forgeable infra as 0"))
    if found.detectable is not None:
        how = "" if found.detectable.paired else ", at most: one sample does not show the spread within a task"
        drop = f"a drop of {found.detectable.effect:.4f} (80 % power){how}"
        none = "none: with so few tasks and samples not even a drop from 1 to 0"
        pairs.append(("detectable", drop if found.detectable.effect <= 1 else none))
    if found.one_sample_tasks:
        tasks = plural(found.one_sample_tasks, "task")
        pairs.append(("one sample", f"{tasks}: nothing is known of the spread within"))
    if found.retried is not None:
        several = found.retried
        counts = f"{several.count} after a retry, {several.first_tries} at once"
        difference = several.difference
        if difference is not None:
            where = "within tasks" if several.within else "between rollouts"
            counts += f": {difference.mean:+.4f}{_interval(difference.interval)} {where}"
        pairs.append(("retried", counts))
    return pairs


def _ends(interval: Interval) -> str:
    return f"{interval.low:.4f} to {interval.high:.4f}"


def _interval(interval: Interval | None) -> str:
    return "" if interval is None else f" (95 %: {_ends(interval)})"


def _within(interval: Interval | None) -> Interval | None:
    """An interval of a mean of rewards, as far as such a mean can be there; none without a spread."""
    if interval is None or interval.low == interval.high:
        return None
    return Interval(max(0.0, interval.low), min(1.0, interval.high))


def group_table(groups: Mapping[str, Figures], by: str) -> list[str]:
    """A line for each part of a run."""
    head = [by, "tasks", "measured", "mean", "95 %", "success", "infra"]
    lines = [
        [
            one_line(name),
            f"{found.tasks}",
            f"{found.measured}/{found.planned}",
            figure(found.mean_reward),
            _ends(shown) if (shown := _within(found.interval)) is not None else _UNKNOWN,
            figure(found.success_rate),
            figure(found.infra_rate),
        ]
        for name, found in groups.items()
    ]
    return _table(head, lines)


def task_table(tasks: Sequence[TaskFigures], ks: Sequence[int]) -> list[str]:
    """A line for each task; the interval is Wilson's of its success rate."""
    head = ["task", "measured", "mean", "success", "95 %", *(f"pass@{k} ^{k}" for k in ks)]
    lines = []
    for task in tasks:
        passes = [(pass_at_k(task.measured, task.passed, k), pass_hat_k(task.measured, task.passed, k)) for k in ks]
        lines.append(
            [
                one_line(task.task),
                f"{task.measured}/{task.planned}",
                figure(task.mean),
                figure(task.success),
                _ends(task.interval) if task.interval is not None else _UNKNOWN,
                *(f"{figure(at)} {figure(hat)}" if at is not None else _UNKNOWN for at, hat in passes),
            ]
        )
    return _table(head, lines)


def _table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    """Columns as wide as they must be, the first one last: names are long."""
    rows = [[*line[1:], line[0]] for line in (head, *lines)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head) - 1)]
    return [
        "  ".join([*(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=False)), row[-1]]) for row in rows
    ]
