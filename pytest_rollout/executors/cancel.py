"""A cancel token that a selector can wait for."""

from __future__ import annotations

import os
import select
import threading
from contextlib import suppress

__all__ = ["Cancel"]


class Cancel:
    """Set from any thread, once or again; readable by its descriptor from then on."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._lock = threading.Lock()
        self.is_set = False

    def set(self) -> None:
        """Ask everything that waits on this token to end."""
        with self._lock:
            self.is_set = True
            if self._read >= 0:
                with suppress(BlockingIOError):
                    os.write(self._write, b"x")  # every time: an interrupt may have come before it

    def wait(self, seconds: float) -> bool:
        """Wait so long, or until it is set; whether it is."""
        with suppress(ValueError, OSError):  # it was closed
            return self.is_set or bool(select.select([self._read], [], [], seconds)[0])
        return self.is_set

    def fileno(self) -> int:
        """The descriptor to wait on."""
        return self._read

    def close(self) -> None:
        """Give the descriptors back."""
        with self._lock:
            if self._read >= 0:
                os.close(self._read)
                os.close(self._write)
                self._read = -1
                self.is_set = True
