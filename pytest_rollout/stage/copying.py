"""Copy a tree that a candidate may have written, as it is, at the cost of what is really in it.

Holes stay holes, so a sparse terabyte costs nothing. Folders are listed without recursion and within
bounds, links are copied as links, and nothing is opened that could block. What a copy does not keep:
owners, hard links, extended attributes, setuid and setgid bits.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator

from pytest_rollout.stage.tree import TreeEntry, open_path, reading, walk

__all__ = ["MAX_COPIED", "copy_tree", "data_ranges", "write_at"]

MAX_COPIED = 1_050_000  # entries: those of the largest baseline, and the changes that are listed at most
MAX_DEPTH = 200
_PIECE = 1 << 20


def copy_tree(source: str, target: str, *, specials: bool = False, links: bool = True) -> None:
    """Copy the folder ``source`` to ``target``, which is not there yet; ``specials`` makes FIFOs and sockets anew.

    Devices are left out, and links without ``links``. Raises Bound for more entries or levels than are copied, else
    OSError.
    """
    os.mkdir(target, 0o700)
    folders: list[TreeEntry] = []
    old = os.open(source, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    new = os.open(target, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for entry in walk(old, max_entries=MAX_COPIED, max_depth=MAX_DEPTH):
            if entry.is_folder:
                os.mkdir(entry.path, 0o700, dir_fd=new)
                folders.append(entry)
            elif links or not stat.S_ISLNK(entry.stat.st_mode):
                _copy_one(old, new, entry, specials=specials)
        for entry in reversed(folders):  # a folder may forbid what its contents need
            fd = open_path(new, entry.path)
            try:
                _give_stat(fd, entry.stat)
            finally:
                os.close(fd)
        _give_stat(new, os.fstat(old))
    finally:
        os.close(old)
        os.close(new)


def _copy_one(old: int, new: int, entry: TreeEntry, *, specials: bool) -> None:
    mode = entry.stat.st_mode
    if stat.S_ISLNK(mode):
        fd = open_path(old, entry.path)
        try:
            os.symlink(os.readlink(b"", dir_fd=fd), entry.path, dir_fd=new)
        finally:
            os.close(fd)
    elif stat.S_ISREG(mode):
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with reading(old, entry.path) as source:
            target = os.open(entry.path, flags, 0o600, dir_fd=new)
            try:
                _copy_content(source, target)
                _give_stat(target, entry.stat)
            finally:
                os.close(target)
    elif specials and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        os.mknod(entry.path, stat.S_IFMT(mode) | 0o600, dir_fd=new)
        os.chmod(entry.path, stat.S_IMODE(mode) & 0o777, dir_fd=new)


def _give_stat(fd: int, info: os.stat_result) -> None:
    """Mode and times, through a descriptor that may be one of O_PATH."""
    place = f"/proc/self/fd/{fd}"
    os.utime(place, ns=(info.st_atime_ns, info.st_mtime_ns))
    os.chmod(place, stat.S_IMODE(info.st_mode) & 0o1777)


def _copy_content(source: int, target: int) -> None:
    size = os.fstat(source).st_size
    for start, end in data_ranges(source, size):
        at = start
        while at < end and (piece := os.pread(source, min(_PIECE, end - at), at)):
            write_at(target, piece, at)
            at += len(piece)
    os.ftruncate(target, size)


def write_at(target: int, data: bytes, at: int) -> None:
    """Write all of ``data`` at an offset; raises OSError."""
    with memoryview(data) as view:
        done = 0
        while done < len(data):
            done += os.pwrite(target, view[done:], at + done)


def data_ranges(fd: int, size: int) -> Iterator[tuple[int, int]]:
    """(start, end) of what is no hole in the first ``size`` bytes; all of them where the file system can't tell."""
    at = 0
    while at < size:
        try:
            start = os.lseek(fd, at, os.SEEK_DATA)
            end = os.lseek(fd, start, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:  # a hole to the end
                return
            start, end = at, size
        if start < size:
            yield start, min(end, size)
        at = max(end, at + 1)
