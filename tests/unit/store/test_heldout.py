"""The ledger of held-out runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from pytest_rollout.errors import RecordingError
from pytest_rollout.identity import canonical_digest
from pytest_rollout.redaction.redactor import Redactor
from pytest_rollout.store.folder import ResultsFolder, write_record
from pytest_rollout.store.heldout import Look, add_look, look_of, looks
from pytest_rollout.store.records import Plan, Planned, Result, RunRecord, SourceRun

RUNS = [f"2026-01-0{day}T00-00-00Z-0000000{day}" for day in range(1, 5)]


def look(run: str, tasks: int = 1) -> Look:
    return Look(run=run, time=f"{run[:10]}T01:00:00+00:00", tasks=tasks, digest="sha256:0", agents=("a",))


def test_a_look_is_what_agents_acted_on(make_result: Callable[..., Result]) -> None:
    held = [
        make_result("1", task="b", split="held-out", agent="z", time="2"),
        make_result("2", task="a", split="held-out", agent="y", time="3"),
        make_result("3", task="a", split="held-out", outcome="infra", reward=None, time="1"),
        make_result("4", task="c", split="held-out", outcome="infra", reward=None, termination=None, time="4"),
        make_result("5", task="d", split="train", time="5"),
    ]
    found = look_of("run", held)
    assert found == Look(run="run", time="3", tasks=2, digest=canonical_digest(["a", "b"]), agents=("good", "y", "z"))
    assert look_of("run", held[3:]) is None
    lost = msgspec.structs.replace(held[3], forgeable=True)  # its worker died when its agent may have acted
    assert look_of("run", [lost]) is not None


def test_the_ledger_outlives_runs_and_torn_lines(tmp_path: Path) -> None:
    results = ResultsFolder(tmp_path)
    assert looks(results).looks == ()
    for run in RUNS[:2]:
        add_look(results, look(run))
    with open(tmp_path / "held-out.jsonl", "ab") as file:
        file.write(b'{"run": "half of a li')
    add_look(results, look(RUNS[2]))
    add_look(results, look(RUNS[1], tasks=5))
    found = looks(results)
    assert ([each.run for each in found.looks], found.broken) == (RUNS[:3], 1)
    assert found.looks[1].tasks == 5, "a run that goes on is one look"
    assert [found.since(run) for run in (RUNS[0], RUNS[2], "2025")] == [2, 0, 3]


def test_a_run_that_was_killed_is_found_in_its_journals(tmp_path: Path, make_result: Callable[..., Result]) -> None:
    results = ResultsFolder(tmp_path)
    for run, split in zip(RUNS, ("held-out", "held-out", "train", None), strict=True):
        folder = results.open_run(run)
        line = make_result("r", task="t", split=split)
        (folder.results / "main.jsonl").write_bytes(msgspec.json.encode(line) + b"\n")
        planned = Planned(node="n", rollout="r", task="t", sample=0, agent="a", split=split)
        write_record(folder.plan, Plan(rollouts=(planned,)))
    add_look(results, look(RUNS[1], tasks=7))
    assert [(each.run, each.tasks) for each in looks(results).looks] == [(RUNS[0], 1), (RUNS[1], 7)]


def test_a_look_is_redacted_and_a_ledger_that_cant_be_written_is_told(tmp_path: Path) -> None:
    results = ResultsFolder(tmp_path)
    redactor = Redactor.of_process({"MY_API_KEY": "s3cr3t-v4lue-x"}, exists=lambda _: False)
    add_look(results, msgspec.structs.replace(look(RUNS[0]), agents=("run s3cr3t-v4lue-x",)), redactor)
    assert b"s3cr3t" not in (tmp_path / "held-out.jsonl").read_bytes()
    with pytest.raises(RecordingError, match="the ledger of held-out runs can't be written"):
        add_look(ResultsFolder(tmp_path / "none"), look(RUNS[0]))


def test_a_run_that_others_are_in_is_no_look_of_its_own(tmp_path: Path, make_result: Callable[..., Result]) -> None:
    """One merged of runs that are known, and one in which no agent ran; merged of others it is a look."""
    results = ResultsFolder(tmp_path)
    plan = Plan(rollouts=(Planned(node="n", rollout="r", task="t", sample=0, agent="a", split="held-out"),))

    def made(name: str, **changes: object) -> None:
        run = results.open_run(name)
        line = msgspec.json.encode(make_result("r", split="held-out", termination="completed"))
        (run.results / "main.jsonl").write_bytes(line + b"\n")
        write_record(run.plan, plan)
        fields = {"run": name, "started": "", "plugin_version": "", "options": {}, "pins": {}, "environment": {}}
        write_record(run.record, RunRecord(**fields, **changes))  # type: ignore[arg-type]

    made("2026-01-01T00-00-00Z-00000001")
    made("2026-01-02T00-00-00Z-00000002", merged=({"run": "2026-01-01T00-00-00Z-00000001"},))
    made("2026-01-03T00-00-00Z-00000003", source=SourceRun(run="x", folder="/x"))
    made("2026-01-04T00-00-00Z-00000004", merged=({"run": "2026-01-01T00-00-00Z-0000000f"},))
    assert [each.run[-1] for each in looks(results).looks] == ["1", "4"]
