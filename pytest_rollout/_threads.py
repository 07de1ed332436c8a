"""Do something in a thread that can't keep this process from ending, and wait for what comes of it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, wait
from threading import Thread
from typing import Any, TypeVar

__all__ = ["in_thread", "outcome_of"]

T = TypeVar("T")
_PATIENCE = 4.0  # xdist ends a worker ten seconds after an interrupt


def in_thread(future: Future[T], work: Callable[..., T], *args: Any) -> None:
    """Do it in a daemon thread: a callable agent may not heed a cancel."""

    def do() -> None:
        try:
            future.set_result(work(*args))
        except BaseException as error:  # noqa: BLE001 - it is raised again where the result is waited for
            future.set_exception(error)

    Thread(target=do, name="rollout", daemon=True).start()


def outcome_of(future: Future[T]) -> T | None:
    """What comes of something that was cancelled, within reason; nothing where it raised."""
    done, _ = wait([future], timeout=_PATIENCE)
    return future.result() if done and future.exception() is None else None
