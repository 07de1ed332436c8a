"""Open, list and read a tree that a hostile agent wrote.

Nothing here follows a link, leaves the tree, opens a FIFO or a device, or reads without a bound.
``openat2(2)`` with RESOLVE_BENEATH does it in one call; where the kernel lacks it (before 5.6, or
behind an old seccomp filter) a walk with O_NOFOLLOW from folder to folder does the same.

Paths are bytes, relative, without ``.`` or ``..``.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import stat
import struct
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = [
    "Bound",
    "TreeEntry",
    "entries",
    "link_target",
    "lstat",
    "open_folder",
    "open_path",
    "read_file",
    "reading",
    "show",
    "unshow",
    "walk",
]

_OPENAT2 = 437  # the same number on every architecture
_RESOLVE = 0x01 | 0x02 | 0x04 | 0x08  # NO_XDEV, NO_MAGICLINKS, NO_SYMLINKS, BENEATH
_PATH_FLAGS = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_DIR_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_SHOWN_BYTE = re.compile(rb"\\x([0-9a-f]{2})")
_GONE = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EXDEV}

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


class Bound(Exception):
    """A bound was hit while listing: ``what`` is ``entries`` or ``depth``."""

    def __init__(self, what: str, limit: int) -> None:
        super().__init__(f"more than {limit} {what}")
        self.what, self.limit = what, limit


class TreeEntry:
    """One entry of a listing: its path, what ``lstat`` says, and its depth (1 at the top)."""

    __slots__ = ("depth", "path", "stat")

    def __init__(self, path: bytes, info: os.stat_result, depth: int) -> None:
        self.path, self.stat, self.depth = path, info, depth

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.stat.st_mode)


def show(path: bytes) -> str:
    """A path for people and for JSON: UTF-8; backslashes, control characters and other bytes as ``\\xff``.

    Two paths never look the same.
    """
    text = path.decode("utf-8", "surrogateescape")
    return "".join(c if c.isprintable() and c != "\\" else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogateescape"))


def unshow(text: str) -> bytes:
    """The path that :func:`show` shows so."""
    return _SHOWN_BYTE.sub(lambda match: bytes([int(match[1], 16)]), text.encode("utf-8", "surrogateescape"))


def _openat2(folder: int, path: bytes, flags: int) -> int:
    how = struct.pack("QQQ", flags, 0, _RESOLVE)
    for _ in range(64):
        fd = _libc.syscall(_OPENAT2, folder, ctypes.c_char_p(path), ctypes.c_char_p(how), ctypes.c_size_t(len(how)))
        if fd >= 0:
            return int(fd)
        code = ctypes.get_errno()
        if code not in (errno.EAGAIN, errno.EINTR):
            break
    raise OSError(code, os.strerror(code), os.fsdecode(path))


def _open_by_walking(folder: int, path: bytes, flags: int) -> int:
    parts = [part for part in path.split(b"/") if part != b"."] or [b"."]
    if b".." in parts or b"" in parts:
        raise OSError(errno.EXDEV, "the path leaves the tree", os.fsdecode(path))
    current = folder
    try:
        for part in parts[:-1]:
            below = os.open(part, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=current)
            if current != folder:
                os.close(current)
            current = below
        return os.open(parts[-1], flags, dir_fd=current)
    finally:
        if current != folder:
            os.close(current)


def _choose() -> Callable[[int, bytes, int], int]:
    root = os.open("/", os.O_PATH | os.O_DIRECTORY)
    try:
        os.close(_openat2(root, b".", _PATH_FLAGS))
    except OSError:
        return _open_by_walking
    finally:
        os.close(root)
    return _openat2


_opener: list[Callable[[int, bytes, int], int]] = []


def open_path(folder: int, path: bytes, flags: int = _PATH_FLAGS) -> int:
    """Open ``path`` below the descriptor ``folder``; by default only to look at it (O_PATH).

    Raises OSError: ELOOP for a link on the way, EXDEV for a path that leaves, ENOENT and so on.
    """
    if not _opener:
        _opener.append(_choose())
    return _opener[0](folder, path, flags)


def lstat(folder: int, path: bytes) -> os.stat_result | None:
    """What is at ``path``, or None where nothing is (or only behind a link)."""
    try:
        fd = open_path(folder, path)
    except OSError as error:
        if error.errno in _GONE:
            return None
        raise
    try:
        return os.fstat(fd)
    finally:
        os.close(fd)


def link_target(folder: int, path: bytes) -> bytes:
    """Where the link at ``path`` points; raises OSError."""
    fd = open_path(folder, path)
    try:
        return os.readlink(b"", dir_fd=fd)
    finally:
        os.close(fd)


def open_folder(folder: int, path: bytes, *, force: bool = True) -> int:
    """Open a folder for listing; ``force`` opens the mode of one that forbids it. Raises OSError."""
    try:
        fd = open_path(folder, path or b".", _DIR_FLAGS)
    except PermissionError:
        if not force:
            raise
    else:
        if not force or os.geteuid() == 0 or os.fstat(fd).st_mode & stat.S_IXUSR:
            return fd
        os.close(fd)
    looked = open_path(folder, path or b".", _PATH_FLAGS | os.O_DIRECTORY)
    try:
        os.chmod(f"/proc/self/fd/{looked}", 0o700)
    finally:
        os.close(looked)
    return open_path(folder, path or b".", _DIR_FLAGS)


@contextmanager
def reading(folder: int, path: bytes, *, force: bool = True) -> Iterator[int]:
    """A descriptor to read the regular file at ``path``; ``force`` reads one whose mode forbids it.

    Two steps, so that a FIFO or a device is never opened: look (O_PATH), then open what was looked
    at. Raises OSError, with EINVAL for what isn't a regular file.
    """
    looked = open_path(folder, path)
    try:
        info = os.fstat(looked)
        if not stat.S_ISREG(info.st_mode):
            raise OSError(errno.EINVAL, f"not a regular file: {stat.filemode(info.st_mode)}", os.fsdecode(path))
        place = f"/proc/self/fd/{looked}"
        try:
            fd = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except PermissionError:
            if not force:
                raise
            os.chmod(place, 0o400)
            try:
                fd = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            finally:
                os.chmod(place, stat.S_IMODE(info.st_mode))
    finally:
        os.close(looked)
    try:
        yield fd
    finally:
        os.close(fd)


def read_file(folder: int, path: bytes, limit: int) -> tuple[bytes, bool]:
    """The first ``limit`` bytes of the regular file at ``path``, and whether there are more."""
    with reading(folder, path) as fd:
        pieces, left = [], limit + 1
        while left > 0 and (piece := os.read(fd, min(left, 1 << 20))):
            pieces.append(piece)
            left -= len(piece)
    data = b"".join(pieces)
    return data[:limit], len(data) > limit


def entries(folder: int, path: bytes, depth: int, limit: int, *, force: bool = True) -> list[TreeEntry]:
    """The entries of one folder, in the order of their names; raises Bound beyond ``limit``."""
    fd = open_folder(folder, path, force=force)
    try:
        found: list[TreeEntry] = []
        with os.scandir(fd) as listing:
            for item in listing:
                if len(found) >= limit:
                    raise Bound("entries", limit)
                name = os.fsencode(item.name)
                below = path + b"/" + name if path else name
                found.append(TreeEntry(below, item.stat(follow_symlinks=False), depth))
    finally:
        os.close(fd)
    return sorted(found, key=lambda entry: entry.path)


def walk(
    folder: int,
    path: bytes = b"",
    *,
    max_entries: int,
    max_depth: int,
    skip: frozenset[bytes] = frozenset(),
    force: bool = True,
) -> Iterator[TreeEntry]:
    """Every entry below ``path``, level by level; raises Bound when a bound is hit.

    ``skip`` names folders (by their last part) that are left out whole.
    """
    seen = 0
    pending = deque([(path, 1)])
    while pending:
        at, depth = pending.popleft()
        if depth > max_depth:
            raise Bound("depth", max_depth)
        for entry in entries(folder, at, depth, max_entries, force=force):
            if entry.is_folder and entry.path.rpartition(b"/")[2] in skip:
                continue
            seen += 1
            if seen > max_entries:
                raise Bound("entries", max_entries)
            yield entry
            if entry.is_folder:
                pending.append((entry.path, depth + 1))
