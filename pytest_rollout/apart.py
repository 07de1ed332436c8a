"""Do something in a forked child of this process, so that nothing of it is left here but its answer.

The child ends with this process, and when it takes too long. It never returns into its caller's frames: no handler at
exit runs, no buffer of this process is written twice.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import time
import warnings
from collections.abc import Callable
from contextlib import suppress

from pytest_rollout.processes import below, children_of, stat_of

__all__ = ["apart"]

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_ROUNDS = 200  # of killing
_PATIENCE = 4.0  # seconds for a child that was interrupted to put away what it started
_TICK = 1.0  # seconds of one wait: a signal that comes just before a wait does not end it
_HEAD = 8  # bytes of the length of an answer


def apart(work: Callable[[], bytes], seconds: float) -> bytes | None:
    """What ``work`` gives in a child; None where it raised, died, or took longer than ``seconds``.

    An interrupt is passed on to the child, and raised when it has ended.
    """
    read, write = os.pipe2(os.O_CLOEXEC)
    parent = os.getpid()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of other threads: the child needs none of them
        child = os.fork()
    if child == 0:  # with the caller's filters of warnings
        _be_the_child(work, write, parent)
    os.close(write)
    try:
        answer = _answer(read, child, time.monotonic() + seconds)
        if answer is not None:
            _wait(child, _PATIENCE)
        return answer
    except BaseException:
        os.kill(child, signal.SIGINT)
        with suppress(KeyboardInterrupt):
            _wait(child, _PATIENCE)
        raise
    finally:
        os.close(read)
        _end_tree(child)


def _be_the_child(work: Callable[[], bytes], write: int, parent: int) -> None:
    """Never returns."""
    try:
        library = ctypes.CDLL(None)
        library.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        library.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        if os.getppid() == parent:
            data = work()
            with memoryview(len(data).to_bytes(_HEAD, "big") + data) as view:
                at = 0
                while at < len(view):
                    at += os.write(write, view[at:])
    except BaseException:  # noqa: BLE001, S110 - the parent sees that there is no answer
        pass
    finally:
        _end_children()
        os._exit(0)


def _end_children() -> None:
    """Kill what this process started and what those did: nobody is left to wait for them."""
    for _ in range(_ROUNDS):
        children = children_of("self")
        _kill(children)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        if not children:
            return
        time.sleep(0.005)


def _end_tree(child: int) -> None:
    """Kill a child that may hang, and first what it started: it adopted the orphans among those."""
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGSTOP)
    for _ in range(_ROUNDS):
        lives = [pid for pid in below(child) if not _is_zombie(pid)]
        if not lives:
            break
        _kill(lives)
        time.sleep(0.005)
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def _is_zombie(pid: int) -> bool:
    fields = stat_of(pid)
    return not fields or fields[0] in b"ZX"


def _kill(pids: list[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _answer(read: int, child: int, deadline: float) -> bytes | None:
    """The child's answer as soon as it is whole: what the child started may hold the pipe open."""
    data, pidfd = bytearray(), os.pidfd_open(child)
    try:
        while len(data) < _HEAD or len(data) < _HEAD + int.from_bytes(data[:_HEAD], "big"):
            left = deadline - time.monotonic()
            ready, _, _ = select.select([read, pidfd], [], [], min(max(left, 0), _TICK))
            if not ready and left > _TICK:
                continue
            piece = os.read(read, 1 << 16) if read in ready else b""
            if not piece:  # it died, ended without an answer, or takes too long
                return None
            data += piece
    finally:
        os.close(pidfd)
    return bytes(data[_HEAD:])


def _wait(child: int, seconds: float) -> None:
    """Wait until a child has ended, without reaping it."""
    pidfd = os.pidfd_open(child)
    try:
        select.select([pidfd], [], [], seconds)
    finally:
        os.close(pidfd)
