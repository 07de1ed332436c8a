"""Places that the rollouts of a machine share: so many agents at once, so many with a GPU.

::

    <folder>/<pool>.gate      held by the one who is next
    <folder>/<pool>.<number>  held by the one who has this place, and says who that is

All are locks of the kernel's (flock), so the lock of a process that is killed is free at once. Its agent may need
longer to end, in a driver of a GPU above all: so a holder says where its agent acts, and who takes the place after it
waits until every process of that stage is dead. A holder whose agent has ended clears the file.

They hold across the workers of a session and across sessions; each session says how many places there are.
Several are always taken in one order, so that no two rollouts wait for each other.
"""

from __future__ import annotations

import fcntl
import os
import select
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from pytest_rollout.errors import Cancelled, recording_error
from pytest_rollout.executors.cancel import Cancel
from pytest_rollout.stage.leftovers import is_over
from pytest_rollout.waiting import Holder, Waiting, holders_of, read_holder

__all__ = ["SLOTS", "Capacity", "Places"]

SLOTS = "slots"  # the pool that every rollout needs a place of
_SHORTEST, _LONGEST = 0.01, 0.1  # seconds between two looks
T = TypeVar("T")
_SILENT = 3.0  # seconds of waiting before it is said


class Places:
    """The places that one rollout holds."""

    def __init__(self, holder: Holder) -> None:
        self.waited = 0.0  # seconds
        self._holder = holder
        self._taken: list[int] = []

    def take(self, fd: int) -> None:
        """Hold a locked place, and say so in it; raises OSError."""
        self._taken.append(fd)
        _write(fd, self._holder)

    def used_by(self, stage: str) -> None:
        """Say where the agent will act that uses these places; raises RecordingError or HostError."""
        self._holder = msgspec.structs.replace(self._holder, stage=stage)
        try:
            for fd in self._taken:
                _write(fd, self._holder)
        except OSError as error:
            raise recording_error("the holder of a place", stage, error) from error

    def give_back(self, *, over: bool) -> None:
        """Free the places; where the agent is not ``over``, who comes next sees to that."""
        for fd in reversed(self._taken):
            with suppress(OSError):
                if over:
                    os.ftruncate(fd, 0)
            os.close(fd)
        self._taken.clear()


class Capacity:
    """The places of each pool, by its name; a pool without a size has no end.

    ``run`` and ``worker`` say who takes them. ``notices`` is the folder where a long wait is told.
    """

    def __init__(
        self, folder: Path, sizes: Mapping[str, int], *, run: str = "", worker: str = "", notices: Path | None = None
    ) -> None:
        self._folder, self._sizes, self._notices = folder, dict(sizes), notices
        self._holder = Holder(pid=os.getpid(), run=run, worker=worker)

    @contextmanager
    def held(self, pools: Sequence[str], cancel: Cancel, *, node: str = "") -> Iterator[Places]:
        """A place of each pool, and one of the slots, in this context, for the test ``node``.

        The context ends without an exception where the agent is dead.
        Raises Cancelled, and RecordingError or HostError where no lock can be made.
        """
        began = time.monotonic()
        places = Places(msgspec.structs.replace(self._holder, node=node))
        over = False
        try:
            for pool in (*sorted(set(pools)), SLOTS):  # the slots last: who waits for a GPU keeps nobody from one
                if pool in self._sizes:
                    self._take(pool, self._sizes[pool], cancel, places)
            places.waited = time.monotonic() - began
            yield places
            over = True
        finally:
            places.give_back(over=over)

    def _take(self, pool: str, size: int, cancel: Cancel, places: Places) -> None:
        notice = _Notice(self._notices, self._holder, pool, [self._folder / f"{pool}.{n}" for n in range(size)])
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            gate = self._lock([f"{pool}.gate"], cancel, notice)
            try:
                fd = self._lock([f"{pool}.{number}" for number in range(size)], cancel, notice)
                try:
                    before = read_holder(fd)
                    if before is not None and before.stage is not None:  # it died before its agent did
                        stage = before.stage
                        _wait(lambda: is_over(stage) or None, cancel, notice)
                except BaseException:
                    os.close(fd)
                    raise
                places.take(fd)
            finally:
                os.close(gate)
        except OSError as error:
            raise recording_error(f"the place in the pool {pool!r}", self._folder, error) from error
        finally:
            notice.end()

    def _lock(self, names: Sequence[str], cancel: Cancel, notice: _Notice) -> int:
        """Lock one of these files, the first that is free; closing its descriptor gives it back."""

        def attempt() -> int | None:
            for name in names:
                fd = os.open(self._folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return fd
                except BlockingIOError:
                    os.close(fd)
            return None

        return _wait(attempt, cancel, notice)


def _wait(look: Callable[[], T | None], cancel: Cancel, notice: _Notice) -> T:
    """What ``look`` finds, once it finds something."""
    wait = _SHORTEST
    while (found := look()) is None:
        if cancel.is_set or select.select([cancel.fileno()], [], [], wait)[0]:
            raise Cancelled("the session ended while the rollout waited for a place")
        wait = min(2 * wait, _LONGEST)
        notice.goes_on()
    return found


class _Notice:
    """Says in the run's folder that this process waits, once that takes long, until it ends."""

    def __init__(self, folder: Path | None, who: Holder, pool: str, places: Sequence[Path]) -> None:
        self._folder, self._who, self._pool, self._places = folder, who, pool, places
        self._next = time.monotonic() + _SILENT
        self._file: Path | None = None

    def goes_on(self) -> None:
        now = time.monotonic()
        if self._folder is None or now < self._next:
            return
        self._next = now + _SILENT
        said = Waiting(pid=self._who.pid, pool=self._pool, size=len(self._places), holders=holders_of(self._places))
        self._file = self._folder / f"{self._who.worker}.json"
        made = self._file.with_suffix(".new")
        with suppress(OSError):  # it only tells
            self._folder.mkdir(exist_ok=True)
            made.write_bytes(msgspec.json.encode(said))
            made.replace(self._file)

    def end(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.unlink()


def _write(fd: int, holder: Holder) -> None:
    data = msgspec.json.encode(holder)
    os.pwrite(fd, data, 0)
    os.ftruncate(fd, len(data))
