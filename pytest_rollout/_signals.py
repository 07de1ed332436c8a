"""End a session with rollouts in good order, whoever ends it: SIGTERM, SIGHUP, and an interrupt at a bad moment.

pytest dies at once of SIGTERM and SIGHUP: no fixture is torn down, and the results are not shown. In a session with
rollouts, where nobody else has a handler, they act as Ctrl-C does, and the exit status is 128 and the signal. A worker
that gets one by itself puts its rollout away and dies of it, so that pytest-xdist replaces it.

What must not be left half done, such as recording a verdict, is done in :meth:`Signals.held`: an interrupt waits.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

__all__ = ["ENDING", "Signals"]

ENDING = (signal.SIGTERM, signal.SIGHUP)
_LONG = 2.0  # seconds: an interrupt that comes so much later than the first does not wait


class Signals:
    """The signals of one process's session. ``received`` is the one that ended it, if one did."""

    def __init__(self, config: pytest.Config, put_away: Callable[[], None] | None = None) -> None:
        """``put_away`` is what a worker does before it dies."""
        self.received: signal.Signals | None = None
        self.of_worker = hasattr(config, "workerinput")
        self._put_away = put_away
        self._mine = threading.current_thread() is threading.main_thread()  # only there may handlers be set
        self._before: list[signal.Signals] = []
        self._holding = self._finishing = self._late = False
        self._since: float | None = None  # when the first interrupt came that is held back
        self.why = ""

    def install(self) -> None:
        """Handle the signals that nobody handles, until :meth:`restore`."""
        for number in ENDING:
            if self._mine and signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, self._end)
                self._before.append(number)

    def restore(self) -> None:
        """Leave every signal as it was."""
        while self._before:
            signal.signal(self._before.pop(), signal.SIG_DFL)

    def _end(self, number: int, _: FrameType | None) -> None:
        if self.received is not None:  # once is enough
            return
        self.received = signal.Signals(number)
        self.why = f"ended by {self.received.name}"
        if self._finishing:
            return
        if self.of_worker:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the controller may say it once more
        if self._holding:
            self._since = time.monotonic()
            return
        raise KeyboardInterrupt(self.why)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let an interrupt wait until this is done, and raise it then; one that comes much later does not wait."""
        if self._holding or not self._mine or threading.current_thread() is not threading.main_thread():
            yield
            return
        ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        self._holding = True
        if ours:
            signal.signal(signal.SIGINT, self._note)
        try:
            yield
        finally:
            if ours and signal.getsignal(signal.SIGINT) == self._note:
                signal.signal(signal.SIGINT, signal.default_int_handler)
            self._holding, since, self._since = False, self._since, None
        if since is not None and self._finishing:
            self._late = True
        elif since is not None:
            raise KeyboardInterrupt(self.why)

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        self._since = self._since or now
        if now - self._since > _LONG:
            raise KeyboardInterrupt(self.why)

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, Any, Any]:
        """From here on the session ends by itself; what comes late changes its status alone."""
        self._finishing = True
        result = yield
        if self.received is not None and self.of_worker and self._put_away is not None:
            self._put_away()
            signal.signal(self.received, signal.SIG_DFL)
            os.kill(os.getpid(), self.received)
        if self.received is not None:
            session.exitstatus = 128 + self.received
        elif self._late:
            session.exitstatus = pytest.ExitCode.INTERRUPTED
        return result
