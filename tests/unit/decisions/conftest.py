"""Rows made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytest_rollout.decisions.rows import Row, RowPins, Rows

PINS = RowPins(task_digest="t", environment_revision="e")


def row(task: str, sample: int, reward: float | None, **more: Any) -> Row:
    """One rollout; without a reward it is infra ``stage``."""
    infra: dict[str, Any] = {"outcome": "infra", "kind": "stage"}
    measured = {"outcome": "passed" if reward == 1 else "failed", "trusted": True}
    known = {"pins": PINS, "evaluator_revision": "c", **(infra if reward is None else measured)}
    return Row(rollout=f"{task}-s{sample}", task=task, sample=sample, reward=reward, **{**known, **more})


def rows(tasks: dict[str, Sequence[float | None]], name: str = "run", **more: Any) -> Rows:
    """A run of tasks with the rewards of their samples; what is more is of ``Rows``, or else of every row."""
    of_rows = {key: more.pop(key) for key in ("missing", "labels", "broken") if key in more}
    made = [row(task, n, reward, **more) for task, found in tasks.items() for n, reward in enumerate(found)]
    return Rows(name=name, rows=tuple(made), **of_rows)
