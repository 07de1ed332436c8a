"""What a test looks at: the facade over the bundle that the fixture ``bundle`` gives.

Whatever is wrong with the candidate's evidence is an AssertionError that says so. Every look is
noted, because a test that looks at nothing measured nothing.
"""

from __future__ import annotations

import difflib
import json
import math
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import msgspec

from pytest_rollout.bundle import BundleRecord, Change, Finding, Pins, Usage
from pytest_rollout.errors import EvidenceError

__all__ = ["Bundle", "Diff", "FileDiff", "Reader", "looked", "parse_json"]
__tracebackhide__ = True  # pytest shows the suite's line, not ours

_MAX_DIFF_BYTES = 1 << 20
_MAX_DIFF_TOTAL = 16 << 20
_MAX_JSON_BYTES = 16 << 20
_CUT_SHORT = frozenset({"changes.entries", "changes.depth", "changes.unreadable"})
_MAX_DIFF_LINES = 20_000
_MAX_DIFF_WORK = 500_000
_POPULAR_FROM = 200  # as difflib has it
_MAX_JSON_DEPTH = 200
_MAX_DIGITS = 4000


class Reader(Protocol):
    """Reads the files of one attempt; every problem of the candidate's is an EvidenceError."""

    def read(self, path: str, limit: int = ...) -> bytes: ...

    def read_baseline(self, path: bytes, limit: int) -> bytes | None: ...

    def exists(self, path: str) -> bool: ...

    def glob(self, pattern: str) -> list[str]: ...


class Bundle:
    """The evidence of one attempt. Attributes and methods are listed in ``docs/reference/fixtures.md``."""

    def __init__(self, record: BundleRecord, reader: Reader, folder: Path) -> None:
        self._record, self._reader, self.folder = record, reader, folder
        self._looked = False

    def __repr__(self) -> str:
        return f"<Bundle {self._record.identity.rollout}>"

    def _look(self) -> BundleRecord:
        self._looked = True
        return self._record

    @property
    def rollout_id(self) -> str:
        """The explicit id of the rollout."""
        return self._record.identity.rollout

    @property
    def task_id(self) -> str:
        """The id of the task."""
        return self._record.identity.task

    @property
    def sample(self) -> int:
        """Which sample of the task this is, from 0."""
        return self._record.identity.sample

    @property
    def attempt(self) -> int:
        """Which attempt at the sample this is, from 1."""
        return self._record.identity.attempt

    @property
    def seed(self) -> int:
        """The seed of the sample."""
        return self._record.pins.seed

    @property
    def pins(self) -> Pins:
        """What must be equal for two results to be comparable."""
        return self._record.pins

    @property
    def exit_code(self) -> int | None:
        """The agent's exit code, 128 + n for a signal n, or None when a limit ended it."""
        return self._look().exit_code

    @property
    def signal(self) -> int | None:
        """The signal that ended the agent, or None."""
        return self._look().signal

    @property
    def termination(self) -> str:
        """Why the attempt ended: ``completed``, ``exit_code``, ``signal``, ``wall_limit`` …"""
        return self._look().termination

    @property
    def truncated(self) -> bool:
        """Whether a limit or a budget ended it."""
        return self._look().truncated

    @property
    def duration(self) -> float:
        """Seconds that the agent ran."""
        return self._look().times.duration

    @property
    def usage(self) -> Usage:
        """What it used; a figure that was not measured is None."""
        return self._look().usage

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What a reader of the evidence has to know: bounds that were hit, odd files."""
        return self._look().findings

    @property
    def changes(self) -> tuple[Change, ...]:
        """Every path that differs from the baseline, in the order of paths."""
        return _whole(self._look()).changes

    @property
    def trajectory(self) -> None:
        """The steps of the agent, where they are recorded; this version records none."""
        self._look()

    @property
    def stdout_bytes(self) -> bytes:
        """What was kept of standard output; a marker line stands where bytes were dropped."""
        return self._output(self._look().stdout.file)

    @property
    def stderr_bytes(self) -> bytes:
        """What was kept of standard error; a marker line stands where bytes were dropped."""
        return self._output(self._look().stderr.file)

    @property
    def stdout(self) -> str:
        """Standard output as text; bytes that are not UTF-8 are replaced."""
        return self.stdout_bytes.decode("utf-8", "replace")

    @property
    def stderr(self) -> str:
        """Standard error as text; bytes that are not UTF-8 are replaced."""
        return self.stderr_bytes.decode("utf-8", "replace")

    def read_bytes(self, path: str) -> bytes:
        """The bytes of a file of the stage, at most 64 MiB."""
        self._look()
        return self._reader.read(path)

    def read_text(self, path: str) -> str:
        """A file of the stage as text; one that is not UTF-8 is an assertion."""
        return _text(self.read_bytes(path), path)

    def read_json(self, path: str) -> Any:
        """A file of the stage as JSON: at most 16 MiB, 200 levels deep, finite numbers of at most 4,000 digits."""
        self._look()
        return parse_json(_text(self._reader.read(path, _MAX_JSON_BYTES), path), path)

    def exists(self, path: str) -> bool:
        """Whether anything is at ``path``; a link counts, wherever it points."""
        self._look()
        return self._reader.exists(path)

    def glob(self, pattern: str) -> list[str]:
        """The paths that fit, sorted; ``*`` stays in a folder, ``**`` crosses folders."""
        self._look()
        return self._reader.glob(pattern)

    @cached_property
    def diff(self) -> Diff:
        """The unified diff of the files that changed."""
        return Diff(_whole(self._look()).changes, self._reader)

    def _output(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()


def _text(data: bytes, path: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise EvidenceError(f"{path} is not UTF-8: {error.reason} at byte {error.start}") from None


def _whole(record: BundleRecord) -> BundleRecord:
    """A record whose changes were listed to their end; a short list would let a cheat hide behind it."""
    for finding in record.findings:
        if finding.code in _CUT_SHORT:
            raise EvidenceError(f"the changes can't be told: {finding.message}")
    return record


def looked(bundle: Bundle) -> bool:
    """Whether anything of the evidence was looked at."""
    return bundle._looked


def parse_json(text: str, what: str) -> Any:
    """JSON that a candidate wrote; anything monstrous or malformed is an EvidenceError."""
    try:
        value = json.loads(text, parse_int=_parse_int, parse_float=_parse_float, parse_constant=_refuse_constant)
    except RecursionError:
        raise EvidenceError(f"{what} is JSON that is nested too deeply") from None
    except ValueError as error:
        raise EvidenceError(f"{what} is not JSON that can be read: {error}") from None
    if text.count("[") + text.count("{") > _MAX_JSON_DEPTH and _depth(value) > _MAX_JSON_DEPTH:
        raise EvidenceError(f"{what} is JSON that is nested deeper than {_MAX_JSON_DEPTH} levels")
    return value


def _parse_int(text: str) -> int:
    _check_digits(text)
    return int(text)


def _parse_float(text: str) -> float:
    _check_digits(text)
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text} is beyond the numbers that can be held")
    return number


def _check_digits(text: str) -> None:
    digits = sum(map(str.isdigit, text))
    if digits > _MAX_DIGITS:
        raise ValueError(f"a number of {digits} digits")


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number of JSON")


def _depth(value: Any) -> int:
    """How many objects and arrays stand inside each other at most."""
    level, depth = [value], 0
    while level := [item for item in level if isinstance(item, dict | list)]:
        level = [child for item in level for child in (item.values() if isinstance(item, dict) else item)]
        depth += 1
    return depth


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

    def __init__(self, changes: Sequence[Change], reader: Reader) -> None:
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


def _file_diff(change: Change, reader: Reader) -> FileDiff:
    old = b"" if change.kind == "added" else reader.read_baseline(change.path.encode(), _MAX_DIFF_BYTES)
    new: bytes | None = b""
    if change.kind != "deleted":
        new = _read_or_none(reader, change)
    before, after = _lines(old), _lines(new)
    if before is None or after is None:
        return _named(change)
    if _work(before, after) > _MAX_DIFF_WORK:
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


def _work(before: list[str], after: list[str]) -> int:
    """How many pairs of equal lines a comparison looks at, at the least; lines that are everywhere do not count."""
    old, new = Counter(before), Counter(after)
    popular = len(after) // 100 + 1 if len(after) >= _POPULAR_FROM else len(after)
    return sum(count * old[line] for line, count in new.items() if count <= popular)


def _named(change: Change, *, added: int | None = None, removed: int | None = None) -> FileDiff:
    text = f"{change.kind}: {change.path} ({change.type}, not compared as text)\n"
    return FileDiff(path=change.path, kind=change.kind, added=added, removed=removed, text=text)


def _read_or_none(reader: Reader, change: Change) -> bytes | None:
    try:
        return reader.read(change.path, _MAX_DIFF_BYTES)
    except EvidenceError:
        return None


def _lines(data: bytes | None) -> list[str] | None:
    if data is None or b"\0" in data:
        return None
    *whole, last = data.decode("utf-8", "replace").split("\n")  # splitlines() knows further ends of a line
    lines = [*(f"{line}\n" for line in whole), *([last] if last else [])]
    return None if len(lines) > _MAX_DIFF_LINES else lines
