"""Rows: what a decision needs of each rollout, and no more, read out of the journals of a run.

A line of results holds everything; a row is decoded from it without the rest, and what rows have in common (tasks,
revisions, pins) is held once, so that a run of 100,000 rollouts fits into memory. ``reward`` is None where nothing was
measured, and stays None in everything that is made of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec.structs import force_setattr

from pytest_rollout.bundle import Termination
from pytest_rollout.outcome import InfraKind, Outcome
from pytest_rollout.store.folder import RunFolder, read_record
from pytest_rollout.store.load import lines_of
from pytest_rollout.store.records import Result
from pytest_rollout.store.union import counting

__all__ = [
    "Canonical",
    "Labels",
    "Row",
    "RowPins",
    "RowUsage",
    "Rows",
    "by_task",
    "canonical",
    "load_rows",
    "rewards_by_task",
]


class Canonical(str):
    """Any value as JSON with sorted keys, so that it can be compared and held once."""

    __slots__ = ()


def canonical(value: object) -> Canonical:
    """A mapping of plain values as :class:`Canonical`."""
    return Canonical(_SORTED.encode(value).decode()) if value else NOTHING


_SORTED = msgspec.json.Encoder(order="sorted")
NOTHING = Canonical("{}")


class RowPins(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The pins by which two results are found comparable, or not; ``sampling`` and ``extra`` are JSON."""

    task_digest: str | None = None
    environment_revision: str | None = None
    agent: str | None = None
    agent_digest: str | None = None
    agent_version: str | None = None
    policy_revision: str | None = None
    model: str | None = None
    sampling: Canonical | None = None
    extra: Canonical = NOTHING
    executor: str | None = None
    executor_version: str | None = None
    plugin_version: str | None = None


class RowUsage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a rollout's agent used, in the units of :class:`pytest_rollout.bundle.Usage`.

    A whole number may be a mean where it comes from a baseline file.
    """

    wall: float | None = None
    cpu: float | None = None
    peak_memory: int | float | None = None
    steps: int | float | None = None
    invalid_actions: int | float | None = None
    tokens: int | float | None = None
    cost: float | None = None


class RowEarlier(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt before the one that was judged: its cause and what it used."""

    kind: InfraKind
    forgeable: bool = False
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

    @property
    def doubtful(self) -> bool:
        """Whether it was measured after an attempt that the candidate may have ended, choosing which one counts."""
        return self.reward is not None and any(each.forgeable for each in self.earlier)


class Labels(msgspec.Struct, frozen=True):
    """By what tasks are chosen: tags and split."""

    tags: tuple[str, ...] = ()
    split: str | None = None


class Rows(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of one side of a decision: a run, or a baseline file, called ``name``.

    ``missing`` counts by task the planned rollouts that have no result, ``labels`` are those of these tasks; ``broken``
    counts the lines that could not be read; the rows' folders lie in ``folder``, which is None of a file.
    """

    name: str
    rows: tuple[Row, ...]
    missing: Mapping[str, int] = {}
    labels: Mapping[str, Labels] = {}
    broken: int = 0
    folder: str | None = None


def load_rows(run: RunFolder) -> Rows:
    """The rows of a run, in the order of task, sample and id; of several lines of one rollout the one that counts."""
    found: dict[str, Row] = {}
    shared = _Shared()
    broken = 0
    decoder = msgspec.json.Decoder(Row, dec_hook=lambda _, value: canonical(value))
    for line in lines_of(run.results):
        try:
            row = decoder.decode(line)
        except msgspec.MsgspecError:
            broken += 1
            continue
        if row.amends:
            continue
        shared.share(row)
        known = found.get(row.rollout)
        found[row.rollout] = row if known is None else counting(known, row)
    missing: dict[str, int] = {}
    labels = {}
    for planned in _planned(run):
        if planned.rollout not in found and not planned.skipped:
            missing[planned.task] = missing.get(planned.task, 0) + 1
            labels[planned.task] = Labels(planned.tags, planned.split)
    rows = sorted(found.values(), key=lambda row: (row.task, row.sample, row.rollout))
    return Rows(name=run.name, rows=tuple(rows), missing=missing, labels=labels, broken=broken, folder=str(run.path))


class _Planned(msgspec.Struct, frozen=True, gc=False):
    rollout: str
    task: str
    tags: tuple[str, ...] = ()
    split: str | None = None
    skipped: bool = False


class _Plan(msgspec.Struct, frozen=True):
    rollouts: tuple[_Planned, ...]


def _planned(run: RunFolder) -> tuple[_Planned, ...]:
    """What a run was going to make, as far as it is needed here; nothing where it was ended before it had a plan."""
    try:
        return read_record(run.plan, _Plan).rollouts
    except (OSError, msgspec.MsgspecError):
        return ()


class _Shared:
    """Holds once what many rows have in common; a row that was just decoded is nobody else's yet."""

    _FIELDS = ("task", "agent", "message", "evaluator_revision", "tags", "split", "pins")

    def __init__(self) -> None:
        self._known: dict[Any, Any] = {}

    def share(self, row: Row) -> None:
        for name in self._FIELDS:
            value = getattr(row, name)
            if value:
                force_setattr(row, name, self._known.setdefault(value, value))


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
