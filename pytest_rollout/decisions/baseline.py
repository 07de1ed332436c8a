"""A baseline file: the results of a run that a later one is held against, small enough to commit.

It holds the rows of a run by task, one task a line, sorted, so that a difference of two files shows the tasks that
changed: rewards and outcomes in the order of samples, the revisions that say what they may be compared with, and the
mean of what each task used, to six digits. Evidence, messages and times stay in the run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import msgspec

from pytest_rollout.bundle import SCHEMA_VERSION
from pytest_rollout.decisions.rows import NOTHING, Labels, Row, RowPins, Rows, RowUsage, by_task, canonical
from pytest_rollout.errors import ConfigError

__all__ = ["Baseline", "BaselinePins", "BaselineTask", "baseline_of", "read_baseline", "rows_of", "text_of"]

_HINT = "pytest-rollout baseline writes one."
_SHORT, _LONG = 10, 64
_USED = tuple(RowUsage.__struct_fields__)
_SHARED = tuple(name for name in RowPins.__struct_fields__ if name not in ("task_digest", "environment_revision"))

Reward = Annotated[float, msgspec.Meta(ge=0, le=1)]
Place = Annotated[int, msgspec.Meta(ge=0)]


class BaselinePins(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The pins that tasks share."""

    agent: str | None = None
    agent_digest: str | None = None
    agent_version: str | None = None
    policy_revision: str | None = None
    model: str | None = None
    sampling: dict[str, Any] | None = None
    extra: dict[str, Any] = {}
    executor: str | None = None
    executor_version: str | None = None
    plugin_version: str | None = None


class BaselineTask(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One task: ``rewards`` of its samples, null where unmeasured; ``passed`` the places in it of those that passed.

    ``forgeable`` and ``untrusted`` are places too. ``missing`` counts planned samples without a result. ``pins`` is a
    place in the file's list of pins; ``environment`` and ``checks`` are names in its ``revisions``; all three are None
    where nothing was measured. ``usage`` has the means over measured samples.
    """

    rewards: tuple[Reward | None, ...]
    passed: tuple[Place, ...] = ()
    forgeable: tuple[Place, ...] = ()
    untrusted: tuple[Place, ...] = ()
    missing: Place = 0
    pins: Place | None = None
    digest: str | None = None
    environment: str | None = None
    checks: str | None = None
    tags: tuple[str, ...] = ()
    split: str | None = None
    usage: dict[str, float] = {}


class Baseline(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file, as JSON: ``run`` is the id of the run that it was made of; revisions are named by their beginnings."""

    schema_version: int = SCHEMA_VERSION
    run: str
    pins: tuple[BaselinePins, ...]
    revisions: dict[str, str]
    tasks: dict[str, BaselineTask]


def baseline_of(rows: Rows) -> Baseline:
    """The baseline of a run; raises ConfigError where it has no rollouts, or one task was scored in two ways."""
    found = by_task(rows.rows)
    tasks = sorted({**found, **dict.fromkeys(rows.missing)})
    if not tasks:
        raise ConfigError(f"{rows.name} has no rollouts, so it can't be a baseline")
    pins: dict[bytes, tuple[int, BaselinePins]] = {}
    names = _names(rows.rows)
    made = {}
    for task in tasks:
        each = _task(task, found.get(task, ()), rows.missing.get(task, 0), pins, names)
        if task not in found and task in rows.labels:
            label = rows.labels[task]
            each = msgspec.structs.replace(each, tags=label.tags, split=label.split)
        made[task] = each
    return Baseline(
        run=rows.name,
        pins=tuple(each for _, each in pins.values()),
        revisions=dict(sorted((name, str(revision)) for revision, name in names.items())),
        tasks=made,
    )


def _names(rows: Iterable[Row]) -> dict[str | None, str]:
    """A short name for every revision of environments and checks that was measured: as much of it as is unique."""
    found = {row.evaluator_revision for row in rows if row.reward is not None}
    found |= {row.pins.environment_revision for row in rows if row.reward is not None and row.pins is not None}
    revisions = [revision for revision in found if revision is not None]
    for length in range(_SHORT, _LONG):
        names: dict[str | None, str] = {revision: revision.removeprefix("sha256:")[:length] for revision in revisions}
        if len(set(names.values())) == len(names):
            return names
    return {revision: revision for revision in revisions}


def _task(
    task: str,
    rows: Sequence[Row],
    missing: int,
    pins: dict[bytes, tuple[int, BaselinePins]],
    names: Mapping[str | None, str],
) -> BaselineTask:
    measured = [row for row in rows if row.reward is not None]
    known = {(row.pins, row.evaluator_revision) for row in measured}
    if len(known) > 1:
        raise ConfigError(
            f"the samples of {task} were not made under the same pins, or not scored by the same checks",
            hint="A baseline says what its rewards may be compared with: run the task once more, as a whole.",
        )
    first, checks = known.pop() if known else (None, None)
    shared = _shared(first) if first is not None else None
    return BaselineTask(
        rewards=tuple(row.reward for row in rows),
        passed=_places(row.outcome == "passed" for row in rows),
        forgeable=_places(row.forgeable for row in rows),
        untrusted=_places(row.trusted is False for row in rows),
        missing=missing,
        pins=None if shared is None else pins.setdefault(msgspec.json.encode(shared), (len(pins), shared))[0],
        digest=first.task_digest if first is not None else None,
        environment=names.get(first.environment_revision) if first is not None else None,
        checks=names.get(checks),
        tags=rows[0].tags if rows else (),
        split=rows[0].split if rows else None,
        usage=_means(measured),
    )


def _shared(pins: RowPins) -> BaselinePins:
    values = {name: getattr(pins, name) for name in _SHARED}
    sampling = pins.sampling
    return BaselinePins(
        **{**values, "sampling": json.loads(sampling) if sampling else None, "extra": json.loads(pins.extra)}
    )


def _means(rows: Sequence[Row]) -> dict[str, float]:
    """What the rows used on average, as far as it is known, to six digits."""
    found = {}
    for name in _USED:
        values = [value for row in rows if row.usage is not None and (value := getattr(row.usage, name)) is not None]
        if values:
            found[name] = float(f"{fmean(values):.6g}")
    return found


def text_of(baseline: Baseline) -> str:
    """The text of the file: always the same for the same run."""
    head = json.dumps({"schema_version": baseline.schema_version, "run": baseline.run}, indent=1)
    pins = _lines("[", [_json(each) for each in baseline.pins], "]")
    tasks = _lines("{", [f"{_json(task)}: {_json(found)}" for task, found in sorted(baseline.tasks.items())], "}")
    revisions = _lines("{", [f"{_json(name)}: {_json(found)}" for name, found in baseline.revisions.items()], "}")
    return f'{head[:-2]},\n "pins": {pins},\n "revisions": {revisions},\n "tasks": {tasks}\n}}\n'


def _lines(start: str, lines: Sequence[str], end: str) -> str:
    return f"{start}\n  " + ",\n  ".join(lines) + f"\n {end}" if lines else f"{start}{end}"


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def rows_of(baseline: Baseline) -> Rows:
    """The rows that a baseline stands for; they have no ids and no evidence, and the means of what a task used."""
    pins = [_row_pins(each) for each in baseline.pins]
    rows = []
    for task, found in sorted(baseline.tasks.items()):
        whole = None
        if found.pins is not None:
            whole = msgspec.structs.replace(
                pins[found.pins], task_digest=found.digest, environment_revision=_revision(baseline, found.environment)
            )
        usage, checks = RowUsage(**found.usage) if found.usage else None, _revision(baseline, found.checks)
        for place, reward in enumerate(found.rewards):
            passed, measured = place in found.passed, reward is not None
            rows.append(
                Row(
                    rollout="",
                    task=task,
                    sample=place,
                    outcome="passed" if passed else "failed" if measured else "infra",
                    reward=reward,
                    forgeable=place in found.forgeable,
                    trusted=place not in found.untrusted if measured or place in found.untrusted else None,
                    evaluator_revision=checks if measured else None,
                    tags=found.tags,
                    split=found.split,
                    pins=whole if measured else None,
                    usage=usage if measured else None,
                )
            )
    missing = {task: found.missing for task, found in sorted(baseline.tasks.items()) if found.missing}
    labels = {task: Labels(baseline.tasks[task].tags, baseline.tasks[task].split) for task in missing}
    return Rows(name=baseline.run, rows=tuple(rows), missing=missing, labels=labels)


def _revision(baseline: Baseline, name: str | None) -> str | None:
    return None if name is None else baseline.revisions[name]


def _row_pins(pins: BaselinePins) -> RowPins:
    values = {name: getattr(pins, name) for name in _SHARED}
    sampling = None if pins.sampling is None else canonical(pins.sampling)
    return RowPins(**{**values, "sampling": sampling, "extra": canonical(pins.extra) if pins.extra else NOTHING})


class _Version(msgspec.Struct):
    schema_version: int


def read_baseline(path: Path) -> Baseline:
    """The baseline in a file; raises ConfigError that names it."""
    try:
        data = path.read_bytes()
        version = msgspec.json.decode(data, type=_Version).schema_version
        if version != SCHEMA_VERSION:
            raise ConfigError(
                f"the baseline {path} is of schema version {version}; this pytest-rollout reads {SCHEMA_VERSION}",
                hint=_HINT,
            )
        found = msgspec.json.decode(data, type=Baseline)
    except OSError as error:
        raise ConfigError(f"the baseline {path} can't be read: {error.strerror}") from None
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{path} is not a baseline: {error}", hint=_HINT) from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not a baseline: it is not UTF-8", hint=_HINT) from None
    for task, each in found.tasks.items():
        wrong = _wrong(each, found)
        if wrong:
            raise ConfigError(f"{path} is not a baseline: in the task {task} {wrong}", hint=_HINT)
    return found


def _wrong(task: BaselineTask, baseline: Baseline) -> str | None:
    """What a file says of a task that can't be, or None."""
    if task.pins is not None and task.pins >= len(baseline.pins):
        return f"pins is {task.pins}, and there are {len(baseline.pins)}"
    for name in (task.environment, task.checks):
        if name is not None and name not in baseline.revisions:
            return f"is the revision {name!r}, which the file does not have"
    for name in ("passed", "forgeable", "untrusted"):
        beyond = [place for place in getattr(task, name) if place >= len(task.rewards)]
        if beyond:
            return f"{name} names the sample {beyond[0]}, which is not among the {len(task.rewards)} rewards"
    unmeasured = [place for place in task.passed if task.rewards[place] is None]
    if unmeasured:
        return f"passed names the sample {unmeasured[0]}, which has no reward"
    unknown = sorted(set(task.usage) - set(_USED))
    return f"usage has the unknown field {unknown[0]!r}" if unknown else None


def _places(flags: Iterable[bool]) -> tuple[int, ...]:
    return tuple(place for place, flag in enumerate(flags) if flag)
