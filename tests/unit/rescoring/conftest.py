"""Attempts of a real executor, and the same evidence scored again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from pytest_rollout.agents.command import CommandAgent
from pytest_rollout.agents.protocol import Episode
from pytest_rollout.attempt import Attempt, Request, run_attempt
from pytest_rollout.bundle import BundleRecord
from pytest_rollout.evidence import Bundle
from pytest_rollout.executors.cancel import Cancel
from pytest_rollout.limits import DEFAULT_LIMITS, Limits
from pytest_rollout.rescoring.attempt import score_again
from pytest_rollout.rescoring.stored import Stored
from pytest_rollout.stage.baseline import Baseline, frozen
from pytest_rollout.stage.collect import CollectBounds
from pytest_rollout.store.folder import read_record, write_record
from pytest_rollout.store.records import Result
from pytest_rollout.task import Folder, Task

if TYPE_CHECKING:
    from tests.unit.conftest import Lab

Files = Mapping[str, str | bytes | None]


class Again:
    """One attempt over a workspace, ended; and as often as wanted the same one scored again."""

    def __init__(self, lab: Lab, folder: Path, make_result: Callable[..., Result]) -> None:
        self.lab, self._folder, self._make_result = lab, folder, make_result
        self._attempts: list[Attempt] = []
        self._cancel = Cancel()
        limits = Limits(wall=30, evaluation=30).over(DEFAULT_LIMITS)
        self.task = Task(id="test_x.py::test_x", limits=limits)

    def over(self, files: Files, **more: Any) -> None:
        """The task's workspace."""
        self.task = self.task.replace(workspace=Folder(path=str(self.lab.workspace(files))), **more)

    def _request(self, run: str, bounds: CollectBounds) -> Request:
        episode = Episode(rollout=f"{run}-x-s0", task=self.task, sample=0, attempt=1, seed=0)
        return Request(run=run, node="n", episode=episode, plugin_version="0", suite=str(self._folder), bounds=bounds)

    def _new(self) -> Path:
        place = self._folder / f"attempt-{len(self._attempts)}"
        place.mkdir()
        return place

    def act(self, command: str, bounds: CollectBounds | None = None) -> Attempt:
        """Let an agent act."""
        request = self._request("first", bounds or CollectBounds())
        agent = CommandAgent(name="a", command=command)
        made = run_attempt(request, agent=agent, executor=self.lab.executor, folder=self._new(), cancel=self._cancel)
        self._attempts.append(made)
        assert made.infra is None
        return made

    def stored(self, attempt: Attempt, **changes: Any) -> Stored:
        """An ended attempt as a run stores it."""
        attempt.finish(keep=False)
        result = self._make_result(**{"task": self.task.id, "sample": 0, **changes})
        return Stored(run="first", result=result, folder=attempt.folder)

    def again(self, stored: Stored, known: Callable[[str], Baseline | None] | None = None) -> Attempt:
        """Score it again."""
        made = score_again(
            stored,
            self._request("second", CollectBounds()),
            executor=self.lab.executor,
            frozen=known or (lambda revision: frozen(self.lab.root, revision)),
            folder=self._new(),
            stage_root=self.lab.root.path,
        )
        self._attempts.append(made)
        return made

    def amend(self, stored: Stored, **changes: Any) -> None:
        """Change the stored record."""
        assert stored.folder is not None
        place = stored.folder / "bundle.json"
        write_record(place, msgspec.structs.replace(read_record(place, BundleRecord), **changes))

    def close(self) -> None:
        for attempt in self._attempts:
            attempt.finish(keep=False)
        self._cancel.close()


def bundle_of(attempt: Attempt) -> Bundle:
    """What a test is given."""
    assert attempt.infra is None and attempt.record is not None and attempt.reader is not None
    return Bundle(attempt.record, attempt.reader, attempt.folder, attempt.evaluator)


@pytest.fixture
def again(lab: Lab, tmp_path: Path, make_result: Callable[..., Result]) -> Iterator[Again]:
    """Attempts in this executor."""
    made = Again(lab, tmp_path, make_result)
    yield made
    made.close()
