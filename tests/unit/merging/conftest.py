"""Runs by hand: lines of results, plans and records, as shards of a suite leave them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytest_rollout.bundle import Pins
from pytest_rollout.identity import rollout_id, task_folder
from pytest_rollout.store.folder import ResultsFolder, RunFolder, write_record
from pytest_rollout.store.records import Plan, Planned, Result, RunRecord

PINS = Pins(task_digest="t", agent="a", seed=0, network="none", executor="sandbox", plugin_version="1")


class Maker:
    """Makes runs below one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @staticmethod
    def name(digits: str) -> str:
        """The id of a run by its digits."""
        return f"2026-11-{int(digits, 16) % 28 + 1:02}T00-00-00Z-{digits.rjust(8, '0')}"

    def line(self, digits: str, task: str, sample: int = 0, **changes: Any) -> Result:
        """A line of results, passed unless ``changes`` say something else."""
        values: dict[str, Any] = {"attempt": 1, "node": task, "agent": "a", "outcome": "passed", "reward": 1.0}
        values |= {"pins": PINS, "time": "2026-11-01T00:00:00+00:00", **changes}
        return Result(rollout=rollout_id(self.name(digits), task, sample), task=task, sample=sample, **values)

    def run(
        self,
        digits: str,
        lines: Sequence[Result],
        *,
        planned: Sequence[tuple[str, int]] = (),
        torn: str = "",
        shard: tuple[int, int, int] | None = None,
        place: str = "",
        evidence: bool = False,
        agent: str = "a",
    ) -> Path:
        """Write a run; ``planned`` are rollouts beside those of the lines, ``shard`` which one of
        how many it is, and how many rollouts the whole has. Returns the folder of the results."""
        results = ResultsFolder(self.folder / (place or digits))
        run = results.open_run(self.name(digits))
        text = "".join(f"{msgspec.json.encode(line).decode()}\n" for line in lines)
        (run.results / "main.jsonl").write_text(text + torn)
        identities = dict.fromkeys([*((line.task, line.sample) for line in lines), *planned])
        rollouts = [
            Planned(node=task, rollout=rollout_id(run.name, task, sample), task=task, sample=sample, agent="a")
            for task, sample in identities
        ]
        write_record(run.plan, Plan(rollouts=tuple(rollouts)))
        record = RunRecord(
            run=run.name,
            started=f"2026-11-01T00:00:0{int(digits, 16) % 10}+00:00",
            plugin_version="1",
            options={"agent": agent, "digits": digits},
            pins={},
            environment={"python": "3"},
        )
        cut = dict(zip(("index", "count", "all_rollouts"), shard or (), strict=False))
        write_record(run.record, {**msgspec.to_builtins(record), **({"shard": cut} if cut else {})})
        if evidence:
            for line in lines:
                folder = run.attempt(line.task, line.sample, line.attempt)
                folder.mkdir(parents=True, exist_ok=True)
                (folder / "stdout").write_text(line.rollout)
        return results.path

    def labels(self, digits: str, *labels: dict[str, Any]) -> None:
        """Add labels to a run."""
        with open(self.folder / digits / "runs" / self.name(digits) / "labels.jsonl", "a") as file:
            file.writelines(f"{json.dumps(label)}\n" for label in labels)


def contents(run: RunFolder) -> dict[str, bytes]:
    """Every file of a run by its path in it."""
    return {path.relative_to(run.path).as_posix(): path.read_bytes() for path in run.path.rglob("*") if path.is_file()}


def stdout_of(run: RunFolder, task: str, sample: int = 0, attempt: int = 1) -> str:
    """What a rollout printed, as the merged run has it."""
    return (run.path / "rollouts" / task_folder(task) / f"s{sample}" / f"a{attempt}" / "stdout").read_text()


@pytest.fixture
def maker(tmp_path: Path) -> Maker:
    """Makes runs."""
    return Maker(tmp_path)
