"""Trials: run the body of a test on a bundle that no candidate made, and keep what that shows of its checks.

A trial is the test once more, in a process of its own: it makes no report and no result, and leaves nothing in this
one. Control runs are the trials on the no-op and on the oracle, made once for each revision of the checks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from pytest_rollout._judge import Judge
from pytest_rollout._rehearsal import rehearse
from pytest_rollout._revisions import Revisions
from pytest_rollout._state import State
from pytest_rollout.agents.noop import NoopAgent
from pytest_rollout.agents.oracle import OracleAgent
from pytest_rollout.agents.protocol import Agent
from pytest_rollout.apart import apart
from pytest_rollout.bundle import AuditVerdict, BundleRecord
from pytest_rollout.control import Control, Facts
from pytest_rollout.errors import ConfigError, EvaluatorError, InfraError
from pytest_rollout.evaluation.surroundings import Surroundings
from pytest_rollout.identity import canonical_digest
from pytest_rollout.plain import clean_text
from pytest_rollout.run import Run
from pytest_rollout.stage.fingerprint import fingerprint
from pytest_rollout.store.folder import read_record
from pytest_rollout.task import Task

__all__ = ["Learning", "Trials", "Tried"]

_EVALUATIONS = 10
_OF_A_SESSION = frozenset(  # options that choose, spread or show tests, and say nothing to a body
    (
        *("basetemp", "cacheclear", "capture", "color", "debug", "deselect", "dist", "distload", "durations"),
        *("durations_min", "failedfirst", "file_or_dir", "fold_skipped", "force_short_summary", "fulltrace", "keyword"),
        *("last_failed_no_failures", "lf", "loadscopereorder", "log_file", "markexpr", "maxfail", "maxprocesses"),
        *("maxschedchunk", "maxworkerrestart", "newfirst", "no_header", "no_summary", "numprocesses", "plugins", "px"),
        *("quiet", "reportchars", "rsyncdir", "rsyncignore", "showcapture", "showlocals", "stepwise"),
        *("stepwise_reset", "stepwise_skip", "tbstyle", "testrunuid", "tx", "usepdb", "verbose", "xmlpath"),
        *("looponfail", "runxfail"),
    )
)
_NO_BODY = ("setuponly", "setupshow", "setupplan", "usepdb", "trace")


class Tried(Struct, frozen=True):
    """What came of a trial: its facts, the bundle's record and the folder of its evidence, where there were any."""

    facts: Facts
    record: BundleRecord | None
    folder: Path | None


class _Told(Struct, frozen=True):
    """What a trial's process tells the one that asked for it."""

    facts: Facts | None
    folder: str | None


@cache
def _fingerprint_of(path: Path) -> str:
    """The content of an oracle, a file or a folder."""
    return fingerprint(path) if path.is_dir() else canonical_digest(path.read_bytes().hex())


def _patience(task: Task) -> float:
    """Seconds that a trial may take; also how long another process that makes one is waited for."""
    limits = task.limits
    assert limits.wall is not None and limits.evaluation is not None and limits.body is not None
    return limits.wall + limits.body + _EVALUATIONS * limits.evaluation


class Learning:
    """Registered where tests run: what is not known of a test's checks is found out before the test.

    It is registered last, so that the wrappers of other plugins, time limits above all, begin when it is done.
    """

    def __init__(self, learn: Callable[[pytest.Item], None]) -> None:
        self._learn = learn

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        self._learn(item)
        return (yield)


class Trials:
    """Makes the trials of one process's session."""

    def __init__(
        self, config: pytest.Config, run: Run, judge: Judge, states: pytest.StashKey[State], revisions: Revisions
    ) -> None:
        self._config, self._run, self._judge, self._states = config, run, judge, states
        self._revisions = revisions
        self._controls: dict[str, Control] = {}
        self._audits: dict[tuple[str, str], AuditVerdict | None] = {}
        written = [config.getoption(name, None) for name in ("xmlpath", "log_file")]
        places = (run.results.path, run.stage_root, *(Path(path) for path in written if path))
        options = {
            name: value
            for name, value in vars(config.option).items()
            if name not in _OF_A_SESSION and not name.startswith("rollout_")
        }
        self._surroundings = Surroundings(config.rootpath, options, [place for place in places if place is not None])

    # -- what is known of the checks of a test

    def learn(self, state: State) -> None:
        """Find out which checks will score a test, and what is known of them; try them where that is nothing."""
        task = state.rollout.task
        state.evaluator_revision = self.revision(state.item, task)
        if self._run.settings.controls == "auto" and not self._shows_only():
            try:
                state.control = self._control(state, state.evaluator_revision)
            except (InfraError, ConfigError, OSError) as error:
                state.control = Control()
                if isinstance(error, EvaluatorError):  # of anything else the rollout itself will tell
                    state.notes.append(f"the checks were not tried: {clean_text(str(error))}")
        state.audit = self._audited(task.id, state.evaluator_revision)
        if state.audit is None and state.control.noop is not None and state.control.noop.accepted:
            state.audit = "weak"

    def _audited(self, task: str, revision: str) -> AuditVerdict | None:
        """The verdict of the last audit of a task's checks, read once."""
        if (task, revision) not in self._audits:
            audit = self._run.facts.audit(task, revision)
            self._audits[task, revision] = audit.verdict if audit is not None else None
        return self._audits[task, revision]

    def _shows_only(self) -> bool:
        return any(getattr(self._config.option, name, False) for name in _NO_BODY)

    def revision(self, item: pytest.Item, task: Task) -> str:
        """The evaluator revision of a test."""
        return self._revisions.of(item, task)

    def _control(self, state: State, revision: str) -> Control:
        """What is known of the checks; where they look at the seed, for this seed."""
        task = state.rollout.task
        key = self._key(state.item, task, revision)
        of_seed = canonical_digest([key, task.seed + state.rollout.sample])
        found = self._known_or_tried(key, of_seed, state)
        return self._known_or_tried(of_seed, of_seed, state) if found.seeded else found

    def _key(self, item: pytest.Item, task: Task, revision: str) -> str:
        """All that the facts of a control run depend on."""
        return canonical_digest(
            [
                task.id,
                revision,
                task.digest(),
                self._run.environment_of(task),
                self._run.executor().info.name,
                [task.limits.evaluation, task.limits.body],
                None if task.oracle is None else _fingerprint_of(Path(task.oracle)),
                self._surroundings.digest(item.path.parent) or self._run.name,
            ]
        )

    def _known_or_tried(self, key: str, of_seed: str, state: State) -> Control:
        facts = self._run.facts
        found = self._controls.get(key) or facts.control(key)
        if found is None:
            with facts.control_lock(key, _patience(state.rollout.task)):
                found = facts.control(key)
                if found is None:
                    found = self._try(state)
                    for each in {key, of_seed} if found.seeded else {key}:
                        self._controls[each] = found
                        if found.lasting:
                            facts.keep_control(each, found)
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
        return OracleAgent(source, mounted=executor.info.mounts)

    # -- one trial

    def run(self, state: State, agent: Agent, name: str, control: Control | None = None) -> Tried | None:
        """Run a test's body on the bundle of ``agent``; None where it was skipped before there was one.

        Raises EvaluatorError where its process ended before it was judged.
        """
        said = apart(lambda: self._said(state, agent, name, control), _patience(state.rollout.task))
        if said is None:
            raise EvaluatorError(f"the trial {name!r} of the checks ended before it was judged")
        told = msgspec.json.decode(said, type=_Told)
        if told.facts is None:
            return None
        folder = Path(told.folder) if told.folder is not None else None
        record = None
        if folder is not None:
            with suppress(OSError, msgspec.MsgspecError):
                record = read_record(folder / "bundle.json", BundleRecord)
        return Tried(told.facts, record, folder)

    def _said(self, state: State, agent: Agent, name: str, control: Control | None) -> bytes:
        """In the child: rehearse the test, and write what came of it."""
        item = state.item
        trial = State(item, state.rollout, self._run.redactor, trial=name)
        trial.trial_agent, trial.control = agent, control or Control()
        trial.evaluator_revision = state.evaluator_revision
        item.stash[self._states] = trial
        rehearse(item, lambda call, report: self._judge.judge(trial, call, report))
        folder = str(trial.attempt.folder) if trial.attempt is not None else None
        self._judge.put_away(trial)
        return msgspec.json.encode(_Told(facts=trial.facts, folder=folder))
