"""The folders of runs: whole records, held runs, the newest one, and what is pruned."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from filelock import FileLock

from pytest_rollout.errors import ConfigError, HostError, RecordingError
from pytest_rollout.identity import task_folder
from pytest_rollout.store.folder import ResultsFolder, RunFolder, read_record, write_record
from pytest_rollout.store.records import Plan, Planned

HINT = "Set another with --rollout-dir, or the ini key rollout_dir."
HOLD = """
import sys
from pathlib import Path
from pytest_rollout.store.folder import RunFolder
run = RunFolder(Path(sys.argv[1]))
run.hold()
print("held", flush=True)
sys.stdin.read()
run.release()
"""


def plan(number: int) -> Plan:
    return Plan(rollouts=(Planned(node="n", rollout=f"r{number}", task="t", sample=number, agent="good"),))


# Records


def test_a_record_is_indented_and_ends_in_a_newline(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    assert write_record(path, {"b": [1], "a": "é"}) is True
    assert path.read_text("utf-8") == '{\n  "b": [\n    1\n  ],\n  "a": "é"\n}\n'
    assert os.listdir(tmp_path) == ["plan.json"]


def test_a_record_replaces_the_one_before_and_create_only_does_not(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    assert write_record(path, plan(1), create_only=True) is True
    assert write_record(path, plan(2), create_only=True) is False
    assert read_record(path, Plan) == plan(1)
    assert write_record(path, plan(3)) is True
    assert read_record(path, Plan) == plan(3)
    assert os.listdir(tmp_path) == ["plan.json"]


def test_of_many_writers_the_first_one_wins(tmp_path: Path) -> None:
    path, barrier = tmp_path / "plan.json", threading.Barrier(8)
    wrote: dict[int, bool] = {}

    def write(number: int) -> None:
        barrier.wait()
        wrote[number] = write_record(path, plan(number), create_only=True)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = [number for number, won in wrote.items() if won]
    assert len(wrote) == 8
    assert read_record(path, Plan) == plan(winner)
    assert os.listdir(tmp_path) == ["plan.json"]


def test_a_folder_that_is_not_there_can_not_be_recorded_in(tmp_path: Path) -> None:
    path = tmp_path / "no" / "plan.json"
    with pytest.raises(RecordingError) as caught:
        write_record(path, plan(1))
    assert str(caught.value) == f"a record can't be written to {path}: No such file or directory"


@pytest.mark.parametrize("create_only", [False, True])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_the_hosts_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, create_only: bool, code: int
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link" if create_only else "replace", refuse)
    path = tmp_path / "plan.json"
    with pytest.raises(HostError) as caught:
        write_record(path, plan(1), create_only=create_only)
    assert str(caught.value) == f"a record can't be written to {path}: {os.strerror(code)}"
    assert os.listdir(tmp_path) == []


# One run


def test_where_an_attempt_lies(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    run.path.mkdir()
    path = run.new_attempt("t.py::test_a[x]", 3, 2)
    assert path == tmp_path / "run" / "rollouts" / task_folder("t.py::test_a[x]") / "s3" / "a2"
    assert path == run.attempt("t.py::test_a[x]", 3, 2)
    assert path.is_dir()
    assert run.relative(path) == f"rollouts/{task_folder('t.py::test_a[x]')}/s3/a2"
    assert (run.name, run.plan, run.record) == ("run", tmp_path / "run/plan.json", tmp_path / "run/run.json")
    with pytest.raises(RecordingError) as caught:
        run.new_attempt("t.py::test_a[x]", 3, 2)
    assert str(caught.value) == f"an attempt can't be written to {path}: File exists"


@pytest.fixture
def holder() -> Iterator[Callable[[RunFolder], subprocess.Popen[str]]]:
    """Another process that holds a run until its standard input ends; it holds when this returns."""
    started: list[subprocess.Popen[str]] = []

    def start(run: RunFolder) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(run.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_a_run_is_in_progress_while_its_process_lives(
    tmp_path: Path, holder: Callable[[RunFolder], subprocess.Popen[str]]
) -> None:
    run = RunFolder(tmp_path)
    assert not run.in_progress()
    process = holder(run)
    assert process.poll() is None
    assert run.in_progress()
    assert run.in_progress()
    process.communicate("")
    assert process.returncode == 0
    assert not run.in_progress()
    assert os.listdir(tmp_path) == []


def test_a_run_whose_process_was_killed_is_over(
    tmp_path: Path, holder: Callable[[RunFolder], subprocess.Popen[str]]
) -> None:
    run = RunFolder(tmp_path)
    process = holder(run)
    assert run.in_progress()
    process.kill()
    process.wait()
    assert not run.in_progress()


def test_a_run_that_was_killed_is_known_as_cut_short_until_a_session_ends_it(
    tmp_path: Path, holder: Callable[[RunFolder], subprocess.Popen[str]]
) -> None:
    run = RunFolder(tmp_path)
    assert not run.was_cut()
    process = holder(run)
    assert not run.was_cut()
    process.kill()
    process.wait()
    assert run.was_cut()
    assert run.hold()
    run.release(ended=False)  # it was refused
    assert run.was_cut()
    assert run.hold()
    run.release()
    assert not run.was_cut()
    assert run.hold()
    run.release(ended=False)
    assert not run.was_cut()


def test_a_worker_that_was_left_alone_is_progress_and_not_its_session(tmp_path: Path) -> None:
    run, worker = RunFolder(tmp_path), RunFolder(tmp_path)
    assert worker.hold("gw0")
    assert (run.in_progress(), run.is_held(), run.was_cut()) == (True, False, False)
    assert run.hold()
    assert not RunFolder(tmp_path).hold(patience=0.02)
    (run.path / "lock-gw1").touch()  # of a worker that died
    worker.release()
    assert run.is_held()
    run.release()
    assert not run.in_progress()
    assert os.listdir(tmp_path) == []


def test_a_session_that_goes_on_forgets_what_ended_the_one_before(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    run.path.mkdir()
    run.begin_again()
    (run.path / "stop").write_text("ten in a row")
    (run.path / "preflight.json").touch()
    run.new_preflight("noop")
    run.begin_again()
    assert (run.stopped(), os.listdir(run.path)) == ("", [])


def test_this_process_can_hold_and_release_and_hold_again(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    for _ in range(2):
        run.hold()
        assert run.in_progress()
        assert RunFolder(tmp_path).in_progress()
        run.release()
        assert not run.in_progress()
    run.release()


def test_a_run_that_another_process_holds_is_not_released(
    tmp_path: Path, holder: Callable[[RunFolder], subprocess.Popen[str]]
) -> None:
    holder(RunFolder(tmp_path))
    mine = RunFolder(tmp_path)
    mine.hold()
    mine.release()
    assert mine.in_progress()


# All runs


def test_a_run_is_opened_beside_the_marks_of_the_folder(tmp_path: Path) -> None:
    results = ResultsFolder(tmp_path / "deep" / ".rollout")
    run = results.open_run("2026-a")
    assert run.path == tmp_path / "deep" / ".rollout" / "runs" / "2026-a"
    assert run.results.is_dir()
    assert sorted(os.listdir(results.path)) == [".gitignore", "CACHEDIR.TAG", "latest", "runs"]
    assert (results.path / ".gitignore").read_text() == "*\n"
    assert (results.path / "latest").read_text() == "2026-a\n"
    (results.path / ".gitignore").write_text("mine\n")
    results.open_run("2026-a")
    results.open_run("2026-b")
    assert (results.path / ".gitignore").read_text() == "mine\n"
    assert (results.path / "latest").read_text() == "2026-b\n"


def test_a_run_can_not_be_opened_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    results = ResultsFolder(tmp_path / "file" / "r")
    with pytest.raises(ConfigError) as caught:
        results.open_run("x")
    assert str(caught.value) == (
        f"the folder of the results, {tmp_path}/file/r, can't be written: Not a directory\n{HINT}"
    )


def test_the_runs_are_listed_oldest_first(tmp_path: Path) -> None:
    results = ResultsFolder(tmp_path)
    assert (results.all_runs(), results.latest()) == ([], None)
    for name in ("b", "c", "a"):
        results.open_run(name)
    (results.runs / "file").touch()
    assert [run.name for run in results.all_runs()] == ["a", "b", "c"]


def test_the_latest_run_is_the_one_that_was_opened_last(tmp_path: Path) -> None:
    results = ResultsFolder(tmp_path)
    for name in ("b", "c", "a"):
        results.open_run(name)
    latest = results.latest()
    assert latest is not None
    assert latest.name == "a"


@pytest.mark.parametrize("content", [None, "gone\n", "", "../..\n", "\xff"])
def test_without_a_good_note_the_newest_name_is_the_latest(tmp_path: Path, content: str | None) -> None:
    results = ResultsFolder(tmp_path)
    for name in ("b", "c", "a"):
        results.open_run(name)
    if content is None:
        (tmp_path / "latest").unlink()
    else:
        (tmp_path / "latest").write_text(content, "latin-1")
    latest = results.latest()
    assert latest is not None
    assert latest.name == "c"


def test_a_place_that_can_be_written_is_left_as_it_was(tmp_path: Path) -> None:
    ResultsFolder(tmp_path / "a" / "b").check_writable()
    ResultsFolder(tmp_path).check_writable()
    assert os.listdir(tmp_path) == []


def test_a_file_is_not_a_folder_of_results(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError) as caught:
        ResultsFolder(tmp_path / "file").check_writable()
    assert str(caught.value) == (
        f"the folder of the results, {tmp_path}/file, is not a folder\nSet it with --rollout-dir."
    )
    with pytest.raises(ConfigError) as caught:
        ResultsFolder(tmp_path / "file" / "below").check_writable()
    assert str(caught.value) == (
        f"the folder of the results, {tmp_path}/file/below, can't be written: {tmp_path}/file is not a folder\n{HINT}"
    )


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_place_without_the_right_to_write_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir(mode=0o500)
    with pytest.raises(ConfigError) as caught:
        ResultsFolder(tmp_path / "mine" / "r").check_writable()
    assert str(caught.value) == (
        f"the folder of the results, {tmp_path}/mine/r, can't be written: no right to write in {tmp_path}/mine\n{HINT}"
    )


# Pruning


def test_a_run_is_held_though_somebody_looks_whether_it_is(tmp_path: Path) -> None:
    run = ResultsFolder(tmp_path).open_run("2026-11-29T22-08-00Z-00000000")
    looking = FileLock(run.path / "lock", thread_local=False)
    looking.acquire()
    timer = threading.Timer(0.05, looking.release)
    timer.start()
    run.hold()
    timer.join()
    assert run.in_progress()
    run.release()
    assert not run.in_progress()


NAMES = [f"2026-11-29T22-08-0{number}Z-0000000{number}" for number in range(4)]


def test_the_oldest_runs_beyond_the_number_are_removed(tmp_path: Path) -> None:
    results = ResultsFolder(tmp_path)
    for name in NAMES:
        (results.open_run(name).path / "x").write_text("x")
    assert [run.name for run in results.surplus(3)] == NAMES[:1]
    assert results.prune(2) == NAMES[:2]
    assert [run.name for run in results.all_runs()] == NAMES[2:]
    assert results.prune(2) == []


def test_what_is_no_run_is_not_removed(tmp_path: Path) -> None:
    results = ResultsFolder(tmp_path)
    for name in ("1", "experiment", "2026-11-29T22-08-00Z-00000000.bak", *NAMES):
        (results.runs / name / "results").mkdir(parents=True)
    assert results.prune(3) == NAMES[:1]
    assert len(results.all_runs()) == 6


def test_a_run_in_progress_is_spared(tmp_path: Path, holder: Callable[[RunFolder], subprocess.Popen[str]]) -> None:
    results = ResultsFolder(tmp_path)
    runs = [results.open_run(name) for name in NAMES]
    process = holder(runs[0])
    assert process.poll() is None
    assert results.prune(1) == NAMES[1:3]
    process.communicate("")
    assert results.prune(1) == NAMES[:1]
    assert [run.name for run in results.all_runs()] == NAMES[3:]
