"""Finished attempts, and folders to take their changes over into."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from pytest_rollout.agents.command import CommandAgent
from pytest_rollout.agents.protocol import Episode
from pytest_rollout.attempt import Request, run_attempt
from pytest_rollout.bundle import BundleRecord
from pytest_rollout.executors.cancel import Cancel
from pytest_rollout.retained.left import Left
from pytest_rollout.stage.collect import CollectBounds
from pytest_rollout.store.folder import read_record, write_record
from pytest_rollout.task import Folder, Task

if TYPE_CHECKING:
    from tests.unit.conftest import Lab

Edit = Callable[[BundleRecord], BundleRecord]


class Work:
    """An agent's work over a workspace, and copies of that workspace."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab, self.folder = lab, folder
        self.space = folder / "space"
        self.space.mkdir()
        self._count = 0

    def left(self, command: str, *, keep: bool = False, bounds: CollectBounds | None = None) -> Left:
        """What an agent leaves that runs this command."""
        self._count += 1
        attempt = self.folder / f"attempt-{self._count}"
        attempt.mkdir()
        task = Task(id="t", workspace=Folder(path=str(self.space)))
        request = Request(
            run="r",
            node="n",
            episode=Episode(rollout="3f9ac01d-t-s0", task=task, sample=0, attempt=1, seed=0),
            plugin_version="0.1",
            bounds=bounds or CollectBounds(),
        )
        made = run_attempt(
            request,
            agent=CommandAgent(name="a", command=command),
            executor=self.lab.executor,
            folder=attempt,
            cancel=Cancel(),
        )
        assert made.infra is None, made.infra
        assert made.record is not None and made.record.exit_code == 0, (attempt / "stderr").read_text()
        assert made.finish(keep=keep) == []
        return Left(attempt, self.lab.root.path)

    def edited(self, left: Left, edit: Edit) -> Left:
        """The same evidence with another record."""
        record = read_record(left.folder / "bundle.json", BundleRecord)
        write_record(left.folder / "bundle.json", edit(record))
        return Left(left.folder, self.lab.root.path)

    def copy(self) -> Path:
        """A folder that holds what the workspace does."""
        self._count += 1
        there = self.folder / f"there-{self._count}"
        shutil.copytree(self.space, there, symlinks=True)
        return there


def tree(top: Path) -> dict[str, str]:
    """Every path below a folder, but for a repository: type, mode and content."""
    found = {}
    for at, folders, names in os.walk(os.fsencode(top)):
        folders[:] = [name for name in folders if name != b".git"]
        for name in (*folders, *names):
            place = os.path.join(at, name)
            info = os.lstat(place)
            mode = f"{stat.S_IMODE(info.st_mode):o}"
            if stat.S_ISLNK(info.st_mode):
                said = f"-> {os.fsdecode(os.readlink(place))}"
            elif stat.S_ISDIR(info.st_mode):
                said = f"folder {mode}"
            else:
                with open(place, "rb") as file:
                    said = f"{mode} {file.read()!r}"
            found[os.fsdecode(os.path.relpath(place, os.fsencode(top)))] = said
    return found


def replaced(name: str, **fields: object) -> Edit:
    """Changes the fields of one change of a record."""

    def edit(record: BundleRecord) -> BundleRecord:
        changes = [
            msgspec.structs.replace(change, **fields) if change.path == name else change for change in record.changes
        ]
        assert changes != list(record.changes)
        return msgspec.structs.replace(record, changes=tuple(changes))

    return edit


@pytest.fixture
def work(sandbox: Lab, tmp_path: Path) -> Work:
    """A workspace with a file, a program, a folder and a link."""
    (tmp_path / "work").mkdir()
    made = Work(sandbox, tmp_path / "work")
    space = made.space
    (space / "a.txt").write_text("".join(f"line {number}\n" for number in range(20)))
    (space / "run.sh").write_text("echo\n")
    (space / "gone.txt").write_text("gone\n")
    (space / "d/e").mkdir(parents=True)
    (space / "d/e/f").write_text("f\n")
    (space / "d/g").write_bytes(b"\0\1binary\n" * 100)
    (space / "link").symlink_to("a.txt")
    (space / "to-folder").write_text("x\n")
    (space / "odd \n\xff").write_text("odd")
    return made
