"""A baseline file: the results of a run that a later one is held against, small enough to commit.

It holds the rows of a run in columns, by task: rewards and outcomes in the order of samples, and the revisions that say
what they may be compared with. Evidence, messages and times stay in the run.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from pytest_rollout.bundle import SCHEMA_VERSION
from pytest_rollout.decisions.rows import Row, RowPins, Rows, by_task
from pytest_rollout.errors import ConfigError

__all__ = ["Baseline", "BaselineTask", "baseline_of", "read_baseline", "rows_of"]


class BaselineTask(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One task: ``rewards`` of its samples, null where unmeasured; ``passed`` the places in it of those that passed.

    ``pins`` is a place in the file's table of pins, None where nothing was measured.
    """

    rewards: tuple[float | None, ...]
    passed: tuple[int, ...] = ()
    forgeable: tuple[int, ...] = ()
    untrusted: tuple[int, ...] = ()
    missing: int = 0
    pins: int | None = None
    evaluator_revision: str | None = None
    tags: tuple[str, ...] = ()
    split: str | None = None


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """The file, as JSON."""

    schema_version: int = SCHEMA_VERSION
    run: str
    pins: tuple[RowPins, ...]
    tasks: dict[str, BaselineTask]


def baseline_of(rows: Rows) -> Baseline:
    """The baseline of a run."""
    pins: dict[RowPins | None, int] = {}
    tasks = {}
    for task, found in by_task(rows.rows).items():
        known = next((row for row in found if row.pins is not None), found[0])
        tasks[task] = BaselineTask(
            rewards=tuple(row.reward for row in found),
            passed=_places(row.outcome == "passed" for row in found),
            forgeable=_places(row.forgeable for row in found),
            untrusted=_places(row.trusted is False for row in found),
            missing=rows.missing.get(task, 0),
            pins=pins.setdefault(known.pins, len(pins)) if known.pins is not None else None,
            evaluator_revision=known.evaluator_revision,
            tags=known.tags,
            split=known.split,
        )
    return Baseline(run=rows.name, pins=tuple(each for each in pins if each is not None), tasks=tasks)


def rows_of(baseline: Baseline) -> Rows:
    """The rows that a baseline stands for; they have no ids, evidence or usage."""
    rows = []
    for task, found in baseline.tasks.items():
        for place, reward in enumerate(found.rewards):
            passed = place in found.passed
            rows.append(
                Row(
                    rollout="",
                    task=task,
                    sample=place,
                    outcome="infra" if reward is None else "passed" if passed else "failed",
                    reward=reward,
                    forgeable=place in found.forgeable,
                    trusted=None if reward is None else place not in found.untrusted,
                    evaluator_revision=found.evaluator_revision,
                    tags=found.tags,
                    split=found.split,
                    pins=None if found.pins is None else baseline.pins[found.pins],
                )
            )
    missing = {task: found.missing for task, found in baseline.tasks.items() if found.missing}
    return Rows(name=baseline.run, rows=tuple(rows), missing=missing)


def read_baseline(path: Path) -> Baseline:
    """The baseline in a file; raises ConfigError that names it."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Baseline)
    except OSError as error:
        raise ConfigError(f"the baseline {path} can't be read: {error.strerror}") from None
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{path} is not a baseline: {error}", hint="pytest-rollout baseline writes one.") from None
    if found.schema_version != SCHEMA_VERSION:
        raise ConfigError(f"the baseline {path} is of schema version {found.schema_version}, not {SCHEMA_VERSION}")
    if any(task.pins is not None and not 0 <= task.pins < len(found.pins) for task in found.tasks.values()):
        raise ConfigError(f"{path} is not a baseline: a task names pins that are not in it")
    return found


def _places(flags: Iterable[bool]) -> tuple[int, ...]:
    return tuple(place for place, flag in enumerate(flags) if flag)
