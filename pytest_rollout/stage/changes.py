"""What an attempt changed: the differences between a stage and its baseline, within bounds.

An overlay is listed from its upper layer, so the cost is that of the changes, whatever the size of
the baseline. A file that was only copied up (its content and mode are those of the baseline) is no
change. A copied stage is compared entry by entry.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Callable, Iterator

import msgspec

from pytest_rollout.bundle import Before, Change, ChangeKind, FileType, Finding
from pytest_rollout.stage.fingerprint import MAX_DEPTH, MAX_ENTRIES
from pytest_rollout.stage.tree import Bound, TreeEntry, entries, link_target, lstat, reading, show, walk
from pytest_rollout.stage.view import CopyView, OverlayView, View, is_opaque, is_whiteout

__all__ = ["Delta", "ListingBounds", "list_changes", "type_of"]


class ListingBounds(msgspec.Struct, frozen=True, kw_only=True):
    """How much is listed: changed entries (of one folder and in all), levels of folders, bytes of paths and links."""

    entries: int = 50_000
    depth: int = 200
    paths: int = 8 * 2**20


class Delta(msgspec.Struct, frozen=True, kw_only=True):
    """One difference, with the bytes of its path; :class:`Change` is its form for the record."""

    path: bytes
    kind: ChangeKind
    info: os.stat_result

    def type(self) -> FileType:
        return type_of(self.info.st_mode)

    def change(
        self,
        *,
        sha256: str | None = None,
        stored: bool = False,
        target: str | None = None,
        before: Before | None = None,
    ) -> Change:
        kind, deleted = self.type(), self.kind == "deleted"
        return Change(
            path=show(self.path),
            kind=self.kind,
            type=kind,
            mode=None if deleted else f"{stat.S_IMODE(self.info.st_mode):04o}",
            size=self.info.st_size if kind == "file" and not deleted else None,
            sha256=sha256,
            target=target,
            links=self.info.st_nlink if kind == "file" and not deleted else None,
            stored=stored,
            before=before,
        )


_TYPES: tuple[tuple[Callable[[int], bool], FileType], ...] = (
    (stat.S_ISREG, "file"),
    (stat.S_ISDIR, "dir"),
    (stat.S_ISLNK, "symlink"),
    (stat.S_ISFIFO, "fifo"),
    (stat.S_ISSOCK, "socket"),
)


def type_of(mode: int) -> FileType:
    """What a mode says that something is."""
    return next((name for test, name in _TYPES if test(mode)), "device")


_UNITS = {"entries": "entries", "depth": "levels of folders", "paths": "bytes of paths"}


def list_changes(view: View, bounds: ListingBounds) -> tuple[list[Delta], list[Finding]]:
    """The differences in the order of their paths, and a finding for a bound that was hit."""
    source = _of_overlay(view, bounds) if isinstance(view, OverlayView) else _of_copy(view, bounds)
    found: list[Delta] = []
    findings: list[Finding] = []
    named = 0
    try:
        for delta in source:
            named += len(delta.path) + (delta.info.st_size if stat.S_ISLNK(delta.info.st_mode) else 0)
            if named > bounds.paths:
                raise Bound("paths", bounds.paths)
            if len(found) >= bounds.entries:
                raise Bound("entries", bounds.entries)
            found.append(delta)
    except Bound as bound:
        findings.append(
            Finding(code=f"changes.{bound.what}", message=f"the listing stopped at {bound.limit} {_UNITS[bound.what]}")
        )
    except OSError as error:
        findings.append(Finding(code="changes.unreadable", message=f"the listing stopped: {error.strerror}"))
    return sorted(found, key=lambda delta: delta.path), findings


def _of_overlay(view: OverlayView, bounds: ListingBounds) -> Iterator[Delta]:
    """Walk the upper layer level by level.

    ``known`` says that the baseline has a folder there too, ``hidden`` that it does not show through:
    the folder, or one above it, was made anew.
    """
    pending = deque([(b"", True, False, 1)])
    while pending:
        at, known, hidden, depth = pending.popleft()
        if depth > bounds.depth:
            raise Bound("depth", bounds.depth)
        hidden = hidden or (bool(at) and known and is_opaque(view.upper, at))
        listed = entries(view.upper, at, depth, bounds.entries)
        for entry in listed:
            base = lstat(view.baseline, entry.path) if known else None
            if is_whiteout(entry.stat):
                if base is not None:
                    yield from _deleted(view.baseline, entry.path, base, bounds)
                continue
            yield from _compare(view, view.upper, entry, base)
            if entry.is_folder:
                pending.append((entry.path, base is not None and stat.S_ISDIR(base.st_mode), hidden, depth + 1))
            if base is not None and stat.S_ISDIR(base.st_mode) and not entry.is_folder:
                yield from _deleted(view.baseline, entry.path, base, bounds, root=False)
        if known and hidden:
            kept = {entry.path for entry in listed}
            for entry in entries(view.baseline, at, depth, bounds.entries):
                if entry.path not in kept:
                    yield from _deleted(view.baseline, entry.path, entry.stat, bounds)


def _of_copy(view: View, bounds: ListingBounds) -> Iterator[Delta]:
    assert isinstance(view, CopyView)
    known = {entry.path: entry.stat for entry in walk(view.baseline, max_entries=MAX_ENTRIES, max_depth=MAX_DEPTH)}
    for entry in walk(view.copy, max_entries=len(known) + bounds.entries, max_depth=bounds.depth):
        yield from _compare(view, view.copy, entry, known.pop(entry.path, None))
    for path, info in known.items():
        yield Delta(path=path, kind="deleted", info=info)


def _compare(view: View, layer: int, entry: TreeEntry, base: os.stat_result | None) -> Iterator[Delta]:
    if base is None:
        yield Delta(path=entry.path, kind="added", info=entry.stat)
    elif not _same(view.baseline, layer, entry, base):
        yield Delta(path=entry.path, kind="modified", info=entry.stat)


def _same(baseline: int, layer: int, entry: TreeEntry, base: os.stat_result) -> bool:
    now = entry.stat
    if now.st_mode != base.st_mode:
        return False
    if stat.S_ISREG(now.st_mode):
        return now.st_size == base.st_size and _equal_content(baseline, layer, entry.path)
    if stat.S_ISLNK(now.st_mode):
        return link_target(baseline, entry.path) == link_target(layer, entry.path)
    return stat.S_ISDIR(now.st_mode)


def _equal_content(baseline: int, layer: int, path: bytes) -> bool:
    with reading(baseline, path) as old, reading(layer, path) as new:
        while True:
            left, right = os.read(old, 1 << 20), os.read(new, 1 << 20)
            if left != right:
                return False
            if not left:
                return True


def _deleted(
    baseline: int, path: bytes, base: os.stat_result, bounds: ListingBounds, *, root: bool = True
) -> Iterator[Delta]:
    """A path that is gone, and everything that the baseline had below it."""
    if root:
        yield Delta(path=path, kind="deleted", info=base)
    if stat.S_ISDIR(base.st_mode):
        for entry in walk(baseline, path, max_entries=bounds.entries, max_depth=bounds.depth):
            yield Delta(path=entry.path, kind="deleted", info=entry.stat)
