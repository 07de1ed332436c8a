"""Processes of an attempt, found by the mark in their environment, wherever they went.

The mark is the name of the stage. A process that clears its environment is not found: this is for
what no namespace holds, and for what a killed session left.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

__all__ = ["MARK", "kill_marked"]

MARK = "ROLLOUT_PROCESS_MARK"
_PREFIX = f"{MARK}=".encode()
_ROUNDS = 20


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
