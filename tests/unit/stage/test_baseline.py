"""Baselines: what their fingerprint depends on, what is refused, and many builders at once."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_rollout.errors import ConfigError, HostError, StageError
from pytest_rollout.stage import baseline as module
from pytest_rollout.stage import fingerprint as bounds
from pytest_rollout.stage.baseline import Baseline, freeze
from pytest_rollout.stage.fingerprint import fingerprint
from pytest_rollout.stage.root import Owner, StageRoot

EMPTY = f"sha256:{hashlib.sha256(b'').hexdigest()}"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A workspace with something of everything that is allowed."""
    top = tmp_path / "source"
    (top / "package/empty").mkdir(parents=True)
    (top / "a.txt").write_text("alpha\n")
    (top / "package/run.sh").write_text("#!/bin/sh\n")
    (top / "package/run.sh").chmod(0o755)
    (top / "link").symlink_to("package/run.sh")
    (top / "dangling").symlink_to("/no/such")
    return top


@pytest.fixture
def copy(source: Path, tmp_path: Path) -> Path:
    """An equal workspace elsewhere."""
    shutil.copytree(source, tmp_path / "copy", symlinks=True)
    return tmp_path / "copy"


def test_equal_trees_have_one_fingerprint(source: Path, copy: Path) -> None:
    found = fingerprint(source)
    assert found.startswith("sha256:")
    assert len(found) == len("sha256:") + 64
    assert fingerprint(copy) == found


@pytest.mark.parametrize(
    "change",
    [
        lambda top: (top / "a.txt").write_text("ALPHA\n"),
        lambda top: (top / "a.txt").rename(top / "b.txt"),
        lambda top: (top / "a.txt").chmod(0o744),
        lambda top: (top / "package/run.sh").chmod(0o644),
        lambda top: (top / "package/empty").rmdir(),
        lambda top: (top / "new").mkdir(),
        lambda top: (top / "new").touch(),
        lambda top: _again(top / "link", "package"),
        lambda top: _again(top / "dangling", None),
        lambda top: (top / "package/empty/__pycache__").touch(),
    ],
)
def test_what_matters_changes_the_fingerprint(source: Path, copy: Path, change: Callable[[Path], Any]) -> None:
    change(copy)
    assert fingerprint(copy) != fingerprint(source)


def _again(link: Path, target: str | None) -> None:
    link.unlink()
    if target is None:
        link.write_text("/no/such")
    else:
        link.symlink_to(target)


@pytest.mark.parametrize(
    "change",
    [
        lambda top: os.utime(top / "a.txt", (1, 1)),
        lambda top: (top / "a.txt").chmod(0o600),
        lambda top: (top / "package/run.sh").chmod(0o700),
        lambda top: (top / "package").chmod(0o777),
        lambda top: _cache(top / "__pycache__"),
        lambda top: _cache(top / "package/empty/__pycache__"),
    ],
)
def test_what_does_not_matter_leaves_it(source: Path, copy: Path, change: Callable[[Path], Any]) -> None:
    change(copy)
    assert fingerprint(copy) == fingerprint(source)


def _cache(folder: Path) -> None:
    folder.mkdir()
    (folder / "x.pyc").write_bytes(os.urandom(8))


def test_the_order_of_creation_does_not_matter(tmp_path: Path) -> None:
    names = [f"{number:03}" for number in range(200)]
    for top, order in (("one", names), ("two", names[::-1])):
        (tmp_path / top).mkdir()
        for name in order:
            (tmp_path / top / name).write_text(name)
    assert fingerprint(tmp_path / "one") == fingerprint(tmp_path / "two")


def test_parts_can_not_be_mixed_up(tmp_path: Path) -> None:
    """A name that holds the form of another entry is still another tree."""
    for top in ("one", "two"):
        (tmp_path / top).mkdir()
    (tmp_path / "one/a4:file").touch()
    (tmp_path / "two/a").touch()
    (tmp_path / "two/file").touch()
    assert fingerprint(tmp_path / "one") != fingerprint(tmp_path / "two")


def test_the_umask_does_not_matter(stage_root: StageRoot, source: Path) -> None:
    plain = fingerprint(source)
    before = os.umask(0o077)
    try:
        frozen = freeze(stage_root, source)
    finally:
        os.umask(before)
    assert frozen.revision == plain
    _check_modes(frozen)


def _check_modes(frozen: Baseline) -> None:
    modes = {
        path.relative_to(frozen.path).as_posix(): stat.S_IMODE(path.lstat().st_mode)
        for path in Path(frozen.path).rglob("*")
        if not path.is_symlink()
    }
    assert modes == {"a.txt": 0o644, "package": 0o755, "package/empty": 0o755, "package/run.sh": 0o755}
    assert stat.S_IMODE(Path(frozen.path).stat().st_mode) == 0o755


def test_a_frozen_tree_is_the_source_owned_by_the_agents_uid(stage_root: StageRoot, source: Path) -> None:
    (source / "a.txt").chmod(0o604)
    _cache(source / "__pycache__")
    frozen = freeze(stage_root, source)
    assert frozen.path == f"{stage_root.baselines}/{frozen.revision.removeprefix('sha256:')}"
    assert frozen.revision == fingerprint(source) == fingerprint(Path(frozen.path))
    _check_modes(frozen)
    assert (Path(frozen.path) / "a.txt").read_text() == "alpha\n"
    assert os.readlink(Path(frozen.path) / "link") == "package/run.sh"
    assert os.readlink(Path(frozen.path) / "dangling") == "/no/such"
    owner = Owner.of_this_process()
    for path in (Path(frozen.path), *Path(frozen.path).rglob("*")):
        info = path.lstat()
        assert (info.st_uid, info.st_gid) == (owner.uid, owner.gid)


def test_a_second_freeze_reads_the_first_one(stage_root: StageRoot, source: Path, copy: Path) -> None:
    first = freeze(stage_root, source)
    inode = os.stat(first.path).st_ino
    assert freeze(stage_root, copy) == first
    assert os.stat(first.path).st_ino == inode
    assert [entry.name for entry in stage_root.baselines.iterdir()] == [Path(first.path).name]


def later() -> int:
    return time.time_ns() + 60 * 10**9


def counted(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Every folder whose content is read from here on."""
    read: list[Path] = []
    real = fingerprint

    def counting(folder: Path) -> str:
        read.append(folder)
        return real(folder)

    monkeypatch.setattr(module, "fingerprint", counting)
    return read


def test_a_folder_at_rest_is_read_once(stage_root: StageRoot, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = freeze(stage_root, source)
    read = counted(monkeypatch)
    assert [freeze(stage_root, source, later) for _ in range(3)] == [first] * 3
    assert read == [source]


def test_a_folder_that_changed_just_now_is_read_again(
    stage_root: StageRoot, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = counted(monkeypatch)
    first = freeze(stage_root, source)
    assert freeze(stage_root, source) == first
    assert read.count(source) == 2


def test_no_change_of_a_known_folder_is_missed(stage_root: StageRoot, source: Path) -> None:
    (source / "same").write_bytes(b"one")
    times = os.stat(source / "same")
    revisions = [freeze(stage_root, source, later).revision]
    with open(source / "same", "r+b") as file:  # the same size, inode and time of change of its content
        file.write(b"two")
    os.utime(source / "same", ns=(times.st_atime_ns, times.st_mtime_ns))
    revisions.append(freeze(stage_root, source, later).revision)
    (source / "same").chmod(0o755)
    revisions.append(freeze(stage_root, source, later).revision)
    (source / "new").symlink_to("same")
    revisions.append(freeze(stage_root, source, later).revision)
    os.unlink(source / "same")
    revisions.append(freeze(stage_root, source, later).revision)
    assert len(set(revisions)) == 5
    assert revisions[-1] == fingerprint(source)


def test_the_empty_baseline_is_that_of_an_empty_folder(stage_root: StageRoot, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert freeze(stage_root, None) == freeze(stage_root, tmp_path / "empty")
    assert freeze(stage_root, None).revision == EMPTY
    assert os.listdir(freeze(stage_root, None).path) == []


def test_a_file_with_the_name_of_a_folder_that_is_left_out_is_no_alteration(
    stage_root: StageRoot, source: Path
) -> None:
    (source / "__pycache__").write_text("a file")
    freeze(stage_root, source)
    stage_root.verified.clear()
    for seal in stage_root.seals.iterdir():
        seal.unlink()
    assert freeze(stage_root, source).note == ""


@pytest.mark.parametrize("name", [b"a\nb", b"\xff\xfe", b"-rf", b"\\xff"])
def test_odd_names_are_frozen(stage_root: StageRoot, source: Path, name: bytes) -> None:
    with open(os.path.join(os.fsencode(source), name), "wb") as file:
        file.write(b"odd")
    os.symlink(name, os.path.join(os.fsencode(source), b"to-" + name))
    frozen = freeze(stage_root, source)
    assert name in os.listdir(os.fsencode(frozen.path))
    assert os.readlink(os.path.join(os.fsencode(frozen.path), b"to-" + name)) == name


def refusal(root: StageRoot, source: Path) -> str:
    """The ConfigError of a freeze; nothing is left of it."""
    with pytest.raises(ConfigError) as caught:
        freeze(root, source)
    assert list(root.baselines.iterdir()) == []
    return str(caught.value)


def test_a_fifo_is_refused_without_blocking(stage_root: StageRoot, source: Path, within: Callable[..., Any]) -> None:
    os.mkfifo(source / "package/p")
    assert within(10, lambda: refusal(stage_root, source)) == (
        f"workspace {source}: package/p is not a file, a folder or a link"
    )


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read every file")
def test_what_can_not_be_read_is_refused_and_left_as_it_is(stage_root: StageRoot, source: Path) -> None:
    (source / "a.txt").chmod(0o000)
    assert refusal(stage_root, source) == f"workspace {source}: a.txt can't be read: Permission denied"
    assert stat.S_IMODE((source / "a.txt").stat().st_mode) == 0
    (source / "a.txt").chmod(0o644)
    (source / "package").chmod(0o000)
    assert refusal(stage_root, source) == f"workspace {source}: package can't be read: Permission denied"
    assert stat.S_IMODE((source / "package").stat().st_mode) == 0
    (source / "package").chmod(0o755)
    assert freeze(stage_root, source).revision == fingerprint(source)


def test_a_workspace_that_is_too_large_is_refused(
    stage_root: StageRoot, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "MAX_ENTRIES", 5)
    assert refusal(stage_root, source) == f"workspace {source}: more than 5 entries"
    monkeypatch.setattr(bounds, "MAX_ENTRIES", 100)
    monkeypatch.setattr(bounds, "MAX_DEPTH", 2)
    assert refusal(stage_root, source) == f"workspace {source}: more than 2 depth"


def test_a_workspace_that_went_away_is_a_failure_of_the_stage(stage_root: StageRoot, tmp_path: Path) -> None:
    with pytest.raises(StageError) as caught:
        freeze(stage_root, tmp_path / "gone")
    assert str(caught.value) == f"the workspace {tmp_path}/gone can't be read: No such file or directory"


def test_a_workspace_that_changes_meanwhile_is_not_frozen(
    stage_root: StageRoot, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = module._copy

    def disturbed(here: Path, there: Path) -> None:
        (here / "a.txt").write_text("other\n")
        real(here, there)

    monkeypatch.setattr(module, "_copy", disturbed)
    with pytest.raises(StageError) as caught:
        freeze(stage_root, source)
    assert str(caught.value) == f"the workspace {source} changed while it was read"
    assert list(stage_root.baselines.iterdir()) == []


@pytest.mark.parametrize(
    ("number", "kind"), [(errno.ENOSPC, HostError), (errno.EDQUOT, HostError), (errno.EIO, StageError)]
)
def test_a_disk_that_fails_leaves_nothing(
    stage_root: StageRoot, source: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[Exception]
) -> None:
    def failing(here: Path, there: Path) -> None:
        (there / "half").write_text("x")
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(module, "_copy", failing)
    with pytest.raises(kind) as caught:
        freeze(stage_root, source)
    assert type(caught.value) is kind
    assert str(caught.value) == f"the baseline of {source} can't be made: {os.strerror(number)}"
    assert list(stage_root.baselines.iterdir()) == []


# -- more than one process

FREEZE = """
import sys
from pathlib import Path
from pytest_rollout.stage import baseline
from pytest_rollout.stage.root import StageRoot
if sys.argv[3] == "hang":
    def hang(here, there):
        (there / "half").write_text("x")
        print("copying", flush=True)
        sys.stdin.read()
    baseline._copy = hang
root = StageRoot(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
found = baseline.freeze(root, Path(sys.argv[2]))
print(found.path, flush=True)
root.close()
"""


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a process that freezes a workspace; it waits for a line first."""
    started: list[subprocess.Popen[str]] = []

    def begin(root: Path, source: Path, how: str = "plain") -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", FREEZE, str(root), str(source), how],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        with process:
            process.kill()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def test_eight_processes_make_one_baseline(
    private_folder: Path, source: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    for number in range(300):
        (source / f"file-{number}").write_bytes(os.urandom(100))
    processes = [start(private_folder / "root", source) for _ in range(8)]
    assert [line(process) for process in processes] == ["ready"] * 8
    for process in processes:
        go(process)
    revision = fingerprint(source)
    final = private_folder / "root/baselines" / revision.removeprefix("sha256:")
    assert {line(process) for process in processes} == {str(final)}
    assert [process.wait(30) for process in processes] == [0] * 8
    assert list(final.parent.iterdir()) == [final]
    assert fingerprint(final) == revision
    assert list((private_folder / "root/stages").iterdir()) == []
    assert list((private_folder / "root/leases").iterdir()) == []


def test_after_a_builder_was_killed_the_next_one_builds(
    private_folder: Path, source: Path, start: Callable[..., subprocess.Popen[str]], within: Callable[..., Any]
) -> None:
    builder = start(private_folder / "root", source, "hang")
    assert line(builder) == "ready"
    go(builder)
    assert line(builder) == "copying"
    (half,) = (private_folder / "root/baselines").glob(".*/half")
    waiting = start(private_folder / "root", source)
    assert line(waiting) == "ready"
    go(waiting)
    builder.send_signal(signal.SIGKILL)
    builder.wait(10)
    found = Path(within(20, lambda: line(waiting)))
    assert fingerprint(found) == fingerprint(source)
    assert list(found.parent.iterdir()) == [found]
    assert not half.parent.exists()


def test_what_a_killed_builder_left_is_removed_at_the_next_start_and_a_living_one_is_not_disturbed(
    private_folder: Path, source: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    builder = start(private_folder / "root", source, "hang")
    assert line(builder) == "ready"
    go(builder)
    assert line(builder) == "copying"
    root = StageRoot(private_folder / "root")
    root.reap()
    (half,) = (private_folder / "root/baselines").glob(".*/half")
    builder.send_signal(signal.SIGKILL)
    builder.wait(10)
    assert half.exists()
    root.reap()
    assert list((private_folder / "root/baselines").iterdir()) == []
    root.close()
