"""The change of a rollout, path by path, as a difference against its baseline.

Deletions and edits need the baseline, which may be gone; additions do not. What can't be shown is told with the
reason, never left out silently.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from pytest_rollout.bundle import Before, Change
from pytest_rollout.retained.gitpatch import FilePatch, Version, file_patch
from pytest_rollout.retained.left import Left, Unavailable, is_git, veiled
from pytest_rollout.stage.tree import unshow

__all__ = ["PathDifference", "differences"]

_MAX_BYTES = 64 * 2**20
_SPECIAL = ("fifo", "socket", "device")


class PathDifference(msgspec.Struct, frozen=True, kw_only=True):
    """One changed path. ``patch`` is None where there is nothing that git knows of, or where it can't be shown.

    ``missing`` says why a difference is not whole without it; ``note`` what a reader should know besides.
    """

    change: Change
    patch: FilePatch | None = None
    missing: str | None = None
    note: str | None = None


def differences(left: Left, changes: Sequence[Change], *, binary: bool) -> Iterator[PathDifference]:
    """The difference of each change; folders as such are none of git's."""
    full = {change.path.rpartition("/")[0] for change in changes if change.kind != "deleted"}
    for change in changes:
        if is_git(unshow(change.path)):
            yield PathDifference(change=change, note="is of a repository's own data, and left out")
        elif (why := veiled(change)) is not None:
            yield PathDifference(change=change, missing=why)
        elif change.kind != "deleted" and change.type in _SPECIAL:
            yield PathDifference(change=change, missing=f"is a {change.type}")
        elif change.type == "dir" and (change.before is None or change.before.type == "dir"):
            empty = change.kind == "added" and change.path not in full
            yield PathDifference(change=change, note="is an empty folder" if empty else None)
        else:
            yield _difference(left, change, binary=binary)


def _difference(left: Left, change: Change, *, binary: bool) -> PathDifference:
    try:
        old, new = _old(left, change), _new(left, change)
    except Unavailable as error:
        return PathDifference(change=change, missing=str(error))
    patch = file_patch(unshow(change.path), old, new, binary=binary)
    only_mode = old == new and change.before is not None and change.before.mode != change.mode
    note = f"has mode {change.mode}, which git does not know apart" if only_mode else None
    return PathDifference(change=change, patch=None if old == new else patch, note=note)


def _old(left: Left, change: Change) -> Version | None:
    before = change.before
    if change.kind == "added":
        return None
    if before is None:
        raise Unavailable("what the baseline had is not in the record")
    if before.type == "dir":
        return None
    if before.type == "symlink":
        return Version(mode="120000", data=unshow(before.target or ""))
    return Version(mode=_mode(before), data=_whole(left.old(change), before.size))


def _new(left: Left, change: Change) -> Version | None:
    if change.kind == "deleted" or change.type == "dir":
        return None
    if change.type == "symlink":
        return Version(mode="120000", data=unshow(change.target or ""))
    return Version(mode=_mode(change), data=_whole(left.new(change), change.size))


def _mode(what: Change | Before) -> str:
    return "100755" if int(what.mode or "0644", 8) & 0o100 else "100644"


def _whole(pieces: Iterator[bytes], size: int | None) -> bytes:
    if size is None or size > _MAX_BYTES:
        raise Unavailable(f"{size} bytes are too many for a difference")
    return b"".join(pieces)
