"""The end of a session, in the process that talks to the user: proof, JUnit, exit status, summary."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from pytest_rollout.errors import InfraError
from pytest_rollout.executors.protocol import ExecutorInfo
from pytest_rollout.plain import printable
from pytest_rollout.recording import lost_result
from pytest_rollout.report.junit import CaseVerdict, rewrite
from pytest_rollout.report.properties import properties_of
from pytest_rollout.report.terminal import closing_block, status_word
from pytest_rollout.reward import Reward
from pytest_rollout.run import Run
from pytest_rollout.store.load import LoadedRun, load_plan, load_results
from pytest_rollout.store.records import Plan, Planned

__all__ = ["UNMEASURED", "Reporting"]

UNMEASURED = 75
_EXIT_OK, _EXIT_FAILED, _EXIT_INTERRUPTED = 0, 1, 2


class Reporting:
    """Registered as a plugin once there are rollouts; on the controller or where there is no xdist."""

    def __init__(self, config: pytest.Config, run: Run) -> None:
        self._config, self._run = config, run
        self._cases: dict[str, CaseVerdict] = {}
        self._reported: set[str] = set()
        self._interrupted = self._stopped_early = False
        self._lines: list[str] = []
        self._notes: list[str] = []

    def header(self, plan: Plan, executor: ExecutorInfo | InfraError | None) -> list[str]:
        """What is going to run, below «collected N items»."""
        tasks = {planned.task for planned in plan.rollouts}
        agents = sorted({planned.agent for planned in plan.rollouts})
        number = len(plan.rollouts)
        shown = printable(", ".join(agents[:3])) + (f" and {len(agents) - 3} more" if len(agents) > 3 else "")
        lines = [
            f"rollout: {number} agent run{'' if number == 1 else 's'} of {len(tasks)} "
            f"task{'' if len(tasks) == 1 else 's'}, agent {shown}"
        ]
        if isinstance(executor, ExecutorInfo):
            lines.append(f"rollout: executor {executor.describe()}")
        elif isinstance(executor, InfraError):
            lines.append(f"rollout: no executor: {executor.message}")
        for node, count in plan.multiplied.items():
            lines.append(f"rollout: the marker of {node} holds for every test in it: {count} agent runs")
        if executor is not None:
            lines.append(f"rollout: results in {self.shown_folder()}")
            if self._run.reaped:
                lines.append(f"rollout: removed {self._run.reaped} stages of sessions that died")
        return lines

    def shown_folder(self) -> str:
        """The run's folder, relative to where the user is, where that is shorter."""
        path = self._run.folder.path
        try:
            return str(path.relative_to(Path(self._config.invocation_params.dir)))
        except ValueError:
            return str(path)

    # -- while tests run

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "setup" or report.outcome != "passed":
            self._reported.add(report.nodeid)
        found = getattr(report, "rollout", None)
        if isinstance(found, dict):
            self._cases[found["rollout"]] = self._case(found, report)

    @staticmethod
    def _case(found: dict[str, Any], report: pytest.TestReport) -> CaseVerdict:
        outcome, kind, message = found["outcome"], found["type"], found["message"]
        if outcome == "passed" and report.failed:  # XPASS(strict), or another plugin's word
            outcome, kind, message = "failed", "pytest", report.longreprtext.split("\n")[0]
        return CaseVerdict(
            rollout=found["rollout"],
            outcome=outcome,
            type=kind,
            message=message,
            properties=tuple((name, value) for name, value in found["properties"]),
        )

    def crashed(self, node: str, report: pytest.TestReport) -> None:
        """A worker died in a test: infra ``worker``, unless the rollout was scored before that."""
        plan = load_plan(self._run.folder)
        planned = next((p for p in plan.rollouts if p.node == node), None) if plan is not None else None
        if planned is None:
            return
        known = next((r for r in load_results(self._run.folder).results if r.rollout == planned.rollout), None)
        result = known or lost_result(planned, f"the worker died while it ran this: {report.longreprtext}")
        if known is None:
            self._lose(planned, result.message)
        else:
            self._notes.append(f"{node}: the worker died after the rollout was scored")
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
        if "stopping after" in str(excinfo.value):
            self._stopped_early = True
        else:
            self._interrupted = True

    # -- at the end

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, Any, Any]:
        result = yield
        self._stopped_early |= bool(session.shouldfail or session.shouldstop)
        try:
            loaded = self._prove()
            self._write_junit()
            self._set_status(session, loaded)
            self._notes += [f"{r.node}: {warning}" for r in loaded.results for warning in r.warnings]
            self._finish_lines(loaded)
        finally:
            self._run.folder.release()
        return result

    def _prove(self) -> LoadedRun:
        """Every planned rollout was reported or has a result, or it is recorded as lost."""
        loaded = load_results(self._run.folder)
        plan = load_plan(self._run.folder)
        if self._interrupted or self._stopped_early or plan is None:
            return loaded
        missing = set(loaded.missing)
        lost = [p for p in plan.rollouts if p.rollout in missing and p.node not in self._reported]
        unrecorded = [p for p in plan.rollouts if p.rollout in missing and p.rollout in self._cases]
        for planned in lost:
            self._lose(planned, "the rollout was planned and never reported: its worker was lost")
        for planned in unrecorded:
            self._notes.append(f"{planned.node}: its result could not be recorded")
        return load_results(self._run.folder) if lost else loaded

    def _lose(self, planned: Planned, message: str) -> None:
        result = lost_result(planned, message)
        try:
            self._run.append(result)
        except InfraError as error:
            self._notes.append(str(error))

    def _write_junit(self) -> None:
        path = self._config.getoption("xmlpath", None)
        if path and self._cases:
            self._notes += rewrite(Path(path), self._cases)

    def _set_status(self, session: pytest.Session, loaded: LoadedRun) -> None:
        status = int(session.exitstatus)
        if status == _EXIT_INTERRUPTED and self._stopped_early and not self._interrupted:
            status = _EXIT_FAILED
        unmeasured = any(result.reward is None for result in loaded.results) or any(
            case.outcome == "infra" for case in self._cases.values()
        )
        if status in (_EXIT_OK, _EXIT_FAILED):
            session.exitstatus = UNMEASURED if unmeasured else status

    def _finish_lines(self, loaded: LoadedRun) -> None:
        self._lines = closing_block(
            loaded.results,
            not_run=len(loaded.missing),
            lost=[result.rollout for result in loaded.results if result.kind == "worker" and result.folder is None],
            folder=self.shown_folder(),
            notes=self._notes,
        )
        self._run.prune()

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self._lines:
            terminalreporter.write_sep("=", "rollouts")
            for line in self._lines:
                terminalreporter.write_line(line)
