"""Places that rollouts share: never more than there are, free at once when their holder is gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from pytest_rollout import capacity as module
from pytest_rollout.capacity import SLOTS, Capacity
from pytest_rollout.errors import Cancelled, HostError, RecordingError
from pytest_rollout.executors.cancel import Cancel
from pytest_rollout.stage.leftovers import is_over, note_tree
from pytest_rollout.waiting import Holder, Waiting, told, waiting_in


@pytest.fixture
def cancel() -> Iterator[Cancel]:
    token = Cancel()
    yield token
    token.close()


@pytest.fixture
def agent() -> Iterator[subprocess.Popen[bytes]]:
    """A process that lives until it is killed."""
    with subprocess.Popen(["sleep", "300"]) as process:
        yield process
        process.kill()


HOLD = """
import sys, time
from pathlib import Path
from pytest_rollout.capacity import Capacity
from pytest_rollout.executors.cancel import Cancel

with Capacity(Path(sys.argv[1]), {"slots": 1}).held((), Cancel()):
    print("held", flush=True)
    time.sleep(60)
"""


@contextmanager
def another(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the one slot."""
    words = [sys.executable, "-c", HOLD, str(folder)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def test_never_more_than_there_are(tmp_path: Path, cancel: Cancel) -> None:
    running, most, lock = [0], [0], threading.Lock()

    def work() -> None:
        with Capacity(tmp_path, {SLOTS: 2}).held((), cancel):
            with lock:
                running[0] += 1
                most[0] = max(most[0], running[0])
            time.sleep(0.02)
            with lock:
                running[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (running, most) == ([0], [2])


def test_what_has_no_size_has_no_end(tmp_path: Path, cancel: Cancel) -> None:
    capacity = Capacity(tmp_path / "none", {})
    with capacity.held(("gpu",), cancel) as first, capacity.held((), cancel) as second:
        assert 0 <= first.waited < 5
        assert 0 <= second.waited < 5
    assert not (tmp_path / "none").exists()


def test_a_pool_is_waited_for_without_a_slot(tmp_path: Path, cancel: Cancel) -> None:
    capacity = Capacity(tmp_path, {"gpu": 1, SLOTS: 2})
    came = threading.Event()

    def wait_for_the_gpu() -> None:
        with capacity.held(("gpu",), cancel) as places:
            assert places.waited >= 0.2
            came.set()

    with capacity.held(("gpu",), cancel):
        thread = threading.Thread(target=wait_for_the_gpu)
        thread.start()
        time.sleep(0.2)
        with capacity.held((), cancel) as places:  # the second slot is free
            assert places.waited < 5
        assert not came.is_set()
    thread.join(10)
    assert came.is_set()


def test_the_place_of_a_killed_process_is_free(tmp_path: Path, cancel: Cancel) -> None:
    with another(tmp_path) as process:
        got = threading.Event()

        def wait() -> None:
            with Capacity(tmp_path, {SLOTS: 1}).held((), cancel):
                got.set()

        thread = threading.Thread(target=wait)
        thread.start()
        assert not got.wait(0.3)
        os.kill(process.pid, signal.SIGKILL)
        assert got.wait(10)
        thread.join()


def test_a_place_is_taken_when_the_agent_of_its_killed_holder_is_dead(
    tmp_path: Path, cancel: Cancel, agent: subprocess.Popen[bytes]
) -> None:
    stage = tmp_path / "stages" / "x-0"
    stage.mkdir(parents=True)
    capacity = Capacity(tmp_path, {"gpu": 1})
    note_tree(str(stage), agent.pid)
    with pytest.raises(HostError), capacity.held(["gpu"], cancel) as places:
        places.used_by(str(stage))
        raise HostError("the processes were killed and did not end")
    assert agent.poll() is None, "it lives"
    with capacity.held(["gpu"], cancel) as places:
        assert agent.poll() == -signal.SIGKILL
        places.used_by(str(stage))
    assert (tmp_path / "gpu.0").read_bytes() == b""


def test_a_process_that_only_has_the_number_of_an_agent_is_left_alone(
    tmp_path: Path, agent: subprocess.Popen[bytes]
) -> None:
    note_tree(str(tmp_path), agent.pid)
    noted = (tmp_path / "tree").read_text().split()
    assert noted[0] == str(agent.pid)
    (tmp_path / "tree").write_text(" ".join([noted[0], str(int(noted[1]) - 1), *noted[2:]]))
    assert is_over(str(tmp_path))
    assert agent.poll() is None


def test_a_long_wait_is_told(tmp_path: Path, cancel: Cancel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SILENT", 0.05)
    run = tmp_path / "run"
    run.mkdir()
    first = Capacity(tmp_path, {"gpu": 1}, run="RUN", worker="gw0")
    second = Capacity(tmp_path, {"gpu": 1}, run="RUN", worker="gw1", notices=run / "waiting")
    came = threading.Event()

    def wait() -> None:
        with second.held(["gpu"], cancel):
            came.set()

    with first.held(["gpu"], cancel, node="test_a.py::test_it"):
        thread = threading.Thread(target=wait)
        thread.start()
        deadline = time.monotonic() + 20
        while not waiting_in(run / "waiting") and time.monotonic() < deadline:
            time.sleep(0.01)
        line = f"rollout: 1 rollout waits for 'gpu' (1 place), held by pid {os.getpid()} (RUN gw0, test_a.py::test_it)"
        assert told(waiting_in(run / "waiting")) == [line]
        assert not came.is_set()
    thread.join(20)
    assert came.is_set()
    assert waiting_in(run / "waiting") == []


def test_what_is_told_of_waits_has_an_end(tmp_path: Path) -> None:
    holders = tuple(Holder(pid=number, run="RUN", worker="gw0") for number in range(1, 6))
    waits = [Waiting(pid=1, pool="slots", size=5, holders=holders), Waiting(pid=2, pool="slots", size=5)]
    assert told(waits) == [
        "rollout: 2 rollouts wait for 'slots' (5 places), "
        "held by pid 1 (RUN gw0); pid 2 (RUN gw0); pid 3 (RUN gw0) and 2 more"
    ]
    (tmp_path / "gw0.json").write_bytes(msgspec.json.encode(Waiting(pid=1 << 30, pool="slots", size=1)))
    (tmp_path / "gw1.json").write_text("{")
    assert waiting_in(tmp_path) == []


def test_a_cancel_ends_the_wait(tmp_path: Path, cancel: Cancel) -> None:
    with another(tmp_path):
        threading.Timer(0.2, cancel.set).start()
        with pytest.raises(Cancelled, match="waited for a place"), Capacity(tmp_path, {SLOTS: 1}).held((), cancel):
            pytest.fail("there was no place")


def test_nobody_who_waits_holds_a_place_up(tmp_path: Path, cancel: Cancel) -> None:
    """The gate is given back where the wait is cancelled."""
    with another(tmp_path) as process:
        gone = Cancel()
        gone.set()
        with pytest.raises(Cancelled), Capacity(tmp_path, {SLOTS: 1}).held((), gone):
            pass
        gone.close()
        process.kill()
        process.wait()
        with Capacity(tmp_path, {SLOTS: 1}).held((), cancel) as places:
            assert places.waited < 10


def test_a_folder_that_can_not_be_made(tmp_path: Path, cancel: Cancel) -> None:
    (tmp_path / "file").touch()
    with pytest.raises((RecordingError, HostError), match="the place in the pool 'slots' can't be written"):
        Capacity(tmp_path / "file", {SLOTS: 1}).held((), cancel).__enter__()
