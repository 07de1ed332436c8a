"""Keep the head and the tail of a stream, and count what was dropped between them.

The head goes to its file as it comes, so it is there after a SIGKILL; the tail waits in memory, at
most half of the limit (and twice that for a moment). A marker line stands where bytes were dropped.
"""

from __future__ import annotations

import os
from pathlib import Path

from pytest_rollout.bundle import Captured
from pytest_rollout.errors import HostError, recording_error

__all__ = ["Capture", "dropped_marker"]


def dropped_marker(count: int) -> bytes:
    """The line that stands in a captured stream where ``count`` bytes were dropped."""
    return b"\n[... %d bytes dropped ...]\n" % count


class Capture:
    """One captured stream of an attempt. Raises RecordingError or HostError when its file can't be written."""

    def __init__(self, path: Path, limit: int) -> None:
        self.path, self.limit = path, limit
        self.total = 0
        self._head_left = limit - limit // 2
        self._tail_limit = limit // 2
        self._tail = bytearray()
        self._result: Captured | None = None
        try:
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise recording_error("the output", path, error) from error

    def feed(self, data: bytes | memoryview) -> None:
        """Take the next bytes of the stream."""
        self.total += len(data)
        if self._head_left:
            head = data[: self._head_left]
            self._write(head)
            self._head_left -= len(head)
            data = data[len(head) :]
        if len(data):
            self._tail += data
            if len(self._tail) > 2 * self._tail_limit + (1 << 16):
                del self._tail[: len(self._tail) - self._tail_limit]

    def close(self) -> Captured:
        """Write the tail and say what was kept; may be called twice."""
        if self._result is None:
            tail = bytes(self._tail[-self._tail_limit :]) if self._tail_limit else b""
            head = min(self.total, self.limit - self.limit // 2)
            dropped = self.total - head - len(tail)
            self._tail = bytearray()
            self._result = Captured(file=self.path.name, kept=head + len(tail), dropped=dropped)
            try:
                if dropped:
                    self._write(dropped_marker(dropped))
                self._write(tail)
            finally:
                os.close(self._fd)
        return self._result

    def _write(self, data: bytes | memoryview) -> None:
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError as error:
            failure = recording_error("the output", self.path, error)
            failure.forgeable = isinstance(failure, HostError)  # the agent runs, and may have filled the disk
            raise failure from error
