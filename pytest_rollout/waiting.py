"""Who holds the places of a pool, and who waits for one: small files that say it while it lasts.

A holder writes itself into the file that it has locked; a process that has waited for some seconds says so in a file
of its run, ``waiting/<worker>.json``. Both are read without a lock and without trust: what can't be read, or comes
from a process that is gone, is left out.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

__all__ = ["Holder", "Waiting", "holders_of", "read_holder", "told", "waiting_in"]

_MOST = 1 << 16  # bytes that are read of such a file
_NAMED = 3  # holders that a line names


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """A process that holds a place; ``stage`` is where its agent acts, once there is one."""

    pid: int
    run: str
    worker: str
    node: str = ""
    stage: str | None = None

    def __str__(self) -> str:
        what = f", {self.node}" if self.node else ""
        return f"pid {self.pid} ({self.run} {self.worker}{what})"


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """A process that waits for a place of a pool with ``size`` places, and who holds them as far as that is known."""

    pid: int
    pool: str
    size: int
    holders: tuple[Holder, ...] = ()


def read_holder(fd: int) -> Holder | None:
    """Who wrote itself into the file of a place, or None."""
    with suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode(os.pread(fd, _MOST, 0), type=Holder)
    return None


def holders_of(places: Sequence[Path]) -> tuple[Holder, ...]:
    """The living holders of these places."""
    found = []
    for place in places:
        with suppress(OSError), open(place, "rb") as file:
            holder = read_holder(file.fileno())
            if holder is not None and _lives(holder.pid):
                found.append(holder)
    return tuple(found)


def waiting_in(folder: Path) -> list[Waiting]:
    """What living processes have said in a run's folder ``waiting``."""
    found = []
    for place in sorted(folder.glob("*.json")):
        with suppress(OSError, msgspec.MsgspecError), open(place, "rb") as file:
            waiting = msgspec.json.decode(file.read(_MOST), type=Waiting)
            if _lives(waiting.pid):
                found.append(waiting)
    return found


def told(waits: Sequence[Waiting]) -> list[str]:
    """A line for each pool that is waited for."""
    lines = []
    for pool in sorted({waiting.pool for waiting in waits}):
        here = [waiting for waiting in waits if waiting.pool == pool]
        who = "1 rollout waits" if len(here) == 1 else f"{len(here)} rollouts wait"
        places = "1 place" if here[0].size == 1 else f"{here[0].size} places"
        holders = list(dict.fromkeys(str(holder) for waiting in here for holder in waiting.holders))
        more = f" and {len(holders) - _NAMED} more" if len(holders) > _NAMED else ""
        held = f", held by {'; '.join(holders[:_NAMED])}{more}" if holders else ""
        lines.append(f"rollout: {who} for {pool!r} ({places}){held}")
    return lines


def _lives(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")
