"""Keep what an attempt changed: hash it and copy it into ``changes/``, within bounds.

The folder holds plain files that we own, mode 0600, never links, devices or the agent's modes; what
each was stands in the record. A bound that was hit is a finding, and the entry says ``stored: false``.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from pytest_rollout.bundle import Change, Finding
from pytest_rollout.errors import InfraError, recording_error
from pytest_rollout.redaction.redactor import FORMS, Redactor
from pytest_rollout.redaction.stream import RedactedStream
from pytest_rollout.stage.changes import Delta, ListingBounds, list_changes
from pytest_rollout.stage.copying import data_ranges, write_at
from pytest_rollout.stage.tree import open_path, reading, show
from pytest_rollout.stage.view import View

__all__ = ["CollectBounds", "Collected", "collect"]

_PIECE = 1 << 20
_ZEROS = bytes(_PIECE)


class CollectBounds(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that are kept of one file and of all files of an attempt."""

    file: int = 64 * 2**20
    total: int = 256 * 2**20
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
    left = bounds.total
    for delta in deltas:
        search = RedactedStream(redactor)
        change, used, finding = _keep(view, delta, folder, min(left, bounds.file), search)
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
    return Collected(changes=tuple(changes), findings=tuple(findings))


def _keep(
    view: View, delta: Delta, folder: Path, allowed: int, search: RedactedStream
) -> tuple[Change, int, Finding | None]:
    kind = delta.type()
    if delta.kind == "deleted" or kind == "dir":
        return delta.change(), 0, None
    path = show(delta.path)
    try:
        if kind == "symlink":
            return delta.change(target=_link_target(view.layer, delta.path)), 0, None
        if kind != "file":
            return delta.change(), 0, Finding(code="special", message=f"a {kind}, not a file", path=path)
        if delta.info.st_size > allowed:
            finding = Finding(code="changes.bytes", message=f"{delta.info.st_size} bytes: not kept", path=path)
            return delta.change(), 0, finding
        with reading(view.layer, delta.path) as source:
            digest, used = _copy(source, folder, delta.path, allowed, search)
    except InfraError:
        raise
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:  # the agent's doing, and bounded by the system
            return delta.change(), 0, Finding(code="changes.path", message="the path is too long to be kept", path=path)
        return delta.change(), 0, Finding(code="unreadable", message=error.strerror or str(error), path=path)
    return delta.change(sha256=digest, stored=True), used, None


def _link_target(where: int, path: bytes) -> str:
    fd = open_path(where, path)
    try:
        return show(os.readlink(b"", dir_fd=fd))
    finally:
        os.close(fd)


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
