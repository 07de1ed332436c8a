"""Several JUnit files into one: suites beside each other, byte for byte, without rollouts that do not count.

A file is parsed for the places and counts of its testcases, and its bytes are copied: the time is linear in the size,
whatever the number of files. It is parsed twice, because the testcase of a rollout that counts may be in a later one.
In which order files are given, and how often, does not matter.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from typing import IO
from xml.parsers import expat

import msgspec

from pytest_rollout.report.junit import ROLLOUT_PROPERTY
from pytest_rollout.report.xmlrepair import parse

__all__ = ["JUnitMerge", "merge_junit"]

_VERDICTS = {"failure": "failures", "error": "errors", "skipped": "skipped"}
_NAMES = ("tests", "failures", "errors", "skipped")
_TIMESTAMP = re.compile(rb'<testsuite\b[^>]*\btimestamp="([^"]*)"')
_TAG = re.compile(rb"""<[^\s/>]+(?:\s+[^\s=>/]+\s*=\s*(?:"[^"]*"|'[^']*'))*\s*/?>""")
_ATTRIBUTE = re.compile(rb"""\s+([^\s=>/]+)\s*=\s*(?:"[^"]*"|'[^']*')""")


class JUnitMerge(msgspec.Struct, frozen=True, kw_only=True):
    """What became of it: how many testcases were written, how many were left out, whose rollouts they are of.

    ``problems`` names files that could not be read.
    """

    testcases: int
    left_out: int
    rollouts: frozenset[str]
    problems: tuple[str, ...]


def merge_junit(files: Sequence[Path], out: Path, losing: Container[str]) -> JUnitMerge:
    """Write the suites of ``files`` to ``out``, whole or not at all; raises OSError where it can't be written.

    ``losing`` are the ids of rollouts that do not count. Of one that is there twice, because a session went on with its
    run, that testcase stays whose result counts, see :mod:`pytest_rollout.store.union`; of equal ones the first.
    """
    total, seen, left_out, problems = _Counts(), set[str](), 0, list[str]()
    ordered, best = _in_order(files, problems), dict[str, tuple[bool, int]]()
    for found in _all_of(ordered, problems):
        for case in (case for suite in found.suites for case in suite.cases):
            best[case.rollout] = min(case.rank, best.get(case.rollout, case.rank))
    with tempfile.NamedTemporaryFile(dir=out.parent, prefix=".rollout-junit-") as body:
        for found in _all_of(ordered, []):
            for suite in found.suites:
                for case in suite.cases:
                    if case.rollout:
                        case.gone = case.rollout in seen or case.rollout in losing or case.rank != best[case.rollout]
                        seen.update(() if case.gone else (case.rollout,))
                left_out += suite.write(body, found.data, total)
        _finish(body, out, total)
    return JUnitMerge(
        testcases=total.values["tests"], left_out=left_out, rollouts=frozenset(seen), problems=tuple(problems)
    )


def _all_of(paths: Sequence[Path], problems: list[str]) -> Iterator[_Found]:
    for path in paths:
        try:
            yield _read(path)
        except (OSError, ET.ParseError, expat.ExpatError, LookupError, ValueError) as error:
            problems.append(f"{path} can't be read: {(isinstance(error, OSError) and error.strerror) or error}")


def _in_order(files: Sequence[Path], problems: list[str]) -> list[Path]:
    """Files of different contents, by the time of their first suite."""
    found: dict[bytes, tuple[bytes, Path]] = {}
    for path in sorted(files):
        try:
            if not path.is_file() and path.exists():
                raise OSError(errno.EINVAL, "it is no file")
            with open(path, "rb") as file:
                begin = file.read(4096)
                file.seek(0)
                digest = hashlib.file_digest(file, "sha256").digest()
        except OSError as error:
            problems.append(f"{path} can't be read: {error.strerror}")
            continue
        stamp = _TIMESTAMP.search(begin)
        found.setdefault(digest, (stamp[1] if stamp else b"", path))
    return [path for _, (_, path) in sorted(found.items(), key=lambda pair: (pair[1][0], pair[0]))]


class _Counts:
    """The counts of a suite, or of all."""

    def __init__(self) -> None:
        self.values, self.time = dict.fromkeys(_NAMES, 0), 0.0

    def add(self, verdicts: Container[str], time: float) -> None:
        self.values["tests"] += 1
        self.time += time
        for tag, name in _VERDICTS.items():
            self.values[name] += tag in verdicts

    def join(self, other: _Counts) -> None:
        self.time += other.time
        for name in _NAMES:
            self.values[name] += other.values[name]

    def text(self, name: str) -> str:
        return f"{self.time:.3f}" if name == "time" else str(self.values[name])

    def attribute(self, match: re.Match[bytes]) -> bytes:
        """An attribute as it is, or as it is counted."""
        name = match[1].decode()
        return f' {name}="{self.text(name)}"'.encode() if name in (*_NAMES, "time") else match[0]


class _Case:
    """A testcase: where it is, whose it is, what it says, and whether it is left out."""

    __slots__ = ("attempts", "end", "gone", "measured", "rollout", "start", "time", "verdicts")

    def __init__(self, start: int, time: float) -> None:
        self.start, self.end, self.time, self.rollout = start, start, time, ""
        self.verdicts = set[str]()
        self.measured, self.attempts, self.gone = False, 1, False

    @property
    def rank(self) -> tuple[bool, int]:
        """Of several testcases of a rollout the one with the lowest counts."""
        return not self.measured, self.attempts if self.measured else -self.attempts

    def learn(self, name: str, value: str) -> None:
        """Take what a property says."""
        if name == ROLLOUT_PROPERTY:
            self.rollout = self.rollout or value
        elif name == "rollout.reward":
            self.measured = True
        elif name == "rollout.attempts" and value.isdecimal() and len(value) < 9:
            self.attempts = max(1, int(value))


class _Suite:
    """A suite of the first level: where it is, where its start tag ends, its time, its testcases."""

    def __init__(self, start: int, head_end: int, time: float) -> None:
        self.start, self.head_end, self.end, self.time = start, head_end, head_end, time
        self.cases = list[_Case]()

    def write(self, body: IO[bytes], data: bytes, total: _Counts) -> int:
        """Write what stays of it; returns how many testcases do not."""
        gone, counts = [case for case in self.cases if case.gone], _Counts()
        for case in self.cases:
            if not case.gone:
                counts.add(case.verdicts, case.time)
        if not gone:
            counts.time = self.time or counts.time
        head = data[self.start : self.head_end]
        body.write(_ATTRIBUTE.sub(counts.attribute, head))
        at = self.head_end
        for case in gone:
            body.write(data[at : case.start])
            at = case.end
        body.write(data[at : self.end] + b"\n")
        total.join(counts)
        return len(gone)


class _Found:
    """The places of everything in a file, by one pass of a parser. Raises ExpatError, ValueError."""

    def __init__(self, data: bytes) -> None:
        self.data, self.suites = data, list[_Suite]()
        self._levels = 0  # of suites
        self._case: _Case | None = None
        self._parser = expat.ParserCreate("utf-8")
        self._parser.StartDoctypeDeclHandler = self._doctype
        self._parser.StartElementHandler, self._parser.EndElementHandler = self._start, self._end
        self._parser.Parse(data, True)

    @staticmethod
    def _doctype(*_: object) -> None:
        raise ValueError("a document type")  # its entities mean nothing in another file

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if name == "testsuite":
            self._levels += 1
            if self._levels == 1:
                head = _TAG.match(self.data, at := self._parser.CurrentByteIndex)
                if head is None:
                    raise ValueError(f"no tag at byte {at}")
                self.suites.append(_Suite(at, head.end(), _seconds(attributes)))
        elif name == "testcase" and self._levels:
            self._case = _Case(self._parser.CurrentByteIndex, _seconds(attributes))
        elif self._case is not None:
            if name in _VERDICTS:
                self._case.verdicts.add(name)
            elif name == "property":
                self._case.learn(attributes.get("name", ""), attributes.get("value", ""))

    def _end(self, name: str) -> None:
        if name == "testcase" and self._case is not None:
            self._case.end = self._end_of(name)
            self.suites[-1].cases.append(self._case)
            self._case = None
        elif name == "testsuite":
            self._levels -= 1
            if not self._levels:
                self.suites[-1].end = self._end_of(name)

    def _end_of(self, name: str) -> int:
        """Where an element ends: behind its end tag, which begins here, or here, where it has none (``<a/>``)."""
        at = self._parser.CurrentByteIndex
        tag = re.compile(rb"</%s\s*>" % name.encode()).match(self.data, at)
        return at if tag is None else tag.end()


def _seconds(attributes: dict[str, str]) -> float:
    try:
        return float(attributes.get("time", "0"))
    except ValueError:
        return 0.0


def _read(path: Path) -> _Found:
    """A file that pytest wrote; one that is not well-formed is repaired first."""
    data = path.read_bytes()
    try:
        return _Found(data)
    except (expat.ExpatError, ValueError):
        return _Found(ET.tostring(parse(data), encoding="utf-8"))


def _finish(body: IO[bytes], out: Path, total: _Counts) -> None:
    """Write the file: its head knows the counts of all suites."""
    counts = " ".join(f'{name}="{total.text(name)}"' for name in (*_NAMES, "time"))
    descriptor, name = tempfile.mkstemp(prefix=".rollout-junit-", dir=out.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(f'<?xml version="1.0" encoding="utf-8"?>\n<testsuites name="pytest tests" {counts}>\n'.encode())
            body.seek(0)
            shutil.copyfileobj(body, file, 1 << 20)
            file.write(b"</testsuites>\n")
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, out)
    except BaseException:
        os.unlink(name)
        raise


def _umask() -> int:
    found = os.umask(0o077)
    os.umask(found)
    return found
