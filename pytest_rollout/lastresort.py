"""The last resort against code in C that runs on after the limit of a body and looks at no signals.

No handler of Python's runs then, nor any thread. But the kernel counts the CPU time of the main thread, and
ends the process by SIGPROF when it has used far too much; faulthandler, which needs no interpreter, first writes
the line that it was at. One rollout then costs its process, which pytest-xdist replaces. Without it, it would
cost the session.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import struct
import threading
from functools import cache

__all__ = ["LastResort", "last_resort"]

_FACTOR, _LEAST = 2.0, 60.0
_CPU_OF_THIS_THREAD, _TO_A_THREAD = 3, 4  # CLOCK_THREAD_CPUTIME_ID, SIGEV_THREAD_ID
_LONGEST = 1 << 30


class LastResort:
    """A timer of the calling thread's CPU time; ``stderr`` is a descriptor for the traceback."""

    def __init__(self, stderr: int) -> None:
        self._library, self._timer = ctypes.CDLL(None), ctypes.c_void_p()
        event = struct.pack("@Piii44x", 0, signal.SIGPROF, _TO_A_THREAD, threading.get_native_id())
        create = getattr(self._library, "timer_create", None)  # an older C library has it elsewhere
        made = create is not None and create(_CPU_OF_THIS_THREAD, event, ctypes.byref(self._timer)) == 0
        self._pid = os.getpid() if made else 0
        self._file = os.fdopen(stderr, "w", encoding="utf-8")

    def arm(self, left: float, limit: float) -> None:
        """End this process when the thread has used ``left`` seconds, and then twice the limit or a minute.

        Nothing where something else takes SIGPROF, such as a profiler.
        """
        if signal.getsignal(signal.SIGPROF) is signal.SIG_DFL:
            faulthandler.register(signal.SIGPROF, self._file, all_threads=False, chain=True)
            self._start(max(left, 0.0) + max(_FACTOR * limit, _LEAST))

    def disarm(self) -> None:
        """Nothing ends this process from here on."""
        self._start(0.0)

    def _start(self, seconds: float) -> None:
        if self._pid == os.getpid():  # a fork has no timers
            at = min(seconds, _LONGEST)
            self._library.timer_settime(self._timer, 0, struct.pack("@4l", 0, 0, int(at), int(at % 1 * 1e9)), None)


@cache
def last_resort() -> LastResort:
    """That of this process's main thread, where tests run; made before pytest captures what is written."""
    return LastResort(os.dup(2))
