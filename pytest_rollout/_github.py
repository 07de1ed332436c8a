"""On GitHub Actions: the summary of the step, and annotations on the terminal, which is the runner's log."""

from __future__ import annotations

import ast
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_rollout.report.github import SUMMARY_BYTES, Place, annotations_of, summary
from pytest_rollout.run import Run
from pytest_rollout.store.load import LoadedRun
from pytest_rollout.store.records import Result

if TYPE_CHECKING:
    from pytest_rollout._endings import Ending

__all__ = ["GitHub", "on_github"]


def on_github(environ: Mapping[str, str], setting: str) -> bool:
    """Whether this process runs in a step of GitHub Actions, and shall tell it."""
    return setting == "auto" and environ.get("GITHUB_ACTIONS") == "true"


class GitHub:
    """The ending around all others: what they say is in its summary."""

    def __init__(self, config: pytest.Config, run: Run, others: Sequence[Ending], environ: Mapping[str, str]) -> None:
        self._run, self._others, self._environ = run, others, environ
        self._root = config.rootpath

    def end(self, loaded: LoadedRun, status: int) -> tuple[int, Sequence[str]]:
        """The others' status and lines, and the annotations behind these."""
        said: list[str] = []
        for other in self._others:
            status, lines = other.end(loaded, status)
            said += lines
        redact = self._run.redactor.text
        notes = self._write_summary(loaded, status, said)
        return status, [*said, *notes, *annotations_of(loaded.results, self._place, redact)]

    def _write_summary(self, loaded: LoadedRun, status: int, said: Sequence[str]) -> list[str]:
        """Append the summary; returns why not."""
        name = self._environ.get("GITHUB_STEP_SUMMARY")
        if not name:
            return []
        try:
            descriptor = os.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
            with open(descriptor, "ab") as file:
                found = os.fstat(descriptor)
                if not stat.S_ISREG(found.st_mode):
                    raise OSError("it is no file")
                text = summary(
                    loaded,
                    status=status,
                    said=said,
                    folder=str(self._run.folder.path),
                    room=SUMMARY_BYTES - found.st_size - 2,
                    redact=self._run.redactor.text,
                )
                if text is None:
                    return ["warning: GitHub's step summary is full: nothing was added"]
                file.write(b"\n\n" * bool(found.st_size) + text.encode())
        except OSError as error:
            return [f"warning: GitHub's step summary could not be written: {error.strerror or error}"]
        return []

    def _place(self, result: Result) -> Place | None:
        """Where the test of a rollout is, in the repository."""
        file, _, names = result.node.partition("::")
        path = self._root / file
        if not path.is_file():
            return None
        base = Path(self._environ.get("GITHUB_WORKSPACE") or self._root)
        shown = os.path.relpath(path, base)
        return None if shown.startswith("..") else Place(shown, line_of(path, names))


def line_of(path: Path, names: str) -> int | None:
    """The line of a test, from 1, by its names in its module: ``TestA::test_b[x]``."""
    try:
        body = ast.parse(path.read_bytes()).body
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None
    line = None
    for name in names.partition("[")[0].split("::"):
        found = next((node for node in body if isinstance(node, _NAMED) and node.name == name), None)
        if found is None:
            return None
        line, body = found.lineno, found.body
    return line


_NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
