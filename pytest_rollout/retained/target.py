"""The folder that changes are applied to: what is in it, and writing into it all or nothing.

No path is ever followed through a link, and none leaves the folder or its file system. New content is written whole
into a hidden folder beside the rest, and only then moved to its places by renames; what is replaced or removed moves
into the hidden folder, so that a failure, or an interrupt, puts everything back. After a SIGKILL each path is either
as it was or as it should be, and the same changes can be applied once more.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import shutil
import signal
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pytest_rollout.errors import SelectorError
from pytest_rollout.retained.left import is_git
from pytest_rollout.retained.repositories import is_repository
from pytest_rollout.stage.tree import link_target, open_folder, open_path, reading

__all__ = ["HIDDEN", "Found", "Moved", "Target"]

HIDDEN = b".rollout-apply-"
_ABSENT = {errno.ENOENT, errno.ENOTDIR}
_LINKED = {errno.ELOOP, errno.EXDEV}


@contextmanager
def _whole() -> Iterator[None]:
    """A step and what undoes it are one: signals that end the command wait until it is made."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Moved(Exception):
    """A path is not what it was when it was looked at; the text says what is wrong."""


class Found:
    """What is at a path of the folder."""

    def __init__(self, folder: int, path: bytes, info: os.stat_result) -> None:
        self._folder, self._path, self.info = folder, path, info
        self.mark = (info.st_dev, info.st_ino, info.st_mode, info.st_size, info.st_mtime_ns)

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.info.st_mode)

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.info.st_mode)

    @property
    def is_link(self) -> bool:
        return stat.S_ISLNK(self.info.st_mode)

    @property
    def executable(self) -> bool:
        return bool(self.info.st_mode & 0o111)

    def sha256(self) -> str:
        """The digest of a file; raises OSError."""
        digest = hashlib.sha256()
        with reading(self._folder, self._path, force=False) as source:
            while piece := os.read(source, 1 << 20):
                digest.update(piece)
        return digest.hexdigest()

    def target(self) -> bytes:
        """Where a link points; raises OSError."""
        return link_target(self._folder, self._path)


class Target:
    """An open folder. Raises SelectorError where it is none, or is one of a repository's own."""

    def __init__(self, path: Path) -> None:
        real = path.resolve()
        bare = any(map(is_repository, (real, *real.parents)))
        if bare or is_git(os.fsencode(real)):
            raise SelectorError(f"--to {path}: a repository's own data lies there, and nothing is written to it")
        try:
            self.fd = os.open(real, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise SelectorError(f"--to {path}: the folder can't be opened: {error.strerror}") from None
        self._undo: list[Callable[[], None]] = []
        self._hidden: int | None = None
        self._name = HIDDEN + secrets.token_hex(6).encode()
        self._count = 0

    # -- looking

    def look(self, path: bytes) -> Found | None:
        """What is there; raises Moved where a link or another file system is on the way, and OSError."""
        try:
            fd = open_path(self.fd, path)
        except OSError as error:
            if error.errno in _ABSENT:
                return None
            if error.errno in _LINKED:
                raise Moved("a part of the path is a link, or another file system") from None
            raise
        try:
            return Found(self.fd, path, os.fstat(fd))
        finally:
            os.close(fd)

    def names(self, path: bytes) -> list[bytes]:
        """The names in a folder; nothing where there is none."""
        try:
            fd = open_folder(self.fd, path, force=False)
        except OSError:
            return []
        try:
            return [os.fsencode(name) for name in os.listdir(fd)]
        finally:
            os.close(fd)

    # -- writing

    def prepare(self, pieces: Iterable[bytes], mode: int) -> bytes:
        """Write content into the hidden folder; returns the name that it has there. Raises OSError."""
        name = self._new_name()
        fd = os.open(
            name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=self._in()
        )
        with open(fd, "wb") as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fchmod(fd, mode)
            os.fsync(fd)
        return name

    def prepare_link(self, target: bytes) -> bytes:
        """Make a link in the hidden folder; returns the name that it has there."""
        name = self._new_name()
        os.symlink(target, name, dir_fd=self._in())
        return name

    @_whole()
    def place(self, prepared: bytes, path: bytes, seen: Found | None) -> None:
        """Move what was prepared to its path, over what was seen there."""
        parent, name = self._parent(path)
        try:
            self._check(path, seen)
            self._own(prepared, seen, parent)
            if seen is None:
                self._place_new(prepared, parent, name)
                self._then(path, lambda at: os.unlink(name, dir_fd=at))
                return
            kept = self._new_name()
            try:
                os.link(name, kept, src_dir_fd=parent, dst_dir_fd=self._in(), follow_symlinks=False)
            except OSError:  # a file system without hard links, or a file of another user
                os.rename(name, kept, src_dir_fd=parent, dst_dir_fd=self._in())
            self._then(path, lambda at: os.rename(kept, name, src_dir_fd=self._in(), dst_dir_fd=at))
            os.rename(prepared, name, src_dir_fd=self._in(), dst_dir_fd=parent)
        finally:
            os.close(parent)

    def _place_new(self, prepared: bytes, parent: int, name: bytes) -> None:
        """By a hard link, which never replaces what came meanwhile."""
        try:
            os.link(prepared, name, src_dir_fd=self._in(), dst_dir_fd=parent, follow_symlinks=False)
        except FileExistsError:
            raise Moved("something is there now") from None
        except OSError:
            os.rename(prepared, name, src_dir_fd=self._in(), dst_dir_fd=parent)
        else:
            os.unlink(prepared, dir_fd=self._in())

    @_whole()
    def remove(self, path: bytes, seen: Found) -> bool:
        """Remove a file, a link or a folder; a folder with something in it stays, which is what False says."""
        parent, name = self._parent(path)
        try:
            self._check(path, None if seen.is_folder else seen)
            if seen.is_folder:
                try:
                    os.rmdir(name, dir_fd=parent)
                except OSError as error:
                    if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                        return False
                    raise
                mode = stat.S_IMODE(seen.info.st_mode)
                self._then(path, lambda at: os.mkdir(name, mode, dir_fd=at))
                return True
            kept = self._new_name()
            os.rename(name, kept, src_dir_fd=parent, dst_dir_fd=self._in())
            self._then(path, lambda at: os.rename(kept, name, src_dir_fd=self._in(), dst_dir_fd=at))
            return True
        finally:
            os.close(parent)

    @_whole()
    def make_folder(self, path: bytes, mode: int) -> None:
        """Make a folder, open to us whatever its mode until :meth:`set_mode`."""
        parent, name = self._parent(path)
        try:
            os.mkdir(name, 0o700, dir_fd=parent)
            self._then(path, lambda at: os.rmdir(name, dir_fd=at))
            self._own_as(name, parent, os.fstat(parent))
            made = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
            try:
                os.fchmod(made, mode | 0o700)
            finally:
                os.close(made)
        except FileExistsError:
            raise Moved("something is there now") from None
        finally:
            os.close(parent)

    @_whole()
    def set_mode(self, path: bytes, mode: int) -> None:
        """Give a file or a folder its mode."""
        fd = open_path(self.fd, path)
        try:
            before = stat.S_IMODE(os.fstat(fd).st_mode)
            os.chmod(f"/proc/self/fd/{fd}", mode)
        finally:
            os.close(fd)
        self._undo.append(lambda: self.set_mode(path, before))

    @_whole()
    def close(self, *, done: bool) -> None:
        """Keep what was written, or put everything back; the hidden folder goes. Raises OSError where that fails.

        What can't be put back keeps nothing else from it.
        """
        failed: list[OSError | Moved] = []
        try:
            undo, self._undo = self._undo[::-1], []
            for step in [] if done else undo:
                try:
                    step()
                except (OSError, Moved) as error:
                    failed.append(error)
            if failed:
                raise failed[0]
            if self._hidden is not None:
                os.close(self._hidden)
                self._hidden = None
                shutil.rmtree(self._name, dir_fd=self.fd)
        finally:
            os.close(self.fd)

    @property
    def hidden(self) -> str:
        """The name of the hidden folder."""
        return os.fsdecode(self._name)

    @_whole()
    def _in(self) -> int:
        if self._hidden is None:
            os.mkdir(self._name, 0o700, dir_fd=self.fd)
            self._hidden = os.open(self._name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=self.fd)
        return self._hidden

    def _new_name(self) -> bytes:
        self._count += 1
        return b"%d" % self._count

    def _parent(self, path: bytes) -> tuple[int, bytes]:
        above, _, name = path.rpartition(b"/")
        try:
            return open_folder(self.fd, above, force=False), name
        except OSError as error:
            if error.errno in _ABSENT | _LINKED:
                raise Moved("its folder is gone") from None
            raise

    def _then(self, path: bytes, step: Callable[[int], None]) -> None:
        """Remember how a step is undone, in the folder of the path."""

        def undo() -> None:
            parent, _ = self._parent(path)
            try:
                step(parent)
            finally:
                os.close(parent)

        self._undo.append(undo)

    def _check(self, path: bytes, seen: Found | None) -> None:
        now = self.look(path)
        if seen is not None and (now is None or now.mark != seen.mark):
            raise Moved("it changed meanwhile")

    def _own(self, prepared: bytes, seen: Found | None, parent: int) -> None:
        self._own_as(prepared, self._in(), seen.info if seen is not None else os.fstat(parent))

    @staticmethod
    def _own_as(name: bytes, folder: int, like: os.stat_result) -> None:
        """As root, keep whose a file was, and give a new one to who has the folder."""
        if os.geteuid() == 0:
            os.chown(name, like.st_uid, like.st_gid, dir_fd=folder, follow_symlinks=False)
