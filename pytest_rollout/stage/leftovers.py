"""Processes of an attempt that a killed session left, or that no namespace holds.

Two things lead to them. The mark in their environment, wherever they went, is the name of the stage; a process that
clears its environment is not found. The file ``tree`` in a stage names the pid 1 of the namespace that acts in it: the
kernel lets it end after all others, so that the stage is over when that one is.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable
from contextlib import suppress
from functools import cache

from pytest_rollout.processes import stat_of

__all__ = ["MARK", "is_over", "kill_marked", "note_tree"]

MARK = "ROLLOUT_PROCESS_MARK"
_PREFIX = f"{MARK}=".encode()
_ROUNDS = 20


def note_tree(stage: str, pid: int) -> None:
    """Write down the pid 1 that acts in a stage, before anything of the candidate's runs; raises OSError."""
    with open(f"{stage}/tree", "w", encoding="ascii") as file:
        file.write(_identity(pid) or "")


def is_over(stage: str) -> bool:
    """Kill what is left of a stage whose session ended; says whether every process of it is dead."""
    kill_marked(lambda mark: mark == os.path.basename(stage))
    try:
        with open(f"{stage}/tree", encoding="ascii") as file:
            noted = file.read()
        pidfd = os.pidfd_open(int(noted.partition(" ")[0]))
    except (OSError, ValueError):  # the stage is gone, nothing acted in it, or that has ended
        return True
    try:
        if _identity(int(noted.partition(" ")[0])) != noted:
            return True
        with suppress(ProcessLookupError, PermissionError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        return bool(select.select([pidfd], [], [], 0)[0])
    finally:
        os.close(pidfd)


def _identity(pid: int) -> str | None:
    """A process, told apart from others that had or will have its number, on this machine or in another container."""
    fields = stat_of(pid)
    return f"{pid} {fields[19].decode('ascii')} {_here()}" if fields else None


@cache
def _here() -> str:
    """This boot of the machine, and the namespace in which pids count."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return f"{file.read().strip()} {os.stat('/proc/self/ns/pid').st_ino}"


def kill_marked(fits: Callable[[str], bool]) -> None:
    """Kill every process whose mark fits, and those that they start meanwhile, within reason."""
    for _ in range(_ROUNDS):
        found = [pid for pid in _pids() if (mark := _mark(pid)) is not None and fits(mark)]
        if not found:
            return
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass


def _pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def _mark(pid: int) -> str | None:
    try:
        with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:
            environ = file.readall()
    except OSError:
        return None
    if _PREFIX not in environ:  # nearly always: this is asked of every process of the machine
        return None
    items = environ.split(b"\0")
    return next((os.fsdecode(item.removeprefix(_PREFIX)) for item in items if item.startswith(_PREFIX)), None)
