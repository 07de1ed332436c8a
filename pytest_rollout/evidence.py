"""What a test looks at: the facade over the bundle that the fixture ``bundle`` gives.

Whatever is wrong with the candidate's evidence is an AssertionError that says so. Every look is
noted, because a test that looks at nothing measured nothing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from pytest_rollout.bundle import BundleRecord, Change, Finding, Pins, Usage
from pytest_rollout.diff import Diff
from pytest_rollout.errors import EvaluatorError, EvidenceError
from pytest_rollout.evaluated import Exec, TestRun

__all__ = ["MAX_VALUES", "Bundle", "Judging", "Reader", "count_values", "looked", "parse_json", "told_apart"]
__tracebackhide__ = True  # pytest shows the suite's line, not ours

_MAX_JSON_BYTES = 16 << 20
_CUT_SHORT = frozenset({"changes.entries", "changes.depth", "changes.paths", "changes.unreadable"})
_MAX_JSON_DEPTH = 200
MAX_VALUES = 2_000_000
_MAX_DIGITS = 4000


class Reader(Protocol):
    """Reads the files of one attempt; every problem of the candidate's is an EvidenceError."""

    def read(self, path: str, limit: int = ...) -> bytes: ...

    def read_baseline(self, path: bytes, limit: int) -> bytes | None: ...

    def exists(self, path: str) -> bool: ...

    def glob(self, pattern: str) -> list[str]: ...


class Judging(Protocol):
    """Runs a candidate's work for a check; :mod:`pytest_rollout.evaluation.evaluator` is one."""

    def run_tests(self, files: object, expect: Sequence[str] | None, proxy: Sequence[str]) -> TestRun: ...

    def call(self, target: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any: ...

    def call_many(self, target: str, calls: Sequence[Sequence[Any]]) -> list[Any]: ...

    def run(self, command: Sequence[str] | str, stdin: str | bytes) -> Exec: ...

    def evaluate(self, command: Sequence[str] | str, files: object) -> Exec: ...


class Bundle:
    """The evidence of one attempt. Attributes and methods are listed in ``docs/reference/fixtures.md``."""

    def __init__(self, record: BundleRecord, reader: Reader, folder: Path, evaluator: Judging | None = None) -> None:
        self._record, self._reader, self._folder = record, reader, folder
        self._judging = evaluator
        self._looked = self._told_apart = False

    def __repr__(self) -> str:
        return f"<Bundle {self._record.identity.rollout}>"

    def _look(self) -> BundleRecord:
        self._looked = True
        return self._record

    def _tell_apart(self) -> BundleRecord:
        self._told_apart = True
        return self._record

    @property
    def rollout_id(self) -> str:
        """The explicit id of the rollout."""
        return self._tell_apart().identity.rollout

    @property
    def task_id(self) -> str:
        """The id of the task."""
        return self._record.identity.task

    @property
    def sample(self) -> int:
        """Which sample of the task this is, from 0."""
        return self._tell_apart().identity.sample

    @property
    def attempt(self) -> int:
        """Which attempt at the sample this is, from 1."""
        return self._record.identity.attempt

    @property
    def seed(self) -> int:
        """The seed of the sample."""
        return self._tell_apart().pins.seed

    @property
    def folder(self) -> Path:
        """Where the evidence is kept."""
        self._told_apart = True
        return self._folder

    @property
    def pins(self) -> Pins:
        """What must be equal for two results to be comparable."""
        return self._tell_apart().pins

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

    # -- trusted evaluation

    def run_tests(
        self, files: object = None, expect: Sequence[str] | None = None, proxy: Sequence[str] = ()
    ) -> TestRun:
        """Run hidden pytest tests over the clean tree: every one of ``expect`` has to be reported passed.

        ``files`` is a folder beside the test file or a mapping of path to text (default: the task's
        ``hidden``), ``expect`` ids (default: all tests in the files). With ``proxy`` the tests hold no
        code of the candidate's: what they import from these modules is called in a second sandbox.
        """
        return self._evaluator.run_tests(files, expect, proxy)

    def call(self, target: str, /, *args: Any, **kwargs: Any) -> Any:
        """What ``module:function`` of the candidate's gives, run in a sandboxed child: a plain JSON value.

        Anything else that comes of it is a CandidateError, which is an assertion.
        """
        return self._evaluator.call(target, args, kwargs)

    def call_many(self, target: str, calls: Sequence[Sequence[Any]]) -> list[Any]:
        """:meth:`call` for each tuple of arguments, in one sandbox; no call sees another's arguments."""
        return self._evaluator.call_many(target, calls)

    def run(self, command: Sequence[str] | str, stdin: str | bytes = "") -> Exec:
        """Run a program of the candidate's over the clean tree, with this standard input."""
        return self._evaluator.run(command, stdin)

    def evaluate(self, command: Sequence[str] | str, files: object = None) -> Exec:
        """Run a program of the evaluator's over the clean tree with the hidden files.

        Its exit code proves something only as far as candidate code has no part in it.
        """
        return self._evaluator.evaluate(command, files)

    @property
    def _evaluator(self) -> Judging:
        self._look()
        if self._judging is None:
            raise EvaluatorError("this bundle has no stage any more, so nothing can be run over it")
        return self._judging

    def _output(self, name: str) -> bytes:
        return (self._folder / name).read_bytes()


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


def told_apart(bundle: Bundle) -> bool:
    """Whether anything was looked at that tells the samples of a task apart."""
    return bundle._told_apart


def parse_json(text: str, what: str) -> Any:
    """JSON that a candidate wrote; anything monstrous or malformed is an EvidenceError."""
    if count_values(text) > MAX_VALUES:
        raise EvidenceError(f"{what} is JSON of more than {MAX_VALUES:,} values")
    try:
        value = json.loads(text, parse_int=_parse_int, parse_float=_parse_float, parse_constant=_refuse_constant)
    except RecursionError:
        raise EvidenceError(f"{what} is JSON that is nested too deeply") from None
    except ValueError as error:
        raise EvidenceError(f"{what} is not JSON that can be read: {error}") from None
    if text.count("[") + text.count("{") > _MAX_JSON_DEPTH and _depth(value) > _MAX_JSON_DEPTH:
        raise EvidenceError(f"{what} is JSON that is nested deeper than {_MAX_JSON_DEPTH} levels")
    return value


def count_values(text: str) -> int:
    """About how many values a text of JSON makes, and never fewer than that by more than one."""
    return sum(map(text.count, ",[{"))


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
