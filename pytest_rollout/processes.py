"""The processes below a process, as the kernel tells them."""

from __future__ import annotations

import os
from contextlib import suppress

__all__ = ["below", "children_of", "stat_of"]


def below(pid: int) -> list[int]:
    """The processes that a process started, those that they did, and so on, as far as they can be seen now."""
    found, new = list[int](), children_of(pid)
    while new:
        found += new
        new = [child for parent in new for child in children_of(parent)]
    return found


def children_of(pid: int | str) -> list[int]:
    """The children of a process (``self`` is this one), dead ones that nobody waited for included."""
    found = []
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError), open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found += [int(word) for word in file.read().split()]
    return found


def stat_of(pid: int) -> list[bytes]:
    """The fields of ``/proc/PID/stat`` behind the name, the state first (proc(5)); none where there is no process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []
