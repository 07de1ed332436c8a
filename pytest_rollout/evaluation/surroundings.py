"""The data of a suite: files that its checks may read without naming them to anybody.

An evaluator revision knows the modules and the hidden files of a task. A body can also open a table beside it,
or run tests of a folder that only it names. What a control run showed holds as long as none of these changed,
so they are digested too, by path, size and time: coarsely, because a control run too many costs little, and
facts that are out of date cost a right solution its reward.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from pytest_rollout.identity import canonical_digest

__all__ = ["Surroundings"]

_MAX_FILES = 20_000
_LEFT_OUT = ("__pycache__", "node_modules")
_ENVIRONMENT = "pyvenv.cfg"

_Seen = tuple[str, int, int]  # path, bytes, time of the last change in nanoseconds


class Surroundings:
    """The data below a suite's root folder, listed once; ``without`` are paths that sessions write to themselves."""

    def __init__(self, root: Path, without: Iterable[Path] = ()) -> None:
        self._root = root
        self._without = {os.path.realpath(path) for path in without}
        self._seen: list[_Seen] | None = None
        self._listed = False
        self._digests: dict[Path, str | None] = {}

    def digest(self, folder: Path) -> str | None:
        """``sha256:…`` of the data around tests in ``folder``; None where there are too many files to know.

        That is every file but Python files, and Python files of folders below ``folder``: modules beside a
        test count with the evaluator revision where it imports them.
        """
        if folder not in self._digests:
            self._digests[folder] = self._digest(folder)
        return self._digests[folder]

    def _digest(self, folder: Path) -> str | None:
        if not folder.is_relative_to(self._root):
            return Surroundings(folder, map(Path, self._without)).digest(folder)
        if not self._listed:
            self._seen, self._listed = self._list(), True
        if self._seen is None:
            return None
        inside = os.path.join(os.path.relpath(folder, self._root), "").removeprefix("./")
        return canonical_digest([list(seen) for seen in self._seen if _counts(seen[0], inside)])

    def _list(self) -> list[_Seen] | None:
        found: list[_Seen] = []
        without = self._without | _open_files()
        pending = [os.fspath(self._root)]
        while pending:
            at = pending.pop()
            try:
                entries = sorted(os.scandir(at), key=lambda entry: entry.name)
            except OSError:
                continue
            if any(entry.name == _ENVIRONMENT for entry in entries):
                continue
            for entry in entries:
                if entry.name.startswith(".") or entry.name in _LEFT_OUT:
                    continue
                if os.path.realpath(entry.path) in without:
                    continue
                try:
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                        continue
                    info = entry.stat()
                except OSError:  # a link to nowhere, or gone meanwhile
                    continue
                if stat.S_ISREG(info.st_mode):
                    found.append((os.path.relpath(entry.path, self._root), info.st_size, info.st_mtime_ns))
                if len(found) > _MAX_FILES:
                    return None
        return sorted(found)


def _open_files() -> set[str]:
    """What this process and its parent have open: where a session is logged to is no data of its suite."""
    found: set[str] = set()
    for process in ("self", str(os.getppid())):
        place = f"/proc/{process}/fd"
        with suppress(OSError):
            for name in os.listdir(place):
                with suppress(OSError):
                    found.add(os.readlink(f"{place}/{name}"))
    return found


def _counts(path: str, inside: str) -> bool:
    if not path.endswith((".py", ".pyc")):
        return True
    return path.startswith(inside) and "/" in path.removeprefix(inside)
