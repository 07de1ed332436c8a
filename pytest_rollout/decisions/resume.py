"""Going on with a run: what it has measured, what is made again, and whether today's rollouts may join it.

A rollout with a reward was measured and is never made again. One without (infra of every kind: also the suite's own
may be mended by now), and one without a result, is made again; what there was of it becomes its earlier attempts.
Results of one run are compared with each other, so what is made now has to have the pins of what was measured, see
:func:`changes`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from pytest_rollout.errors import ConfigError
from pytest_rollout.settings import COMPARED
from pytest_rollout.store.folder import RunFolder, read_record
from pytest_rollout.store.load import load_results, sizes_of
from pytest_rollout.store.lost import lost_attempts
from pytest_rollout.store.records import Earlier, Plan, Planned, Result

__all__ = [
    "LOST",
    "Before",
    "Candidate",
    "Change",
    "changes",
    "earlier_of",
    "ended",
    "join",
    "pairs_of",
    "read_before",
    "refusal",
]

LOST = "its session was ended before it was judged"
_MACHINE = ("plugin_version", "executor", "executor_version", "executor_digest", "rung")
_AGENT = ("agent", "agent_digest", "agent_version", "policy_revision", "model", "sampling", "extra")
_TASK = ("task_digest", "seed", "environment_revision", "evaluator_revision")
_SHOWN = 5
_FIXTURE = "(fixture)"


class Before(msgspec.Struct, frozen=True, kw_only=True):
    """What there was of a run when a session began to go on with it; ``sizes`` are those of its journals, in bytes."""

    plan: Plan
    results: dict[str, Result]
    sizes: dict[str, int]

    def is_measured(self, rollout: str) -> bool:
        """Whether it was measured, and so is not made again."""
        result = self.results.get(rollout)
        return result is not None and result.reward is not None


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A rollout as it would be made today: plain values of its pins, and of ``rung``, without those that are unsure.

    ``named`` says that its agent is one of ``rollout.toml``, and not a command, whose name is only its beginning.
    """

    planned: Planned
    pins: dict[str, Any]
    named: bool = True


class Change(NamedTuple):
    """A pin that is not what it was, in texts, and the tasks where."""

    name: str
    old: str
    new: str
    tasks: tuple[str, ...] = ()


def read_before(run: RunFolder, sizes: Mapping[str, int] | None = None) -> Before:
    """What there is of a run, or was when its journals had these sizes; raises ConfigError where it has no plan."""
    now = dict(sizes_of(run.results) if sizes is None else sizes)
    try:
        plan = read_record(run.plan, Plan)
    except (OSError, msgspec.MsgspecError):
        raise ConfigError(
            f"--rollout-resume: the run {run.name} has no plan: it was ended before anything was made",
            hint="Start a new run.",
        ) from None
    results = {result.rollout: result for result in load_results(run, now).results}
    return Before(plan=plan, results=results, sizes=now)


def join(before: Before, now: Plan, run: str) -> Plan:
    """The plan of the whole: what was planned before, as it is planned now where it still is, and what is new.

    Raises ConfigError where they have nothing in common.
    """
    today = {planned.rollout: planned for planned in now.rollouts}
    known = {planned.rollout for planned in before.plan.rollouts}
    if before.plan.rollouts and today and not known & today.keys():
        raise ConfigError(
            f"--rollout-resume: the run {run} is of another suite: none of its {len(known)} rollouts is among the "
            f"{len(today)} that were collected"
        )
    old = [today.get(planned.rollout, planned) for planned in before.plan.rollouts]
    new = [planned for planned in now.rollouts if planned.rollout not in known]
    return msgspec.structs.replace(
        before.plan,
        rollouts=(*old, *new),
        multiplied={**before.plan.multiplied, **now.multiplied},
        notes=tuple(dict.fromkeys((*before.plan.notes, *now.notes))),
        shard=now.shard if before.plan.shard is None or now.shard is None else before.plan.shard,
    )


# Pins


def changes(before: Before, now: Plan, candidates: Iterable[Candidate]) -> list[Change]:
    """The pins in which today's rollouts differ from what was measured.

    A rollout is compared with its own result, else with one of its task, else, in what is no task's, with one of its
    agent, else, in the machine alone, with any. Of each pin every pair of values comes once.
    """
    measured = [result for result in before.results.values() if result.reward is not None and result.pins is not None]
    by_task: dict[str, Result] = {}
    by_agent: dict[tuple[str, str | None], Result] = {}
    for result in measured:
        by_task.setdefault(result.task, result)
        by_agent.setdefault((result.agent, None), result)
        by_agent.setdefault((result.agent, result.pins.agent_digest if result.pins is not None else None), result)
    found: dict[tuple[str, str, str], dict[str, None]] = {}
    for name, old, new, task in _of_plans(before.plan, now):
        found.setdefault((name, old, new), {})[task] = None
    for candidate in candidates:
        planned = candidate.planned
        of_task = _measured(before.results.get(planned.rollout)) or by_task.get(planned.task)
        other = by_agent.get((planned.agent, None if candidate.named else candidate.pins.get("agent_digest")))
        reference = of_task or other or (measured[0] if measured else None)
        if reference is None:
            continue
        names = (*_MACHINE, *_AGENT, *_TASK) if of_task else (*_MACHINE, *_AGENT) if other else _MACHINE
        for name, old, new in _differences(reference, candidate, names):
            found.setdefault((name, old, new), {})[planned.task] = None
    listed = [Change(*key, tasks=tuple(tasks)) for key, tasks in found.items()]
    return sorted(listed, key=lambda change: COMPARED.index(change.name))


def _measured(result: Result | None) -> Result | None:
    return result if result is not None and result.reward is not None and result.pins is not None else None


def _of_plans(old: Plan, new: Plan) -> Iterator[tuple[str, str, str, str]]:
    """What the plans alone show: another shard, other agents."""
    if str(old.shard) != str(new.shard):
        yield "shard", _text(old.shard and str(old.shard)), _text(new.shard and str(new.shard)), ""
    known = {planned.rollout: planned for planned in old.rollouts}
    for planned in new.rollouts:
        before = known.get(planned.rollout)
        if before is not None and _FIXTURE not in (before.agent, planned.agent) and before.agent != planned.agent:
            yield "agent", before.agent, planned.agent, planned.task


def _differences(result: Result, candidate: Candidate, names: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    old: dict[str, Any] = {**msgspec.to_builtins(result.pins), "rung": result.rung}
    new = candidate.pins
    for name in names:
        if name not in new:
            continue
        before, after = old[name], new[name]
        if name == "seed":  # of the task: that of a sample is so much more
            before, after = before - result.sample, after - candidate.planned.sample
        if before != after:
            yield name, _text(before), _text(after)


def _text(value: Any) -> str:
    """A value of a pin for people: a digest short, and no value as such."""
    text = value if isinstance(value, str) else "none" if value is None else json.dumps(value, sort_keys=True)
    return f"{text[:19]}…" if text.startswith("sha256:") else text if len(text) <= 80 else f"{text[:79]}…"


def refusal(found: Sequence[Change], allowed: Sequence[str], run: str) -> ConfigError | None:
    """Why a run can't be gone on with, if it can't: the pins that changed and were not allowed to."""
    left = [change for change in found if change.name not in allowed and "all" not in allowed]
    if not left:
        return None
    told = "; ".join(_told(change) for change in left[:_SHOWN])
    more = f"; and {len(left) - _SHOWN} more" if len(left) > _SHOWN else ""
    names = " ".join(f"--rollout-resume-changed={name}" for name in dict.fromkeys(change.name for change in left))
    return ConfigError(
        f"--rollout-resume: what the run {run} measured is not comparable with what would be made now: {told}{more}",
        hint=f"Start a new run, or allow it: {names}.",
    )


def pairs_of(found: Iterable[Change]) -> dict[str, list[tuple[str, str]]]:
    """By the name of a pin its pairs of an old and a new value."""
    pairs: dict[str, list[tuple[str, str]]] = {}
    for change in found:
        pairs.setdefault(change.name, []).append((change.old, change.new))
    return pairs


def _told(change: Change) -> str:
    tasks = [task for task in change.tasks if task] if change.name in _TASK else []
    more = f" and {len(tasks) - 1} more" if len(tasks) > 1 else ""
    where = f" of {tasks[0]}{more}" if tasks else ""
    return f"{change.name}{where}: {change.old} → {change.new}"


# Attempts


def earlier_of(
    run: RunFolder, task: str, sample: int, result: Result | None, lost: Sequence[Earlier] = ()
) -> tuple[Earlier, ...]:
    """The attempts that there were at a sample that is made again: those of its result, and those without one.

    ``lost`` are some of the latter of which more is known than that they were begun.
    """
    found = {each.attempt: each for each in (*lost, *ended(result))}
    known = tuple(found[number] for number in sorted(found))
    if set(run.attempts(task, sample)) <= found.keys():
        return known
    return tuple(sorted(lost_attempts(run, task, sample, known, LOST), key=lambda each: each.attempt))


def ended(result: Result | None) -> tuple[Earlier, ...]:
    """The attempts that an unmeasured result tells of, its own with them."""
    if result is None or result.kind is None:
        return ()
    own = Earlier(
        attempt=result.attempt,
        kind=result.kind,
        forgeable=result.forgeable,
        message=result.message,
        folder=result.folder,
        usage=result.usage,
    )
    return (*result.earlier, own)
