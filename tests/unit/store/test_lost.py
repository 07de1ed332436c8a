"""What a worker that died had begun, from what it left on the disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pytest_rollout.bundle import BundleRecord, Usage
from pytest_rollout.store.folder import RunFolder, write_record
from pytest_rollout.store.journal import AttemptJournal
from pytest_rollout.store.lost import lost_attempts
from pytest_rollout.store.records import Earlier

TASK = "test_x.py::test_x"
DIED = "worker 'gw0' crashed"


def left(run: RunFolder, number: int, *events: str, infra: str = "") -> str:
    """An attempt's folder with these events in its journal; its path in records."""
    folder = run.new_attempt(TASK, 0, number)
    journal = AttemptJournal(folder / "journal.jsonl")
    for event in events:
        journal.event(event)
    if infra:
        journal.event("infra", kind=infra, message="why", forgeable=False)
    journal.close()
    return run.relative(folder)


def test_a_worker_that_died_before_there_was_a_folder(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    assert lost_attempts(run, TASK, 0, (), DIED) == (Earlier(attempt=1, kind="worker", message=DIED),)
    before = (Earlier(attempt=3, kind="worker"),)
    assert lost_attempts(run, TASK, 0, before, DIED) == (*before, Earlier(attempt=4, kind="worker", message=DIED))


def test_it_is_forgeable_once_the_agent_was_started(tmp_path: Path, make_record: Callable[..., BundleRecord]) -> None:
    run = RunFolder(tmp_path)
    first, second = left(run, 1, "provisioned"), left(run, 2, "provisioned", "started")
    with open(tmp_path / second / "journal.jsonl", "ab") as file:
        file.write(b'{"position": 2, "eve')  # it died while it wrote
    write_record(tmp_path / second / "bundle.json", make_record(usage=Usage(cost=2.0)))
    assert lost_attempts(run, TASK, 0, (), DIED) == (
        Earlier(attempt=1, kind="worker", message=DIED, folder=first),
        Earlier(attempt=2, kind="worker", message=DIED, folder=second, forgeable=True, usage=Usage(cost=2.0)),
    )


def test_attempts_that_infrastructure_ended_have_their_kind(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    known = Earlier(attempt=1, kind="host", folder=left(run, 1, "started"))
    second, third = left(run, 2, "started", infra="provider"), left(run, 10)
    assert lost_attempts(run, TASK, 0, (known,), DIED) == (
        known,
        Earlier(attempt=2, kind="provider", message="why", folder=second),
        Earlier(attempt=10, kind="worker", message=DIED, folder=third),
    )
