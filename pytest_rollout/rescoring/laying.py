"""Lay recorded changes over a fresh stage: the tree that an attempt left, made again from its record.

An overlay gets an upper layer as the kernel writes one (a character device 0:0 deletes), a copied stage is changed in
place. Candidate's links stay links, and nothing is written through one. What can't be made again is a gap, and a test
that looks there is told so; it is never a file that only seems to be there.

What a record does not hold is not made again: times, extended attributes, and which files were hard links of another.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from pytest_rollout.bundle import Change
from pytest_rollout.retained.left import Unavailable
from pytest_rollout.stage.tree import lstat, open_folder, unshow

__all__ = ["Gap", "Gaps", "lay"]

_NODES = {"fifo": stat.S_IFIFO, "socket": stat.S_IFSOCK}
_NO_PLACE = (errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.ENOENT, errno.EXDEV, errno.EEXIST)

Content = Callable[[Change], Iterator[bytes]]


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """A file whose content could not be had: why, and its size in bytes where that is known."""

    why: str
    size: int | None = None


class Gaps(msgspec.Struct, frozen=True, kw_only=True):
    """What is not as the attempt left it: contents by path, and ``tree``, why the whole is not known (else empty)."""

    contents: Mapping[bytes, Gap] = {}
    tree: str = ""

    def __bool__(self) -> bool:
        return bool(self.contents or self.tree)

    @property
    def first(self) -> str:
        """The first of them, for people."""
        named = (f"{os.fsdecode(path)}: {gap.why}" for path, gap in self.contents.items())
        return self.tree or next(named, "")


def lay(changes: Sequence[Change], content: Content, stage: str, baseline: str) -> Gaps:
    """Make the changes in the stage in the folder ``stage``, which is as it was provisioned over ``baseline``.

    ``content`` gives the bytes of a changed file in pieces, and raises Unavailable. Raises OSError where the machine
    fails, on a full disk for example.
    """
    overlay = os.path.isdir(f"{stage}/u")
    tree = _Tree(f"{stage}/u" if overlay else f"{stage}/copy", baseline, overlay=overlay)
    try:
        for change in sorted(changes, key=lambda change: unshow(change.path)):
            try:
                tree.take(change, content)
            except OSError as error:
                if error.errno not in _NO_PLACE:
                    raise
                tree.gap = tree.gap or f"{change.path} has no place in it: {error.strerror}"
        tree.finish()
    finally:
        tree.close()
    return Gaps(contents=tree.contents, tree=tree.gap)


class _Tree:
    """The tree of a stage while it is written; every path is opened without following a link."""

    def __init__(self, top: str, baseline: str, *, overlay: bool) -> None:
        self._overlay = overlay
        self._top = os.open(top, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        self._baseline = os.open(baseline, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        owner = os.fstat(self._top)
        self._owner = owner.st_uid, owner.st_gid
        self._modes: dict[bytes, int] = {}  # of folders, given to them when everything is in them
        self._closed: set[bytes] = set()  # what is no folder: nothing is below it
        self.contents: dict[bytes, Gap] = {}
        self.gap = ""

    def close(self) -> None:
        os.close(self._top)
        os.close(self._baseline)

    def take(self, change: Change, content: Content) -> None:
        """Make one change; those of the folders above it were made before. Raises OSError."""
        path = unshow(change.path)
        parts = path.split(b"/")
        if any(b"/".join(parts[:count]) in self._closed for count in range(1, len(parts))):
            if change.kind != "deleted":  # what is deleted went with the folder
                raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
            return
        if change.kind == "deleted" or change.type != "dir":
            self._closed.add(path)
        above, _, name = path.rpartition(b"/")
        parent = self._folder(above)
        try:
            if change.kind == "deleted":
                self._delete(parent, name, path)
            else:
                self._write(parent, name, path, change, content)
        finally:
            os.close(parent)

    def _folder(self, path: bytes) -> int:
        """A folder of the tree, open; in an upper layer those of the baseline are made when they are needed."""
        try:
            return open_folder(self._top, path, force=False)
        except FileNotFoundError:
            if not self._overlay:
                raise
        base = lstat(self._baseline, path)
        if base is None or not stat.S_ISDIR(base.st_mode):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        above, _, name = path.rpartition(b"/")
        parent = self._folder(above)
        try:
            os.mkdir(name, 0o700, dir_fd=parent)
            self._give(parent, name)
        finally:
            os.close(parent)
        self._modes[path] = stat.S_IMODE(base.st_mode)
        return open_folder(self._top, path, force=False)

    def _delete(self, parent: int, name: bytes, path: bytes) -> None:
        if not self._overlay:
            _remove(parent, name)
        elif lstat(self._baseline, path) is not None:
            os.mknod(name, stat.S_IFCHR, os.makedev(0, 0), dir_fd=parent)

    def _write(self, parent: int, name: bytes, path: bytes, change: Change, content: Content) -> None:
        mode = int(change.mode or "644", 8) & 0o7777
        if change.type == "dir":
            self._modes[path] = mode
            if not self._overlay and _is_folder(parent, name):
                return
            _remove(parent, name)
            os.mkdir(name, 0o700, dir_fd=parent)
            self._give(parent, name)
            return
        _remove(parent, name)
        if change.type == "symlink":
            os.symlink(unshow(change.target or ""), name, dir_fd=parent)
            self._give(parent, name)
        elif change.type in _NODES:
            os.mknod(name, _NODES[change.type] | 0o600, dir_fd=parent)
            self._give(parent, name)
            os.chmod(name, mode, dir_fd=parent)
        else:
            self._write_file(parent, name, path, change, content)

    def _write_file(self, parent: int, name: bytes, path: bytes, change: Change, content: Content) -> None:
        """A file; where its content can't be had an empty one holds its place, and the gap says so."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        target = os.open(name, flags, 0o600, dir_fd=parent)
        try:
            try:
                if change.type != "file":
                    raise Unavailable(f"it was a {change.type}")
                size = 0
                for piece in content(change):
                    if piece.count(b"\0") != len(piece):  # a hole stays one
                        os.lseek(target, size, os.SEEK_SET)
                        _write_all(target, piece)
                    size += len(piece)
                os.ftruncate(target, size)
            except Unavailable as error:
                os.ftruncate(target, 0)
                self.contents[path] = Gap(why=str(error), size=change.size)
            os.fchown(target, *self._owner)
            os.fchmod(target, int(change.mode or "644", 8) & 0o7777)
        finally:
            os.close(target)

    def _give(self, parent: int, name: bytes) -> None:
        os.chown(name, *self._owner, dir_fd=parent, follow_symlinks=False)

    def finish(self) -> None:
        """Give the folders their modes, the deepest first: one may forbid to pass through it."""
        for path in sorted(self._modes, reverse=True):
            fd = open_folder(self._top, path, force=False)
            try:
                os.fchmod(fd, self._modes[path])
            finally:
                os.close(fd)


def _write_all(target: int, data: bytes) -> None:
    done = os.write(target, data)
    while done < len(data):
        done += os.write(target, data[done:])


def _is_folder(parent: int, name: bytes) -> bool:
    found = lstat(parent, name)
    return found is not None and stat.S_ISDIR(found.st_mode)


def _remove(parent: int, name: bytes) -> None:
    """Remove what is there, if anything is; a link itself, never what it points to."""
    if _is_folder(parent, name):
        shutil.rmtree(name, dir_fd=parent)
    elif lstat(parent, name) is not None:
        os.unlink(name, dir_fd=parent)
