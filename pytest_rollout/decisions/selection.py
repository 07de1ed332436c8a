"""A part of a run: the rollouts of a tag or a split, with those that are missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import msgspec

from pytest_rollout.decisions.rows import Labels, Rows

__all__ = ["NONE", "groups_of", "selected"]

NONE = "(none)"


def selected(rows: Rows, *, tag: str | None = None, split: str | None = None) -> Rows:
    """The rows of the tasks that have this tag and this split; None asks for nothing."""
    if tag is None and split is None:
        return rows
    return _part(rows, _labels(rows), lambda tags, of: tag in (None, *tags) and split in (None, of))


def groups_of(rows: Rows, by: Literal["tag", "split"]) -> dict[str, Rows]:
    """The parts of a run by tag or split, in the order of their names.

    A task with several tags is in several parts; what has no tag, or no split, is in the part ``(none)``.
    """
    labels = _labels(rows)
    if by == "tag":
        names = sorted({tag for each in labels.values() for tag in each.tags})
        parts = {name: _part(rows, labels, lambda tags, _, name=name: name in tags) for name in names}  # type: ignore[misc]
        rest = _part(rows, labels, lambda tags, _: not tags)
    else:
        names = sorted({each.split for each in labels.values() if each.split is not None})
        parts = {name: _part(rows, labels, lambda _, split, name=name: name == split) for name in names}  # type: ignore[misc]
        rest = _part(rows, labels, lambda _, split: split is None)
    return {**parts, NONE: rest} if rest.rows or rest.missing else parts


def _labels(rows: Rows) -> dict[str, Labels]:
    """Tags and split of each task: of its rows, or of the plan where it has none."""
    found = dict.fromkeys(rows.missing, Labels())
    return {**found, **rows.labels, **{row.task: Labels(row.tags, row.split) for row in rows.rows}}


def _part(rows: Rows, labels: Mapping[str, Labels], fits: Callable[[tuple[str, ...], str | None], bool]) -> Rows:
    tasks = {task for task, each in labels.items() if fits(each.tags, each.split)}
    return msgspec.structs.replace(
        rows,
        rows=tuple(row for row in rows.rows if row.task in tasks),
        missing={task: number for task, number in rows.missing.items() if task in tasks},
    )
