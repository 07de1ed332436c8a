"""What a tree takes on the disk, counted while an agent may still write to it."""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from contextlib import suppress

from pytest_rollout.stage.tree import open_folder, open_path

__all__ = ["Taken", "taken"]

_BLOCK = 512


class Taken:
    """Bytes that are allocated, and entries, of a tree.

    ``whole`` is false where not all was counted, ``too_deep`` is true where a path is longer than the kernel takes.
    """

    __slots__ = ("files", "size", "too_deep", "whole")

    def __init__(self) -> None:
        self.size, self.files, self.whole, self.too_deep = 0, 0, True, False


def taken(top: int, *, size: int | None = None, files: int | None = None, force: bool = False) -> Taken:
    """Count the tree at the descriptor ``top``, up to these bounds.

    Blocks are counted, so a hole costs nothing; a file with several links counts once. A folder that is closed to us is
    left out; ``force`` opens it for the time being (only when nobody uses the tree any more).
    """
    found, closed = Taken(), list[tuple[bytes, int]]()
    try:
        _count_all(top, found, size, files, closed if force else None)
    finally:
        for path, mode in reversed(closed):
            with suppress(OSError):
                _set_mode(top, path, mode)
    return found


def _count_all(
    top: int, found: Taken, size: int | None, files: int | None, closed: list[tuple[bytes, int]] | None
) -> None:
    seen, pending = set[tuple[int, int]](), deque([b""])
    while pending:
        at = pending.popleft()
        try:
            fd = _opened(top, at, closed)
        except OSError as error:
            found.whole = found.whole and closed is None
            found.too_deep = found.too_deep or error.errno == errno.ENAMETOOLONG
            continue
        try:
            with os.scandir(fd) as listing:
                for item in listing:
                    _count(item, at, found, seen, pending)
                    if (size is not None and found.size > size) or (files is not None and found.files > files):
                        found.whole = False
                        return
        except OSError:
            continue
        finally:
            os.close(fd)


def _opened(top: int, at: bytes, closed: list[tuple[bytes, int]] | None) -> int:
    """A folder to list; one that is closed is opened, and remembered with its mode."""
    try:
        fd = open_folder(top, at, force=False)
    except PermissionError:
        if closed is None:
            raise
    else:
        # Without x a folder tells names only: what is in it could not be counted.
        if closed is None or os.geteuid() == 0 or os.fstat(fd).st_mode & stat.S_IXUSR:
            return fd
        os.close(fd)
    closed.append((at, _set_mode(top, at, 0o700)))
    return open_folder(top, at, force=False)


def _set_mode(top: int, path: bytes, mode: int) -> int:
    """Set the mode of a folder; returns what it was."""
    fd = open_path(top, path or b".", os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        before = stat.S_IMODE(os.fstat(fd).st_mode)
        os.chmod(f"/proc/self/fd/{fd}", mode)
    finally:
        os.close(fd)
    return before


def _count(item: os.DirEntry[str], at: bytes, found: Taken, seen: set[tuple[int, int]], pending: deque[bytes]) -> None:
    try:
        info = item.stat(follow_symlinks=False)
    except OSError:  # it is gone
        return
    if stat.S_ISCHR(info.st_mode) and info.st_rdev == 0:  # a whiteout
        return
    found.files += 1
    if stat.S_ISDIR(info.st_mode):
        name = os.fsencode(item.name)
        pending.append(at + b"/" + name if at else name)
    elif info.st_nlink > 1:
        if (info.st_dev, info.st_ino) in seen:
            return
        seen.add((info.st_dev, info.st_ino))
    found.size += info.st_blocks * _BLOCK
