"""The controller's side of pytest-xdist: one run id, settings for workers, crashes, usage errors.

Registered on the controller only. Workers write into one folder on this machine, so remote workers
are refused; so is ``--dist each``, which would run every agent once per worker.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

__all__ = ["Controller"]

_UNMEASURED = 75
_PATIENCE = 5.0  # seconds for workers to put their rollouts away


class Controller:
    """What the controller of a session with workers does for rollouts."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._sent: dict[str, Any] | None = None
        self._reporting: Any = None
        self._run: Any = None
        self._waits: Any = None
        self._signals: Any = None
        self._before: Any = None  # what there was of a run that is resumed
        self._resumed: Any = None  # its folder
        self._workers: dict[Any, Any] = {}
        self._died = 0

    # -- before workers collect

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        if self._sent is None:
            self._sent = self._decide()
        node.workerinput["rollout"] = {**self._sent, "refused": self._sent["refused"] or self._refusal(node)}

    def _decide(self) -> dict[str, Any]:
        from pytest_rollout._settings import new_run, settings_of
        from pytest_rollout.errors import ConfigError

        sent = {"run": new_run(datetime.now(UTC)), "session": os.urandom(8).hex()}
        try:
            settings = settings_of(self._config)
            if settings.resume is not None:
                sent |= self._resume(settings)
            return {**sent, "settings": settings.to_json(), "refused": ""}
        except ConfigError as error:
            return {**sent, "settings": {}, "refused": str(error)}

    def _resume(self, settings: Any) -> dict[str, Any]:
        from pytest_rollout._resuming import find_resumed

        self._resumed, self._before = find_resumed(settings, hold=not self._config.option.collectonly)
        self._config.add_cleanup(lambda: self._resumed.release(ended=False))
        return {"run": self._resumed.name, "sizes": self._before.sizes}

    def _refusal(self, node: Any) -> str:
        if self._config.getoption("dist", "no") == "each":
            return "--dist each would run every agent once per worker; use --dist load"
        if not getattr(node.gateway.spec, "popen", False):
            return (
                f"the worker {node.gateway.spec} is not on this machine; rollouts need local workers (-n, --tx popen)"
            )
        return ""

    # -- while workers collect

    @pytest.hookimpl(tryfirst=True)
    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """End the session with a worker's refusal, before the terminal shows it as a broken collection."""
        message = getattr(report, "rollout_usage", None)
        if message:
            raise pytest.UsageError(message)
        message = getattr(report, "rollout_stop", None)
        if message:
            pytest.exit(message, returncode=_UNMEASURED)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: Any) -> None:
        if self._reporting is not None or self._sent is None or not self._sent["settings"]:
            return
        if self._before is not None and node.gateway.id != "gw0":  # that one writes the plan
            return
        from pathlib import Path

        kind = "audits" if self._sent["settings"]["audit"] else "runs"
        place = Path(self._sent["settings"]["dir"]) / kind / self._sent["run"]
        if place.exists():
            self._begin(ids)

    def _begin(self, ids: Sequence[str]) -> None:
        from msgspec.structs import replace

        from pytest_rollout._audit import reporting_of
        from pytest_rollout._redaction import Redaction
        from pytest_rollout._signals import Signals
        from pytest_rollout._waits import Waits
        from pytest_rollout.errors import ConfigError
        from pytest_rollout.run import Run
        from pytest_rollout.settings import Settings
        from pytest_rollout.store.load import load_plan
        from pytest_rollout.store.records import Plan

        assert self._sent is not None
        try:
            sent = self._sent
            self._run = Run(Settings(**sent["settings"]), sent["run"], "controller", sent["session"])
            self._run.prepare()
        except ConfigError as error:
            raise pytest.UsageError(f"rollout: {error}") from None
        plan = load_plan(self._run.folder) or Plan(rollouts=())
        if self._before is None:
            self._run.folder.hold()
        else:
            selected = set(ids)
            self._run.folder = self._resumed
            plan = replace(plan, rollouts=tuple(each for each in plan.rollouts if each.node in selected))
        self._signals = signals = Signals(self._config)
        self._config.add_cleanup(signals.restore)
        self._config.add_cleanup(self._run.close)
        self._config.pluginmanager.register(signals, "rollout-signals")
        signals.install()
        self._reporting = reporting_of(self._config, self._run, plan, signals, self._before)
        self._config.pluginmanager.register(self._reporting, "rollout-reporting")
        self._config.pluginmanager.register(Redaction(self._run.redactor), "rollout-redaction")
        if self._run.waits is not None:
            self._waits = Waits(self._config, self._run.waits)
            self._waits.watch()
        terminal = self._config.pluginmanager.getplugin("terminalreporter")
        if terminal is not None and self._config.get_verbosity() >= 0:
            terminal.ensure_newline()
            for line in self._reporting.header(self._run.executor_info()):
                terminal.write_line(line)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        if self._waits is not None:
            self._waits.end()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodeready(self, node: Any) -> None:
        process = getattr(getattr(node.gateway, "_io", None), "popen", None)  # as execnet 1 and 2 keep it
        if process is not None:
            self._workers[node] = process

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: Any) -> None:
        self._workers.pop(node, None)
        self._died += error is not None
        if error and self._before is not None and self._reporting is None and node.gateway.id == "gw0":
            raise pytest.UsageError("rollout: --rollout-resume: the worker gw0 died while it collected")

    def pytest_keyboard_interrupt(self) -> None:
        """Interrupt the workers, as the terminal does at Ctrl-C; pytest-xdist itself does so after five seconds.

        Workers of a session that was started with ``&`` by a script ignore SIGINT, as the session does.
        """
        if self._signals is not None and self._signals.received is not None:
            ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
            for process in self._workers.values():
                process.send_signal(signal.SIGTERM if ignored else signal.SIGINT)

    def pytest_internalerror(self) -> None:
        """End the workers, and wait: what they measured from now on would contradict what is reported as lost."""
        for process in self._workers.values():
            process.terminate()
        until = time.monotonic() + _PATIENCE
        for process in self._workers.values():
            try:
                process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    # -- when a worker dies

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: pytest.TestReport, sched: Any) -> None:
        if self._reporting is not None:
            self._reporting.crashed(crashitem, report, sched, ending=self._is_ending())

    def _is_ending(self) -> bool:
        """Whether pytest-xdist begins no more tests: somebody stopped it, or too many workers died."""
        option, controller = self._config.option, self._config.pluginmanager.get_plugin("dsession")
        said, workers = getattr(option, "maxworkerrestart", None), getattr(option, "numprocesses", None)
        most = int(said) if said is not None else workers * 4 if workers else None  # as pytest-xdist has it
        return bool(getattr(controller, "shouldstop", False)) or (most is not None and self._died > most)
