"""Say on the terminal that rollouts wait for places, while they wait: a line now and then, never a flood.

Whoever waits writes a file into the folder of the run (see :mod:`pytest_rollout.waiting`). The process that has the
terminal looks there: without workers while it waits for the rollout itself, the controller in a thread.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from pytest_rollout.report.inert import one_line
from pytest_rollout.waiting import told, waiting_in

__all__ = ["Waits"]

_TICK = 1.0  # seconds between two looks of the thread
_AGAIN = 60.0  # seconds before waiting is said once more; with -q it is said once


class Waits:
    """Tells of waits in one session."""

    def __init__(self, config: pytest.Config, folder: Path) -> None:
        self._config, self._folder = config, folder
        self._next = 0.0  # on the monotonic clock
        self._end = Event()
        self._thread: Thread | None = None

    def look(self) -> None:
        """Say who waits, where somebody does and it was not said lately."""
        now = time.monotonic()
        if now < self._next:
            return
        lines = told(waiting_in(self._folder))
        terminal: Any = self._config.pluginmanager.get_plugin("terminalreporter")
        if not lines or terminal is None:
            return
        self._next = now + _AGAIN if self._config.get_verbosity() >= 0 else float("inf")
        capture: Any = self._config.pluginmanager.get_plugin("capturemanager")
        with nullcontext() if capture is None else capture.global_and_fixture_disabled():
            terminal.ensure_newline()
            if self._thread is None and self._config.get_verbosity() > 0:
                terminal.write("\n")  # the name of the test stands in the line, which pytest does not count as begun
            for line in lines:
                terminal.write_line(one_line(line))
            terminal.flush()

    def watch(self) -> None:
        """Look in a thread from now on."""
        self._thread = Thread(target=self._watch, name="rollout-waits", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._end.wait(_TICK):
            self.look()

    def end(self) -> None:
        """Say nothing more."""
        self._end.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
