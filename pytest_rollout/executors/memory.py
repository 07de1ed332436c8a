"""Files in memory that carry bytes into a process: nobody can change or grow them."""

from __future__ import annotations

import fcntl
import os

__all__ = ["memory_file"]

_SEALS = fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_WRITE


def memory_file(data: bytes) -> int:
    """A descriptor to read ``data`` from, at its beginning; the caller closes it."""
    fd = os.memfd_create("rollout", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    done = 0
    while done < len(data):
        done += os.pwrite(fd, data[done:], done)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    return fd
