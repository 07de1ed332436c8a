"""Work in a forked child: its answer, its death, its time, and an interrupt."""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings

import pytest

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


def test_what_the_child_started_does_not_hold_up_its_answer() -> None:
    def work() -> bytes:
        grandchild = os.fork()
        if grandchild == 0:
            time.sleep(5)
            os._exit(0)
        return str(grandchild).encode()

    said = apart(work, 20)
    assert said is not None
    os.kill(int(said), signal.SIGKILL)  # it lived


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
