"""A view of what a stage holds, over its baseline: where each path really lies.

:class:`OverlayView` reads the two layers of a kernel overlay from outside, as the kernel merges
them: a character device 0:0 hides what is below it, and so does a folder marked opaque. The agent
can forge neither from inside. :class:`CopyView` is a stage that is a full copy.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Protocol

from pytest_rollout.stage.tree import TreeEntry, entries, lstat, open_folder

__all__ = ["CopyView", "OverlayView", "View", "is_opaque", "is_whiteout"]


class View(Protocol):
    """Where evidence lies.

    ``baseline`` is a descriptor of the tree that the agent started from, ``layer`` of the one that
    holds everything that it added or modified.
    """

    baseline: int
    layer: int

    def locate(self, path: bytes) -> tuple[int, bytes]:
        """The folder descriptor to open ``path`` below; raises OSError as an open would."""
        ...

    def children(self, path: bytes, depth: int, limit: int) -> list[TreeEntry]:
        """The entries of one folder of the result."""
        ...

    def close(self) -> None:
        """Give the descriptors back."""
        ...


def is_whiteout(info: os.stat_result) -> bool:
    """Whether an entry of an upper layer says «deleted»."""
    return stat.S_ISCHR(info.st_mode) and info.st_rdev == 0


def is_opaque(upper: int, path: bytes) -> bool:
    """Whether a folder of an upper layer hides everything that the baseline has in it."""
    try:
        fd = open_folder(upper, path)
    except OSError:
        return False
    try:
        return any(_xattr(fd, name) == b"y" for name in ("user.overlay.opaque", "trusted.overlay.opaque"))
    finally:
        os.close(fd)


def _xattr(fd: int, name: str) -> bytes | None:
    try:
        return os.getxattr(fd, name)
    except OSError:
        return None


def _missing(path: bytes) -> OSError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fsdecode(path))


def _open_root(path: str) -> int:
    """A folder of ours that the agent wrote in; it may have closed it for everybody, us included."""
    os.chmod(path, stat.S_IMODE(os.lstat(path).st_mode) | stat.S_IRWXU, follow_symlinks=True)
    return os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


class OverlayView:
    """The result of an overlay stage: ``upper`` over ``baseline``."""

    def __init__(self, upper: str, baseline: str) -> None:
        self.upper = self.layer = _open_root(upper)
        self.baseline = os.open(baseline, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def locate(self, path: bytes) -> tuple[int, bytes]:
        parts = path.split(b"/")
        below = True
        for count in range(1, len(parts) + 1):
            prefix = b"/".join(parts[:count])
            info = lstat(self.upper, prefix)
            if info is None:
                if below:
                    return self.baseline, path
                raise _missing(path)
            if is_whiteout(info):
                raise _missing(path)
            if not stat.S_ISDIR(info.st_mode):
                break
            if count < len(parts):
                below = below and not is_opaque(self.upper, prefix)
        return self.upper, path

    def children(self, path: bytes, depth: int, limit: int) -> list[TreeEntry]:
        found: dict[bytes, TreeEntry] = {}
        if self._below(path):
            found = {entry.path: entry for entry in entries(self.baseline, path, depth, limit)}
        if not path or lstat(self.upper, path) is not None:
            for entry in entries(self.upper, path, depth, limit):
                if is_whiteout(entry.stat):
                    found.pop(entry.path, None)
                else:
                    found[entry.path] = entry
        return sorted(found.values(), key=lambda entry: entry.path)

    def _below(self, path: bytes) -> bool:
        """Whether the baseline shows through at the folder ``path``."""
        parts = path.split(b"/") if path else []
        for count in range(1, len(parts) + 1):
            prefix = b"/".join(parts[:count])
            info = lstat(self.upper, prefix)
            if info is None:
                break
            if not stat.S_ISDIR(info.st_mode) or is_opaque(self.upper, prefix):
                return False
        info = lstat(self.baseline, path or b".")
        return info is not None and stat.S_ISDIR(info.st_mode)

    def close(self) -> None:
        os.close(self.upper)
        os.close(self.baseline)


class CopyView:
    """The result of a copied stage: everything is in ``copy``."""

    def __init__(self, copy: str, baseline: str) -> None:
        self.copy = self.layer = _open_root(copy)
        self.baseline = os.open(baseline, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def locate(self, path: bytes) -> tuple[int, bytes]:
        return self.copy, path

    def children(self, path: bytes, depth: int, limit: int) -> list[TreeEntry]:
        return entries(self.copy, path, depth, limit)

    def close(self) -> None:
        os.close(self.copy)
        os.close(self.baseline)
