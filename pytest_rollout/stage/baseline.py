"""Baselines: the immutable tree that attempts start from, frozen once and named by its content.

Equal trees share one baseline, and a result can say which environment it comes from. Files become 0644 or 0755,
folders 0755, all owned by the agent's uid.

::

    <root>/baselines/<digest>/   a frozen tree; it has this name only when it is whole
    <root>/seals/<digest>        what its stats were: see :mod:`pytest_rollout.stage.seal`
    <root>/known/<digest>        of a large folder: what its stats were, and its fingerprint

A process that uses a baseline for the first time sees whether it is still what its name says; one that is not is made
again, and that is told.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import stat
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from pytest_rollout.errors import HostError, StageError
from pytest_rollout.stage.fingerprint import SKIPPED, State, contents, entries_of, fingerprint, state
from pytest_rollout.stage.removal import remove_tree
from pytest_rollout.stage.root import SOURCES, StageRoot
from pytest_rollout.stage.seal import intact, seal

__all__ = ["Baseline", "freeze", "frozen"]

_SETTLED = 2 * 10**9  # nanoseconds
_LARGE = 200  # entries of a folder whose fingerprint is worth keeping
_REVISION = re.compile(r"sha256:[0-9a-f]{64}")
_FORMAT = 1  # of fingerprints and states
_known: dict[Path, tuple[str, str]] = {}  # of a folder: what its stats were, and its fingerprint


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """A frozen tree: where it is, and its revision (``sha256:…`` over its content).

    ``note`` is what somebody has to know of it: that it had been altered, and was made again.
    """

    path: str
    revision: str
    note: str = ""


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """The fingerprint that a folder had when its stats were these."""

    format: int
    folder: str
    state: str
    revision: str


def freeze(root: StageRoot, source: Path | None, now: Callable[[], int] = time.time_ns) -> Baseline:
    """The baseline of a folder (None: of an empty one), made now if this machine has none.

    Safe with many processes at once: one builds, under a lock, in a temporary folder that is then
    renamed. Raises ConfigError for a file that can't be part of a workspace, StageError or HostError
    when the copy fails.
    """
    if source is None:
        return _built(root, None, f"sha256:{hashlib.sha256(b'').hexdigest()}")
    try:
        revision = _revision(root, source, now())
    except OSError as error:
        raise StageError(f"the workspace {source} can't be read: {error.strerror}") from error
    return _built(root, source, revision)


def frozen(root: StageRoot, revision: str) -> Baseline | None:
    """The baseline of a revision, if this machine has it and it is right; it stays as long as this process.

    Raises StageError or HostError.
    """
    if not _REVISION.fullmatch(revision):
        return None
    name = revision.removeprefix("sha256:")
    final = root.baselines / name
    try:
        root.hold(name)
        with root.lock_baseline(name):
            if not final.is_dir() or not intact(final, root.seals / name, lambda: _is_right(root, final, revision)):
                return None
    except OSError as error:
        raise _failure(error)(f"the baseline {revision} can't be read: {error.strerror}") from error
    root.verified.add(name)
    return Baseline(path=str(final), revision=revision)


def _revision(root: StageRoot, source: Path, now: int) -> str:
    """The fingerprint; where no stat of the folder changed, it is not read again, by no session.

    Every change shows in a change time, save a second one in the same tick of the clock: a folder that
    changed just now is read again. A prepared source was looked at when it was asked for, and never changes.
    """
    known = _known.get(source)
    if known is not None and source.parent.parent == root.path / SOURCES:
        return known[1]
    found = state(source)
    place = root.path / "known" / hashlib.sha256(os.fsencode(source)).hexdigest()[:32]
    if known is None and found.count >= _LARGE:
        known = _read_known(place, source)
    if known is not None and known[0] == found.digest:
        _known[source] = known
        return known[1]
    revision = fingerprint(source)
    if found.newest < now - _SETTLED:
        _known[source] = found.digest, revision
        if found.count >= _LARGE:
            _keep_known(place, source, found, revision)
    return revision


def _read_known(place: Path, source: Path) -> tuple[str, str] | None:
    try:
        known = msgspec.json.decode(place.read_bytes(), type=Known)
    except (OSError, msgspec.MsgspecError):
        return None
    return (known.state, known.revision) if (known.format, known.folder) == (_FORMAT, os.fspath(source)) else None


def _keep_known(place: Path, source: Path, found: State, revision: str) -> None:
    """Keep a fingerprint for later sessions; it costs time not to have it, and nothing else."""
    try:
        place.parent.mkdir(mode=0o700, exist_ok=True)
        known = Known(format=_FORMAT, folder=os.fspath(source), state=found.digest, revision=revision)
        made = place.with_name(f".{place.name}-{secrets.token_hex(4)}")
        made.write_bytes(msgspec.json.encode(known))
        made.replace(place)
    except (OSError, UnicodeEncodeError):
        pass


def _built(root: StageRoot, source: Path | None, revision: str) -> Baseline:
    name = revision.removeprefix("sha256:")
    final = root.baselines / name
    try:
        root.hold(name)
        if name not in root.verified or not final.is_dir():
            with root.lock_baseline(name):
                _verify(root, source, revision, final)
            root.verified.add(name)
    except OSError as error:
        raise _failure(error)(f"the baseline of {source} can't be made: {error.strerror}") from error
    return Baseline(path=str(final), revision=revision, note=root.rebuilt.get(name, ""))


def _verify(root: StageRoot, source: Path | None, revision: str, final: Path) -> None:
    """See that a baseline is there and is right; its lock is held."""
    place = root.seals / final.name
    if final.is_dir():
        if intact(final, place, lambda: _is_right(root, final, revision)):
            return
        said = f"the baseline {revision[:19]}… had been altered on this machine, and was made again"
        root.rebuilt[final.name] = said
        os.rename(final, root.unfinished(final.name))
    root.remove_unfinished(final.name)
    _build(root, source, revision, final)
    seal(final, place)


def _is_right(root: StageRoot, final: Path, revision: str) -> bool:
    """Whether every file of a baseline is as it was made: content, mode and owner, and no file more."""
    owner = (root.owner.uid, root.owner.gid)
    for info in (os.lstat(final), *(entry.stat for entry in entries_of(final, skip=frozenset()))):
        modes = (0o644, 0o755) if stat.S_ISREG(info.st_mode) else (0o755,)
        if (info.st_uid, info.st_gid) != owner:
            return False
        if not stat.S_ISLNK(info.st_mode) and stat.S_IMODE(info.st_mode) not in modes:
            return False
    extra = any(
        entry.is_folder and entry.path.rpartition(b"/")[2] in SKIPPED for entry in entries_of(final, skip=frozenset())
    )
    return not extra and fingerprint(final) == revision


def _failure(error: OSError) -> type[HostError | StageError]:
    return HostError if error.errno in (errno.ENOSPC, errno.EDQUOT) else StageError


def _build(root: StageRoot, source: Path | None, revision: str, final: Path) -> None:
    made = root.unfinished(final.name)
    try:
        made.mkdir(mode=0o700)
        if source is not None:
            _copy(source, made)
        os.chmod(made, 0o755)
        if source is not None and fingerprint(made) != revision:
            raise StageError(f"the workspace {source} changed while it was read")
        root.give(str(made), *(os.path.join(made, os.fsdecode(entry.path)) for entry in entries_of(made)))
        os.rename(made, final)
    finally:
        if made.exists():
            remove_tree(str(made))


def _copy(source: Path, target: Path) -> None:
    """Copy folders, files and links; of the mode only the executable bit, of the rest nothing."""
    top = os.fsencode(target)
    fd = os.open(source, os.O_PATH | os.O_DIRECTORY)
    try:
        for entry in entries_of(source):
            place, mode = os.path.join(top, entry.path), entry.stat.st_mode
            if stat.S_ISDIR(mode):
                os.mkdir(place)
                os.chmod(place, 0o755)
            elif stat.S_ISLNK(mode):
                os.symlink(os.readlink(os.path.join(os.fsencode(source), entry.path)), place)
            else:
                with open(place, "xb") as written:
                    for piece in contents(fd, source, entry):
                        written.write(piece)
                os.chmod(place, 0o755 if mode & 0o111 else 0o644)
    finally:
        os.close(fd)
