"""Bundles to judge: an agent's work over a workspace, and the evaluator that its attempt is given."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_rollout.agents.command import CommandAgent
from pytest_rollout.agents.function import FunctionAgent
from pytest_rollout.agents.noop import NoopAgent
from pytest_rollout.agents.protocol import Agent, Episode
from pytest_rollout.attempt import Attempt, Request, run_attempt
from pytest_rollout.bundle import BundleRecord
from pytest_rollout.evidence import Bundle
from pytest_rollout.executors.cancel import Cancel
from pytest_rollout.limits import DEFAULT_LIMITS, Limits
from pytest_rollout.task import Folder, Task

if TYPE_CHECKING:
    from tests.unit.conftest import Lab

Files = Mapping[str, str | bytes | None]


class Court:
    """Lets agents act over workspaces, and gives the bundles of what they left.

    ``suite`` is the folder beside which hidden files of a test lie.
    """

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab, self.folder = lab, folder
        self.suite = folder / "suite"
        self.suite.mkdir()
        self._attempts: list[Attempt] = []
        self._cancel = Cancel()

    def task(
        self,
        workspace: Files | Path | None = None,
        *,
        hidden: Files | Path | None = None,
        protect: Sequence[str] = (),
        evaluation: float = 30.0,
    ) -> Task:
        """A task over a workspace with these files."""
        source = self.lab.workspace(workspace) if isinstance(workspace, Mapping) else workspace
        files = self.lab.workspace(hidden) if isinstance(hidden, Mapping) else hidden
        return Task(
            id="test_x.py::test_x",
            workspace=None if source is None else Folder(path=str(source)),
            hidden=None if files is None else Folder(path=str(files)),
            protect=tuple(protect),
            limits=Limits(wall=30, evaluation=evaluation).over(DEFAULT_LIMITS),
        )

    def attempt(self, agent: str | Callable[[Any], object] | Agent | None, task: Task) -> Attempt:
        """What an agent makes of a task; its stage is there until the end of the test."""
        folder = self.folder / f"attempt-{len(self._attempts)}"
        folder.mkdir()
        request = Request(
            run="2026-11-29T22-08-01Z-3f9ac01d",
            node="test_x.py::test_x",
            episode=Episode(rollout="3f9ac01d-x-s0", task=task, sample=0, attempt=1, seed=0),
            plugin_version="0.1",
            suite=str(self.suite),
        )
        made = run_attempt(
            request, agent=as_agent(agent), executor=self.lab.executor, folder=folder, cancel=self._cancel
        )
        self._attempts.append(made)
        assert made.infra is None, made.infra
        return made

    def bundle(
        self,
        files: Files | None = None,
        agent: str | Callable[[Any], object] | Agent | None = None,
        **task: Any,
    ) -> Bundle:
        """The bundle of an agent (a text under ``sh -c``; none does nothing) over a workspace with these files."""
        return self.as_bundle(self.attempt(agent, self.task(files or {}, **task)))

    @staticmethod
    def as_bundle(attempt: Attempt) -> Bundle:
        """What a test is given of an attempt."""
        assert isinstance(attempt.record, BundleRecord)
        assert attempt.reader is not None
        return Bundle(attempt.record, attempt.reader, attempt.folder, attempt.evaluator)

    def close(self) -> None:
        """Put every attempt away; nothing that was made for an evaluation is left."""
        for attempt in self._attempts:
            assert attempt.finish(keep=False) == []
        self._cancel.close()
        assert os.listdir(self.lab.root.stages) == [os.path.basename(stage.path) for stage in self.lab._stages]


def as_agent(agent: str | Callable[[Any], object] | Agent | None) -> Agent:
    """An agent that does this."""
    if agent is None:
        return NoopAgent()
    if isinstance(agent, str):
        return CommandAgent(name="agent", command=agent)
    return FunctionAgent(agent) if callable(agent) else agent


@pytest.fixture
def court(sandbox: Lab, tmp_path: Path) -> Iterator[Court]:
    """Judging in the sandbox."""
    yield from _open(sandbox, tmp_path)


@pytest.fixture
def local_court(local: Lab, tmp_path: Path) -> Iterator[Court]:
    """Judging without a sandbox."""
    yield from _open(local, tmp_path)


@pytest.fixture
def any_court(lab: Lab, tmp_path: Path) -> Iterator[Court]:
    """Judging by each executor in its turn."""
    yield from _open(lab, tmp_path)


def _open(lab: Lab, tmp_path: Path) -> Iterator[Court]:
    folder = tmp_path / "court"
    folder.mkdir()
    court = Court(lab, folder)
    yield court
    court.close()


@pytest.fixture(params=[(), ("calc",)], ids=["in process", "proxy"])
def proxy(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """Without a proxy, and with one."""
    return tuple(request.param)
