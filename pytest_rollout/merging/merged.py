"""What a merged run is, as a pure function of what its shards hold.

Identity is (task, sample). Of its lines in all shards one counts, by the rule of :mod:`pytest_rollout.store.union`,
and by its digest where that rule can't choose; the lines of its rollout are the merged run's results, those of other
rollouts are kept beside them. Everything is a union of sets in a fixed order, and the run's id is a digest of them: so
order, repetition and nesting of merges change nothing.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from pytest_rollout.merging.shards import Line, Shard
from pytest_rollout.store.records import Plan, Planned, RunRecord
from pytest_rollout.store.union import counting

__all__ = ["Duplicate", "Merged", "merge"]

Identity = tuple[str, int]
_START = re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\dZ")
_NO_START = "1970-01-01T00-00-00Z"
_TABLES = ("options", "pins", "environment")


class Duplicate(msgspec.Struct, frozen=True, kw_only=True):
    """A task and sample that several rollouts were made of: the one that counts, and the others."""

    task: str
    sample: int
    counted: str
    others: tuple[str, ...]


class Merged(msgspec.Struct, frozen=True, kw_only=True):
    """A merged run: its records, its lines, and what a reader has to know of it.

    ``counted`` are the lines of its results, ``others`` those of rollouts that do not count, ``winners`` the one line
    of each task and sample. ``missing`` names planned rollouts without a result, ``missing_shards`` shards that are not
    among those that were merged; ``unplanned`` counts rollouts of the whole that no run planned.
    """

    record: RunRecord
    plan: Plan
    counted: tuple[Line, ...]
    others: tuple[Line, ...]
    winners: tuple[Line, ...]
    labels: tuple[bytes, ...]
    duplicates: tuple[Duplicate, ...]
    repeated: int
    missing: tuple[str, ...]
    missing_shards: tuple[str, ...]
    unplanned: int
    without_plan: tuple[str, ...]
    broken: int

    @property
    def gaps(self) -> bool:
        """Whether anything that should be there is not."""
        return bool(self.missing or self.missing_shards or self.unplanned or self.without_plan or self.broken)


def merge(shards: Sequence[Shard]) -> Merged:
    """Merge shards, one or more."""
    distinct: dict[str, Line] = {}
    total = 0
    for shard in shards:
        for line in shard.lines:
            total += 1
            distinct.setdefault(line.digest, line)
    winners = _winners(distinct.values())
    counting_rollouts = {line.rollout for line in winners.values()}
    counted = sorted((line for line in distinct.values() if line.rollout in counting_rollouts), key=_place)
    others = sorted((line for line in distinct.values() if line.rollout not in counting_rollouts), key=_place)
    plan, missing = _plan(shards, winners)
    leaves = _distinct(record for shard in shards for record in shard.records)
    missing_shards, unplanned = _missing_shards(leaves, len(plan.rollouts))
    name = _name(leaves, [line.digest for line in (*counted, *others)], plan)
    return Merged(
        record=_record(name, leaves),
        plan=plan,
        counted=tuple(counted),
        others=tuple(others),
        winners=tuple(line for _, line in sorted(winners.items())),
        labels=tuple(sorted({label for shard in shards for label in shard.labels}, key=_label_place)),
        duplicates=tuple(_duplicates(others, winners)),
        repeated=total - len(distinct),
        missing=missing,
        missing_shards=missing_shards,
        unplanned=unplanned,
        without_plan=tuple(shard.path.name for shard in shards if shard.planned is None),
        broken=sum(shard.broken for shard in shards),
    )


def _winners(lines: Iterable[Line]) -> dict[Identity, Line]:
    found: dict[Identity, Line] = {}
    for line in lines:
        if not line.amends:
            identity = (line.task, line.sample)
            known = found.get(identity)
            found[identity] = line if known is None else _counting(known, line)
    return found


def _counting(first: Line, second: Line) -> Line:
    """The rule of all journals; where it holds two lines equal, the one of the lower digest."""
    if counting(first, second) is counting(second, first):
        return counting(first, second)
    return min(first, second, key=lambda line: line.digest)


def _place(line: Line) -> tuple[str, int, str, bool, str, str]:
    return line.task, line.sample, line.rollout, line.amends, line.time, line.digest


def _plan(shards: Sequence[Shard], winners: Mapping[Identity, Line]) -> tuple[Plan, tuple[str, ...]]:
    """Every rollout that has a result, or that some shard planned; and the ids of those without one."""
    open_ones: dict[Identity, Planned] = {}
    for shard in shards:
        for planned in shard.planned or ():
            identity = (planned.task, planned.sample)
            if identity not in winners:
                open_ones[identity] = min(open_ones.get(identity, planned), planned, key=_canonical)
    rollouts = {identity: _planned(line) for identity, line in winners.items()} | open_ones
    multiplied: dict[str, int] = {}
    for shard in shards:
        for name, number in shard.multiplied.items():
            multiplied[name] = max(number, multiplied.get(name, 0))
    plan = Plan(
        rollouts=tuple(planned for _, planned in sorted(rollouts.items(), key=lambda pair: pair[0])),
        multiplied=dict(sorted(multiplied.items())),
        notes=tuple(sorted({note for shard in shards for note in shard.notes})),
    )
    without = (planned for _, planned in sorted(open_ones.items(), key=lambda pair: pair[0]) if not planned.skipped)
    return plan, tuple(planned.rollout for planned in without)


def _planned(line: Line) -> Planned:
    return Planned(
        node=line.node,
        rollout=line.rollout,
        task=line.task,
        sample=line.sample,
        agent=line.agent,
        tags=line.tags,
        split=line.split,
    )


def _duplicates(others: Iterable[Line], winners: Mapping[Identity, Line]) -> Iterable[Duplicate]:
    found: dict[Identity, dict[str, None]] = {}
    for line in others:
        if not line.amends:
            found.setdefault((line.task, line.sample), {})[line.rollout] = None
    for (task, sample), rollouts in found.items():
        counted = winners[task, sample].rollout
        yield Duplicate(task=task, sample=sample, counted=counted, others=tuple(rollouts))


def _canonical(value: Any) -> bytes:
    return msgspec.json.encode(value, order="sorted")


def _distinct(records: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each record once, in the order of the runs' ids."""
    found = {_canonical(record): record for record in records}
    return [record for _, record in sorted(found.items(), key=lambda pair: (str(pair[1]["run"]), pair[0]))]


def _name(leaves: Sequence[dict[str, Any]], digests: Sequence[str], plan: Plan) -> str:
    """An id like that of any run: the start of the last shard, and digits that are a digest of all contents."""
    starts = [match[0] for leaf in leaves if (match := _START.match(leaf["run"]))]
    digest = hashlib.sha256(_canonical([leaves, digests, plan])).hexdigest()
    return f"{max(starts, default=_NO_START)}-{digest[:8]}"


def _record(name: str, leaves: Sequence[dict[str, Any]]) -> RunRecord:
    options, pins, environment = (_common([leaf.get(field) for leaf in leaves]) for field in _TABLES)
    not_redacted: dict[str, str] = {}
    for leaf in leaves:
        not_redacted.update(leaf.get("not_redacted") or {})
    return RunRecord(
        run=name,
        started=max(str(leaf.get("started", "")) for leaf in leaves),
        plugin_version=max(str(leaf.get("plugin_version", "")) for leaf in leaves),
        options=options,
        pins=pins,
        environment=environment,
        redacted=tuple(sorted({str(each) for leaf in leaves for each in leaf.get("redacted") or ()})),
        not_redacted=dict(sorted(not_redacted.items())),
        merged=tuple(leaves),
    )


def _common(tables: Sequence[Any]) -> dict[str, Any]:
    """What all tables say alike."""
    first = tables[0] if isinstance(tables[0], dict) else {}
    rest = [table if isinstance(table, dict) else {} for table in tables[1:]]
    return {name: value for name, value in sorted(first.items()) if all(table.get(name) == value for table in rest)}


def _label_place(label: bytes) -> tuple[str, bytes]:
    return str(json.loads(label).get("time", "")), label


def _missing_shards(leaves: Sequence[dict[str, Any]], planned: int) -> tuple[tuple[str, ...], int]:
    """``3/8`` of runs that were cut into 8, where no run is the third; and how many rollouts nobody planned.

    A shard in which there is no rollout makes no run: none is missing where all rollouts of the whole were planned.
    """
    found: dict[int, set[int]] = {}
    whole = 0
    for leaf in leaves:
        shard = leaf.get("shard")
        if isinstance(shard, dict) and isinstance(shard.get("index"), int) and isinstance(shard.get("count"), int):
            found.setdefault(shard["count"], set()).add(shard["index"])
            whole = max(whole, int(shard.get("all_rollouts") or 0))
    if whole and planned >= whole:
        return (), 0
    missing = (
        f"{index}/{count}"
        for count, indexes in sorted(found.items())
        for index in range(1, count + 1)
        if index not in indexes
    )
    return tuple(missing), max(0, whole - planned)
