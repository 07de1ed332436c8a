"""Work in a forked child: its answer, its death, its time, and an interrupt."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
import warnings

import pytest

from pytest_rollout import apart as module
from pytest_rollout.apart import apart


def test_an_answer_and_nothing_else_comes_back() -> None:
    kept: list[int] = []

    def work() -> bytes:
        kept.append(1)
        return f"{os.getpid()} {len(kept)}".encode() + bytes(1 << 20)

    said = apart(work, 20)
    assert said is not None
    pid, count = said.rstrip(b"\0").split()
    assert (int(pid) != os.getpid(), count, kept, len(said) > 1 << 20) == (True, b"1", [], True)
    assert apart(lambda: b"", 20) == b""


def test_filters_of_warnings_are_those_of_the_caller() -> None:
    def work() -> bytes:
        try:
            warnings.warn("x", DeprecationWarning, stacklevel=1)
        except DeprecationWarning:
            return b"raised"
        return b"told"

    assert apart(work, 20) == b"raised", "this suite makes every warning an error"


@pytest.mark.parametrize("how", [lambda: os._exit(0), lambda: os.kill(os.getpid(), signal.SIGKILL), lambda: 1 / 0])
def test_a_child_that_gives_no_answer(how: object) -> None:
    assert callable(how)
    assert apart(how, 20) is None


def test_a_child_that_takes_too_long_is_killed() -> None:
    read, write = os.pipe()

    def work() -> bytes:
        os.write(write, str(os.getpid()).encode())
        time.sleep(60)
        return b""

    began = time.monotonic()
    assert apart(work, 0.3) is None
    assert time.monotonic() - began < 20
    with pytest.raises(ProcessLookupError):
        os.kill(int(os.read(read, 100)), 0)
    os.close(read)
    os.close(write)


def _started() -> bytes:
    """The pid of a process that holds what it inherited, and lives."""
    read, write = os.pipe()
    process = subprocess.Popen(["sh", "-c", "echo lives; exec sleep 300"], stdout=write, start_new_session=True)
    assert os.read(read, 100) == b"lives\n"
    return str(process.pid).encode()


def _lives(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in b"ZX"
    except OSError:
        return False


def test_what_the_child_started_ends_with_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    kill = module._kill

    def slowly(pids: list[int]) -> None:
        time.sleep(0.05)
        kill(pids)

    monkeypatch.setattr(module, "_kill", slowly)
    said = apart(_started, 20)
    assert said is not None
    assert not _lives(int(said))


def test_what_a_child_started_that_takes_too_long_ends_with_it() -> None:
    read, write = os.pipe()

    def work() -> bytes:
        os.write(write, _started())
        time.sleep(60)
        return b""

    assert apart(work, 1.0) is None
    assert not _lives(int(os.read(read, 100)))
    os.close(read)
    os.close(write)


def test_an_interrupt_reaches_the_child_and_the_caller() -> None:
    read, write = os.pipe()

    def work() -> bytes:
        try:
            os.write(write, b"ready ")
            time.sleep(60)
        except KeyboardInterrupt:
            os.write(write, b"put away")
        return b""

    def interrupt() -> None:
        heard.append(os.read(read, 6))
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    heard: list[bytes] = []
    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        apart(work, 60)
    thread.join()
    assert (heard, os.read(read, 100)) == ([b"ready "], b"put away")
    os.close(read)
    os.close(write)
