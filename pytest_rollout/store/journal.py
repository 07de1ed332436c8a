"""Append-only JSON lines: the journal of an attempt, and the results of a worker.

The journal of results is synced to disk with every line, so a line that was written survives a
SIGKILL of anybody. The journal of an attempt is written, but not synced: it tells, it does not count.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from pytest_rollout.errors import recording_error
from pytest_rollout.plain import clean
from pytest_rollout.redaction.redactor import FORMS, Redactor
from pytest_rollout.store.records import Result

__all__ = ["AttemptJournal", "ResultsJournal", "append_synced", "utc_now"]

_IDS = ("rollout", "task", "node", "folder")


_BEGAN, _BEGAN_ON = time.time(), time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def utc_now() -> str:
    """Now, in UTC, ISO 8601 with microseconds.

    It is when this process began, and what passed since then, also in a suspended machine: somebody may set the clock
    meanwhile, and what came later stays later.
    """
    passed = time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)) - _BEGAN_ON
    return datetime.fromtimestamp(_BEGAN + passed, UTC).isoformat()


class _Lines:
    def __init__(self, path: Path, *, sync: bool) -> None:
        self.path, self._sync = path, sync
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise recording_error("the journal", path, error) from error

    def count(self) -> int:
        """How many lines there are; raises RecordingError or HostError."""
        try:
            return self.path.read_bytes().count(b"\n") if os.fstat(self._fd).st_size else 0
        except OSError as error:
            raise recording_error("the journal", self.path, error) from error

    def append(self, data: bytes) -> None:
        """Add a line; behind half a line, which a process left that was killed, on a line of its own."""
        line, size = data + b"\n", None
        try:
            status = os.fstat(self._fd)
            if not status.st_nlink:
                raise FileNotFoundError(errno.ENOENT, "it was removed")
            size = status.st_size
            if size and os.pread(self._fd, 1, size - 1) != b"\n":
                line = b"\n" + line
            done = os.write(self._fd, line)
            while done < len(line):
                done += os.write(self._fd, line[done:])
            if self._sync:
                os.fdatasync(self._fd)
        except OSError as error:
            if size is not None:  # a part of a line would spoil the next one, which may be written again
                with suppress(OSError):
                    os.ftruncate(self._fd, size)
            raise recording_error("the journal", self.path, error) from error

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def append_synced(path: Path, data: bytes) -> None:
    """Add one line to a file that several processes append to, and see it on the disk; raises OSError.

    Half a line, which a full disk or a crash of the machine left, does not swallow it.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        size = os.fstat(fd).st_size
        torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
        line = b"\n" * torn + data + b"\n"
        if os.write(fd, line) != len(line):
            raise OSError(errno.ENOSPC, "the line was not written whole")
        os.fdatasync(fd)
    finally:
        os.close(fd)


class ResultsJournal:
    """``results/<worker>.jsonl``; raises RecordingError or HostError."""

    def __init__(self, path: Path, redactor: Redactor = FORMS) -> None:
        self._lines, self._redactor = _Lines(path, sync=True), redactor

    def append(self, result: Result) -> None:
        """Add one finished rollout and see it on the disk."""
        plain = msgspec.to_builtins(result)
        ids = {name: plain[name] for name in _IDS}  # by them a result is found again
        self._lines.append(msgspec.json.encode({**self._redactor.value(plain), **ids}))

    def close(self) -> None:
        """Give the file back; may be called twice."""
        self._lines.close()


class AttemptJournal:
    """``journal.jsonl``: the events of an attempt in their order, each with a time and a position.

    A journal that is opened once more goes on behind the events that it has.
    """

    def __init__(self, path: Path, now: Callable[[], str] = utc_now, redactor: Redactor = FORMS) -> None:
        self._lines, self._now, self._redactor = _Lines(path, sync=False), now, redactor
        self._count = self._lines.count()

    def event(self, event: str, **facts: Any) -> None:
        """Add one event with its facts (plain values; anything else is written as text)."""
        line = {"position": self._count, "time": self._now(), "event": event, **self._redactor.value(clean(facts))}
        self._count += 1
        self._lines.append(msgspec.json.encode(line))

    def close(self) -> None:
        """Give the file back; may be called twice."""
        self._lines.close()
