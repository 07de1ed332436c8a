"""The stage root: private, refused where it can't be, and cleaned of what dead processes left."""

from __future__ import annotations

import errno
import os
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
from pytest_rollout.stage.root import NOBODY, Owner, StageRoot, default_root

ROOT = os.geteuid() == 0


def mode(path: str | Path) -> int:
    return stat.S_IMODE(os.lstat(path).st_mode)


def refusal(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        StageRoot(path)
    return str(caught.value)


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_folders_are_private_under_any_umask(private_folder: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        root = StageRoot(private_folder / "root")
        stage = root.new_stage("u", "w")
    finally:
        os.umask(before)
    passing = 0o711 if ROOT else 0o700  # root's agents run as another uid, which passes through and lists nothing
    assert [mode(path) for path in (root.path, root.baselines, root.stages, root.kept)] == [passing] * 4
    assert [mode(path) for path in (root.path / "leases", stage, f"{stage}/u", f"{stage}/w")] == [0o700] * 4
    root.close()


def test_agents_run_as_nobody_for_root_and_as_the_user_else() -> None:
    owner = Owner.of_this_process()
    assert (owner.uid, owner.gid) == ((NOBODY, NOBODY) if ROOT else (os.getuid(), os.getgid()))
    assert owner.uid != 0


def test_a_stage_belongs_to_the_agents_uid(stage_root: StageRoot) -> None:
    stage = stage_root.new_stage("u")
    owner = Owner.of_this_process()
    for path in (stage, f"{stage}/u"):
        info = os.lstat(path)
        assert (info.st_uid, info.st_gid) == (owner.uid, owner.gid)
    assert os.lstat(stage_root.path).st_uid == os.geteuid()


def test_a_stage_can_be_ours(stage_root: StageRoot) -> None:
    stage = stage_root.new_stage("home", ours=True)
    for path in (stage, f"{stage}/home"):
        info = os.lstat(path)
        assert (info.st_uid, stat.S_IMODE(info.st_mode)) == (os.geteuid(), 0o700)


def test_stages_have_opaque_names_of_their_own(stage_root: StageRoot) -> None:
    stages = [stage_root.new_stage() for _ in range(20)]
    assert len(set(stages)) == 20
    for stage in stages:
        lease, _, number = os.path.basename(stage).partition("-")
        assert (stage_root.path / "leases" / lease).is_file()
        assert (len(number), int(number, 16) > 0) == (12, True)


def test_a_wide_folder_is_made_private(private_folder: Path) -> None:
    (private_folder / "root").mkdir()
    (private_folder / "root").chmod(0o777)
    StageRoot(private_folder / "root").close()
    assert mode(private_folder / "root") == (0o711 if ROOT else 0o700)


def test_parents_are_made(private_folder: Path) -> None:
    StageRoot(private_folder / "a/b/root").close()
    assert (private_folder / "a/b/root/stages").is_dir()


def test_a_folder_with_other_things_in_it_is_refused_and_left_alone(private_folder: Path) -> None:
    (private_folder / "mine").mkdir(mode=0o755)
    (private_folder / "mine").chmod(0o755)
    (private_folder / "mine/thesis.txt").write_text("x")
    assert refusal(private_folder / "mine") == (
        f"rollout_stage_root: {private_folder}/mine is a folder with other things in it\n"
        "Name a folder that is empty, or not there yet: it becomes a private one."
    )
    assert os.listdir(private_folder / "mine") == ["thesis.txt"]
    assert mode(private_folder / "mine") == 0o755


@pytest.mark.parametrize("names", [("sources", "stages"), ("leases", "thesis.txt"), ("leases", "CACHEDIR.TAG")])
def test_names_alone_make_no_stage_root(private_folder: Path, names: tuple[str, ...]) -> None:
    for name in names:
        (private_folder / "mine" / name).mkdir(parents=True)
    if "CACHEDIR.TAG" in names:
        (private_folder / "mine/stages").mkdir()
        (private_folder / "mine/CACHEDIR.TAG").rmdir()
        (private_folder / "mine/CACHEDIR.TAG").write_text("Signature: 8a477f597d28d172789f06886806bc55\n")
    assert "is a folder with other things in it" in refusal(private_folder / "mine")


def test_a_tag_that_was_not_written_whole_is_made_again(private_folder: Path) -> None:
    StageRoot(private_folder / "root").close()
    tag = private_folder / "root/CACHEDIR.TAG"
    whole = tag.read_text()
    tag.write_text("")
    StageRoot(private_folder / "root").close()
    assert tag.read_text() == whole


def test_a_folder_of_another_user_is_refused(private_folder: Path) -> None:
    foreign = private_folder / "foreign"
    if ROOT:
        foreign.mkdir()
        os.chown(foreign, 4242, 4242)
        foreign.chmod(0o777)
    else:
        foreign = Path("/usr/lib")
    assert refusal(foreign) == (
        f"rollout_stage_root: {foreign} is not a folder of this user's own\n"
        "Remove it, or set the ini key rollout_stage_root to another folder."
    )


def test_a_link_is_refused(private_folder: Path) -> None:
    (private_folder / "real").mkdir()
    (private_folder / "link").symlink_to("real")
    assert refusal(private_folder / "link").startswith(
        f"rollout_stage_root: {private_folder}/link is not a folder of this user's own"
    )
    assert os.listdir(private_folder / "real") == []


def test_a_file_is_refused(private_folder: Path) -> None:
    (private_folder / "file").touch()
    assert refusal(private_folder / "file") == (
        f"rollout_stage_root: the folder {private_folder}/file can't be written: File exists\n"
        "Set the ini key rollout_stage_root to a folder that this user can write."
    )


def test_a_place_that_can_not_be_written_is_refused() -> None:
    message = refusal(Path("/proc/rollout/root"))
    assert message.startswith("rollout_stage_root: the folder /proc/rollout/root can't be written: ")
    assert message.endswith("\nSet the ini key rollout_stage_root to a folder that this user can write.")


@pytest.mark.skipif(not ROOT, reason="an ordinary user's agents run as that user")
@pytest.mark.parametrize("below", ["root", "new/root"])
def test_a_place_that_the_agents_uid_can_not_reach_is_refused_and_nothing_is_made(
    private_folder: Path, below: str
) -> None:
    (private_folder / "closed").mkdir(mode=0o700)
    path = private_folder / "closed" / below
    assert refusal(path) == (
        f"rollout_stage_root: {path} lies below {private_folder}/closed, which uid 65534 can't enter\n"
        "Agents of root run as that uid. Set rollout_stage_root to a folder outside it."
    )
    assert list((private_folder / "closed").iterdir()) == []


def test_the_default_is_one_folder_a_user_outside_every_home() -> None:
    assert default_root().name == f"pytest-rollout-{os.geteuid()}"
    assert Path.home() not in default_root().parents


def fail_with(number: int) -> Callable[..., None]:
    def call(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    return call


@pytest.mark.parametrize(
    ("number", "kind"), [(errno.ENOSPC, HostError), (errno.EDQUOT, HostError), (errno.EACCES, StageError)]
)
def test_a_stage_that_can_not_be_made(
    stage_root: StageRoot, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[Exception]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("os.mkdir", fail_with(number))
        with pytest.raises(kind) as caught:
            stage_root.new_stage("u")
    assert type(caught.value) is kind
    assert str(caught.value) == f"no stage can be made in {stage_root.stages}: {os.strerror(number)}"


def write_layer(folder: str) -> None:
    os.makedirs(f"{folder}/d")
    Path(folder, "d", "file").write_text("x")
    os.symlink("/etc/passwd", f"{folder}/link")
    os.mknod(f"{folder}/gone", stat.S_IFCHR, os.makedev(0, 0))


def test_a_layer_belongs_to_the_agents_uid(stage_root: StageRoot) -> None:
    layer = stage_root.new_layer(write_layer)
    assert sorted(os.listdir(layer)) == ["d", "gone", "link"]
    owner = Owner.of_this_process()
    for path in (os.path.dirname(layer), layer, *(f"{layer}/{name}" for name in ("d", "d/file", "gone", "link"))):
        assert (os.lstat(path).st_uid, os.lstat(path).st_gid) == (owner.uid, owner.gid)
    assert os.lstat("/etc/passwd").st_uid == 0
    stage_root.drop_layer(layer)
    assert list(stage_root.stages.iterdir()) == []
    stage_root.drop_layer(layer)


@pytest.mark.parametrize(
    ("number", "kind"), [(errno.ENOSPC, HostError), (errno.EDQUOT, HostError), (errno.EACCES, StageError)]
)
def test_a_layer_that_can_not_be_made(stage_root: StageRoot, number: int, kind: type[Exception]) -> None:
    def fill(folder: str) -> None:
        write_layer(folder)
        raise OSError(number, os.strerror(number))

    with pytest.raises(kind) as caught:
        stage_root.new_layer(fill)
    assert type(caught.value) is kind
    assert str(caught.value) == f"a layer can't be made in {stage_root.stages}: {os.strerror(number)}"
    assert list(stage_root.stages.iterdir()) == []


def test_a_layer_whose_writer_refuses_leaves_nothing(stage_root: StageRoot) -> None:
    def fill(folder: str) -> None:
        write_layer(folder)
        raise ConfigError("no such path")

    with pytest.raises(ConfigError, match=r"^no such path$"):
        stage_root.new_layer(fill)
    assert list(stage_root.stages.iterdir()) == []


def test_closing_removes_what_is_left_but_not_what_was_kept(private_folder: Path) -> None:
    root = StageRoot(private_folder / "root")
    stage, kept = root.new_stage("u"), root.keep(root.new_stage("u"))
    assert Path(kept).parent == root.kept
    root.close()
    assert not os.path.exists(stage)
    assert os.path.isdir(f"{kept}/u")
    assert list((root.path / "leases").iterdir()) == []


def test_two_roots_in_one_process_do_not_disturb_each_other(private_folder: Path) -> None:
    one, two = StageRoot(private_folder / "root"), StageRoot(private_folder / "root")
    first, second = one.new_stage("u"), two.new_stage("u")
    assert (one.reap(), two.reap()) == (0, 0)
    assert os.path.isdir(first)
    assert os.path.isdir(second)
    one.close()
    assert not os.path.exists(first)
    assert os.path.isdir(second)
    assert two.reap() == 0
    two.close()
    assert not os.path.exists(second)


# -- more than one process

HOLD = """
import os, sys
from pathlib import Path
from pytest_rollout.stage.root import StageRoot
root = StageRoot(Path(sys.argv[1]))
for number in range(int(sys.argv[2])):
    stage = root.new_stage("u")
    Path(stage, "u", "file").write_text("x")
    os.chmod(f"{stage}/u", 0o000)
print(root.keep(root.new_stage("u")), flush=True)
sys.stdin.read()
root.close()
"""


@pytest.fixture
def hold() -> Iterator[Callable[[Path, int], subprocess.Popen[str]]]:
    """Starts a process that holds some stages, and keeps one; it is known to have them."""
    started: list[subprocess.Popen[str]] = []

    def begin(root: Path, stages: int) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(root), str(stages)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        kept = process.stdout.readline().strip()
        assert os.path.isdir(kept)
        return process

    yield begin
    for process in started:
        with process:
            process.kill()


def test_the_stages_of_a_killed_process_are_removed_and_those_of_a_living_one_are_not(
    private_folder: Path, hold: Callable[[Path, int], subprocess.Popen[str]]
) -> None:
    path = private_folder / "root"
    dead, living = hold(path, 3), hold(path, 2)
    assert len(os.listdir(path / "stages")) == 5
    dead.send_signal(signal.SIGKILL)
    dead.wait(10)
    root = StageRoot(path)
    mine = root.new_stage("u")
    assert root.reap() == 3
    assert len(os.listdir(path / "stages")) == 3
    assert os.path.isdir(mine)
    assert len(os.listdir(path / "kept")) == 2
    assert root.reap() == 0
    living.communicate()
    assert os.listdir(path / "stages") == [os.path.basename(mine)]
    assert len(os.listdir(path / "kept")) == 2
    root.close()
    assert os.listdir(path / "leases") == []


def test_two_starts_at_once_reap_a_stage_once(
    private_folder: Path, hold: Callable[[Path, int], subprocess.Popen[str]]
) -> None:
    path = private_folder / "root"
    dead = hold(path, 4)
    dead.send_signal(signal.SIGKILL)
    dead.wait(10)
    one, two = StageRoot(path), StageRoot(path)
    assert one.reap() + two.reap() == 4
    assert os.listdir(path / "stages") == []
    one.close()
    two.close()


def test_a_stage_without_a_lease_is_removed(stage_root: StageRoot) -> None:
    mine = stage_root.new_stage("u")
    (stage_root.stages / "0123456789ab-0/u").mkdir(parents=True)
    assert stage_root.reap() == 1
    assert os.listdir(stage_root.stages) == [os.path.basename(mine)]


LOCAL = """
import sys
from pathlib import Path
from pytest_rollout.executors import cancel, capture, local, protocol
from pytest_rollout.stage.root import StageRoot
top = Path(sys.argv[1])
executor = local.LocalExecutor(StageRoot(top / "root"))
stage = executor.provision(executor.prepare(None))
streams = [capture.Capture(top / name, 1000) for name in ("stdout", "stderr")]
print(stage.path, flush=True)
script = "setsid sh -c 'while :; do echo x >> beat; sleep 0.02; done' & while :; do sleep 1; done"
command = protocol.Command(argv=("sh", "-c", script), env={"PATH": "/usr/bin:/bin"}, wall=600.0)
executor.run(stage, command, streams[0], streams[1], cancel.Cancel())
"""


def test_what_a_killed_process_left_running_is_ended_and_nothing_else(
    private_folder: Path, hold: Callable[[Path, int], subprocess.Popen[str]], within: Callable[..., Any]
) -> None:
    """Without a sandbox agents live on when their session is killed; the next start ends them."""
    with subprocess.Popen(
        [sys.executable, "-c", LOCAL, str(private_folder)], stdout=subprocess.PIPE, text=True
    ) as session:
        assert session.stdout is not None
        stage = Path(session.stdout.readline().strip())
        beat = stage / "copy/beat"
        within(20, lambda: [None for _ in iter(lambda: beat.exists() and beat.stat().st_size > 0, True)])
        session.kill()
    living = hold(private_folder / "root", 1)
    (lease,) = {name.name.rpartition("-")[0] for name in stage.parent.iterdir()} - {stage.name.rpartition("-")[0]}
    with subprocess.Popen(["sleep", "60"], env={"ROLLOUT_PROCESS_MARK": f"{lease}-0"}) as of_the_living:
        moved = private_folder / "elsewhere"
        os.rename(stage, moved)  # out of reach of the clean-up, to see the beat afterwards
        root = StageRoot(private_folder / "root")
        size = (moved / "copy/beat").stat().st_size
        within(20, lambda: [None for _ in iter(lambda: (moved / "copy/beat").stat().st_size > size, True)])  # it lives
        root.reap()
        size = (moved / "copy/beat").stat().st_size
        time.sleep(0.2)
        assert (moved / "copy/beat").stat().st_size == size
        assert of_the_living.poll() is None
        of_the_living.kill()
        root.close()
    living.communicate()
