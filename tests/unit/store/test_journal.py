"""Journals: whole lines, on the disk when they were said, read again also when the last one is half."""

from __future__ import annotations

import json
import os
import resource
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytest_rollout.errors import HostError, RecordingError
from pytest_rollout.store.journal import AttemptJournal, ResultsJournal, utc_now
from pytest_rollout.store.records import Result


def test_results_are_one_line_each(tmp_path: Path, make_result: Callable[..., Result]) -> None:
    path = tmp_path / "gw0.jsonl"
    results = [make_result("a", message="one\ntwo"), make_result("b", warnings=("w",))]
    journal = ResultsJournal(path)
    for result in results:
        journal.append(result)
    lines = path.read_bytes().splitlines(keepends=True)
    assert [msgspec.json.decode(line, type=Result) for line in lines] == results
    assert all(line.endswith(b"}\n") for line in lines)
    journal.close()


def test_results_go_behind_what_is_there(tmp_path: Path, make_result: Callable[..., Result]) -> None:
    path = tmp_path / "main.jsonl"
    for name in "ab":
        journal = ResultsJournal(path)
        journal.append(make_result(name))
        journal.close()
    assert [json.loads(line)["rollout"] for line in path.read_text().splitlines()] == ["a", "b"]


def test_a_result_is_synced_and_an_event_is_not(
    tmp_path: Path, make_result: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []

    def sync(fd: int) -> None:
        synced.append(os.fstat(fd).st_size)

    monkeypatch.setattr(os, "fdatasync", sync)
    journal = ResultsJournal(tmp_path / "main.jsonl")
    journal.append(make_result("a"))
    assert synced == [os.stat(tmp_path / "main.jsonl").st_size]
    events = AttemptJournal(tmp_path / "journal.jsonl")
    events.event("started")
    assert len(synced) == 1
    journal.close()
    events.close()


def test_a_line_that_is_written_in_pieces_is_whole(
    tmp_path: Path, make_result: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[:7]))
    journal = ResultsJournal(tmp_path / "main.jsonl")
    journal.append(make_result("a"))
    journal.close()
    assert msgspec.json.decode((tmp_path / "main.jsonl").read_bytes(), type=Result) == make_result("a")


def test_a_full_disk_is_the_hosts(make_result: Callable[..., Result]) -> None:
    journal = ResultsJournal(Path("/dev/full"))
    with pytest.raises(HostError) as caught:
        journal.append(make_result())
    assert str(caught.value) == "the journal can't be written to /dev/full: No space left on device"
    journal.close()


def test_a_line_that_does_not_fit_leaves_nothing_of_itself(tmp_path: Path, make_result: Callable[..., Result]) -> None:
    """A limit on the size of files stands for a disk that fills in the middle of a line."""
    journal, place = ResultsJournal(tmp_path / "gw0.jsonl"), tmp_path / "gw0.jsonl"
    journal.append(make_result())
    before, limits = place.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 20, limits[1]))
    try:
        with pytest.raises(RecordingError, match="File too large"):
            journal.append(make_result())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert place.read_bytes() == before
    journal.append(make_result())
    assert len([msgspec.json.decode(line) for line in place.read_bytes().splitlines()]) == 2
    journal.close()


def test_a_journal_that_can_not_be_made_is_a_failure_to_record(tmp_path: Path) -> None:
    for kind in (ResultsJournal, AttemptJournal):
        with pytest.raises(RecordingError) as caught:
            kind(tmp_path / "no" / "j")
        assert str(caught.value) == f"the journal can't be written to {tmp_path}/no/j: No such file or directory"


def test_events_have_a_position_a_time_and_plain_facts(tmp_path: Path) -> None:
    times = iter(["t0", "t1", "t2"])
    journal = AttemptJournal(tmp_path / "journal.jsonl", now=lambda: next(times))
    facts: dict[str, Any] = {"argv": ["a\udcff", Path("b")], "reward": float("nan"), "code": None}
    journal.event("provisioned")
    journal.event("exec", **facts)
    journal.event("ended", exit_code=3)
    journal.close()
    assert [json.loads(line) for line in (tmp_path / "journal.jsonl").read_text().splitlines()] == [
        {"position": 0, "time": "t0", "event": "provisioned"},
        {"position": 1, "time": "t1", "event": "exec", "argv": ["a\\udcff", "b"], "reward": None, "code": None},
        {"position": 2, "time": "t2", "event": "ended", "exit_code": 3},
    ]


def test_now_is_utc_with_its_offset() -> None:
    first, second = (datetime.fromisoformat(utc_now()) for _ in range(2))
    assert first.utcoffset() == timedelta(0)
    assert timedelta(0) <= second - first < timedelta(minutes=1)


@pytest.mark.parametrize("jump", [-86_400, 86_400])
def test_a_clock_that_is_set_moves_no_time(jump: int, monkeypatch: pytest.MonkeyPatch) -> None:
    first = datetime.fromisoformat(utc_now())
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + jump)
    assert timedelta(0) <= datetime.fromisoformat(utc_now()) - first < timedelta(minutes=1)
