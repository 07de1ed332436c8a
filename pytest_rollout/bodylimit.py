"""The time limit of a test's body, so that no check hangs on what a candidate wrote.

A signal whose handler raises ends the body. Two clocks send it: a thread that watches the time, and the
kernel's timer of CPU time, because no thread runs while a regular expression backtracks without end.
The signal is SIGVTALRM: pytest-timeout takes SIGALRM. The time of trusted evaluations, which have a
limit of their own, does not count. What looks at no signals meets the last resort.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pytest_rollout.lastresort import LastResort

__all__ = ["BodyClock", "BodyLimit"]

_AGAIN, _SOON = 1.0, 0.01
_LONGEST = 86_400.0


class BodyLimit(BaseException):
    """The body of a test ran longer than its limit. No check and no ``except Exception`` takes it for its own."""


class FixtureLimit(BodyLimit, Exception):
    """The same in a fixture that reads the evidence: pytest puts away no fixture that raised anything else."""


class BodyClock:
    """Counts the seconds of one body and ends it; works in the main thread only, where tests run."""

    def __init__(self, seconds: float, last: LastResort | None = None) -> None:
        self.seconds = seconds
        self._last = last
        self._left = seconds
        self._since: float | None = None  # when the clock was last started; None while it stands still
        self._changed = threading.Condition()
        self._round: object | None = None  # what is set while a part of the body may be ended
        self.fired = False  # the body may have caught it
        self._kind: type[BodyLimit] = BodyLimit

    def allow(self, seconds: float) -> None:
        """Another limit, before any of it is used."""
        self.seconds = self._left = seconds

    @contextmanager
    def running(self, *, waiting: bool = False) -> Iterator[None]:
        """The body runs in this context, or ``waiting`` for :meth:`start` its fixtures. Raises BodyLimit in it."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGVTALRM, self._end)
        self._round = object()
        self._kind = FixtureLimit if waiting else BodyLimit
        try:
            if not waiting:
                self.start()
            yield
        finally:
            self._stop()
            self._clear_timers()
            signal.signal(signal.SIGVTALRM, before)

    def start(self) -> None:
        """From here on the time counts; nothing outside of :meth:`running`."""
        if self._round is None or self._since is not None:
            return
        self._set_timer()
        self._since = time.monotonic()
        threading.Thread(target=self._watch, args=(self._round,), name="rollout-body", daemon=True).start()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """The clock stands still in this context."""
        with self._changed:
            was = self._since
            if was is not None:
                self._left -= time.monotonic() - was
                self._since = None
                self._clear_timers()
                self._changed.notify()
        try:
            yield
        finally:
            with self._changed:
                if was is not None and self._round is not None:
                    self._since = time.monotonic()
                    self._set_timer()
                    self._changed.notify()

    def _set_timer(self) -> None:
        """Fire when so much CPU time is used, which is not before so much time has passed on the clock."""
        signal.setitimer(signal.ITIMER_VIRTUAL, min(max(self._left, _SOON), _LONGEST), _AGAIN)
        if self._last is not None:
            self._last.arm(self._left, self.seconds)

    def _clear_timers(self) -> None:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        if self._last is not None:
            self._last.disarm()

    def _stop(self) -> None:
        self._round = None  # first of all: no signal ends anything from here on
        with self._changed:
            if self._since is not None:
                self._left -= time.monotonic() - self._since
            self._since = None
            self._changed.notify()

    def _watch(self, of: object) -> None:
        with self._changed:
            while self._round is of:
                left = None if self._since is None else self._left - (time.monotonic() - self._since)
                if left is not None and left <= 0:
                    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGVTALRM)
                    left = _AGAIN  # a body may have caught it
                self._changed.wait(None if left is None else min(left, threading.TIMEOUT_MAX))

    def _end(self, number: int, frame: Any) -> None:
        __tracebackhide__ = True  # pytest shows the suite's line, not ours
        if self._round is not None and self._since is not None:
            self.fired = True
            if self._last is not None:  # this code does look at signals
                self._last.arm(0.0, self.seconds)
            raise self._kind(f"the body of the test took longer than {self.seconds:g} s")
