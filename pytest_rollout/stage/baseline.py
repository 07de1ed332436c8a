"""Baselines: the immutable tree that attempts start from, frozen once and named by its content.

The fingerprint digests every path, type, executable bit and content, so equal trees share one
baseline on every machine, and a result can say which environment it comes from. As in git, other
mode bits are not part of it: files become 0644 or 0755, folders 0755. Folders named ``__pycache__``
are left out: running a program of the workspace must not change its revision.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from pytest_rollout.errors import ConfigError, HostError, StageError
from pytest_rollout.stage.removal import remove_tree
from pytest_rollout.stage.root import StageRoot
from pytest_rollout.stage.tree import Bound, TreeEntry, reading, show, walk

__all__ = ["Baseline", "fingerprint", "freeze"]

_SKIP = frozenset({b"__pycache__"})
MAX_ENTRIES = 1_000_000
MAX_DEPTH = 200
_SETTLED = 2 * 10**9  # nanoseconds
_known: dict[Path, tuple[str, str]] = {}  # of a folder: what its stats were, and its fingerprint


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """A frozen tree: where it is, and its revision (``sha256:…`` over its content)."""

    path: str
    revision: str


def freeze(root: StageRoot, source: Path | None, now: Callable[[], int] = time.time_ns) -> Baseline:
    """The baseline of a folder (None: of an empty one), made now if this machine has none.

    Safe with many processes at once: one builds, under a lock, in a temporary folder that is then
    renamed. Raises ConfigError for a file that can't be part of a workspace, StageError or HostError
    when the copy fails.
    """
    if source is None:
        revision = f"sha256:{hashlib.sha256(b'').hexdigest()}"
        return Baseline(path=str(_built(root, None, revision)), revision=revision)
    try:
        revision = _revision(source, now())
    except OSError as error:
        raise StageError(f"the workspace {source} can't be read: {error.strerror}") from error
    return Baseline(path=str(_built(root, source, revision)), revision=revision)


def _revision(source: Path, now: int) -> str:
    """The fingerprint; where no stat of the folder changed, it is not read again for every rollout.

    Every change shows in a change time, save a second one in the same tick of the clock: a folder that
    changed just now is read again.
    """
    state, newest = _state(source)
    known = _known.get(source)
    if known is not None and known[0] == state:
        return known[1]
    revision = fingerprint(source)
    if newest < now - _SETTLED:
        _known[source] = state, revision
    return revision


def _state(folder: Path) -> tuple[str, int]:
    """A digest of all stats of a folder, and its newest change time."""
    digest, newest = hashlib.sha256(), 0
    for entry in _walk(folder):
        info = entry.stat
        seen = (info.st_dev, info.st_ino, info.st_mode, info.st_size, info.st_mtime_ns, info.st_ctime_ns)
        digest.update(repr((entry.path, seen)).encode())
        newest = max(newest, info.st_ctime_ns)
    return digest.hexdigest(), newest


def _built(root: StageRoot, source: Path | None, revision: str) -> Path:
    name = revision.removeprefix("sha256:")
    final = root.baselines / name
    if final.is_dir():
        return final
    with root.lock_baseline(name):
        if not final.is_dir():
            root.remove_unfinished(name)
            _build(root, source, revision, final)
    return final


def _build(root: StageRoot, source: Path | None, revision: str, final: Path) -> None:
    made = root.unfinished(final.name)
    try:
        made.mkdir(mode=0o700)
        if source is not None:
            _copy(source, made)
        os.chmod(made, 0o755)
        if source is not None and fingerprint(made) != revision:
            raise StageError(f"the workspace {source} changed while it was read")
        root.give(str(made), *(os.path.join(made, os.fsdecode(entry.path)) for entry in _walk(made)))
        os.rename(made, final)
    except OSError as error:
        kind = HostError if error.errno in (errno.ENOSPC, errno.EDQUOT) else StageError
        raise kind(f"the baseline of {source} can't be made: {error.strerror}") from error
    finally:
        if made.exists():
            remove_tree(str(made))


def fingerprint(folder: Path) -> str:
    """``sha256:`` over the sorted entries of a tree: path, type, executable bit, content or target.

    Each part is digested with its length, so no two trees share a form. Raises ConfigError for what
    can't be part of a workspace.
    """
    digest = hashlib.sha256()
    fd = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        for entry in sorted(_walk(folder), key=lambda entry: entry.path):
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
        for piece in _content(fd, folder, entry):
            content.update(piece)
        yield content.digest()
    elif stat.S_ISLNK(mode):
        yield b"link"
        yield os.readlink(os.path.join(os.fsencode(folder), entry.path))
    else:
        yield b"folder"


def _content(fd: int, folder: Path, entry: TreeEntry) -> Iterator[bytes]:
    try:
        with reading(fd, entry.path, force=False) as source:
            while piece := os.read(source, 1 << 20):
                yield piece
    except OSError as error:
        raise ConfigError(f"workspace {folder}: {show(entry.path)} can't be read: {error.strerror}") from None


def _walk(folder: Path) -> Iterator[TreeEntry]:
    fd = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        for entry in walk(fd, max_entries=MAX_ENTRIES, max_depth=MAX_DEPTH, skip=_SKIP, force=False):
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


def _copy(source: Path, target: Path) -> None:
    """Copy folders, files and links; of the mode only the executable bit, of the rest nothing."""
    top = os.fsencode(target)
    fd = os.open(source, os.O_PATH | os.O_DIRECTORY)
    try:
        for entry in _walk(source):
            place, mode = os.path.join(top, entry.path), entry.stat.st_mode
            if stat.S_ISDIR(mode):
                os.mkdir(place)
                os.chmod(place, 0o755)
            elif stat.S_ISLNK(mode):
                os.symlink(os.readlink(os.path.join(os.fsencode(source), entry.path)), place)
            else:
                with open(place, "xb") as written:
                    for piece in _content(fd, source, entry):
                        written.write(piece)
                os.chmod(place, 0o755 if mode & 0o111 else 0o644)
    finally:
        os.close(fd)
