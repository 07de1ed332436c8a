"""Places that the rollouts of a machine share: so many agents at once, so many with a GPU.

::

    <folder>/<pool>.gate      held by the one who is next
    <folder>/<pool>.<number>  held by the one who has this place

All are locks of the kernel's (flock), so the place of a process that is killed is free at once, and its sandbox ends
with it. They hold across the workers of a session and across sessions; each session says how many places there are.
Several are always taken in one order, so that no two rollouts wait for each other.
"""

from __future__ import annotations

import fcntl
import os
import select
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pytest_rollout.errors import Cancelled, recording_error
from pytest_rollout.executors.cancel import Cancel

__all__ = ["SLOTS", "Capacity"]

SLOTS = "slots"  # the pool that every rollout needs a place of
_SHORTEST, _LONGEST = 0.01, 0.1  # seconds between two looks


class Capacity:
    """The places of each pool, by its name; a pool without a size has no end."""

    def __init__(self, folder: Path, sizes: Mapping[str, int]) -> None:
        self._folder, self._sizes = folder, dict(sizes)

    @contextmanager
    def held(self, pools: Sequence[str], cancel: Cancel) -> Iterator[float]:
        """A place of each pool, and one of the slots, in this context; gives the seconds that were waited for them.

        Raises Cancelled, and RecordingError or HostError where no lock can be made.
        """
        began = time.monotonic()
        with ExitStack() as places:
            for pool in (*sorted(set(pools)), SLOTS):  # the slots last: who waits for a GPU keeps nobody from one
                if pool in self._sizes:
                    places.callback(os.close, self._taken(pool, self._sizes[pool], cancel))
            yield time.monotonic() - began

    def _taken(self, pool: str, size: int, cancel: Cancel) -> int:
        """The descriptor of a locked place; closing it gives the place back."""
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            gate = self._lock([f"{pool}.gate"], cancel)
            try:
                return self._lock([f"{pool}.{number}" for number in range(size)], cancel)
            finally:
                os.close(gate)
        except OSError as error:
            raise recording_error(f"the place in the pool {pool!r}", self._folder, error) from error

    def _lock(self, names: Sequence[str], cancel: Cancel) -> int:
        """Lock one of these files, the first that is free."""
        wait = _SHORTEST
        while True:
            for name in names:
                fd = os.open(self._folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    if os.fstat(fd).st_nlink:  # else somebody pruned it just now, and another one is the place
                        return fd
                except BlockingIOError:
                    pass
                os.close(fd)
            if cancel.is_set or select.select([cancel.fileno()], [], [], wait)[0]:
                raise Cancelled("the session ended while the rollout waited for a place")
            wait = min(2 * wait, _LONGEST)
