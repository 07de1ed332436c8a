"""Two sides of a comparison, paired by task: which tasks can be compared, and why others can't.

A task can be compared where its digest, its environment and its checks are the same on both sides, and known. What
differs on purpose (agent, model, policy, sampling …) is named once for the whole: it is what was compared.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from pytest_rollout.decisions.rows import Labels, Row, RowPins, Rows, by_task

__all__ = ["Contrast", "NotComparable", "Pair", "Pairing", "Side", "measured", "pair"]

_ON_PURPOSE = (
    *("agent", "agent_digest", "agent_version", "policy_revision", "model", "sampling", "extra"),
    *("executor", "executor_version", "plugin_version"),
)
_OTHER_CHECKS = "other checks"
_SEVERAL = 3


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One side in numbers: of ``rollouts`` that were planned, how many were measured and how many were not.

    ``untrusted`` were left out of everything else, unless they were asked for; ``samples`` are the fewest and the most
    of a task. Folders of rollouts are below ``folder``, None of a file.
    """

    name: str
    rollouts: int
    measured: int
    infra: int
    missing: int
    forgeable: int
    untrusted: int
    broken: int
    samples: tuple[int, int]
    folder: str | None

    @property
    def share(self) -> float | None:
        """The share of the rollouts that was measured; None of none."""
        return self.measured / self.rollouts if self.rollouts else None


class Contrast(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that differs between the sides on purpose, with the values of each."""

    what: str
    old: tuple[str, ...]
    new: tuple[str, ...]


class NotComparable(msgspec.Struct, frozen=True, kw_only=True):
    """A task of both sides that is not compared, and why; ``checks`` says that only its checks differ."""

    task: str
    why: str
    checks: bool = False


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """A task of both sides. The rows are those that count; ``missing`` rollouts have none."""

    task: str
    old: Sequence[Row]
    new: Sequence[Row]
    missing: tuple[int, int] = (0, 0)


class Pairing(msgspec.Struct, frozen=True, kw_only=True):
    """The tasks of two sides. ``pairs`` are of one task each; a side of a pair may have nothing measured."""

    old: Side
    new: Side
    contrasts: tuple[Contrast, ...]
    pairs: tuple[Pair, ...]
    changed: tuple[NotComparable, ...]
    only_old: tuple[str, ...]
    only_new: tuple[str, ...]

    @property
    def empty(self) -> bool:
        """Whether no side has any task."""
        return not (self.pairs or self.changed or self.only_old or self.only_new)


def pair(
    old: Rows, new: Rows, *, tags: Sequence[str] = (), split: str | None = None, untrusted: bool = False
) -> Pairing:
    """Pair two sides by task. With ``tags`` and ``split`` only tasks that have them, on either side."""
    sides = (by_task(old.rows), by_task(new.rows))
    known = {**dict.fromkeys(old.missing), **dict.fromkeys(new.missing), **sides[0], **sides[1]}
    chosen = sorted(task for task in known if _fits(_labelled(task, sides, (old, new)), tags, split))
    there = [
        {task for task in chosen if task in side or rows.missing.get(task)}
        for side, rows in zip(sides, (old, new), strict=True)
    ]
    kept = [
        {task: [row for row in side.get(task, ()) if untrusted or row.trusted is not False] for task in chosen}
        for side in sides
    ]
    pairs, changed = [], []
    for task in chosen:
        if task not in there[0] or task not in there[1]:
            continue
        before, after = kept[0][task], kept[1][task]
        different = _different(task, before, after)
        if different is not None:
            changed.append(different)
        else:
            missing = (old.missing.get(task, 0), new.missing.get(task, 0))
            pairs.append(Pair(task=task, old=before, new=after, missing=missing))
    return Pairing(
        old=_side(old, sides[0], kept[0], chosen),
        new=_side(new, sides[1], kept[1], chosen),
        contrasts=_contrasts(kept[0].values(), kept[1].values()),
        pairs=tuple(pairs),
        changed=tuple(changed),
        only_old=tuple(sorted(there[0] - there[1])),
        only_new=tuple(sorted(there[1] - there[0])),
    )


def measured(rows: Iterable[Row]) -> list[Row]:
    """The rows that were measured."""
    return [row for row in rows if row.reward is not None]


def _labelled(task: str, sides: Sequence[Mapping[str, Sequence[Row]]], whole: Sequence[Rows]) -> Iterator[Row | Labels]:
    """What knows the tags and the split of a task."""
    for side, rows in zip(sides, whole, strict=True):
        yield from side.get(task, ())
        if task in rows.labels:
            yield rows.labels[task]


def _fits(labelled: Iterable[Row | Labels], tags: Sequence[str], split: str | None) -> bool:
    """Whether a task has all the tags and the split, on a side that knows them."""
    if not tags and split is None:
        return True
    return any(set(tags) <= set(each.tags) and split in (None, each.split) for each in labelled)


def _side(rows: Rows, whole: Mapping[str, Sequence[Row]], kept: Mapping[str, Sequence[Row]], tasks: list[str]) -> Side:
    found = [row for task in tasks for row in kept[task]]
    missing = sum(rows.missing.get(task, 0) for task in tasks)
    number, sizes = sum(row.reward is not None for row in found), [len(each) for each in kept.values() if each]
    return Side(
        name=rows.name,
        rollouts=len(found) + missing,
        measured=number,
        infra=len(found) - number,
        missing=missing,
        forgeable=sum(row.forgeable and row.reward is None for row in found),
        untrusted=sum(row.trusted is False for task in tasks for row in whole.get(task, ())),
        broken=rows.broken,
        samples=(min(sizes, default=0), max(sizes, default=0)),
        folder=rows.folder,
    )


def _different(task: str, old: Sequence[Row], new: Sequence[Row]) -> NotComparable | None:
    """Why a task that was measured on both sides can't be compared."""
    sides = [measured(old), measured(new)]
    if not all(sides):
        return None
    found: dict[str, str] = {}
    for name, values in _revisions(sides):
        for side, letter in zip(values, "AB", strict=True):
            if len(side) > 1:
                found[name] = f"{letter} has several revisions of its {name}"
            elif None in side:
                found.setdefault(name, f"the revision of its {name} is unknown in {letter}")
        if values[0] != values[1]:
            found.setdefault(name, _OTHER_CHECKS if name == "checks" else f"another {name}")
    return (
        NotComparable(task=task, why="; ".join(found.values()), checks=found == {"checks": _OTHER_CHECKS})
        if found
        else None
    )


def _revisions(sides: Sequence[Sequence[Row]]) -> list[tuple[str, list[set[str | None]]]]:
    """The revisions on either side, by what they are of.

    A row of which nothing is known has no evidence: it is infra that is looked at as a failure.
    """
    sides = [
        [row for row in rows if row.pins is not None or row.evaluator_revision is not None] or rows for rows in sides
    ]
    tasks = [{None if row.pins is None else row.pins.task_digest for row in rows} for rows in sides]
    environments = [{None if row.pins is None else row.pins.environment_revision for row in rows} for rows in sides]
    checks = [{row.evaluator_revision for row in rows} for rows in sides]
    return [("task", tasks), ("environment", environments), ("checks", checks)]


def _contrasts(old: Iterable[Sequence[Row]], new: Iterable[Sequence[Row]]) -> tuple[Contrast, ...]:
    sides = [_values(old), _values(new)]
    names = [name for name in _ON_PURPOSE if name not in ("sampling", "extra")]
    names += sorted({name for side in sides for name in side} - set(names))
    pairs = [(name, sides[0].get(name, set()), sides[1].get(name, set())) for name in names]
    return tuple(
        Contrast(what=name.replace("_", " "), old=_shown(before), new=_shown(after))
        for name, before, after in pairs
        if before != after
    )


def _shown(values: set[str]) -> tuple[str, ...]:
    shown = sorted(values)
    return tuple(shown) if len(shown) <= _SEVERAL else (*shown[:_SEVERAL], f"{len(shown) - _SEVERAL} more")


def _values(tasks: Iterable[Sequence[Row]]) -> dict[str, set[str]]:
    """The values of every pin that may differ on purpose, over what was measured; what is unknown is not there."""
    seen: set[RowPins] = set()
    for rows in tasks:
        seen.update(msgspec.structs.replace(row.pins, task_digest=None) for row in rows if row.pins is not None)
    found: dict[str, set[str]] = {}
    for pins in seen:
        values = {name: getattr(pins, name) for name in _ON_PURPOSE}
        more = [json.loads(values.pop(name) or "{}") for name in ("sampling", "extra")]
        for name, value in (*values.items(), *more[0].items(), *more[1].items()):
            if value is not None:
                found.setdefault(name, set()).add(str(value))
    return found
