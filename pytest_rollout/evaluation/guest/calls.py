"""The verb ``call``: functions of the candidate's, each in a child process of its own.

Of another call of its batch one sees no value. What the kernel counts goes on counting: the numbers
of processes and of inodes tell how many there were.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sys
import time
from collections.abc import Container

from pytest_rollout.evaluation.guest.modules import answer, see_candidate_first
from pytest_rollout.evaluation.guest.values import Message, answer_with, written

__all__ = ["call"]

SCRATCH = ("/tmp", "/dev/shm", "/home/agent")
_PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER = 4, 36
_ROUNDS = 5000  # of killing, each with a pause where nothing died yet


def call(spec: Message) -> None:
    """Each call in a child of its own; of one call nothing is there, or seen, when the next begins."""
    _control(_PR_SET_DUMPABLE, 0)  # no child of this user's reads the descriptors of this process
    if spec["alone"]:
        _control(_PR_SET_CHILD_SUBREAPER, 1)  # what a call leaves behind becomes a child of this process
    pairs = [tuple(pair) for pair in spec["pairs"]]
    known = {path for folder in SCRATCH for path in entries(folder)} if spec["alone"] and len(pairs) > 1 else ()
    for number, (request, response) in enumerate(pairs):
        child = os.fork()
        if child == 0:
            try:
                for other, pair in enumerate(pairs):
                    if other != number:
                        os.close(pair[0])
                        os.close(pair[1])
                if len(pairs) > 1:
                    _leave_the_streams()
                call_one(request, response)
            finally:
                os._exit(0)
        pidfd = os.pidfd_open(child)
        select.select([pidfd], [], [])
        os.close(pidfd)
        if number + 1 < len(pairs):
            end_others(child, alone=spec["alone"])
            if spec["alone"]:
                remove_new(known)


def call_one(request: int, response: int) -> None:
    os.setsid()
    _control(_PR_SET_DUMPABLE, 1)
    asked = json.loads(os.pread(request, os.fstat(request).st_size, 0))
    os.close(request)
    see_candidate_first()
    answer_with(response, written(answer(asked["target"], asked["args"], asked["kwargs"])))


def _leave_the_streams() -> None:
    """Open standard streams of this call's own: flags and owners of shared ones would tell the next call something."""
    for stream in range(3):
        fd = os.open(os.devnull, os.O_RDWR)
        os.dup2(fd, stream)
        os.close(fd)


def _control(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def end_others(child: int, *, alone: bool) -> None:
    """Kill what a call left running, and reap it. ``alone``: every process here is of this sandbox.

    Processes that start others while they are killed get fewer with each round; where they don't, this one ends.
    """
    for _ in range(_ROUNDS):
        try:
            if alone and os.getpid() != 1:
                os.kill(-1, signal.SIGKILL)  # but for this process, and for pid 1 of the namespace
            else:
                os.killpg(child, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        try:
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        except ChildProcessError:
            return
        time.sleep(0.001)
    if alone:
        print("what a call left running can't be ended", file=sys.stderr)
        os._exit(3)


def entries(folder: str) -> list[str]:
    """Every path below a folder of this sandbox's own, the deepest first; what is mounted there is left out."""
    found, device = [], os.stat(folder).st_dev
    pending = [folder]
    while pending:
        at = pending.pop()
        os.chmod(at, 0o700)
        for entry in os.scandir(at):
            info = entry.stat(follow_symlinks=False)
            if info.st_dev == device:
                found.append(entry.path)
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
    return found[::-1]


def _make_as_new(path: str) -> None:
    """Take away what a call can write into the attributes of a folder, or a file, that stays."""
    if not os.path.islink(path):
        for name in os.listxattr(path):
            os.removexattr(path, name)
        os.chmod(path, 0o700)
        os.utime(path, (0, 0))


def remove_new(known: Container[str]) -> None:
    """Remove what a call left in the folders that it can write; ends this process where that can't be done."""
    try:
        for folder in SCRATCH:
            for path in entries(folder):
                if path in known:
                    _make_as_new(path)
                else:
                    os.rmdir(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)
            _make_as_new(folder)
    except (OSError, RecursionError) as error:
        print(f"what a call left can't be removed: {error}", file=sys.stderr)
        os._exit(3)  # better no further call than one that sees this one's files
