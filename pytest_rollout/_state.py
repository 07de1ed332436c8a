"""What is known of one test's rollout while it runs."""

from __future__ import annotations

import os
from typing import Any

import pytest

from pytest_rollout._items import RolloutItem
from pytest_rollout.agents.protocol import Agent
from pytest_rollout.attempt import Attempt
from pytest_rollout.bodylimit import BodyClock
from pytest_rollout.bundle import AuditVerdict
from pytest_rollout.control import Control, Facts
from pytest_rollout.errors import EvidenceError, InfraError
from pytest_rollout.evidence import Bundle
from pytest_rollout.job import Job
from pytest_rollout.lastresort import last_resort
from pytest_rollout.outcome import Verdict
from pytest_rollout.redaction.redactor import Redactor
from pytest_rollout.reward import Reward
from pytest_rollout.store.records import Earlier, Result
from pytest_rollout.task import Task

__all__ = ["SKIPS", "State", "bounded", "place"]

SKIPS = (pytest.skip.Exception, pytest.xfail.Exception)
_MAX_MESSAGE = 10_000


class State:
    """What is known of one test's rollout while it runs.

    ``trial`` is set where the body is run for what it shows of the checks: nothing is recorded of that, and
    what it came to is in ``facts``.
    """

    def __init__(self, item: pytest.Item, rollout: RolloutItem, redactor: Redactor, trial: str | None = None) -> None:
        self.item, self.rollout, self.trial = item, rollout, trial
        self._redactor = redactor
        self.task: Task = rollout.task
        self.agent_name = rollout.agent_name
        self.attempt: Attempt | None = None
        self.earlier: tuple[Earlier, ...] = ()  # attempts before the one that is made, or could not be made
        self.bundle: Bundle | None = None
        self.reward = Reward(failures=(pytest.fail.Exception,), through=SKIPS, render=self._render)
        self.in_phase = False
        self.left_alone = False  # a worker died with it, or the run was ended
        self.subtests: list[BaseException] = []
        self.verdict: Verdict | None = None
        self.result: Result | None = None
        self.xfail: str | None = None  # what pytest made of such a mark
        self.told: BaseException | None = None
        self.trial_agent: Agent | None = None
        self.facts: Facts | None = None
        self.control = Control()
        self.evaluator_revision: str | None = None
        self.audit: AuditVerdict | None = None
        self.notes: list[str] = []  # what a reader of the result has to know of its control runs
        self.clock = BodyClock(_seconds(self.task), last_resort() if trial is None else None)

    def take(self, task: Task) -> None:
        """The task that the suite's own fixture gave."""
        self.task = task
        self.clock.allow(_seconds(task))

    def job(self) -> Job:
        """What is rolled out."""
        return Job(
            task=self.task,
            sample=self.rollout.sample,
            node=self.item.nodeid,
            suite=self.item.path.parent,
            evaluator_revision=self.evaluator_revision,
            audit=self.audit,
            trial=self.trial,
            stored=self.rollout.stored,
            earlier=self.earlier,
        )

    def hand_out(self) -> Bundle:
        """The facade over the evidence; raises InfraError where the attempt measured nothing."""
        attempt = self.attempt
        assert attempt is not None
        if attempt.infra is not None or attempt.record is None or attempt.reader is None:
            raise InfraError(attempt.infra.message if attempt.infra else "there is no evidence")
        if attempt.evaluator is not None:
            attempt.evaluator.pausing = self.clock.paused
        self.bundle = Bundle(attempt.record, attempt.reader, attempt.folder, attempt.evaluator)
        self.clock.start()  # a fixture may read the evidence too
        return self.bundle

    def release(self) -> None:
        """Let go of the evidence and of tracebacks: this stays in memory to the end of the session."""
        self.attempt = self.bundle = self.told = None
        self.subtests.clear()
        if self.reward.problem is not None:
            self.reward.problem.__traceback__ = None

    def _render(self, error: BaseException) -> str:
        """Where a check failed, and pytest's own words for it."""
        found = pytest.ExceptionInfo.from_exception(error)
        text = str(error) if isinstance(error, EvidenceError) else found.exconly().removeprefix("AssertionError: ")
        return bounded(self._redactor.text(f"{place(self.item, found.traceback[0])}: {text}"))


def place(item: pytest.Item, entry: Any) -> str:
    """Where a traceback entry is: the file, relative to the root folder where it is below it, and the line."""
    path = os.fspath(entry.path)
    root = os.path.join(item.config.rootpath, "")
    return f"{path.removeprefix(root)}:{entry.lineno + 1}"


def bounded(text: str) -> str:
    """A message may quote what a candidate wrote, so its length has an end."""
    more = len(text) - _MAX_MESSAGE
    return text if more <= 0 else f"{text[:_MAX_MESSAGE]} … ({more} more characters)"


def _seconds(task: Task) -> float:
    """The limit of a body."""
    assert task.limits.body is not None
    return task.limits.body
