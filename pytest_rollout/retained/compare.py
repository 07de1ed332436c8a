"""What a folder has at a path, beside what a baseline had there and what a change makes of it."""

from __future__ import annotations

import unicodedata

from pytest_rollout.bundle import Before, Change
from pytest_rollout.retained.left import is_git
from pytest_rollout.retained.target import Found
from pytest_rollout.stage.tree import show, unshow

__all__ = ["MODES", "folded", "is_after", "is_before", "leads_out", "of_before", "of_found"]

MODES = 0o777  # no setuid, setgid or sticky bit


def is_after(found: Found | None, change: Change) -> bool:
    """Whether the folder has already what the change makes; raises OSError."""
    if change.kind == "deleted" or found is None:
        return found is None and change.kind == "deleted"
    mode = int(change.mode or "0755", 8) & MODES
    about_mode = change.before is not None and change.before.type == change.type and change.before.mode != change.mode
    fits = found.info.st_mode & MODES == mode if about_mode else True
    if change.type == "dir":
        return found.is_folder and fits
    if change.type == "symlink":
        return found.is_link and found.target() == unshow(change.target or "")
    if not found.is_file or found.info.st_size != change.size or change.sha256 is None:
        return False
    return fits and found.executable is bool(mode & 0o111) and found.sha256() == change.sha256


def is_before(found: Found | None, before: Before | None) -> bool:
    """Whether the folder has what the baseline had; raises OSError."""
    if before is None or found is None:
        return before is None and found is None
    if before.type == "dir":
        return found.is_folder
    if before.type == "symlink":
        return found.is_link and found.target() == unshow(before.target or "")
    if not found.is_file or found.info.st_size != before.size or before.sha256 is None:
        return False
    return found.executable is bool(int(before.mode, 8) & 0o111) and found.sha256() == before.sha256


def of_before(before: Before | None) -> str:
    """What the baseline had, in words."""
    if before is None:
        return "nothing"
    if before.type == "file":
        executable = "executable " if int(before.mode, 8) & 0o111 else ""
        return f"the {executable}file of {before.size} bytes that the baseline had"
    return f"a link to {before.target!r}" if before.type == "symlink" else "a folder"


def of_found(found: Found | None) -> str:
    """What is there, in words; raises OSError."""
    if found is None:
        return "nothing"
    if found.is_file:
        return f"{'an executable' if found.executable else 'a'} file of {found.info.st_size} bytes"
    if found.is_link:
        return f"a link to {show(found.target())!r}"
    return "a folder" if found.is_folder else "something else"


def leads_out(path: bytes, target: bytes) -> bool:
    """Whether a link may point out of the folder, or into a repository's data."""
    parts = [part for part in target.split(b"/") if part not in (b"", b".")]
    up = 0
    while up < len(parts) and parts[up] == b"..":
        up += 1
    beyond = b".." in parts[up:] or up > path.count(b"/")  # ``..`` behind a name may be that of another link
    return target.startswith(b"/") or not target or beyond or is_git(target)


def folded(name: bytes) -> str:
    """A name as a file system may take it that knows no case, or writes accents in another way."""
    return unicodedata.normalize("NFC", name.decode("utf-8", "surrogateescape")).casefold()
