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

import pytest

from pytest_rollout.capacity import SLOTS, Capacity
from pytest_rollout.errors import Cancelled, HostError, RecordingError
from pytest_rollout.executors.cancel import Cancel


@pytest.fixture
def cancel() -> Iterator[Cancel]:
    token = Cancel()
    yield token
    token.close()


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
        assert 0 <= first < 5
        assert 0 <= second < 5
    assert not (tmp_path / "none").exists()


def test_a_pool_is_waited_for_without_a_slot(tmp_path: Path, cancel: Cancel) -> None:
    capacity = Capacity(tmp_path, {"gpu": 1, SLOTS: 2})
    came = threading.Event()

    def wait_for_the_gpu() -> None:
        with capacity.held(("gpu",), cancel) as waited:
            assert waited >= 0.2
            came.set()

    with capacity.held(("gpu",), cancel):
        thread = threading.Thread(target=wait_for_the_gpu)
        thread.start()
        time.sleep(0.2)
        with capacity.held((), cancel) as waited:  # the second slot is free
            assert waited < 5
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
        with Capacity(tmp_path, {SLOTS: 1}).held((), cancel) as waited:
            assert waited < 10


def test_a_folder_that_can_not_be_made(tmp_path: Path, cancel: Cancel) -> None:
    (tmp_path / "file").touch()
    with pytest.raises((RecordingError, HostError), match="the place in the pool 'slots' can't be written"):
        Capacity(tmp_path / "file", {SLOTS: 1}).held((), cancel).__enter__()
