"""Work that is put in an agent's place: files to lay over the stage, paths to remove, a script to run."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path

import msgspec

from pytest_rollout.bundle import BundleRecord

__all__ = ["Solution", "Work", "read_solution", "read_tree"]

_MAX_FILES, _MAX_BYTES = 2_000, 4 << 20


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """One piece of work: contents by path, which of them are programs, and a script for the rest.

    ``what`` is for people. ``in_process`` says that a verdict from a process that holds the candidate's code
    can't rule this out.
    """

    name: str
    what: str
    files: Mapping[str, bytes] = {}
    programs: frozenset[str] = frozenset()
    script: str = ""
    in_process: bool = False

    def write(self, folder: str) -> None:
        """Write the files below ``folder``."""
        for path, data in self.files.items():
            place = os.path.join(folder, path)
            os.makedirs(os.path.dirname(place), exist_ok=True)
            with open(place, "wb") as file:
                file.write(data)
            os.chmod(place, 0o755 if path in self.programs else 0o644)


class Solution(msgspec.Struct, frozen=True, kw_only=True):
    """What an oracle changed: new contents by path, those of the baseline, what it deleted and linked."""

    new: dict[str, bytes]
    old: dict[str, bytes]
    programs: frozenset[str] = frozenset()
    deleted: tuple[str, ...] = ()
    links: dict[str, str] = {}

    def script(self) -> str:
        """Shell lines for what is not a file."""
        lines = [f"rm -rf -- {shlex.quote(path)}" for path in self.deleted]
        lines += [f"ln -sfn -- {shlex.quote(target)} {shlex.quote(path)}" for path, target in self.links.items()]
        return "\n".join(lines)


def read_solution(record: BundleRecord, folder: Path, baseline: Mapping[str, bytes]) -> Solution:
    """The solution out of an oracle's evidence in ``folder``."""
    files = [change for change in record.changes if change.type == "file" and change.kind != "deleted"]
    stored = [change for change in files if change.stored][:_MAX_FILES]
    new = {change.path: (folder / "changes" / change.path).read_bytes() for change in stored}
    return Solution(
        new={path: data for path, data in new.items() if "__pycache__" not in path.split("/")},
        old={path: baseline[path] for path in new if path in baseline},
        programs=frozenset(change.path for change in stored if int(change.mode or "0", 8) & 0o111),
        deleted=tuple(change.path for change in record.changes if change.kind == "deleted"),
        links={c.path: c.target or "" for c in record.changes if c.type == "symlink" and c.kind != "deleted"},
    )


def read_tree(baseline: Path) -> dict[str, bytes]:
    """The files of a baseline by path, within bounds; of a huge file nothing."""
    found: dict[str, bytes] = {}
    for at, folders, names in os.walk(baseline):
        folders[:] = sorted(name for name in folders if name != ".git")
        for name in sorted(names):
            path = Path(at, name)
            if len(found) >= _MAX_FILES:
                return found
            if path.is_file() and not path.is_symlink() and path.stat().st_size <= _MAX_BYTES:
                found[path.relative_to(baseline).as_posix()] = path.read_bytes()
    return found
