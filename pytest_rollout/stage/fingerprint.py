"""What a tree is, by its content and by what the system says of its files.

:func:`fingerprint` digests every path, type, executable bit and content: equal trees are equal on every machine. As in
git, other mode bits are not part of it. Folders named ``__pycache__`` are left out: running a program of the workspace
must not change its revision.

:func:`state` digests the stats alone, which is some hundred times cheaper. Equal states mean an equal tree where the
newest change is older than a tick of the clock (as git has it for its index), and where nobody sets the clock of the
machine back or writes to its disk past the file system.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from pytest_rollout.errors import ConfigError
from pytest_rollout.stage.tree import Bound, TreeEntry, reading, show, walk

__all__ = ["MAX_DEPTH", "MAX_ENTRIES", "SKIPPED", "State", "contents", "entries_of", "fingerprint", "state"]

SKIPPED = frozenset({b"__pycache__"})
MAX_ENTRIES = 1_000_000
MAX_DEPTH = 200


class State:
    """The stats of a tree: their digest, the newest change time (nanoseconds), and how many entries there are."""

    __slots__ = ("count", "digest", "newest")

    def __init__(self, digest: str, newest: int, count: int) -> None:
        self.digest, self.newest, self.count = digest, newest, count


def state(folder: Path, *, skip: frozenset[bytes] = SKIPPED) -> State:
    """The state of a tree; raises ConfigError and OSError as :func:`fingerprint` does."""
    top = os.lstat(folder)
    digest, newest, count = hashlib.sha256(repr((top.st_mode, top.st_uid, top.st_gid, top.st_mtime_ns)).encode()), 0, 0
    for entry in entries_of(folder, skip=skip):
        info = entry.stat
        facts = (
            f"{info.st_dev} {info.st_ino} {info.st_mode} {info.st_uid} {info.st_gid} "
            f"{info.st_size} {info.st_mtime_ns} {info.st_ctime_ns} "
        )
        digest.update(facts.encode() + entry.path + b"\0")
        newest = max(newest, info.st_ctime_ns)
        count += 1
    return State(digest.hexdigest(), newest, count)


def fingerprint(folder: Path) -> str:
    """``sha256:`` over the sorted entries of a tree: path, type, executable bit, content or target.

    Each part is digested with its length, so no two trees share a form. Raises ConfigError for what
    can't be part of a workspace.
    """
    digest = hashlib.sha256()
    fd = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        for entry in sorted(entries_of(folder), key=lambda entry: entry.path):
            for part in _parts(fd, folder, entry):
                digest.update(b"%d:" % len(part))
                digest.update(part)
    finally:
        os.close(fd)
    return f"sha256:{digest.hexdigest()}"


def _parts(fd: int, folder: Path, entry: TreeEntry) -> Iterator[bytes]:
    mode = entry.stat.st_mode
    yield entry.path
    if stat.S_ISREG(mode):
        yield b"executable" if mode & 0o111 else b"file"
        content = hashlib.sha256()
        for piece in contents(fd, folder, entry):
            content.update(piece)
        yield content.digest()
    elif stat.S_ISLNK(mode):
        yield b"link"
        yield os.readlink(os.path.join(os.fsencode(folder), entry.path))
    else:
        yield b"folder"


def contents(fd: int, folder: Path, entry: TreeEntry) -> Iterator[bytes]:
    """The content of a file of a workspace in pieces; raises ConfigError."""
    try:
        with reading(fd, entry.path, force=False) as source:
            while piece := os.read(source, 1 << 20):
                yield piece
    except OSError as error:
        raise ConfigError(f"workspace {folder}: {show(entry.path)} can't be read: {error.strerror}") from None


def entries_of(folder: Path, *, skip: frozenset[bytes] = SKIPPED) -> Iterator[TreeEntry]:
    """The files, folders and links of a workspace; raises ConfigError for anything else."""
    fd = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        for entry in walk(fd, max_entries=MAX_ENTRIES, max_depth=MAX_DEPTH, skip=skip, force=False):
            mode = entry.stat.st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)):
                raise ConfigError(f"workspace {folder}: {show(entry.path)} is not a file, a folder or a link")
            yield entry
    except Bound as bound:
        raise ConfigError(f"workspace {folder}: more than {bound.limit} {bound.what}") from None
    except OSError as error:
        name = show(os.fsencode(error.filename or "."))
        raise ConfigError(f"workspace {folder}: {name} can't be read: {error.strerror}") from None
    finally:
        os.close(fd)
