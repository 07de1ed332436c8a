"""Inspecting a rollout: the kept stage, or the same tree rebuilt from its evidence."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from pytest_rollout.agents.command import CommandAgent
from pytest_rollout.agents.protocol import Episode
from pytest_rollout.attempt import Request, run_attempt
from pytest_rollout.bundle import BundleRecord
from pytest_rollout.errors import RolloutError, SelectorError
from pytest_rollout.executors.cancel import Cancel
from pytest_rollout.inspection import inspect
from pytest_rollout.stage.collect import CollectBounds
from pytest_rollout.stage.removal import remove_tree
from pytest_rollout.store.folder import read_record
from pytest_rollout.task import Folder, Task

if TYPE_CHECKING:
    from tests.unit.conftest import Lab

TREE = r"find . -mindepth 1 -printf '%P %y %m %l|' '(' -type f -exec cat {} ';' -o -true ')' -printf '\n' | sort"
WORKSPACE = {
    "kept.txt": "kept\n",
    "changed.txt": "old\n",
    "gone.txt": "gone\n",
    "gone/a/b": "b\n",
    "gone/c": "c\n",
    "part/gone": "x\n",
    "part/kept": "y\n",
    "anew/old": "old\n",
    "anew/same": "same\n",
    "file-to-folder": "f\n",
    "folder-to-file/a/b": "b\n",
    "folder-to-link/a": "a\n",
    "file-to-link": "a\n",
    "mode.sh": "true\n",
    "dir-mode/a": "a\n",
    "empty/.keep": "",
}
CHANGES = """
umask 022
echo new > changed.txt
rm -r gone.txt gone part/gone
rm -r anew; mkdir anew; echo new > anew/new; echo same > anew/same
rm file-to-folder; mkdir -p file-to-folder/a; echo x > file-to-folder/a/b
rm -r folder-to-file; printf '' > folder-to-file
rm -r folder-to-link; ln -s /etc/passwd folder-to-link
rm file-to-link; ln -s nowhere file-to-link
rm link-to-folder; mkdir link-to-folder; echo x > link-to-folder/a
ln -sfn kept.txt link-changed
rm link-gone
chmod 755 mode.sh; chmod 700 dir-mode; rm empty/.keep
mkdir -p new/deep/empty new/ro; echo ro > new/ro/a; chmod 400 new/ro/a; chmod 555 new/ro
echo s > 'with blank'; echo s > 'with *?[x]'; ln kept.txt hard
printf 'no end' > 'ünïcode'
"""
AFTER = """
anew d 755 |
anew/new f 644 |new
anew/same f 644 |same
changed.txt f 644 |new
dir-mode d 700 |
dir-mode/a f 644 |a
empty d 755 |
file-to-folder d 755 |
file-to-folder/a d 755 |
file-to-folder/a/b f 644 |x
file-to-link l 777 nowhere|
folder-to-file f 644 |
folder-to-link l 777 /etc/passwd|
hard f 644 |kept
kept.txt f 644 |kept
link-changed l 777 kept.txt|
link-to-folder d 755 |
link-to-folder/a f 644 |x
mode.sh f 755 |true
new d 755 |
new/deep d 755 |
new/deep/empty d 755 |
new/ro d 555 |
new/ro/a f 400 |ro
part d 755 |
part/kept f 644 |y
with *?[x] f 644 |s
with blank f 644 |s
ünïcode f 644 |no end
"""


class Attempts:
    """Makes attempts to be inspected in a lab, and inspects them."""

    def __init__(self, lab: Lab, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self.lab, self._folder, self._capfd = lab, folder, capfd
        self._cancel = Cancel()

    def make(
        self, command: str, workspace: Path | None = None, *, keep: bool = False, bounds: CollectBounds | None = None
    ) -> Path:
        """The folder of a finished attempt."""
        folder = self._folder / f"attempt-{len(list(self._folder.iterdir()))}"
        folder.mkdir()
        task = Task(id="t", workspace=None if workspace is None else Folder(path=str(workspace)))
        request = Request(
            run="r",
            node="n",
            episode=Episode(rollout="3f9ac01d-t-s0", task=task, sample=0, attempt=1, seed=0),
            plugin_version="0.1",
            bounds=bounds or CollectBounds(),
        )
        agent = CommandAgent(name="a", command=command)
        attempt = run_attempt(request, agent=agent, executor=self.lab.executor, folder=folder, cancel=self._cancel)
        assert attempt.infra is None, attempt.infra
        assert attempt.finish(keep=keep) == []
        return folder

    def inspect(self, attempt: Path, *command: str, root: bool = True) -> tuple[int, str, str]:
        """Exit code, output and errors; no stage and no lease is left of it."""
        self._capfd.readouterr()
        before = self._left()
        code = inspect(attempt, command, stage_root=self.lab.root.path if root else None)
        assert self._left() == before
        return code, *self._capfd.readouterr()

    def tree(self, attempt: Path, *, root: bool = True) -> list[str]:
        code, text, errors = self.inspect(attempt, "sh", "-c", TREE, root=root)
        assert (code, errors) == (0, "")
        return [line for line in text.splitlines() if line]

    def refusal(self, attempt: Path) -> str:
        before = self._left()
        with pytest.raises(SelectorError) as caught:
            inspect(attempt, ["true"], stage_root=self.lab.root.path)
        assert self._left() == before
        return str(caught.value)

    def _left(self) -> list[Path]:
        return sorted(path for name in ("stages", "leases") for path in (self.lab.root.path / name).iterdir())

    def close(self) -> None:
        self._cancel.close()


@pytest.fixture
def attempts(lab: Lab, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Iterator[Attempts]:
    """Attempts on each executor in its turn."""
    (tmp_path / "attempts").mkdir()
    attempts = Attempts(lab, tmp_path / "attempts", capfd)
    yield attempts
    attempts.close()


@pytest.fixture
def sandboxed(sandbox: Lab, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Iterator[Attempts]:
    """Attempts in the sandbox."""
    (tmp_path / "attempts").mkdir()
    attempts = Attempts(sandbox, tmp_path / "attempts", capfd)
    yield attempts
    attempts.close()


def rich(lab: Lab) -> Path:
    """A workspace for every kind of change."""
    workspace = lab.workspace(WORKSPACE)
    (workspace / "link-to-folder").symlink_to("part")
    (workspace / "link-changed").symlink_to("changed.txt")
    (workspace / "link-gone").symlink_to("kept.txt")
    return workspace


def stage_of(attempt: Path) -> str | None:
    return read_record(attempt / "bundle.json", BundleRecord).stage


def change_record(attempt: Path, **changes: object) -> None:
    path = attempt / "bundle.json"
    record = read_record(path, BundleRecord)
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(record, **changes)))


# The tree


@pytest.mark.parametrize("keep", [True, False], ids=["kept", "rebuilt"])
def test_the_tree_is_that_of_the_agent(attempts: Attempts, keep: bool) -> None:
    attempt = attempts.make(CHANGES, rich(attempts.lab), keep=keep)
    assert (stage_of(attempt) is not None) is keep
    assert attempts.tree(attempt) == AFTER.strip().splitlines()


@pytest.mark.parametrize("keep", [True, False], ids=["kept", "rebuilt"])
def test_a_tree_without_changes(attempts: Attempts, keep: bool) -> None:
    assert attempts.tree(attempts.make("true", keep=keep)) == []
    workspace = attempts.lab.workspace({"a": "x\n", "b": None})
    assert attempts.tree(attempts.make("true", workspace, keep=keep)) == ["a f 644 |x", "b d 755 |"]


def test_closed_folders_are_rebuilt(attempts: Attempts) -> None:
    attempt = attempts.make("mkdir d; echo x > d/f; chmod 000 d/f d")
    code, text, _ = attempts.inspect(attempt, "sh", "-c", "stat -c '%a' d; cat d/f")
    assert (code, text) == (1, "0\n")


def test_a_kept_stage_tells_its_root(attempts: Attempts) -> None:
    attempt = attempts.make("echo x > a", keep=True)
    assert attempts.tree(attempt, root=False) == ["a f 644 |x"]


def test_a_kept_stage_that_was_removed_is_rebuilt(attempts: Attempts) -> None:
    attempt = attempts.make("echo x > a", attempts.lab.workspace({"b": "y\n"}), keep=True)
    stage = stage_of(attempt)
    assert stage is not None
    assert remove_tree(stage) is None
    assert attempts.tree(attempt) == ["a f 644 |x", "b f 644 |y"]


def test_the_rebuilt_tree_does_not_follow_links(sandboxed: Attempts, tmp_path: Path) -> None:
    """A record that leads through a link of the candidate's (handmade: no listing has one) is refused."""
    attempt = sandboxed.make(f"ln -s {tmp_path} way; mkdir d; echo x > d/f")
    record = read_record(attempt / "bundle.json", BundleRecord)
    changes = [
        msgspec.structs.replace(change, path="way/f") if change.path == "d/f" else change for change in record.changes
    ]
    (attempt / "changes" / "way").mkdir()
    (attempt / "changes" / "way" / "f").write_text("x")
    change_record(attempt, changes=tuple(sorted(changes, key=lambda change: change.path)))
    assert sandboxed.refusal(attempt) == "way/f lies behind a link, so the stage can't be rebuilt"
    assert not (tmp_path / "f").exists()


# What a command of it finds


@pytest.mark.parametrize("keep", [True, False], ids=["kept", "rebuilt"])
def test_the_view_is_read_only(attempts: Attempts, keep: bool) -> None:
    attempt = attempts.make("echo x > a", attempts.lab.workspace({"b": "y\n"}), keep=keep)
    script = "touch new; echo z > a; rm b; ln -s x y; mkdir d; echo ok > /tmp/t; cat /tmp/t"
    code, text, errors = attempts.inspect(attempt, "sh", "-c", script)
    assert (code, text) == (0, "ok\n")
    assert errors.count("Read-only file system") == 5
    assert attempts.tree(attempt) == ["a f 644 |x", "b f 644 |y"]


@pytest.mark.parametrize("keep", [True, False], ids=["kept", "rebuilt"])
def test_the_command_is_isolated(
    attempts: Attempts, keep: bool, private_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_HOST", "x")
    (private_folder / "readable").write_text("seen")
    (private_folder / "readable").chmod(0o644)
    attempt = attempts.make("true", keep=keep)
    script = f"grep -c : /proc/net/dev; env | sort; cat; pwd; cat {private_folder}/readable"
    code, text, errors = attempts.inspect(attempt, "sh", "-c", script)
    assert text.splitlines() == [
        "1",
        "HOME=/home/agent",
        "LANG=C.UTF-8",
        "PATH=/usr/local/bin:/usr/bin:/bin",
        "PWD=/stage",
        "TMPDIR=/tmp",
        "/stage",
    ]
    assert code == 1
    assert errors == f"cat: {private_folder}/readable: No such file or directory\n"


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 3", 3), ("exit 255", 255), ("kill -9 $$", 137)])
def test_the_exit_code_is_the_commands(sandboxed: Attempts, script: str, code: int) -> None:
    attempt = sandboxed.make("true")
    assert sandboxed.inspect(attempt, "sh", "-c", f"echo out; echo err >&2; {script}") == (code, "out\n", "err\n")


def test_a_program_that_is_not_there(sandboxed: Attempts) -> None:
    code, text, errors = sandboxed.inspect(sandboxed.make("true"), "no-such-program")
    assert (code, text) == (127, "")
    assert "no-such-program" in errors


# What can't be shown

AGAIN = "Run again with --rollout-keep=all."


def test_without_a_bundle(sandboxed: Attempts, tmp_path: Path) -> None:
    message = f"{tmp_path} holds no bundle: the attempt ended before there was evidence"
    assert sandboxed.refusal(tmp_path) == message


@pytest.mark.parametrize("text", ["", "{broken", "[]", "{}", '{"schema_version": 1}'])
def test_a_bundle_that_can_not_be_read(sandboxed: Attempts, text: str) -> None:
    attempt = sandboxed.make("true")
    (attempt / "bundle.json").write_text(text)
    with pytest.raises(RolloutError) as caught:
        inspect(attempt, ["true"], stage_root=sandboxed.lab.root.path)
    assert str(caught.value).startswith(f"{attempt}/bundle.json can't be read: ")


def test_a_baseline_that_is_gone(sandboxed: Attempts) -> None:
    attempt = sandboxed.make("true", sandboxed.lab.workspace({"a": "x"}))
    revision = read_record(attempt / "bundle.json", BundleRecord).pins.environment_revision
    assert revision is not None
    shutil.rmtree(sandboxed.lab.root.baselines / revision.removeprefix("sha256:"))
    assert sandboxed.refusal(attempt) == f"the baseline {revision} is not on this machine any more"


def test_a_file_that_was_too_large(attempts: Attempts) -> None:
    attempt = attempts.make("printf 123456 > big", bounds=CollectBounds(file=5))
    message = "the stage was dropped, and its changes were not kept whole: 6 bytes: not kept"
    assert attempts.refusal(attempt) == f"{message}\n{AGAIN}"


def test_a_kept_stage_has_no_bounds(attempts: Attempts) -> None:
    attempt = attempts.make("printf 123456 > big", keep=True, bounds=CollectBounds(file=5))
    assert attempts.tree(attempt) == ["big f 644 |123456"]


@pytest.mark.parametrize(
    "script",
    [
        pytest.param("printf x > \"$(printf 'a\\377')\"", id="file"),
        pytest.param("mkdir \"$(printf 'a\\nb')\"", id="folder"),
        pytest.param("ln -s \"$(printf 'a\\033')\" link", id="target"),
        pytest.param("rm old*", id="deleted"),
    ],
)
def test_names_that_the_record_can_not_hold(attempts: Attempts, script: str) -> None:
    """Bytes are escaped in a record, so the name is not known again: another tree would be shown."""
    workspace = attempts.lab.workspace({})
    (workspace / os.fsdecode(b"old\xff")).write_text("x")
    attempt = attempts.make(script, workspace)
    assert attempts.refusal(attempt) == (f"the stage was dropped, and a name in it can't be written as text\n{AGAIN}")


@pytest.mark.parametrize("keep", [True, False], ids=["kept", "rebuilt"])
def test_special_files_come_back(attempts: Attempts, keep: bool) -> None:
    attempt = attempts.make("mkfifo pipe; chmod 620 pipe", keep=keep)
    code, text, _ = attempts.inspect(attempt, "find", ".", "-mindepth", "1", "-printf", r"%P %y %m\n")
    assert (code, text) == (0, "pipe p 620\n")


def test_a_sparse_terabyte_that_was_kept_is_shown(attempts: Attempts) -> None:
    attempt = attempts.make("truncate -s 1T big", keep=True)
    assert attempts.inspect(attempt, "stat", "-c", "%s", "big") == (0, f"{1 << 40}\n", "")


def test_evidence_that_is_gone(attempts: Attempts) -> None:
    attempt = attempts.make("echo x > a; echo y > b")
    gone = attempt / "changes" / "b"
    gone.unlink()
    message = f"the stage of 3f9ac01d-t-s0 can't be shown: [Errno 2] No such file or directory: '{gone}'"
    assert attempts.refusal(attempt) == message
