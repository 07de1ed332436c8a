"""Control groups: where they can be made, told from the texts of the kernel; and real ones, where this user may."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from pytest_rollout.executors import cgroups
from pytest_rollout.executors.cgroups import Group, Home, find_homes, homes_of
from pytest_rollout.limits import Resources

SYSTEMD = "29 25 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate"
DOCKER_V1 = """
40 31 0:35 /docker/ab12 /sys/fs/cgroup/memory ro,nosuid - cgroup cgroup rw,memory
41 31 0:36 /docker/ab12 /sys/fs/cgroup/pids ro - cgroup cgroup rw,pids
42 31 0:37 /docker/ab12 /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct
"""
HYBRID = """
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
60 1 0:99 / /home rw - ext4 /dev/x rw,memory
"""


@pytest.mark.parametrize(
    ("cgroup", "mounts", "expected"),
    [
        (
            "0::/user.slice/user-1000.slice/run-u3.scope\n",
            SYSTEMD,
            {"unified": Home(2, Path("/sys/fs/cgroup/user.slice/user-1000.slice/run-u3.scope"))},
        ),
        ("0::/\n", SYSTEMD, {"unified": Home(2, Path("/sys/fs/cgroup"))}),
        (
            "4:memory:/docker/ab12/x\n3:pids:/docker/ab12\n2:cpu,cpuacct:/docker/ab12\n1:name=systemd:/docker/ab12\n",
            DOCKER_V1,
            {
                "memory": Home(1, Path("/sys/fs/cgroup/memory/x")),
                "pids": Home(1, Path("/sys/fs/cgroup/pids")),
                "cpu": Home(1, Path("/sys/fs/cgroup/cpu,cpuacct")),
                "cpuacct": Home(1, Path("/sys/fs/cgroup/cpu,cpuacct")),
            },
        ),
        # a group that this mount does not show is its top
        ("4:memory:/elsewhere\n", DOCKER_V1, {"memory": Home(1, Path("/sys/fs/cgroup/memory"))}),
        ("4:memory:/docker/ab123\n", DOCKER_V1, {"memory": Home(1, Path("/sys/fs/cgroup/memory"))}),
        (
            "4:memory:/a\n0::/\n",
            HYBRID,
            {"memory": Home(1, Path("/sys/fs/cgroup/memory/a")), "unified": Home(2, Path("/sys/fs/cgroup/unified"))},
        ),
        ("", HYBRID, {}),
        ("4:memory:/a\n", "", {}),
    ],
)
def test_where_this_process_is(cgroup: str, mounts: str, expected: dict[str, Home]) -> None:
    assert homes_of(cgroup, mounts) == expected


@pytest.fixture
def second(tmp_path: Path) -> dict[str, Home]:
    """A folder in place of a delegated group of version 2: our own writes can be read back."""
    return dict.fromkeys(("memory", "pids", "cpu"), Home(2, tmp_path))


def test_the_files_of_version_two(second: dict[str, Home], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    group = Group(second, "x", Resources(memory=2**26, processes=4), extra=1)
    place = tmp_path / "rollout-x"
    written = {path.name: path.read_text() for path in place.iterdir()}
    assert written == {
        "memory.max": str(2**26),
        "memory.swap.max": "0",
        "memory.oom.group": "1",
        "pids.max": "5",
    }
    assert (group.oom_kills, group.refused_forks, group.cpu, group.peak_memory) == (None, 0, None, None)
    (place / "memory.events").write_text("low 0\nhigh 0\nmax 9\noom 2\noom_kill 3\noom_group_kill 1\n")
    (place / "pids.events").write_text("max 7\n")
    (place / "cpu.stat").write_text("usage_usec 1500000\nuser_usec 1\n")
    (place / "memory.peak").write_text("4096\n")
    (place / "pids.peak").write_text("max\n")
    assert (group.oom_kills, group.refused_forks, group.cpu, group.peak_memory) == (3, 7, 1.5, 4096)
    assert (group.peak_processes, group.describe("memory"), group.reached_memory) == (None, "cgroup v2", True)
    assert group.limited == {"memory", "pids"}
    (place / "memory.events").write_text("max 0\noom 0\noom_kill 3\n")
    assert not group.reached_memory  # the kernel killed because of a limit around it


def test_controllers_are_enabled_and_a_group_of_ours_alone_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With processes in it the kernel refuses to enable: they move to a leaf, where all of them are ours."""
    (tmp_path / "cgroup.controllers").write_text("cpu io memory pids\n")
    (tmp_path / "cgroup.subtree_control").write_text("")
    (tmp_path / "cgroup.procs").write_text(f"{os.getppid()}\n{os.getpid()}\n")
    asked: list[str] = []
    write = Path.write_text

    def kernel(path: Path, text: str, *rest: str) -> int:
        if path.name == "cgroup.subtree_control":
            asked.append(text)
            if not (tmp_path / "rollout-self" / "cgroup.procs").exists():
                raise OSError(16, "Device or resource busy")
        return write(path, text, *rest)

    monkeypatch.setattr(Path, "write_text", kernel)
    assert cgroups._enabled(tmp_path) == ["memory", "pids"]
    assert asked == ["+memory +pids"] * 2
    assert (tmp_path / "rollout-self" / "cgroup.procs").read_text() == str(os.getpid())


def test_a_group_with_processes_of_others_is_left_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cgroup.controllers").write_text("memory pids\n")
    (tmp_path / "cgroup.subtree_control").mkdir()  # writing to it fails
    with subprocess.Popen(["sleep", "300"]) as child:
        with subprocess.Popen(["sh", "-c", "sleep 300 & echo $!"], stdout=subprocess.PIPE, text=True) as other:
            assert other.stdout is not None
            orphan = int(other.stdout.readline())
            other.wait()
        (tmp_path / "cgroup.procs").write_text(f"{os.getpid()}\n{child.pid}\n{orphan}\n")
        assert cgroups._enabled(tmp_path) == []
        assert not (tmp_path / "rollout-self").exists()
        os.kill(orphan, 9)
        child.kill()


def test_lost_groups_are_removed(tmp_path: Path) -> None:
    for name in ("rollout-old", "rollout-new", "rollout-self", "other"):
        (tmp_path / name).mkdir()
    for name in ("rollout-old", "rollout-self", "other"):
        os.utime(tmp_path / name, (0, 0))

    def none(group: Path) -> list[int]:
        return []

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(cgroups, "_pids", none)
        cgroups._sweep(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "rollout-new", "rollout-self"]


# -- real ones


@pytest.fixture
def homes() -> dict[str, Home]:
    found = find_homes()
    if not {"memory", "pids", "cpu"} <= set(found):
        pytest.skip("this user can't make control groups here")
    return found


def test_a_real_group_counts_and_kills(homes: dict[str, Home]) -> None:
    group = Group(homes, f"test-{os.getpid()}", Resources(memory=2**26, processes=3))
    script = "read go; (sleep 300 & sleep 300 & sleep 300 & sleep 300); echo started; sleep 300"
    process = subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=-3)
    assert process.stdin is not None and process.stdout is not None
    try:
        group.enter(process.pid)
        process.stdin.write(b"\n")
        process.stdin.flush()
        while not group.refused_forks:
            assert process.poll() is None or group.refused_forks
        assert len(group.pids()) in (2, 3)
        assert group.kill() is True
        assert process.wait(20) == -9
        assert (group.oom_kills, group.peak_processes) == (0, 3)
        assert group.cpu is not None and group.cpu > 0
        assert group.peak_memory is not None and 0 < group.peak_memory <= 2**26
    finally:
        group.kill()
        group.close()
        process.stdin.close()
        process.stdout.close()
    group.close()
    assert [path for home in homes.values() for path in home.path.glob(f"rollout-test-{os.getpid()}*")] == []
