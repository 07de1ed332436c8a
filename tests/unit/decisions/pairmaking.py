"""Sides of a comparison, made by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from pytest_rollout.decisions.rows import Row, RowPins, Rows, RowUsage

PINS = RowPins(task_digest="t", environment_revision="e", agent="agent", executor="sandbox", plugin_version="1")


def row(task: str, reward: float | None, **changes: Any) -> Row:
    """One rollout, trusted; it passed with a reward of 1, and was infra without one."""
    values: dict[str, Any] = {
        "rollout": f"r-{task}-{changes.get('sample', 0)}",
        "task": task,
        "sample": 0,
        "outcome": "infra" if reward is None else "passed" if reward == 1 else "failed",
        "reward": reward,
        "trusted": None if reward is None else True,
        "evaluator_revision": "checks",
        "pins": None if reward is None else PINS,
        "termination": None if reward is None else "completed",
        "folder": f"rollouts/{task}/s{changes.get('sample', 0)}/a1",
    }
    return Row(**{**values, **changes})


def side(
    tasks: Mapping[str, Sequence[float | None]],
    *,
    name: str = "2026-01-01T00-00-00Z-0000000a",
    pins: Mapping[str, Any] | None = None,
    missing: Mapping[str, int] | None = None,
    folder: str | None = "/runs/a",
    usage: RowUsage | None = None,
    **changes: Any,
) -> Rows:
    """The rewards of tasks, in the order of samples; ``changes`` are of every row."""
    of_run = msgspec.structs.replace(PINS, **(pins or {}))
    rows = []
    for task, rewards in tasks.items():
        for sample, reward in enumerate(rewards):
            known = {} if reward is None else {"pins": of_run, "usage": usage}
            rows.append(row(task, reward, sample=sample, **{**known, **changes}))
    return Rows(name=name, rows=tuple(rows), missing=missing or {}, folder=folder)
