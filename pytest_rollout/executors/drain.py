"""Wait for a process tree to end, draining its output all the while.

The streams are read until the tree is dead and they are empty. A wall limit, a cancel and the end of
its first process kill the tree, and the draining goes on. A stream that somebody outside the tree
still holds open is left after a short grace.
"""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Callable, Mapping
from typing import Literal, Protocol

from pytest_rollout.executors.cancel import Cancel
from pytest_rollout.executors.capture import Capture

__all__ = ["Stop", "Watch", "drain"]

Stop = Literal["ended", "wall_limit", "cancelled", "memory_limit", "cpu_limit", "process_limit", "disk_limit"]
_GRACE = 0.5
_PATIENCE = 30.0  # seconds for a killed tree: a thousand busy processes take long to die on a busy machine
_PIECE = 1 << 18
_LONGEST = 1.0  # seconds of one wait: a signal that comes just before it does not end it


class Watch(Protocol):
    """Looks at what the tree uses."""

    def pause(self) -> float:
        """Seconds until it wants to look again."""
        ...

    def check(self) -> Stop | None:
        """The limit that is exceeded, if one is."""
        ...


def drain(
    streams: Mapping[int, Capture],
    *,
    dead: int,
    kill: Callable[[], None],
    deadline: float,
    cancel: Cancel,
    watch: Watch | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[Stop, bool]:
    """Read ``streams`` (descriptor to capture) until the tree is dead; returns why, and whether it is dead.

    ``dead`` is a pidfd that becomes readable at the end; ``deadline`` is on ``clock``. What ``watch`` finds exceeded
    ends the tree as the deadline does.
    """
    stop: Stop = "ended"
    until, killed, gone = deadline, False, False
    buffer = memoryview(bytearray(_PIECE))
    with selectors.DefaultSelector() as selector:
        for fd in streams:
            os.set_blocking(fd, False)
            selector.register(fd, selectors.EVENT_READ, "stream")
        selector.register(dead, selectors.EVENT_READ, "dead")
        selector.register(cancel.fileno(), selectors.EVENT_READ, "cancel")
        open_streams = set(streams)
        while open_streams or not gone:
            left = until - clock()
            if left <= 0:
                if gone or killed:
                    break
                stop, killed, until = "wall_limit", True, clock() + _PATIENCE
                kill()
                continue
            if watch is not None and not gone and not killed and (exceeded := watch.check()) is not None:
                stop, killed, until = exceeded, True, clock() + _PATIENCE
                kill()
                continue
            pause = _LONGEST if watch is None else watch.pause()
            for key, _ in selector.select(min(left, pause, _LONGEST)):
                if key.data == "stream":
                    count = _read(key.fd, buffer)
                    if count:
                        streams[key.fd].feed(buffer[:count])
                    elif count == 0:
                        selector.unregister(key.fd)
                        open_streams.discard(key.fd)
                    continue
                selector.unregister(key.fd)
                if key.data == "dead":
                    gone, until = True, clock() + _GRACE
                    kill()
                elif not gone and not killed:
                    stop, killed, until = "cancelled", True, clock() + _PATIENCE
                    kill()
    return stop, gone


def _read(fd: int, buffer: memoryview) -> int | None:
    """Bytes read; 0 at the end of the stream, None when there are none now."""
    try:
        return os.readv(fd, [buffer])
    except BlockingIOError:
        return None
    except OSError:
        return 0
