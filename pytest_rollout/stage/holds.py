"""What a process uses of what is prepared for many: baselines and sources, which nobody may remove meanwhile.

::

    <root>/holds/gate       shared by those who begin to use something, held alone by the one who removes
    <root>/holds/<opaque>   locked by a process as long as it lives; the names of what it uses, one a line
    <root>/used/<name>      when that was last begun to be used: the time of its change

All are locks of the kernel's (flock): what a killed process used is free at once.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

__all__ = ["Holds", "held_by_nobody", "last_used"]

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC


class Holds:
    """The holds of one process on one stage root; made when something is first held."""

    def __init__(self, root: Path) -> None:
        self._root, self._path = root, root / "holds" / secrets.token_hex(6)
        self._fd, self._held, self._lock = -1, set[str](), Lock()

    def hold(self, name: str) -> None:
        """Keep ``name`` from being removed until :meth:`close`, whether it is there or not. Raises OSError."""
        with self._lock:
            if name in self._held:
                return
            with _gate(self._root, fcntl.LOCK_SH):
                if self._fd < 0:
                    self._fd = os.open(self._path, _FLAGS | os.O_APPEND, 0o600)
                    fcntl.flock(self._fd, fcntl.LOCK_EX)
                os.write(self._fd, f"{name}\n".encode())
                (self._root / "used").mkdir(mode=0o700, exist_ok=True)
                (self._root / "used" / name).write_bytes(b"")
            self._held.add(name)

    def close(self) -> None:
        """Let go of everything; may be called twice."""
        with self._lock:
            if self._fd >= 0:
                self._path.unlink(missing_ok=True)
                os.close(self._fd)
                self._fd = -1
                self._held.clear()


@contextmanager
def held_by_nobody(root: Path) -> Iterator[set[str]]:
    """The names that living processes use; in this context nobody begins to use another. Raises OSError."""
    with _gate(root, fcntl.LOCK_EX):
        names: set[str] = set()
        for path in (root / "holds").iterdir():
            if path.name != "gate":
                names |= _names(path)
        yield names


def last_used(root: Path, name: str) -> float | None:
    """When something was last begun to be used, in seconds since the epoch; None where that is not known."""
    try:
        return (root / "used" / name).stat().st_mtime
    except OSError:
        return None


@contextmanager
def _gate(root: Path, how: int) -> Iterator[None]:
    (root / "holds").mkdir(mode=0o700, exist_ok=True)
    fd = os.open(root / "holds" / "gate", _FLAGS, 0o600)
    try:
        fcntl.flock(fd, how)
        yield
    finally:
        os.close(fd)


def _names(path: Path) -> set[str]:
    """What the process of a hold uses; the hold of a dead one is removed."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return set()
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return set(path.read_text("utf-8").split("\n")) - {""}
    else:
        path.unlink(missing_ok=True)
        return set()
    finally:
        os.close(fd)
