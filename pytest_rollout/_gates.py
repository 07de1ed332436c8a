"""Gates for pytest: read before anything runs, judged at the end of the session, told in its block and in JUnit.

Registered by :mod:`pytest_rollout.plugin` where gates were asked for, not on a worker. What a gate means is decided in
:mod:`pytest_rollout.decisions.gates`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_rollout._endings import GATES
from pytest_rollout._settings import redactor_of_process, settings_of
from pytest_rollout._sharding import shard_of
from pytest_rollout.decisions.gates import UNDECIDED, Gate, judge, parse_gate, status_of
from pytest_rollout.decisions.rows import Rows, load_rows
from pytest_rollout.decisions.sides import load_finished, side_run
from pytest_rollout.errors import ConfigError, InfraError, SelectorError
from pytest_rollout.report.gates import write_gates
from pytest_rollout.report.inert import one_line
from pytest_rollout.run import Run
from pytest_rollout.settings import Settings
from pytest_rollout.store.folder import ResultsFolder, write_record
from pytest_rollout.store.load import LoadedRun
from pytest_rollout.store.records import GatesRecord

__all__ = ["Gates", "GatesOfRun"]

_EXIT_OK, _EXIT_FAILED = 0, 1
_OURS = (_EXIT_OK, _EXIT_FAILED, UNDECIDED)  # statuses that a gate decides about
_SHOWING = ("collectonly", "setupplan", "showfixtures", "show_fixtures_per_test")
_TELLING = ("help", "version", "markers")
_OF_PART = "gates: not judged over a part of the suite: merge the shards, and judge that by pytest-rollout gate"


class Gates:
    """The gates of a session, and what decides beside them: tests that are no rollouts."""

    def __init__(self, config: pytest.Config, gates: Sequence[Gate], *, asked: bool) -> None:
        self._config, self._asked = config, asked
        self.of_part = config.getoption("rollout_shard") is not None and shard_of(config).count > 1
        self.gates, self.bases = gates, dict[str, Rows]()
        self.claimed = False
        self.failed: set[str] = set()

    @classmethod
    def register(cls, config: pytest.Config) -> None:
        """Read the gates of a session, and the runs that they name; raises UsageError."""
        if _asked(config, _TELLING):
            return
        try:
            settings = settings_of(config)
            if not settings.gate:
                return
            where = "--rollout-gate" if settings.gate_from == "command line" else "rollout_gate in the ini file"
            gates = [parse_gate(text, where) for text in settings.gate]
            if settings.audit or _asked(config, _SHOWING):
                return
            made = cls(config, gates, asked=settings.gate_from == "command line")
            if not made.of_part:
                made.bases = {gate.base: _base(config, settings, gate, where) for gate in gates if gate.base}
        except ConfigError as error:
            raise pytest.UsageError(redactor_of_process().text(f"rollout: {error}")) from None
        config.pluginmanager.register(made, GATES)

    def of_run(self, run: Run) -> GatesOfRun:
        """The gates with the run that they judge."""
        self.claimed = True
        return GatesOfRun(self, self._config, run)

    # -- what is no rollout

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.add(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.failed.add(report.nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """A gate that was asked for on the command line is not passed by a session without rollouts."""
        if self._is_left_open() and session.exitstatus == _EXIT_OK:
            session.exitstatus = UNDECIDED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self._is_left_open():
            for gate in self.gates:
                terminalreporter.write_line(f"gate {gate.text}: undecided; no rollout was selected")

    def _is_left_open(self) -> bool:
        """Whether gates were asked for, and there is no rollout; a part of a suite may be empty."""
        return not self.claimed and self._asked and not self.of_part


class GatesOfRun:
    """The :class:`pytest_rollout._endings.Ending` that judges a run."""

    def __init__(self, gates: Gates, config: pytest.Config, run: Run) -> None:
        self._gates, self._config, self._run = gates, config, run

    def end(self, loaded: LoadedRun, status: int) -> tuple[int, Sequence[str]]:
        """The gates' status in place of that of single rollouts; another test that failed keeps its 1."""
        if self._gates.of_part:
            return status, [_OF_PART]
        if status not in _OURS:
            return status, [f"gates: not judged, because the session ended with status {status}"]
        rows = load_rows(self._run.folder)
        judged = judge(self._gates.gates, rows, self._gates.bases, untrusted=self._run.settings.gate_untrusted)
        decided = came_to = status_of(judged)
        if decided == _EXIT_OK and self._gates.failed - {result.node for result in loaded.results}:
            decided = _EXIT_FAILED
        lines = [one_line(each.line()) for each in judged]
        return decided, [*lines, *self._record(came_to, lines), *self._write_junit(lines)]

    def _record(self, status: int, lines: Sequence[str]) -> list[str]:
        try:
            record = GatesRecord(status=status, lines=tuple(lines))
            write_record(self._run.folder.gates, record, redactor=self._run.redactor)
        except InfraError as error:
            return [one_line(f"warning: the verdict of the gates could not be recorded: {error.message}")]
        return []

    def _write_junit(self, lines: Sequence[str]) -> list[str]:
        path = self._config.getoption("xmlpath", None)
        told = [self._run.redactor.text(line) for line in lines]
        return [one_line(f"warning: {note}") for note in write_gates(Path(path), told)] if path else []


def _asked(config: pytest.Config, names: Sequence[str]) -> bool:
    return any(getattr(config.option, name, False) for name in names)


def _itself(results: ResultsFolder, settings: Settings, base: str) -> tuple[str, ...]:
    """The run that a session goes on with, or, for ``last``, scores again: against itself nothing drops."""
    selector = settings.resume or (settings.rescore if base == "last" else None)
    if selector is None:
        return ()
    try:
        return (side_run(results, selector).name,)
    except SelectorError:
        return ()  # what is wrong with it is said where it is used


def _base(config: pytest.Config, settings: Settings, gate: Gate, where: str) -> Rows:
    """The run, or the file, that a regression is against; a relative path is one of where the gate was written."""
    of_ini = settings.gate_from == "ini" and config.inipath is not None
    folder = config.inipath.parent if of_ini and config.inipath else Path(config.invocation_params.dir)
    results = ResultsFolder(Path(settings.dir))
    itself = _itself(results, settings, gate.base)
    try:
        rows = load_finished(results, gate.base, folder, but=itself)
        if rows.name in itself:
            raise ConfigError(f"{gate.base} is the run that this session goes on with: it can't be held against itself")
        return rows
    except (ConfigError, SelectorError) as error:
        raise ConfigError(f"{where}: {gate.text!r}: {error.message}", hint=error.hint) from None
