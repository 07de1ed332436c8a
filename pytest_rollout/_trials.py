"""Trials: run the body of a test on a bundle that no candidate made, and keep what that shows of its checks.

A trial is the test once more, with fixtures of its own, on a copy of its item: it makes no report and no
result. Control runs are the trials on the no-op and on the oracle, made once for each revision of the checks.
"""

from __future__ import annotations

import copy
import os
import sys
import types
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pytest
from msgspec import Struct

from pytest_rollout._judge import Judge
from pytest_rollout._state import State
from pytest_rollout.agents.noop import NoopAgent
from pytest_rollout.agents.oracle import OracleAgent
from pytest_rollout.agents.protocol import Agent
from pytest_rollout.bundle import BundleRecord
from pytest_rollout.control import Control, Facts
from pytest_rollout.errors import ConfigError, InfraError
from pytest_rollout.evaluation.revision import evaluator_revision
from pytest_rollout.identity import canonical_digest
from pytest_rollout.run import Run
from pytest_rollout.stage.baseline import fingerprint
from pytest_rollout.task import Task

__all__ = ["Tried", "Trials"]

_NO_BODY = ("setuponly", "setupshow", "setupplan", "usepdb", "trace")


class Tried(Struct, frozen=True):
    """What came of a trial: its facts, the bundle's record and the folder of its evidence, where there were any."""

    facts: Facts
    record: BundleRecord | None
    folder: Path | None


@cache
def _fingerprint_of(path: Path) -> str:
    """The content of an oracle, a file or a folder."""
    return fingerprint(path) if path.is_dir() else canonical_digest(path.read_bytes().hex())


class _QuietHooks:
    """The hooks of an item, without the one by which subtests and other plugins log reports of their own."""

    def __init__(self, hooks: Any) -> None:
        self._hooks = hooks

    def __getattr__(self, name: str) -> Any:
        return getattr(self._hooks, name)

    @staticmethod
    def pytest_runtest_logreport(**_: Any) -> None:
        """Nothing that is seen in a trial is a result."""


@cache
def _quiet(kind: type[pytest.Item]) -> type[pytest.Item]:
    """A class of items that log nothing."""
    quieted = property(_quieted(kind.ihook.fget))  # type: ignore[attr-defined]
    made: type[pytest.Item] = types.new_class(kind.__name__, (kind,), {}, lambda names: names.update(ihook=quieted))
    return made


def _quieted(get: Callable[[Any], Any]) -> Callable[[Any], _QuietHooks]:
    return lambda item: _QuietHooks(get(item))


class Trials:
    """Makes the trials of one process's session."""

    def __init__(self, config: pytest.Config, run: Run, judge: Judge, states: pytest.StashKey[State]) -> None:
        self._config, self._run, self._judge, self._states = config, run, judge, states
        self._revisions: dict[tuple[Path, str | None], str] = {}
        self._controls: dict[str, Control] = {}

    # -- what is known of the checks of a test

    def learn(self, state: State) -> None:
        """Find out which checks will score a test, and what is known of them; try them where that is nothing."""
        task = state.rollout.task
        state.evaluator_revision = self.revision(state.item, task)
        if self._run.settings.controls == "auto" and not self._shows_only():
            try:
                state.control = self._control(state, state.evaluator_revision)
            except (InfraError, ConfigError, OSError, pytest.fail.Exception):
                state.control = Control()  # the rollout itself will tell what is wrong
        audit = self._run.facts.audit(task.id, state.evaluator_revision)
        if audit is not None:
            state.audit = audit.verdict
        elif state.control.noop is not None and state.control.noop.accepted:
            state.audit = "weak"

    def _shows_only(self) -> bool:
        return any(getattr(self._config.option, name, False) for name in _NO_BODY)

    def revision(self, item: pytest.Item, task: Task) -> str:
        """The evaluator revision of a test."""
        hidden = task.hidden.path if task.hidden is not None else None
        key = (item.path, hidden)
        if key not in self._revisions:
            root = self._config.rootpath
            above = [folder for folder in item.path.parents if folder == root or root in folder.parents]
            conftests = [folder / "conftest.py" for folder in above or [item.path.parent]]
            hidden_revision = fingerprint(Path(hidden)) if hidden is not None else None
            self._revisions[key] = evaluator_revision([item.path, *conftests], root, hidden_revision, sys.modules)
        return self._revisions[key]

    def _control(self, state: State, revision: str) -> Control:
        task, facts = state.rollout.task, self._run.facts
        environment, executor = self._run.environment_of(task), self._run.executor().info
        limits = [task.limits.evaluation, task.limits.body]
        oracle = None if task.oracle is None else _fingerprint_of(Path(task.oracle))
        key = canonical_digest([task.id, revision, task.digest(), environment, executor.name, limits, oracle])
        if key in self._controls:
            return self._controls[key]
        found = facts.control(key)
        if found is None:
            with facts.control_lock(key):
                found = facts.control(key)
                if found is None:
                    found = self._try(state)
                    if all(each is None or each.end != "infra" for each in (found.noop, found.oracle)) and found.noop:
                        facts.keep_control(key, found)
        self._controls[key] = found
        return found

    def _try(self, state: State) -> Control:
        """The oracle first, because it fixes the checks by which the no-op is judged."""
        found = Control()
        if state.rollout.task.oracle is not None:
            oracle = self.run(state, self.oracle(state), "oracle")
            found = Control(oracle=oracle.facts if oracle is not None else None)
        noop = self.run(state, NoopAgent(), "noop", found)
        return Control(oracle=found.oracle, noop=noop.facts if noop is not None else None)

    def oracle(self, state: State) -> Agent:
        """The oracle of a test's task as an agent."""
        path = state.rollout.task.oracle
        assert path is not None
        executor = self._run.executor()
        source = executor.prepare(Path(path)).path if os.path.isdir(path) else path
        return OracleAgent(source, isolated=executor.info.trusted)

    # -- one trial

    def run(self, state: State, agent: Agent, name: str, control: Control | None = None) -> Tried | None:
        """Run a test's body on the bundle of ``agent``; None where it was skipped before there was one."""
        clone = self._clone(state.item)
        trial = State(clone, state.rollout, trial=name)
        trial.trial_agent, trial.control = agent, control or Control()
        trial.evaluator_revision = state.evaluator_revision
        clone.stash[self._states] = trial
        with warnings.catch_warnings(record=True):  # the test itself will warn; what is an error stays one
            try:
                if self._phase(clone, "setup"):
                    self._phase(clone, "call")
            finally:
                self._phase(clone, "teardown", nextitem=state.item)
                clone._request = False  # as pytest lets go of a test that has run
                clone.funcargs = None
        attempt = trial.attempt
        record, folder = (attempt.record, attempt.folder) if attempt is not None else (None, None)
        self._judge.put_away(trial)
        trial.release()
        return Tried(trial.facts, record, folder) if trial.facts is not None else None

    @staticmethod
    def _clone(item: pytest.Item) -> Any:
        """The same test with nothing of a run in it."""
        clone: Any = copy.copy(item)
        clone.__class__ = _quiet(type(item))
        clone.stash = pytest.Stash()
        clone.user_properties, clone._report_sections = [], []
        if getattr(item, "cls", None) is not None:  # an instance of its own
            clone.__dict__.pop("_obj", None)
            clone.__dict__.pop("_instance", None)
        clone._initrequest()
        return clone

    @staticmethod
    def _phase(clone: Any, when: Literal["setup", "call", "teardown"], **more: Any) -> bool:
        """One phase as pytest's runner makes it, without a log; returns whether it passed."""
        hook = getattr(clone.ihook, f"pytest_runtest_{when}")
        through = (pytest.exit.Exception, KeyboardInterrupt)
        call = pytest.CallInfo.from_call(lambda: hook(item=clone, **more), when=when, reraise=through)
        report = clone.ihook.pytest_runtest_makereport(item=clone, call=call)
        return bool(report.passed)
