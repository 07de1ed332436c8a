"""Rows: what a decision needs of each rollout, and no more, read out of the journals of a run.

A line of results holds everything; a row is decoded from it without the rest, so that a run of 100,000 rollouts fits
into memory. ``reward`` is None where nothing was measured, and stays None in everything that is made of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from pytest_rollout.bundle import Termination
from pytest_rollout.outcome import InfraKind, Outcome
from pytest_rollout.store.folder import RunFolder
from pytest_rollout.store.load import lines_of, load_plan
from pytest_rollout.store.records import Result
from pytest_rollout.store.union import counting

__all__ = ["Row", "RowPins", "RowUsage", "Rows", "by_task", "load_rows", "rewards_by_task"]


class RowPins(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The pins by which two results are found comparable, or not."""

    task_digest: str | None = None
    environment_revision: str | None = None
    agent: str | None = None
    agent_digest: str | None = None
    agent_version: str | None = None
    policy_revision: str | None = None
    model: str | None = None
    executor: str | None = None
    executor_version: str | None = None
    plugin_version: str | None = None


class RowUsage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a rollout's agent used, in the units of :class:`pytest_rollout.bundle.Usage`."""

    wall: float | None = None
    cpu: float | None = None
    peak_memory: int | None = None
    steps: int | None = None
    invalid_actions: int | None = None
    tokens: int | None = None
    cost: float | None = None


class RowEarlier(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt before the one that was judged: its cause and what it used."""

    kind: InfraKind
    usage: RowUsage | None = None


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One rollout; the fields are those of :class:`pytest_rollout.store.records.Result`."""

    rollout: str
    task: str
    sample: int
    attempt: int = 1
    agent: str = ""
    outcome: Outcome
    kind: InfraKind | None = None
    forgeable: bool = False
    reward: float | None = None
    termination: Termination | None = None
    message: str = ""
    trusted: bool | None = None
    evaluator_revision: str | None = None
    folder: str | None = None
    earlier: tuple[RowEarlier, ...] = ()
    tags: tuple[str, ...] = ()
    split: str | None = None
    pins: RowPins | None = None
    usage: RowUsage | None = None
    audit: str | None = None
    time: str = ""
    amends: bool = False


class Rows(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of one side of a decision: a run, or a baseline file, called ``name``.

    ``missing`` counts by task the planned rollouts that have no result, ``labels`` has the tags and the split of these
    tasks; ``broken`` counts the lines that could not be read.
    """

    name: str
    rows: tuple[Row, ...]
    missing: Mapping[str, int] = {}
    labels: Mapping[str, tuple[tuple[str, ...], str | None]] = {}
    broken: int = 0


def load_rows(run: RunFolder) -> Rows:
    """The rows of a run, in the order of task, sample and id; of several lines of one rollout the one that counts."""
    found: dict[str, Row] = {}
    pins: dict[RowPins, RowPins] = {}
    broken = 0
    decoder = msgspec.json.Decoder(Row)
    for line in lines_of(run.results):
        try:
            row = decoder.decode(line)
        except msgspec.MsgspecError:
            broken += 1
            continue
        if row.amends:
            continue
        if row.pins is not None:  # samples share them
            row = msgspec.structs.replace(row, pins=pins.setdefault(row.pins, row.pins))
        known = found.get(row.rollout)
        found[row.rollout] = row if known is None else counting(known, row)
    plan = load_plan(run)
    missing: dict[str, int] = {}
    labels: dict[str, tuple[tuple[str, ...], str | None]] = {}
    for planned in plan.rollouts if plan is not None else ():
        if planned.rollout not in found:
            missing[planned.task] = missing.get(planned.task, 0) + 1
            labels[planned.task] = (planned.tags, planned.split)
    rows = sorted(found.values(), key=lambda row: (row.task, row.sample, row.rollout))
    return Rows(name=run.name, rows=tuple(rows), missing=missing, labels=labels, broken=broken)


def by_task(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """The rows of each task, in the order of the tasks' first rows."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.task, []).append(row)
    return found


def rewards_by_task(rows: Iterable[Row | Result]) -> dict[str, list[float]]:
    """The measured rewards of each task that has any."""
    found: dict[str, list[float]] = {}
    for row in rows:
        if row.reward is not None:
            found.setdefault(row.task, []).append(row.reward)
    return found
