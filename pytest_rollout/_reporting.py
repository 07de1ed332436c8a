"""The end of a session, in the process that talks to the user: proof, JUnit, exit status, summary."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import is_dataclass
from dataclasses import replace as dataclasses_replace
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pytest_rollout._breaker import Breaking
from pytest_rollout._crashes import Crashes
from pytest_rollout._endings import endings_of
from pytest_rollout._preflight import preflight_lines
from pytest_rollout._sharding import shard_line
from pytest_rollout._signals import Signals
from pytest_rollout._whole import Whole
from pytest_rollout.decisions.resume import Before
from pytest_rollout.errors import InfraError
from pytest_rollout.executors.protocol import ExecutorInfo
from pytest_rollout.plain import printable
from pytest_rollout.recording import lost_result
from pytest_rollout.report.inert import inert_repr, inert_text, one_line
from pytest_rollout.report.junit import CaseVerdict, rewrite
from pytest_rollout.report.properties import properties_of
from pytest_rollout.report.terminal import closing_block, plural, status_word
from pytest_rollout.reward import Reward
from pytest_rollout.run import Run
from pytest_rollout.store.load import LoadedRun, load_results
from pytest_rollout.store.records import Plan, Planned, Result
from pytest_rollout.store.skipped import mark_skipped

__all__ = ["UNMEASURED", "Reporting", "executor_lines", "note_lines", "shown_folder"]

UNMEASURED = 75
_LOST = "the rollout was planned and never reported: its worker, or the session, ended before that"
_MAX_NOTES = 10
_EXIT_OK, _EXIT_FAILED, _EXIT_INTERRUPTED = 0, 1, 2


def shown_folder(config: pytest.Config, path: Path) -> str:
    """A path, relative to where the user is, where that is shorter."""
    try:
        return str(path.relative_to(Path(config.invocation_params.dir)))
    except ValueError:
        return str(path)


def executor_lines(executor: ExecutorInfo | InfraError | None) -> list[str]:
    """Where agents act, or why nowhere; nothing where pytest only shows."""
    if isinstance(executor, InfraError):
        return [f"rollout: no executor: {executor.message}"]
    return [] if executor is None else [f"rollout: executor {executor.describe()}"]


def note_lines(plan: Plan) -> list[str]:
    """What a suite's author should look at, before anything runs."""
    lines = [one_line(f"rollout: warning: {note}") for note in plan.notes[:_MAX_NOTES]]
    more = len(plan.notes) - _MAX_NOTES
    return [*lines, f"rollout: … and {more} more warnings"] if more > 0 else lines


class Reporting:
    """Registered as a plugin once there are rollouts; on the controller or where there is no xdist."""

    def __init__(
        self, config: pytest.Config, run: Run, plan: Plan, signals: Signals, before: Before | None = None
    ) -> None:
        """``plan`` is what this session makes, ``before`` what there was of a run that it resumes."""
        self._config, self._run, self._plan, self._signals = config, run, plan, signals
        self._whole = Whole(run.folder, plan, before)
        self._nodes = {planned.node for planned in plan.rollouts}
        self._cases: dict[str, CaseVerdict] = {}
        self._reported: set[str] = set()
        self._skipped: set[str] = set()
        self._interrupted = self._stopped_early = False
        self._lines: list[str] = []
        self._notes: list[str] = []
        self._said: list[str] = []
        self._endings = endings_of(config, run)
        self._breaking = Breaking(config, run)
        self._crashes = Crashes(
            config,
            run,
            plan,
            cases=self._cases,
            add=self._add,
            attach=self._attach,
            earlier=self._whole.earlier(),
        )

    def header(self, executor: ExecutorInfo | InfraError | None) -> list[str]:
        """What is going to run, below «collected N items»."""
        plan = self._plan
        tasks = {planned.task for planned in plan.rollouts}
        agents = sorted({planned.agent for planned in plan.rollouts})
        number = len(plan.rollouts)
        stored = self._run.stored
        runs = plural(number, "agent run") if stored is None else f"no agent runs: {plural(number, 'stored bundle')}"
        what = f"rollout: {runs} of {plural(len(tasks), 'task')}"
        lines = [f"{what}, {_agents(agents, 80 - len(what) - 2)}"] if number else []
        if stored is not None:
            lines.append(f"rollout: scores {stored.name} again")
        lines += [] if plan.shard is None else [shard_line(plan.shard)]
        lines += self._whole.header(self._run.name)
        lines += executor_lines(executor)
        for node, count in plan.multiplied.items():
            lines.append(f"rollout: the marker of {node} holds for every test in it: {count} agent runs")
        lines += [*note_lines(plan), *preflight_lines(self._run, plan)]
        if executor is not None:
            lines.append(f"rollout: results in {shown_folder(self._config, self._run.folder.path)}")
            if self._run.reaped:
                stages = "1 stage" if self._run.reaped == 1 else f"{self._run.reaped} stages"
                lines.append(f"rollout: removed {stages} of sessions that died")
        return [self._run.redactor.text(line) for line in lines]

    # -- while tests run

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.nodeid in self._nodes:
            _make_inert(report)
        if report.when != "setup" or report.outcome != "passed":
            self._reported.add(report.nodeid)
        if report.when == "setup" and report.skipped:
            self._skipped.add(report.nodeid)
        found = getattr(report, "rollout", None)
        if isinstance(found, dict):
            self._cases[found["rollout"]] = self._case(found, report)
            self._breaking.note(found, report.nodeid)

    @staticmethod
    def _case(found: dict[str, Any], report: pytest.TestReport) -> CaseVerdict:
        outcome, kind, message = found["outcome"], found["type"], found["message"]
        if outcome == "passed" and report.failed:  # XPASS(strict), or another plugin's word
            crash = getattr(report.longrepr, "reprcrash", None)
            outcome, kind, message = "failed", "pytest", str(crash.message if crash else report.longrepr)
        return CaseVerdict(
            rollout=found["rollout"],
            outcome=outcome,
            type=kind,
            message=message.split("\n")[0],
            properties=tuple((name, value) for name, value in found["properties"]),
        )

    def crashed(self, node: str, report: pytest.TestReport, sched: Any, *, ending: bool) -> None:
        """A worker died in a test."""
        self._crashes.crashed(node, report, sched, ending=ending or self._signals.received is not None)

    def _attach(self, report: pytest.TestReport, result: Result) -> None:
        """Make a report that no worker made say what the result says."""
        properties = properties_of(result, None, Reward(), run=self._run.name, samples=None)
        report.user_properties.extend(properties)
        report.rollout = {  # type: ignore[attr-defined]
            "rollout": result.rollout,
            "outcome": result.outcome,
            "kind": result.kind,
            "reward": result.reward,
            "type": result.type,
            "message": result.message.split("\n")[0],
            "properties": [list(pair) for pair in properties],
            "word": status_word(result.outcome, result.kind, result.reward),
        }

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        if "stopping after" in str(excinfo.value) or self._breaking.message:
            self._stopped_early = True
        else:
            self._interrupted = True

    # -- at the end

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, Any, Any]:
        self._stopped_early |= bool(session.shouldfail or session.shouldstop)
        self._report_untold(lost=not (self._interrupted or self._stopped_early))
        result = yield
        try:
            with self._signals.held():
                loaded = self._prove()
                self._write_junit(loaded)
                self._set_status(session, loaded)
                self._end(session, loaded)
                self._notes += [f"{r.node}: {warning}" for r in loaded.results for warning in r.warnings]
                self._finish_lines(loaded)
        finally:
            self._run.folder.release()
        return result

    def _report_untold(self, *, lost: bool) -> None:
        """Report what was recorded as infra and never told of; ``lost``: also what has no result, made here."""
        self._breaking.end()
        known = self._whole.of_session(load_results(self._run.folder))
        for planned in self._plan.rollouts:
            result = known.get(planned.rollout)
            died = self._crashes.waiting.get(planned.rollout) if result is None else None
            without = not lost and died is None
            if planned.node in self._reported or (without if result is None else result.outcome != "infra"):
                continue
            if result is None:
                result = died or lost_result(planned, _LOST)
                self._add(result)
            location = (planned.node.partition("::")[0], None, _domain(planned.node))
            report = pytest.TestReport(planned.node, location, {}, "failed", result.message, "teardown")
            self._attach(report, result)
            self._config.hook.pytest_runtest_logreport(report=report)

    def _prove(self) -> LoadedRun:
        """The results; of a rollout that was reported and has none, one is made here."""
        self._mark_skipped()
        loaded = load_results(self._run.folder)
        known = self._whole.of_session(loaded)
        missing = [planned for planned in self._plan.rollouts if planned.rollout not in known]
        made = [self._unrecorded(planned) for planned in missing if planned.rollout in self._cases]
        for result in made:
            self._add(result)
        return self._whole.joined(loaded, made)

    def _mark_skipped(self) -> None:
        skipped = {planned.rollout for planned in self._plan.rollouts if planned.node in self._skipped}
        if skipped:
            try:
                mark_skipped(self._run.folder, skipped, self._run.redactor)
            except InfraError as error:
                self._notes.append(f"what was skipped could not be recorded: {error.message}")

    def _unrecorded(self, planned: Planned) -> Result:
        """The result of a rollout that was reported and is not on the disk: nothing can be shown for it."""
        case = self._cases[planned.rollout]
        if case.outcome != "infra":
            case = self._cases[planned.rollout] = _without_evidence(case)
        kind: Any = case.type.removeprefix("infra.")
        return replace(lost_result(planned, case.message), kind=kind, type=case.type)

    def _add(self, result: Result) -> None:
        try:
            self._run.append(result)
        except InfraError:
            self._notes.append(f"{result.node}: its result could not be recorded")

    def _write_junit(self, loaded: LoadedRun) -> None:
        path = self._config.getoption("xmlpath", None)
        if path:
            self._notes += rewrite(Path(path), self._cases, self._whole.testcases(loaded, self._reported))

    def _set_status(self, session: pytest.Session, loaded: LoadedRun) -> None:
        status = int(session.exitstatus)
        if status == _EXIT_INTERRUPTED and self._stopped_early and not self._interrupted:
            status = _EXIT_FAILED
        unmeasured = any(result.reward is None for result in loaded.results) or any(
            case.outcome == "infra" for case in self._cases.values()
        )
        status = self._whole.status(status, loaded)
        if status in (_EXIT_OK, _EXIT_FAILED):
            session.exitstatus = UNMEASURED if unmeasured else status

    def _end(self, session: pytest.Session, loaded: LoadedRun) -> None:
        for ending in self._endings:
            status, lines = ending.end(loaded, int(session.exitstatus))
            session.exitstatus = status
            self._said += lines

    def _finish_lines(self, loaded: LoadedRun) -> None:
        lines = closing_block(
            loaded.results,
            not_run=len(loaded.missing) + len(loaded.skipped),
            lost=[result.rollout for result in loaded.results if result.message == _LOST],
            folder=shown_folder(self._config, self._run.folder.path),
            notes=self._notes,
            said=[
                *([f"stopped: {self._breaking.message}"] if self._breaking.message else []),
                *self._whole.said(),
                *self._said,
            ],
        )
        self._lines = [self._run.redactor.text(line) for line in lines]
        self._run.prune()

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self._lines:
            terminalreporter.write_sep("=", "rollouts")
            for line in self._lines:
                terminalreporter.write_line(line)


def _make_inert(report: pytest.TestReport) -> None:
    """What pytest itself shows of a rollout may quote the candidate: tracebacks, captured output, names of subtests."""
    report.longrepr = inert_repr(report.longrepr)
    report.sections = [(title, inert_text(text)) for title, text in report.sections]
    context = getattr(report, "context", None)
    if is_dataclass(context) and not isinstance(context, type):
        told = {name: _inert_values(getattr(context, name, None)) for name in ("msg", "kwargs")}
        shown = {name: value for name, value in told.items() if value is not None}
        report.context = dataclasses_replace(context, **shown)  # type: ignore[attr-defined]


def _inert_values(value: Any) -> Any:
    """A text, or the texts of a mapping, on one line each; other things as they are."""
    if isinstance(value, Mapping):
        return {name: _inert_values(item) for name, item in value.items()}
    return one_line(value) if isinstance(value, str) else value


def _agents(names: Sequence[str], width: int) -> str:
    """As many names as fit into ``width`` columns."""
    if len(names) == 1:
        return f"agent {printable(names[0])}"
    for count in range(len(names), 0, -1):
        more = f" and {len(names) - count} more" if count < len(names) else ""
        line = f"agents {printable(', '.join(names[:count]))}{more}"
        if len(line) <= width:
            return line
    return f"{len(names)} agents"


def _domain(node: str) -> str:
    """The part of a node id behind its file, as pytest heads a failure with it."""
    return node.partition("::")[2].replace("::", ".")


def _without_evidence(case: CaseVerdict) -> CaseVerdict:
    judged = ("rollout.outcome", "rollout.kind", "rollout.reward", "rollout.checks_reward")
    kept = tuple(pair for pair in case.properties if pair[0] not in judged)
    return replace(
        case,
        outcome="infra",
        type="infra.recording",
        message="its result was recorded, and is gone from the folder of the results",
        properties=(*kept, ("rollout.outcome", "infra"), ("rollout.kind", "recording")),
    )
