"""Start processes from one thread that lives as long as this process.

``bwrap --die-with-parent`` ends a sandbox when the *thread* that started it ends. Attempts run in
threads that come and go, so they ask this one to start their processes.
"""

from __future__ import annotations

import os
import queue
import subprocess
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

__all__ = ["spawn"]

_Job = tuple[Callable[[], "subprocess.Popen[bytes]"], "Future[subprocess.Popen[bytes]]"]
_lock = threading.Lock()
_jobs: queue.SimpleQueue[_Job] | None = None


def _begin_anew() -> None:
    """In a forked child that thread is not there, and the lock may be held by one that is not either."""
    global _lock, _jobs
    _lock, _jobs = threading.Lock(), None


os.register_at_fork(after_in_child=_begin_anew)


def _serve(jobs: queue.SimpleQueue[_Job]) -> None:
    while True:
        start, future = jobs.get()
        try:
            future.set_result(start())
        except BaseException as error:  # noqa: BLE001 - it is raised again where the process was asked for
            future.set_exception(error)


def spawn(argv: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """``subprocess.Popen(argv, **options)``, started from the permanent thread; raises as Popen does."""
    global _jobs
    with _lock:
        if _jobs is None:
            _jobs = queue.SimpleQueue()
            threading.Thread(target=_serve, args=(_jobs,), name="rollout-spawner", daemon=True).start()
    future: Future[subprocess.Popen[bytes]] = Future()
    _jobs.put((lambda: subprocess.Popen(argv, **options), future))
    return future.result()
