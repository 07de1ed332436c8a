"""Kept stages: who keeps one, how much it holds, and removing it.

::

    <root>/kept/<opaque>/      the stage
    <root>/keepers/<opaque>    the folder of the attempt whose record names it

So a stage whose results somebody removed by hand is known for one that nobody wants.
"""

from __future__ import annotations

import json
import os
import re
import stat
import time
from pathlib import Path

from pytest_rollout.stage.removal import remove_tree

__all__ = ["disk_usage", "is_kept_stage", "is_wanted", "name_keeper", "remove_kept"]

_RUNS = 4  # levels from the folder of an attempt to that of the runs
_ABSENT = 30 * 86_400.0  # seconds
_NAME = re.compile(r"[0-9a-f]{16}")


def name_keeper(stage: str, attempt: Path) -> None:
    """Write beside a kept stage which attempt it is of. Raises OSError."""
    place = _keeper(Path(stage))
    if os.path.isdir(stage):
        place.parent.mkdir(mode=0o700, exist_ok=True)
        place.write_bytes(os.fsencode(attempt.absolute()))


def _keeper(stage: Path) -> Path:
    return stage.parent.parent / "keepers" / stage.name


def is_kept_stage(stage: Path) -> bool:
    """Whether a path has the form of a kept stage, in a stage root of this user's own."""
    root = stage.parent.parent
    try:
        ours = os.lstat(root).st_uid == os.geteuid() and (root / "leases").is_dir()
    except OSError:
        return False
    return ours and stage.is_absolute() and stage.parent.name == "kept" and _NAME.fullmatch(stage.name) is not None


def is_wanted(stage: Path) -> bool:
    """Whether the attempt that keeps a stage still names it, or that can't be told.

    Where the whole folder of results is not there, it may be moved, or on another disk: wait for some time.
    """
    try:
        attempt = Path(os.fsdecode(_keeper(stage).read_bytes()))
    except OSError:
        return True  # an older version kept it, or it is being kept now
    try:
        named = json.loads((attempt / "bundle.json").read_bytes()).get("stage")
    except FileNotFoundError:
        return not attempt.parents[_RUNS].is_dir() and time.time() - _keeper(stage).stat().st_mtime < _ABSENT
    except (OSError, ValueError, AttributeError):
        return True
    return named is None or Path(named) == stage  # a record that does not name it yet is about to


def remove_kept(stage: Path) -> str | None:
    """Remove a kept stage; returns what went wrong, or None."""
    try:
        os.chmod(stage / "w" / "work", 0o700)  # the kernel leaves it with mode 000
    except OSError:
        pass
    problem = remove_tree(str(stage))
    if problem is None:
        _keeper(stage).unlink(missing_ok=True)
    return problem


def disk_usage(path: Path) -> int:
    """Bytes on the disk at and below a path, as far as they can be counted; nothing is followed."""
    total, pending = 0, [os.fspath(path)]
    while pending:
        place = pending.pop()
        try:
            info = os.lstat(place)
            total += info.st_blocks * 512
            if stat.S_ISDIR(info.st_mode):
                pending += [os.path.join(place, name) for name in os.listdir(place)]
        except OSError:
            continue
    return total
