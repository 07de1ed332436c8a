"""What checks may depend on without naming it to anybody: the files around a suite, its options, the environment.

An evaluator revision knows the modules, the data and the hidden files that a task names. A body can also open a file by
a name that it puts together, import by name, or ask for an option. What a control run showed holds as long as none of
that changed. So all of it is digested, files by path, size and times: coarsely, because a control run too many costs
little, and facts that are out of date cost a right solution its reward.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pytest_rollout.identity import canonical_digest

__all__ = ["Surroundings"]

_MAX_FILES = 20_000
_LEFT_OUT = frozenset(
    (
        *("__pycache__", "node_modules", ".git", ".hg", ".svn", ".venv", ".tox", ".nox", ".hypothesis", ".coverage"),
        *(".pytest_cache", ".mypy_cache", ".ruff_cache", ".idea", ".vscode"),
    )
)
_ENVIRONMENT = "pyvenv.cfg"
_OF_A_SHELL = frozenset(("COLUMNS", "LINES", "SHLVL", "_", "OLDPWD", "PWD", "TERM", "WINDOWID"))
_OF_A_LOGIN = ("PYTEST_", "SSH_", "XDG_")

_Seen = tuple[str, int, int, int]  # path, bytes, times of the last changes of content and of attributes


class Surroundings:
    """What is around the tests of one process; ``without`` are paths that sessions write to themselves.

    ``options`` are those of the session that a suite may ask for.
    """

    def __init__(self, root: Path, options: Mapping[str, Any] | None = None, without: Iterable[Path] = ()) -> None:
        self._root, self._options = root, {} if options is None else options
        self._without = {os.path.realpath(path) for path in without}
        self._digests: dict[Path, str | None] = {}

    def digest(self, folder: Path) -> str | None:
        """``sha256:…`` of what is around tests in ``folder``; None where there are too many files to know."""
        top = self._root if folder.is_relative_to(self._root) else folder
        if top not in self._digests:
            files = self._list(top)
            options = {name: repr(value) for name, value in self._options.items()}
            around = [files, options, _environment(), _installed()]
            self._digests[top] = None if files is None else canonical_digest(around)
        return self._digests[top]

    def _list(self, top: Path) -> list[_Seen] | None:
        found: list[_Seen] = []
        without = self._without | _written_files()
        pending, known = [os.path.realpath(top)], set[str]()
        while pending:
            at = pending.pop()
            try:
                entries = list(os.scandir(at))
            except OSError:
                continue
            if any(entry.name == _ENVIRONMENT for entry in entries):
                continue
            known.add(at)
            for entry in entries:
                place = os.path.realpath(entry.path) if entry.is_symlink() else entry.path
                if entry.name in _LEFT_OUT or place in without:
                    continue
                with suppress(OSError):  # a link to nowhere, or gone meanwhile
                    info = os.stat(place)
                    if stat.S_ISDIR(info.st_mode) and place not in known:
                        pending.append(place)
                    elif stat.S_ISREG(info.st_mode):
                        found.append((entry.path, info.st_size, info.st_mtime_ns, info.st_ctime_ns))
            if len(found) > _MAX_FILES:
                return None
        return sorted(found)


def _environment() -> dict[str, str]:
    """The variables, without those that differ from one terminal to the next."""
    kept = (name for name in os.environ if name not in _OF_A_SHELL and not name.startswith(_OF_A_LOGIN))
    return {name: os.environ[name] for name in kept}


def _installed() -> list[int]:
    """Times of the folders of modules outside: they change where a package is installed."""
    found = []
    for place in sys.path:
        with suppress(OSError):
            found.append(os.stat(place).st_mtime_ns if place.endswith("-packages") else 0)
    return found


def _written_files() -> set[str]:
    """What this process and its parent have open to write: where a session is logged to is no data of its suite."""
    found: set[str] = set()
    for process in ("self", str(os.getppid())):
        with suppress(OSError):
            for name in os.listdir(f"/proc/{process}/fd"):
                with suppress(OSError, ValueError):
                    mode = Path(f"/proc/{process}/fdinfo/{name}").read_text("ascii").split("flags:")[1].split()[0]
                    if int(mode, 8) & os.O_ACCMODE != os.O_RDONLY:
                        found.add(os.readlink(f"/proc/{process}/fd/{name}"))
    return found
