"""The difference between a baseline and what an agent left, as text, with the work it takes bounded."""

from __future__ import annotations

import difflib
import os
from collections import Counter
from collections.abc import Sequence
from typing import Protocol

import msgspec

from pytest_rollout.bundle import Change
from pytest_rollout.errors import EvidenceError
from pytest_rollout.plain import shown_path

__all__ = ["Diff", "FileDiff", "Reads", "comparison_work"]

_MAX_DIFF_BYTES = 1 << 20
_MAX_DIFF_TOTAL = 16 << 20
_MAX_DIFF_LINES = 20_000
_MAX_DIFF_WORK = 500_000
_POPULAR_FROM = 200  # as difflib has it


class Reads(Protocol):
    """Reads both sides: what the agent left (every problem is an EvidenceError), and the baseline."""

    def read(self, path: str, limit: int = ...) -> bytes: ...

    def read_baseline(self, path: bytes, limit: int) -> bytes | None: ...


class FileDiff(msgspec.Struct, frozen=True, kw_only=True):
    """The diff of one file: lines added and removed (None for one that is not text), and its text."""

    path: str
    kind: str
    added: int | None
    removed: int | None
    text: str


class Diff:
    """The unified diff between the baseline and what the agent left.

    A file whose lines repeat so much that a comparison would take minutes counts as replaced whole. A
    file over 1 MiB or 20,000 lines, or with a NUL, is named and not compared line by line; so is
    what comes after 16 MiB.
    """

    def __init__(self, changes: Sequence[Change], reader: Reads) -> None:
        files: list[FileDiff] = []
        left = _MAX_DIFF_TOTAL
        for change in changes:
            if change.type in ("file", "symlink"):
                left -= min(change.size or 0, _MAX_DIFF_BYTES)
                files.append(_file_diff(change, reader) if left >= 0 else _named(change))
        self.files = tuple(files)

    @property
    def lines_changed(self) -> int:
        """Lines added plus lines removed, over all text files."""
        return sum((file.added or 0) + (file.removed or 0) for file in self.files)

    def __str__(self) -> str:
        return "".join(file.text for file in self.files)

    def __repr__(self) -> str:
        return f"<Diff of {len(self.files)} files, {self.lines_changed} lines>"


def _file_diff(change: Change, reader: Reads) -> FileDiff:
    old = b"" if change.kind == "added" else reader.read_baseline(shown_path(change.path), _MAX_DIFF_BYTES)
    new: bytes | None = b""
    if change.kind != "deleted":
        new = _read_or_none(reader, change)
    before, after = _lines(old), _lines(new)
    if before is None or after is None:
        return _named(change)
    if comparison_work(before, after) > _MAX_DIFF_WORK:
        return _named(change, added=len(after), removed=len(before))
    lines = list(difflib.unified_diff(before, after, f"a/{change.path}", f"b/{change.path}", n=3))
    body = [line for line in lines[2:] if line[:1] in "+-"]
    return FileDiff(
        path=change.path,
        kind=change.kind,
        added=sum(line[0] == "+" for line in body),
        removed=sum(line[0] == "-" for line in body),
        text="".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines),
    )


def comparison_work(before: Sequence[str | bytes], after: Sequence[str | bytes]) -> int:
    """How many pairs of equal lines a comparison looks at, at the least; lines that are everywhere do not count."""
    old, new = Counter(before), Counter(after)
    popular = len(after) // 100 + 1 if len(after) >= _POPULAR_FROM else len(after)
    return sum(count * old[line] for line, count in new.items() if count <= popular)


def _named(change: Change, *, added: int | None = None, removed: int | None = None) -> FileDiff:
    text = f"{change.kind}: {change.path} ({change.type}, not compared as text)\n"
    return FileDiff(path=change.path, kind=change.kind, added=added, removed=removed, text=text)


def _read_or_none(reader: Reads, change: Change) -> bytes | None:
    try:
        return reader.read(os.fsdecode(shown_path(change.path)), _MAX_DIFF_BYTES)
    except EvidenceError:
        return None


def _lines(data: bytes | None) -> list[str] | None:
    if data is None or b"\0" in data:
        return None
    *whole, last = data.decode("utf-8", "replace").split("\n")  # splitlines() knows further ends of a line
    lines = [*(f"{line}\n" for line in whole), *([last] if last else [])]
    return None if len(lines) > _MAX_DIFF_LINES else lines
