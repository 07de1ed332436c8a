"""Keep the head and the tail of a stream, without secrets, and count what was dropped between them.

The head goes to its file as it comes, so it is there after a SIGKILL; what may be the beginning of a
secret waits for what follows. The tail waits in memory, as it came: at most half of the limit and the
longest secret (and twice that for a moment). A marker line stands where bytes were dropped.

Only what is kept is searched for secrets. Where one is, its mark counts in its place: ``kept`` are bytes
of the file, ``dropped`` bytes of the stream that the file does not stand for.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from pytest_rollout.bundle import Captured
from pytest_rollout.errors import HostError, recording_error
from pytest_rollout.redaction.patterns import CONTEXT
from pytest_rollout.redaction.redactor import Redactor
from pytest_rollout.redaction.stream import Piece, RedactedStream

__all__ = ["Capture", "dropped_marker"]

_NOTHING = Redactor(patterns=())


def dropped_marker(count: int) -> bytes:
    """The line that stands in a captured stream where ``count`` bytes were dropped."""
    return b"\n[... %d bytes dropped ...]\n" % count


class Capture:
    """One captured stream of an attempt, without the secrets that ``redactor`` knows; without one it stays as it is.

    Raises RecordingError or HostError when its file can't be written.
    """

    def __init__(self, path: Path, limit: int, redactor: Redactor | None = None) -> None:
        self.path, self.limit = path, limit
        self.total = 0
        self.secrets: dict[str, None] = {}  # the variables and forms of keys that were found
        self._redactor = redactor or _NOTHING
        self._head: RedactedStream | None = RedactedStream(self._redactor)
        self._head_left = limit - limit // 2
        self._before = b""  # the last bytes of the head
        self._tail_limit = limit // 2
        self._tail = bytearray()
        self._beyond = 0  # bytes that came behind the head
        self._result: Captured | None = None
        try:
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise recording_error("the output", path, error) from error

    def feed(self, data: bytes | memoryview) -> None:
        """Take the next bytes of the stream."""
        self.total += len(data)
        if self._head is not None:
            self._take(self._head, self._head.feed(bytes(data)))
            return
        self._beyond += len(data)
        self._tail += data
        longest = self._tail_limit + self._redactor.reach + 1
        if len(self._tail) > 2 * longest + (1 << 16):
            del self._tail[: len(self._tail) - longest]

    def _take(self, head: RedactedStream, pieces: Sequence[Piece]) -> None:
        """Write pieces until the head is full; what it has no room for is the beginning of the tail."""
        self.secrets.update(head.labels)
        rest = bytearray()
        for piece in pieces:
            if rest:
                rest += piece.raw
                continue
            room = len(piece.shown) if len(piece.shown) <= self._head_left else self._head_left if piece.plain else 0
            self._write(piece.shown[:room])
            self._head_left -= room
            taken = piece.raw if room == len(piece.shown) else piece.raw[:room]
            self._before = (self._before + taken[-CONTEXT:])[-CONTEXT:]
            rest += piece.raw[len(taken) :]
        if rest:
            self._head = None
            self._tail = rest + head.held
            self._beyond = len(self._tail)

    def close(self) -> Captured:
        """Write the tail and say what was kept; may be called twice."""
        if self._result is None:
            self._result = Captured(file=self.path.name)  # should writing fail
            try:
                self._result = self._ended()
            finally:
                os.close(self._fd)
        return self._result

    def _ended(self) -> Captured:
        if self._head is not None:
            self._take(self._head, self._head.close())
        tail, covered = self._redacted_tail()
        self._tail = bytearray()
        head = self.limit - self.limit // 2 - self._head_left
        dropped = self._beyond - covered
        self._result = Captured(file=self.path.name, kept=head + len(tail), dropped=dropped)
        if dropped:
            self._write(dropped_marker(dropped))
        self._write(tail)
        return self._result

    def _redacted_tail(self) -> tuple[bytes, int]:
        """As much of the end as there is room for, and how many bytes of the stream that stands for."""
        whole = len(self._tail) == self._beyond
        stream = RedactedStream(self._redactor, self._before if whole else b"")
        pieces = [*stream.feed(bytes(self._tail)), *stream.close()]
        self.secrets.update(stream.labels)
        # What begins in front of the bytes that are there is not known: the first of them may belong to a secret.
        left = len(self._tail) - (0 if whole else self._redactor.reach)
        shown, room, covered = list[bytes](), self._tail_limit, 0
        for piece in reversed(pieces):
            if len(piece.raw) <= left and len(piece.shown) <= room:
                size = len(piece.raw)
                shown.append(piece.shown)
                room -= len(piece.shown)
            elif piece.plain:
                size = min(len(piece.raw), left, room)
                shown.append(piece.raw[len(piece.raw) - size :])
                room = 0
            else:
                break
            left -= size
            covered += size
            if left <= 0 or (room <= 0 and piece.plain):
                break
        return b"".join(reversed(shown)), covered

    def _write(self, data: bytes | memoryview) -> None:
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError as error:
            failure = recording_error("the output", self.path, error)
            failure.forgeable = isinstance(failure, HostError)  # the agent runs, and may have filled the disk
            raise failure from error
