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
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from pytest_rollout.errors import ConfigError
from pytest_rollout.stage.tree import Bound, TreeEntry, open_folder, reading, show, walk

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
    """The state of a tree; raises ConfigError and OSError as :func:`fingerprint` does.

    It is made for every rollout, so it does by hand what :func:`entries_of` does well.
    """
    info = os.lstat(folder)
    digest, newest, count = hashlib.sha256(_row(info, info.st_mtime_ns).encode()), 0, 0
    top = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        pending = deque([(b"", 1)])
        while pending:
            at, depth = pending.popleft()
            if depth > MAX_DEPTH:
                raise ConfigError(f"workspace {folder}: more than {MAX_DEPTH} depth")
            rows, below = _rows(top, folder, at, skip)
            count += len(rows)
            if count > MAX_ENTRIES:
                raise ConfigError(f"workspace {folder}: more than {MAX_ENTRIES} entries")
            newest = max(newest, max((row[1] for row in rows), default=0))
            digest.update(repr((at, sorted(rows))).encode())
            pending.extend((path, depth + 1) for path in sorted(below))
    finally:
        os.close(top)
    return State(digest.hexdigest(), newest, count)


def _rows(top: int, folder: Path, at: bytes, skip: frozenset[bytes]) -> tuple[list[tuple[str, int, str]], list[bytes]]:
    """Of each entry of one folder its name, its change time and its other stats; and the folders in it."""
    rows, below = [], []
    try:
        fd = open_folder(top, at, force=False)
        try:
            with os.scandir(fd) as listing:
                for item in listing:
                    info = item.stat(follow_symlinks=False)
                    if stat.S_ISDIR(info.st_mode):
                        name = os.fsencode(item.name)
                        if name in skip:
                            continue
                        below.append(at + b"/" + name if at else name)
                    rows.append((item.name, info.st_ctime_ns, _row(info, info.st_mtime_ns)))
        finally:
            os.close(fd)
    except OSError as error:
        name = os.fsencode(error.filename or ".")
        raise ConfigError(f"workspace {folder}: {show(name)} can't be read: {error.strerror}") from None
    return rows, below


def _row(info: os.stat_result, changed: int) -> str:
    return f"{info.st_dev} {info.st_ino} {info.st_mode} {info.st_uid} {info.st_gid} {info.st_size} {changed}"


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
