"""Redact a stream piece by piece: only what may still become a secret is held back."""

from __future__ import annotations

from typing import NamedTuple

from pytest_rollout.redaction.patterns import CONTEXT
from pytest_rollout.redaction.redactor import Redactor, marked

__all__ = ["Piece", "RedactedStream"]


class Piece(NamedTuple):
    """A part of a stream: the bytes to show, and those that they stand for. They are equal outside of secrets."""

    shown: bytes
    raw: bytes

    @property
    def plain(self) -> bool:
        """Whether it may be cut anywhere."""
        return self.shown is self.raw


class RedactedStream:
    """One stream. The pieces that come out of it, put together, are the redacted whole.

    ``before`` are the last bytes in front of the stream, where it is the rest of another one. ``labels`` are what was
    found in it.
    """

    def __init__(self, redactor: Redactor, before: bytes = b"") -> None:
        self._redactor = redactor
        self._data = before  # some bytes that are out already (a key may depend on them), then what is held
        self._begin = len(before)
        self._covered = 0  # where a secret ends whose mark is out
        self.labels: dict[str, None] = {}

    @property
    def held(self) -> bytes:
        """What came and is not out yet."""
        return self._data[self._begin :]

    def feed(self, data: bytes) -> list[Piece]:
        """Take the next bytes; returns what is decided."""
        self._data = self._data + data if self._data else data
        return self._pieces(self._redactor.open_from(self._data, self._begin))

    def close(self) -> list[Piece]:
        """What was held back, now that nothing follows."""
        return self._pieces(len(self._data))

    def _pieces(self, end: int) -> list[Piece]:
        """Everything in front of ``end``, where no secret starts that is not known."""
        data, at, pieces = self._data, self._begin, list[Piece]()
        spans = self._redactor.spans(data, at) if end > at else []
        at = self._swallow(pieces, at, end)
        for span in spans:
            if span.start >= end:
                break
            self.labels.setdefault(span.label)
            if span.start < self._covered:
                if span.end > self._covered:
                    self._covered = span.end
                    at = self._swallow(pieces, at, end)
                continue
            if span.start > at:
                pieces.append(_plain(data[at : span.start]))
            self._covered = span.end
            at = min(span.end, end)
            pieces.append(Piece(marked(span.label).encode(), data[span.start : at]))
        if at < end:
            pieces.append(_plain(data[at:end]))
        keep = max(end - CONTEXT, 0)
        self._data, self._begin = data[keep:], end - keep
        self._covered = max(self._covered - keep, 0)
        return pieces

    def _swallow(self, pieces: list[Piece], at: int, end: int) -> int:
        """Bytes that belong to a mark that is out show nothing; returns where they end."""
        stop = min(self._covered, end)
        if stop > at:
            pieces.append(Piece(b"", self._data[at:stop]))
            return stop
        return at


def _plain(data: bytes) -> Piece:
    return Piece(data, data)
