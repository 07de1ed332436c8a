"""Remove a tree that a hostile agent wrote: mode-000 folders, thousands of levels, any name."""

from __future__ import annotations

import os
import subprocess

__all__ = ["remove_tree"]

_DEEPEST = 100  # levels that are gone through here; each holds a descriptor
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(path: str) -> str | None:
    """Remove ``path`` and everything below it, following nothing. Returns what went wrong, or None."""
    try:
        if os.path.islink(path) or os.path.isfile(path):
            os.unlink(path)
        else:
            _empty(path, None, 1)
            os.rmdir(path)
    except FileNotFoundError:
        return None if not os.path.lexists(path) else _by_command(path)
    except (OSError, _TooDeepError):
        return _by_command(path)
    return None


class _TooDeepError(Exception):
    """A tree has more levels than are gone through here."""


def _empty(name: str, above: int | None, level: int) -> None:
    """Remove what is in a folder. Levels are counted: where Python's own limit strikes, descriptors stay open."""
    if level > _DEEPEST:
        raise _TooDeepError
    fd = os.open(name, _FOLDER, dir_fd=above)
    try:
        with os.scandir(fd) as listing:
            found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in listing]
        for below, is_folder in found:
            if is_folder:
                _empty(below, fd, level + 1)
                os.rmdir(below, dir_fd=fd)
            else:
                os.unlink(below, dir_fd=fd)
    finally:
        os.close(fd)


def _by_command(path: str) -> str | None:
    """``rm -rf`` goes as deep as it takes; modes are opened first, from the top down."""
    said = b""
    for _ in range(2):
        subprocess.run(["chmod", "-R", "u+rwX", "--", path], capture_output=True, check=False)
        said = subprocess.run(["rm", "-rf", "--one-file-system", "--", path], capture_output=True, check=False).stderr
        if not os.path.lexists(path):
            return None
    return os.fsdecode(said).strip()[:200] or f"{path} is still there"
