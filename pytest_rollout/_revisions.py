"""The evaluator revisions of a session's tests, each found out once."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pytest_rollout.evaluation.revision import evaluator_revision
from pytest_rollout.stage.fingerprint import fingerprint
from pytest_rollout.task import Task

__all__ = ["Revisions"]


class Revisions:
    """Those of the tests below one root folder."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._known: dict[tuple[Path, str | None], str] = {}

    def of(self, item: pytest.Item, task: Task) -> str:
        """The evaluator revision of a test."""
        hidden = task.hidden.path if task.hidden is not None else None
        key = (item.path, hidden)
        if key not in self._known:
            above = [folder for folder in item.path.parents if folder == self._root or self._root in folder.parents]
            conftests = [folder / "conftest.py" for folder in above or [item.path.parent]]
            hidden_revision = fingerprint(Path(hidden)) if hidden is not None else None
            self._known[key] = evaluator_revision([item.path, *conftests], self._root, hidden_revision, sys.modules)
        return self._known[key]
