"""The columns of an export: names, types, and where each value comes from.

``docs/reference/export.md`` has the same table. What is not known is null in every column, never 0 and never NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from pytest_rollout.identity import attempt_id, task_folder
from pytest_rollout.store.records import Result

__all__ = ["COLUMNS", "Column", "Given", "Kind", "row_of"]

Kind = Literal["text", "int", "float", "bool", "texts", "json"]
_PATHS = ("bundle.json", "score.json", "journal.jsonl", "stdout", "stderr", "trajectory.json", "changes")


class Given(NamedTuple):
    """What a row is made of: a result, its run, its group, what is in its folder, and labels of people."""

    run: str
    result: Result
    group_size: int
    group_measured: int
    present: frozenset[str]
    labels: Sequence[Mapping[str, Any]]


class Column(NamedTuple):
    """One column. ``json`` is a value in JSON lines, and a text that holds JSON in Parquet."""

    name: str
    kind: Kind
    value: Callable[[Given], Any]


def _of(name: str) -> Callable[[Given], Any]:
    return lambda given: getattr(given.result, name)


def _pin(name: str) -> Callable[[Given], Any]:
    return lambda given: None if given.result.pins is None else getattr(given.result.pins, name)


def _usage(name: str) -> Callable[[Given], Any]:
    return lambda given: None if given.result.usage is None else getattr(given.result.usage, name)


def _path(file: str) -> Callable[[Given], Any]:
    return lambda given: f"{given.result.folder}/{file}" if file in given.present else None


def _earlier_cost(given: Given) -> float | None:
    costs = [each.usage.cost if each.usage is not None else None for each in given.result.earlier]
    known = [cost for cost in costs if cost is not None]
    return sum(known) if known and len(known) == len(costs) else None


COLUMNS: tuple[Column, ...] = (
    Column("run", "text", lambda given: given.run),
    Column("task", "text", _of("task")),
    Column("sample", "int", _of("sample")),
    Column("rollout", "text", _of("rollout")),
    Column("attempt", "text", lambda given: attempt_id(given.result.rollout, given.result.attempt)),
    Column("attempts", "int", lambda given: len(given.result.earlier) + 1),
    Column("group", "text", lambda given: f"{given.run}/{task_folder(given.result.task)}"),
    Column("group_size", "int", lambda given: given.group_size),
    Column("group_measured", "int", lambda given: given.group_measured),
    Column("reward", "float", _of("reward")),
    Column("checks_reward", "float", _of("checks_reward")),
    Column("outcome", "text", _of("outcome")),
    Column("kind", "text", _of("kind")),
    Column("forgeable", "bool", _of("forgeable")),
    Column("message", "text", lambda given: given.result.message or None),
    Column("termination", "text", _of("termination")),
    Column("truncated", "bool", _of("truncated")),
    Column("trusted", "bool", _of("trusted")),
    Column("rung", "int", _of("rung")),
    Column("in_process", "bool", _of("in_process")),
    Column("audit", "text", _of("audit")),
    Column("tags", "texts", lambda given: list(given.result.tags)),
    Column("split", "text", _of("split")),
    Column("agent", "text", _of("agent")),
    *(Column(name, "text", _pin(name)) for name in ("agent_digest", "agent_version", "policy_revision", "model")),
    Column("sampling", "json", _pin("sampling")),
    Column("pins", "json", _pin("extra")),
    Column("seed", "int", _pin("seed")),
    Column("task_digest", "text", _pin("task_digest")),
    Column("environment_revision", "text", _pin("environment_revision")),
    Column("environment_commit", "text", _pin("environment_commit")),
    Column("evaluator_revision", "text", _of("evaluator_revision")),
    Column("limits", "json", _pin("limits")),
    *(Column(name, "text", _pin(name)) for name in ("network", "executor", "executor_version", "plugin_version")),
    Column("metrics", "json", lambda given: given.result.metrics),
    *(Column(f"usage_{name}", "float", _usage(name)) for name in ("wall", "cpu")),
    *(Column(f"usage_{name}", "int", _usage(name)) for name in ("peak_memory", "output_bytes", "processes", "disk")),
    *(Column(f"usage_{name}", "int", _usage(name)) for name in ("steps", "invalid_actions", "model_calls", "tokens")),
    Column("usage_cost", "float", _usage("cost")),
    Column("earlier_cost", "float", _earlier_cost),
    Column("time", "text", lambda given: given.result.time or None),
    Column("node", "text", _of("node")),
    Column("folder", "text", _of("folder")),
    *(Column(f"path_{file.partition('.')[0]}", "text", _path(file)) for file in _PATHS),
    Column("labels", "json", lambda given: list(given.labels) or None),
)


def row_of(given: Given) -> dict[str, Any]:
    """The row of a rollout: plain values, every column, in their order."""
    row = {}
    for column in COLUMNS:
        value = column.value(given)
        if column.kind == "float" and isinstance(value, int):
            value = float(value)
        row[column.name] = value
    return row
