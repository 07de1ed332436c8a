"""The figures of a run: what its rows say of the agent, how sure that is, and what was not measured.

A figure of a suite is the mean over tasks of what each task says, so a task weighs the same however many of its samples
were measured. What was not measured (infra, and samples that are missing because the run was cut short) is never 0: it
is left out, counted, and shown as what the mean would be with all of it as 0, and as 1. A result without isolation is
counted apart, as ``untrusted``, unless it is asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean

import msgspec

from pytest_rollout.decisions.rows import Row, Rows, by_task
from pytest_rollout.decisions.statistics import (
    Estimate,
    Interval,
    bootstrap,
    clustered_error,
    detectable_of_tasks,
    estimate,
    pass_at_k,
    pass_hat_k,
    welch,
    wilson,
)

__all__ = [
    "Detectable",
    "Figures",
    "PassK",
    "Retried",
    "TaskFigures",
    "counted",
    "figures_of",
    "forged",
    "task_figures",
]


class PassK(msgspec.Struct, frozen=True, kw_only=True):
    """pass@k and pass^k: the mean over the ``tasks`` with k measured samples or more; None where there are none."""

    k: int
    at: float | None
    hat: float | None
    tasks: int


class Retried(msgspec.Struct, frozen=True, kw_only=True):
    """Rollouts that infrastructure failed first, beside those that were measured at once: they should not differ.

    ``difference`` is of mean rewards, retried less first try: ``within`` the tasks that have both, or else, where fewer
    than two have, between the rollouts. None where one kind is missing.
    """

    count: int
    first_tries: int
    difference: Estimate | None
    within: bool


class Detectable(msgspec.Struct, frozen=True, kw_only=True):
    """The drop of the mean reward that a regression gate finds in 80 of 100 later runs of this size.

    It assumes the same tasks and samples on both sides, and that every task drops by the same. ``paired`` says that the
    spread within tasks is known. Where it is not, because too many tasks have one sample, the spread between tasks is
    taken for it: too large, so that less may be found too.
    """

    effect: float
    paired: bool


class TaskFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One task. ``rewards`` are those that count; ``deviation`` is of one sample, None for fewer than two."""

    task: str
    planned: int
    rewards: tuple[float, ...]
    passed: int
    infra: int
    missing: int
    untrusted: int
    forgeable: int
    mean: float | None
    success: float | None
    interval: Interval | None
    deviation: float | None
    tags: tuple[str, ...] = ()
    split: str | None = None

    @property
    def measured(self) -> int:
        """How many samples count."""
        return len(self.rewards)


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """A run, or a part of it. Every mean is of the means of ``tasks_measured`` tasks; None where nothing is known.

    ``planned`` = ``measured`` + ``infra`` + ``missing`` + ``untrusted``. ``error`` is the standard error of the mean of
    task means, ``interval`` Student's of it and ``bootstrap_interval`` that of drawing tasks anew (95 %).
    ``pooled_mean`` weighs every sample the same, ``pooled_error`` is Miller's clustered error of it.
    ``one_sample_tasks`` counts tasks of whose spread nothing is known. ``infra_rate`` is of what has a result.
    ``lowest`` and ``highest`` are the mean with all that does not count as 0, and as 1.
    """

    tasks: int
    tasks_measured: int
    planned: int
    measured: int
    passed: int
    infra: int
    missing: int
    untrusted: int
    kinds: dict[str, int]
    forgeable: int
    measured_share: float | None
    infra_rate: float | None
    mean_reward: float | None
    error: float | None
    interval: Interval | None
    bootstrap_interval: Interval | None
    pooled_mean: float | None
    pooled_error: float | None
    forgeable_mean: float | None
    lowest: float | None
    highest: float | None
    success_rate: float | None
    success_interval: Interval | None
    passes: tuple[PassK, ...]
    one_sample_tasks: int
    most_samples: int
    detectable: Detectable | None
    retried: Retried | None


def counted(row: Row, *, untrusted: bool = False) -> bool:
    """Whether a row's reward counts: it has one, and the agent was isolated as its task asks (or that is no matter)."""
    return row.reward is not None and (untrusted or row.trusted is not False)


def forged(rows: Rows) -> Rows:
    """The rows with every forgeable infra as a failure of reward 0."""
    changed = tuple(
        msgspec.structs.replace(row, reward=0.0, outcome="failed", kind=None)
        if row.reward is None and row.forgeable
        else row
        for row in rows.rows
    )
    return msgspec.structs.replace(rows, rows=changed)


def task_figures(rows: Rows, *, untrusted: bool = False) -> list[TaskFigures]:
    """The tasks of a run by name, also those of which nothing came."""
    found = by_task(rows.rows)
    return [
        _task(task, found.get(task, []), rows.missing.get(task, 0), untrusted)
        for task in sorted({*found, *(task for task, number in rows.missing.items() if number)})
    ]


def _task(task: str, rows: Sequence[Row], missing: int, untrusted: bool) -> TaskFigures:
    counting = [row for row in rows if counted(row, untrusted=untrusted)]
    rewards = tuple(row.reward for row in counting if row.reward is not None)
    passed = sum(row.outcome == "passed" for row in counting)
    spread = estimate(rewards)
    infra = [row for row in rows if row.reward is None]
    return TaskFigures(
        task=task,
        planned=len(rows) + missing,
        rewards=rewards,
        passed=passed,
        infra=len(infra),
        missing=missing,
        untrusted=len(rows) - len(infra) - len(rewards),
        forgeable=sum(row.forgeable for row in infra),
        mean=spread.mean if spread is not None else None,
        success=passed / len(rewards) if rewards else None,
        interval=wilson(passed, len(rewards)),
        deviation=spread.error * len(rewards) ** 0.5 if spread is not None and spread.error is not None else None,
        tags=rows[0].tags if rows else (),
        split=rows[0].split if rows else None,
    )


def figures_of(rows: Rows, *, ks: Sequence[int] = (), untrusted: bool = False, seed: int | None = 0) -> Figures:
    """The figures of these rows, with pass@k for each of ``ks`` (at least 1); without bootstrap if ``seed`` is None."""
    tasks = task_figures(rows, untrusted=untrusted)
    known = [task for task in tasks if task.measured]
    infra = [row for row in rows.rows if row.reward is None]
    means = [fmean(task.rewards) for task in known]
    reward, success = estimate(means), estimate([task.passed / task.measured for task in known])
    groups = [task.rewards for task in known]
    planned, measured = sum(task.planned for task in tasks), sum(task.measured for task in tasks)
    return Figures(
        tasks=len(tasks),
        tasks_measured=len(known),
        planned=planned,
        measured=measured,
        passed=sum(task.passed for task in tasks),
        infra=len(infra),
        missing=sum(task.missing for task in tasks),
        untrusted=sum(task.untrusted for task in tasks),
        kinds=dict(sorted(Counter(row.kind or "unknown" for row in infra).items())),
        forgeable=sum(task.forgeable for task in tasks),
        measured_share=measured / planned if planned else None,
        infra_rate=len(infra) / len(rows.rows) if rows.rows else None,
        mean_reward=reward.mean if reward is not None else None,
        error=reward.error if reward is not None else None,
        interval=reward.interval if reward is not None else None,
        bootstrap_interval=bootstrap(means, seed) if seed is not None else None,
        pooled_mean=fmean(value for group in groups for value in group) if groups else None,
        pooled_error=clustered_error(groups),
        forgeable_mean=_forgeable_mean(rows, untrusted),
        lowest=_mean_with(tasks, 0.0, lambda task: task.planned - task.measured),
        highest=_mean_with(tasks, 1.0, lambda task: task.planned - task.measured),
        success_rate=success.mean if success is not None else None,
        success_interval=success.interval if success is not None else None,
        passes=tuple(_pass_k(known, k) for k in ks),
        one_sample_tasks=sum(task.measured == 1 for task in known),
        most_samples=max((task.measured for task in known), default=0),
        detectable=_detectable(known, reward),
        retried=_retried(rows.rows, untrusted),
    )


def _mean_with(tasks: Sequence[TaskFigures], value: float, number: Callable[[TaskFigures], int]) -> float | None:
    """The mean where so many of what did not count in each task had this reward."""
    sizes = [(task, number(task)) for task in tasks]
    means = [fmean((*task.rewards, *(value for _ in range(more)))) for task, more in sizes if task.measured + more]
    return fmean(means) if means else None


def _forgeable_mean(rows: Rows, untrusted: bool) -> float | None:
    """The mean with all as 0 that the candidate may have brought about: infra, and what was measured after such."""
    means = []
    for found in by_task(rows.rows).values():
        rewards = [0.0 if row.doubtful else row.reward or 0.0 for row in found if counted(row, untrusted=untrusted)]
        rewards += [0.0 for row in found if row.reward is None and row.forgeable]
        if rewards:
            means.append(fmean(rewards))
    return fmean(means) if means else None


def _pass_k(tasks: Sequence[TaskFigures], k: int) -> PassK:
    enough = [task for task in tasks if task.measured >= k]
    at = [found for task in enough if (found := pass_at_k(task.measured, task.passed, k)) is not None]
    hat = [found for task in enough if (found := pass_hat_k(task.measured, task.passed, k)) is not None]
    return PassK(k=k, at=fmean(at) if at else None, hat=fmean(hat) if hat else None, tasks=len(enough))


def _detectable(tasks: Sequence[TaskFigures], reward: Estimate | None) -> Detectable | None:
    """Of √2 times the error of one side. A task of one sample is taken to have the mean variance of the others."""
    if reward is None or reward.error is None:
        return None
    known = [task.deviation**2 for task in tasks if task.deviation is not None]
    paired = 2 * len(known) >= len(tasks)
    if paired:
        usual = fmean(known)
        parts = ((usual if task.deviation is None else task.deviation**2) / task.measured for task in tasks)
        error = sum(parts) ** 0.5 / len(tasks)
    else:
        error = reward.error
    effect = detectable_of_tasks(2**0.5 * error, len(tasks))
    return None if not effect else Detectable(effect=effect, paired=paired)  # no spread is no knowledge of 0


def _retried(rows: Iterable[Row], untrusted: bool) -> Retried | None:
    retried: dict[str, list[float]] = {}
    first: dict[str, list[float]] = {}
    for row in rows:
        if counted(row, untrusted=untrusted) and row.reward is not None:
            (retried if row.earlier else first).setdefault(row.task, []).append(row.reward)
    if not retried:
        return None
    both = sorted(retried.keys() & first.keys())
    within = len(both) > 1
    if within:
        difference = estimate([fmean(retried[task]) - fmean(first[task]) for task in both])
    else:
        difference = welch(_all(first), _all(retried))
    return Retried(count=len(_all(retried)), first_tries=len(_all(first)), difference=difference, within=within)


def _all(groups: Mapping[str, Sequence[float]]) -> list[float]:
    return [value for group in groups.values() for value in group]
