"""A run by hand for exports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytest_rollout.bundle import Pins, Usage
from pytest_rollout.store.folder import ResultsFolder, RunFolder, write_record
from pytest_rollout.store.records import Earlier, Plan, Planned, Result

RUN = "2026-11-01T00-00-00Z-0000000a"
PINS = Pins(
    task_digest="sha256:1",
    environment_revision="sha256:2",
    agent="a",
    policy_revision="p7",
    model="m",
    sampling={"temperature": 0.5},
    extra={"team": "x"},
    seed=3,
    limits={"wall": 60.0},
    network="none",
    executor="sandbox",
    plugin_version="1",
)


def line(rollout: str, task: str = "t", sample: int = 0, **changes: Any) -> Result:
    """A line of results, of a measured and trusted rollout unless ``changes`` say something else."""
    values: dict[str, Any] = {"attempt": 1, "node": f"{task}[{sample}]", "agent": "a", "outcome": "passed", "reward": 1}
    values |= {"checks_reward": 0.5, "termination": "completed", "trusted": True, "rung": 1, "pins": PINS, **changes}
    return Result(rollout=rollout, task=task, sample=sample, **values)


def write_run(folder: Path) -> RunFolder:
    """Two tasks: one with a measured, an infra, an untrusted and a missing rollout; one of another split."""
    run = ResultsFolder(folder).open_run(RUN)
    earlier = Earlier(attempt=1, kind="stage", usage=Usage(cost=0.25))
    infra: dict[str, Any] = {"outcome": "infra", "kind": "spawn", "reward": None, "checks_reward": None}
    lines = [
        line("r1", sample=1, **infra, termination=None, trusted=None, rung=None, pins=None, message="gone"),
        line("r0", attempt=2, earlier=(earlier,), usage=Usage(wall=1, tokens=7), metrics={"m": 2.0}, tags=("x", "y")),
        line("r2", sample=2, trusted=False),
        line("u0", "u", split="held-out", reward=0.0, outcome="failed", folder="rollouts/u/s0/a1"),
        line("r1", sample=1, **infra, amends=True, warnings=("odd",)),
    ]
    text = b"".join(msgspec.json.encode(each) + b"\n" for each in lines)
    (run.results / "main.jsonl").write_bytes(text + b'{"rollout": "r')
    known = dict.fromkeys((each.rollout, each.task, each.sample, each.split) for each in lines)
    planned = [
        Planned(node="n", rollout=rollout, task=task, sample=sample, agent="a", split=split)
        for rollout, task, sample, split in [*known, ("r3", "t", 3, None)]
    ]
    write_record(run.plan, Plan(rollouts=tuple(planned)))
    attempt = run.path / "rollouts/u/s0/a1"
    (attempt / "changes").mkdir(parents=True)
    (attempt / "stdout").write_text("said\n")
    return run


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """That run."""
    return write_run(tmp_path / "results")
