"""Keep what an attempt changed: hash it and copy it into ``changes/``, within bounds.

The folder holds plain files that we own, mode 0600, never links, devices or the agent's modes; what
each was stands in the record. A bound that was hit is a finding, and the entry says ``stored: false``.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from pytest_rollout.bundle import Before, Change, Finding
from pytest_rollout.errors import InfraError, recording_error
from pytest_rollout.redaction.redactor import FORMS, Redactor
from pytest_rollout.redaction.stream import RedactedStream
from pytest_rollout.stage.changes import Delta, ListingBounds, list_changes, type_of
from pytest_rollout.stage.copying import data_ranges, write_at
from pytest_rollout.stage.tree import link_target, lstat, reading, show
from pytest_rollout.stage.view import View

__all__ = ["CollectBounds", "Collected", "collect"]

_PIECE = 1 << 20
_ZEROS = bytes(_PIECE)


class CollectBounds(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that are kept of one file and of all files of an attempt.

    ``hashed`` bytes are read besides, for the digests of what the baseline had and of files that are too large to keep.
    """

    file: int = 64 * 2**20
    total: int = 256 * 2**20
    hashed: int = 512 * 2**20
    listing: ListingBounds = ListingBounds()


class Collected(msgspec.Struct, frozen=True, kw_only=True):
    """What changed, in the order of paths, and what a reader has to know."""

    changes: tuple[Change, ...]
    findings: tuple[Finding, ...]


def collect(view: View, folder: Path, bounds: CollectBounds, redactor: Redactor = FORMS) -> Collected:
    """List the changes and copy the changed files below ``folder`` (made when first needed, in one that is there).

    The files stay as they are; a finding says of which secrets that ``redactor`` knows there are any.

    Raises RecordingError or HostError when our own disk can't hold them.
    """
    deltas, findings = list_changes(view, bounds.listing)
    changes: list[Change] = []
    hashing = _Hashing(bounds.hashed)
    left = bounds.total
    for delta in deltas:
        search = RedactedStream(redactor)
        change, used, finding = _keep(view, delta, folder, min(left, bounds.file), hashing, search)
        left -= used
        changes.append(change)
        if finding is not None:
            findings.append(finding)
        secrets = dict.fromkeys([*search.labels, *redactor.found(f"{change.path}\0{change.target or ''}")])
        if secrets:
            findings.append(Finding(code="secret", message=f"holds {', '.join(secrets)}", path=change.path))
        if change.links is not None and change.links > 1 and change.kind == "added":
            findings.append(Finding(code="hardlink", message=f"{change.links} hard links", path=change.path))
        if change.type in ("file", "dir") and change.mode and int(change.mode, 8) & 0o6000:
            findings.append(Finding(code="setuid", message=f"mode {change.mode}", path=change.path))
    if hashing.refused:
        message = f"what {hashing.refused} paths held before is not known: more than {bounds.hashed} bytes to read"
        findings.append(Finding(code="before.bytes", message=message))
    return Collected(changes=tuple(changes), findings=tuple(findings))


class _Hashing:
    """Digests of files that are not kept, as long as there are bytes left to read."""

    def __init__(self, left: int) -> None:
        self._left, self.refused = left, 0

    def digest(self, folder: int, path: bytes, size: int) -> str | None:
        """The digest of a file of this size, or None; raises OSError."""
        if size > self._left:
            return None
        found, used = hashlib.sha256(), 0
        with reading(folder, path) as source:
            while used < size and (piece := os.read(source, min(1 << 20, size - used))):
                found.update(piece)
                used += len(piece)
        self._left -= used
        return found.hexdigest() if used == size else None

    def before(self, view: View, delta: Delta) -> Before | None:
        """What the baseline has at a path; None for nothing, and where that can't be read."""
        if delta.kind == "added":
            return None
        try:
            return self._before(view.baseline, delta.path)
        except OSError:
            self.refused += 1
            return None

    def _before(self, baseline: int, path: bytes) -> Before | None:
        info = lstat(baseline, path)
        if info is None:
            return None
        kind, mode = type_of(info.st_mode), f"{stat.S_IMODE(info.st_mode):04o}"
        if kind == "symlink":
            return Before(type=kind, mode=mode, target=show(link_target(baseline, path)))
        if kind != "file":
            return Before(type=kind, mode=mode)
        digest = self.digest(baseline, path, info.st_size)
        self.refused += digest is None
        return Before(type=kind, mode=mode, size=info.st_size, sha256=digest)


def _keep(
    view: View, delta: Delta, folder: Path, allowed: int, hashing: _Hashing, search: RedactedStream
) -> tuple[Change, int, Finding | None]:
    kind, path, before = delta.type(), show(delta.path), hashing.before(view, delta)
    try:
        if delta.kind == "deleted" or kind == "dir":
            return delta.change(before=before), 0, None
        if kind == "symlink":
            return delta.change(target=show(link_target(view.layer, delta.path)), before=before), 0, None
        if kind != "file":
            return delta.change(before=before), 0, Finding(code="special", message=f"a {kind}, not a file", path=path)
        if delta.info.st_size > allowed:
            finding = Finding(code="changes.bytes", message=f"{delta.info.st_size} bytes: not kept", path=path)
            digest = hashing.digest(view.layer, delta.path, delta.info.st_size)
            return delta.change(sha256=digest, before=before), 0, finding
        with reading(view.layer, delta.path) as source:
            digest, used = _copy(source, folder, delta.path, allowed, search)
    except InfraError:
        raise
    except OSError as error:
        change = delta.change(before=before)
        if error.errno == errno.ENAMETOOLONG:  # the agent's doing, and bounded by the system
            return change, 0, Finding(code="changes.path", message="the path is too long to be kept", path=path)
        return change, 0, Finding(code="unreadable", message=error.strerror or str(error), path=path)
    return delta.change(sha256=digest, stored=True, before=before), used, None


def _open(folder: Path, path: bytes) -> int:
    """A new file of ours, at the same parts below ``folder``."""
    place = os.path.join(os.fsencode(folder), path)
    try:
        if not folder.exists():
            folder.mkdir(mode=0o700)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        return os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise
        raise recording_error("a changed file", folder, error) from error


def _copy(source: int, folder: Path, path: bytes, limit: int, search: RedactedStream) -> tuple[str, int]:
    """Hash the first ``limit`` bytes and write them; holes stay holes, so a sparse file takes no room of ours."""
    target = _open(folder, path)
    digest, at = hashlib.sha256(), 0
    try:
        size = min(limit, os.fstat(source).st_size)
        for start, end in (*data_ranges(source, size), (size, size)):
            for length in _pieces(start - at):
                digest.update(_ZEROS[:length])
            if at < start:
                search.feed(b"\0")
            at = start
            while at < end and (piece := os.pread(source, min(_PIECE, end - at), at)):
                digest.update(piece)
                search.feed(piece)
                _written(folder, lambda piece=piece, at=at: write_at(target, piece, at))  # type: ignore[misc]
                at += len(piece)
        search.close()
        _written(folder, lambda: os.ftruncate(target, at))
    finally:
        os.close(target)
    return digest.hexdigest(), at


def _pieces(length: int) -> Iterator[int]:
    while length > 0:
        yield min(length, _PIECE)
        length -= _PIECE


def _written(folder: Path, write: Callable[[], None]) -> None:
    try:
        write()
    except OSError as error:
        raise recording_error("a changed file", folder, error) from error
