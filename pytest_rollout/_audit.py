"""``pytest --rollout-audit``: every selected task's checks are tried, and each test reports the verdict.

A test's own protocol is replaced: its trials run one after the other, and one report says what came of
them. Workers audit what they are given; the controller gathers, as it does with rollouts.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import pytest
from msgspec import convert, to_builtins

from pytest_rollout._reporting import UNMEASURED, Reporting, executor_lines, note_lines, shown_folder
from pytest_rollout._signals import Signals
from pytest_rollout._state import State
from pytest_rollout._trials import Trials, Tried
from pytest_rollout.agents.noop import NoopAgent
from pytest_rollout.agents.oracle import PlantAgent
from pytest_rollout.audit.forgeries import forgeries
from pytest_rollout.audit.variants import variants
from pytest_rollout.audit.verdict import oracle_problem, verdict_of
from pytest_rollout.audit.work import Solution, Work, read_solution, read_tree
from pytest_rollout.control import Control, Facts
from pytest_rollout.decisions.resume import Before
from pytest_rollout.errors import ConfigError, InfraError
from pytest_rollout.executors.protocol import ExecutorInfo
from pytest_rollout.identity import slug
from pytest_rollout.outcome import SLACK
from pytest_rollout.plain import clean
from pytest_rollout.report.audits import audit_case, audit_lines, audit_properties, trial_lines
from pytest_rollout.report.inert import one_line
from pytest_rollout.report.junit import rewrite
from pytest_rollout.report.terminal import plural
from pytest_rollout.run import Run
from pytest_rollout.store.facts import AuditRecord, TaskAudit, Trial
from pytest_rollout.store.journal import utc_now
from pytest_rollout.store.records import Plan

__all__ = ["AuditReporting", "Auditing", "reporting_of"]

_BELOW = "below the threshold"


def reporting_of(
    config: pytest.Config, run: Run, plan: Plan, signals: Signals, before: Before | None = None
) -> Reporting | AuditReporting:
    """Who reports at the end, of rollouts or of an audit; ``before`` is what there was of a resumed run."""
    return AuditReporting(config, run, plan) if run.settings.audit else Reporting(config, run, plan, signals, before)


class Auditing:
    """Registered where tests run, in an audit."""

    def __init__(self, run: Run, trials: Trials, states: pytest.StashKey[State]) -> None:
        self._run, self._trials, self._states = run, trials, states

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        """Try the checks of a test instead of running it."""
        if self._states not in item.stash:
            return None
        with suppress(AttributeError):  # the limits of a trial are its own
            item.ihook.pytest_timeout_cancel_timer(item=item)
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        began, clock = time.time(), time.monotonic()
        report = self._report(item, began, clock)
        for each in (self._passed(item, "setup"), report, self._passed(item, "teardown")):
            item.ihook.pytest_runtest_logreport(report=each)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    @staticmethod
    def _passed(item: pytest.Item, when: Literal["setup", "teardown"]) -> pytest.TestReport:
        """The report of a phase that an audit does not have."""
        now = time.time()
        return pytest.TestReport(
            item.nodeid,
            item.location,
            {},
            "passed",
            None,
            when,
            user_properties=item.user_properties,
            start=now,
            stop=now,
        )

    def _report(self, item: pytest.Item, began: float, clock: float) -> pytest.TestReport:
        state = item.stash[self._states]
        state.evaluator_revision = self._trials.revision(item, state.rollout.task)
        try:
            audit = self._audit(state)
            self._run.facts.keep_audit(audit)
        except (InfraError, ConfigError) as error:
            audit = self._verdict(state, "unknown", f"it could not be audited: {error}", failed=True)
        text = "\n".join([f"{audit.verdict}: {audit.reason}", *trial_lines(audit)]) if audit.failed else None
        item.user_properties.extend(audit_properties(audit, self._run.name))
        report = pytest.TestReport(
            item.nodeid,
            item.location,
            {},
            "failed" if audit.failed else "passed",
            text,
            "call",
            user_properties=list(item.user_properties),
            start=began,
            stop=began + (took := time.monotonic() - clock),
            duration=took,
        )
        report.rollout_audit = clean(to_builtins(audit))  # type: ignore[attr-defined]
        return report

    def _verdict(self, state: State, verdict: Any, reason: str, **more: Any) -> TaskAudit:
        return TaskAudit(
            task=state.rollout.task.id,
            node=state.item.nodeid,
            evaluator_revision=state.evaluator_revision or "",
            verdict=verdict,
            reason=reason,
            time=utc_now(),
            **more,
        )

    # -- the trials of one task

    def _audit(self, state: State) -> TaskAudit:
        task = state.rollout.task
        executor = self._run.executor()
        workspace = None if task.workspace is None else Path(task.workspace.path)
        baseline = read_tree(Path(executor.prepare(workspace).path))
        tried = self._oracle(state)
        if tried is not None and not tried:
            return self._verdict(state, "unknown", "the test was skipped before there was a bundle")
        oracle = None if tried is None else [each.facts for each in tried]
        solution = _solution(tried[0], baseline) if tried else None
        fixed = Control(oracle=oracle[0] if oracle else None)
        noop = self._trials.run(state, NoopAgent(), "noop", fixed)
        if noop is None:
            return self._verdict(state, "unknown", "the test was skipped before there was a bundle")
        control = Control(oracle=fixed.oracle, noop=noop.facts)
        trials = [(_trial("noop", noop.facts), False)]
        touched = solution.new if solution is not None else {}
        for work in (*forgeries(baseline, touched), *(variants(solution) if solution is not None else ())):
            found = self._planted(state, work, control)
            if found is not None:
                trials.append((_trial(work.name, found.facts), work.in_process))
        broken = _protected(tried[0]) if tried else []
        problem = oracle_problem(oracle, broken, _ended(tried[0]) if tried else "") if oracle is not None else ""
        verdict, reason, failed = verdict_of(oracle, problem, trials)
        scored = [_scored(facts, number) for number, facts in enumerate(oracle or (), 1)]
        everything = (*scored, *(trial for trial, _ in trials))
        return self._verdict(state, verdict, reason, failed=failed, trials=everything)

    def _oracle(self, state: State) -> list[Tried] | None:
        """The trials on the oracle; None where the task has none, empty where the test was skipped."""
        if state.rollout.task.oracle is None:
            return None
        agent = self._trials.oracle(state)
        count = self._run.settings.audit_repeats
        found = [self._trials.run(state, agent, f"oracle-{number}") for number in range(1, count + 1)]
        return [each for each in found if each is not None]

    def _planted(self, state: State, work: Work, control: Control) -> Tried | None:
        executor = self._run.executor()
        layer = executor.layer(work.write)
        try:
            agent = PlantAgent(work.name, layer, work.script, mounted=executor.info.mounts)
            return self._trials.run(state, agent, slug(work.name), control)
        finally:
            executor.drop_layer(layer)


def _protected(tried: Tried) -> list[str]:
    """The protected paths that an oracle changed."""
    findings = tried.record.findings if tried.record is not None else ()
    return [finding.path or "" for finding in findings if finding.code == "protected"]


def _ended(tried: Tried) -> str:
    """How an oracle ended, where that explains what it scores."""
    record, folder = tried.record, tried.folder
    if record is None or folder is None:
        return ""
    if not record.changes and record.termination == "completed":
        return "it changed nothing"
    if record.termination == "completed":
        return ""
    code = f" {record.exit_code}" if record.exit_code is not None else ""
    with suppress(OSError):
        lines = (folder / record.stderr.file).read_text("utf-8", "replace").strip().splitlines()
        return f"it ended by {record.termination}{code}" + (f": {one_line(lines[-1])[:300]}" if lines else "")
    return f"it ended by {record.termination}{code}"


def _solution(tried: Tried, baseline: dict[str, bytes]) -> Solution | None:
    if tried.record is None or tried.folder is None:
        return None
    with suppress(OSError):
        return read_solution(tried.record, tried.folder, baseline)
    return None


def _trial(name: str, facts: Facts) -> Trial:
    return Trial(name=name, wanted=_BELOW, facts=facts, good=not facts.accepted)


def _scored(facts: Facts, number: int) -> Trial:
    good = facts.reward is not None and facts.reward >= 1 - SLACK
    return Trial(name=f"oracle {number}", wanted="1", facts=facts, good=good)


class AuditReporting:
    """The end of an audit, in the process that talks to the user."""

    def __init__(self, config: pytest.Config, run: Run, plan: Plan) -> None:
        self._config, self._run, self._plan = config, run, plan
        self._audits: dict[str, TaskAudit] = {}
        self._lines: list[str] = []

    def header(self, executor: ExecutorInfo | InfraError | None) -> list[str]:
        """What is going to run, below «collected N items»."""
        tasks = plural(len(self._plan.rollouts), "task")
        head = f"rollout: audit of the checks of {tasks}; no agent is run"
        lines = [head, *executor_lines(executor), *note_lines(self._plan)]
        return [self._run.redactor.text(line) for line in lines]

    def crashed(self, node: str, report: pytest.TestReport, sched: Any, *, ending: bool) -> None:
        """A worker died in an audit: its task stays without a verdict."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        found = getattr(report, "rollout_audit", None)
        if isinstance(found, dict):
            self._audits[report.nodeid] = convert(found, TaskAudit)

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, Any, Any]:
        result = yield
        try:
            missing = tuple(planned.node for planned in self._plan.rollouts if planned.node not in self._audits)
            record = AuditRecord(run=self._run.name, tasks=tuple(self._in_order()), missing=missing)
            place = self._keep(record)
            lines = [*audit_lines(record, place), *self._write_junit(record)]
            self._lines = [self._run.redactor.text(line) for line in lines]
            if missing and session.exitstatus in (0, 1):
                session.exitstatus = UNMEASURED
        finally:
            self._run.folder.release()
        return result

    def _write_junit(self, record: AuditRecord) -> list[str]:
        """Give the failures of the JUnit file their types; returns what went wrong with that."""
        path = self._config.getoption("xmlpath", None)
        cases = [audit_case(audit, record.run) for audit in record.tasks]
        return rewrite(Path(path), {case.rollout: case for case in cases}) if path else []

    def _in_order(self) -> Iterator[TaskAudit]:
        for planned in self._plan.rollouts:
            if planned.node in self._audits:
                yield self._audits[planned.node]

    def _keep(self, record: AuditRecord) -> str:
        if not record.tasks:
            return "not kept: no task was tried"
        try:
            place = self._run.facts.keep_record(record)
        except InfraError as error:
            return f"not kept: {error.message}"
        self._run.prune()
        return shown_folder(self._config, place)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self._lines:
            terminalreporter.write_sep("=", "audit")
            for line in self._lines:
                terminalreporter.write_line(line)
