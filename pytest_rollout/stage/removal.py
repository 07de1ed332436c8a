"""Remove a tree that a hostile agent wrote: mode-000 folders, thousands of levels, any name."""

from __future__ import annotations

import os
import shutil
import subprocess

__all__ = ["remove_tree"]


def remove_tree(path: str) -> str | None:
    """Remove ``path`` and everything below it, following nothing. Returns what went wrong, or None."""
    try:
        if os.path.islink(path) or os.path.isfile(path):
            os.unlink(path)
        else:
            shutil.rmtree(path)
    except FileNotFoundError:
        return None if not os.path.lexists(path) else _by_command(path)
    except (OSError, RecursionError):
        return _by_command(path)
    return None


def _by_command(path: str) -> str | None:
    """``rm -rf`` goes deeper than Python does; modes are opened first, from the top down."""
    said = b""
    for _ in range(2):
        subprocess.run(["chmod", "-R", "u+rwX", "--", path], capture_output=True, check=False)
        said = subprocess.run(["rm", "-rf", "--one-file-system", "--", path], capture_output=True, check=False).stderr
        if not os.path.lexists(path):
            return None
    return os.fsdecode(said).strip()[:200] or f"{path} is still there"
