"""What a command uses, and what is more than it may: with control groups where this user can make them, and without."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from pytest_rollout.bundle import Ended
from pytest_rollout.errors import HostError
from pytest_rollout.executors import account as module
from pytest_rollout.executors.cancel import Cancel
from pytest_rollout.executors.capture import Capture
from pytest_rollout.executors.cgroups import Home, find_homes
from pytest_rollout.executors.pressure import Machine
from pytest_rollout.executors.protocol import Command
from pytest_rollout.limits import Resources
from tests.unit.conftest import Lab

GROW = """
import time
kept = []
while True:
    kept.append(b"x" * (4 << 20))
    time.sleep(0.002)
"""
SHARED = "import mmap, time; m = mmap.mmap(-1, 100 << 20); m.write(bytes(100 << 20)); time.sleep(30)"
BOMB = "for i in $(seq 12); do sleep 60 & done; wait"
BURN = "while :; do :; done & while :; do :; done & wait"

Run = Callable[..., Ended]


@pytest.fixture(params=["groups", "looks"])
def run(request: pytest.FixtureRequest, lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a shell's command within resources on each executor, where control groups count and where nothing does."""
    if request.param == "looks":
        monkeypatch.setattr(module, "find_homes", dict)
    elif not {"memory", "pids", "cpu"} <= set(find_homes()):
        pytest.skip("this user can't make control groups here")

    def run(text: str | tuple[str, ...], **resources: float) -> Ended:
        argv = ("sh", "-c", text) if isinstance(text, str) else text
        stage = lab.executor.provision(lab.executor.prepare(None))
        cancel = Cancel()
        streams = [Capture(tmp_path / name, 1 << 16) for name in ("out", "err")]
        command = Command(
            argv=argv,
            env={"PATH": "/usr/bin:/bin"},
            wall=40.0,
            resources=msgspec.convert(resources, Resources),
        )
        try:
            return lab.executor.run(stage, command, streams[0], streams[1], cancel)
        finally:
            cancel.close()
            for stream in streams:
                stream.close()
                stream.path.unlink()
            name = os.path.basename(stage.path)
            assert [path for home in find_homes().values() for path in home.path.glob(f"rollout-{name}*")] == []
            lab.executor.drop(stage)

    return run


def test_memory(run: Run) -> None:
    ended = run(("/usr/bin/python3", "-c", GROW), memory=64 << 20)
    assert (ended.termination, ended.exit_code, ended.signal) == ("memory_limit", None, None)
    assert ended.observed["memory"].startswith("67108864 bytes together")
    assert run(("/usr/bin/python3", "-c", SHARED), memory=64 << 20).termination == "memory_limit"


def test_processes(run: Run) -> None:
    assert run("sleep 0.01 & wait", processes=3).termination == "completed"
    assert run(BOMB, processes=6).termination == "process_limit"


def test_time_on_processors(run: Run) -> None:
    ended = run(BURN, cpu=0.5)
    assert ended.termination == "cpu_limit"
    assert ended.usage.cpu is None or ended.usage.cpu > 0.4


def test_the_disk(run: Run) -> None:
    good = run("head -c 100000 /dev/zero > a; mkdir b", disk=1 << 20, files=3)
    assert (good.termination, good.usage.disk is not None and 100_000 <= good.usage.disk <= 1 << 20) == (
        "completed",
        True,
    )
    assert good.observed["disk"] == "1048576 bytes and 3 files, looked at at intervals and at the end"
    quick = run("for i in 1 2 3 4 5; do head -c 300000 /dev/zero > $i; done", disk=1 << 20)
    assert quick.termination == "disk_limit"
    assert run("touch a b c d", files=3).termination == "disk_limit"
    assert run("mkdir d; head -c 900000 /dev/zero > d/f; chmod 000 d", disk=1 << 19).termination == "disk_limit"
    deep = f"for i in $(seq 25); do mkdir {'d' * 200}; cd {'d' * 200}; done"  # nobody can look there by a path
    assert run(deep, disk=1 << 20).termination == "disk_limit"


def test_a_file_that_is_too_large(run: Run) -> None:
    ended = run("exec head -c 5000000 /dev/zero > big", file_size=1 << 20)
    assert (ended.termination, ended.signal) == ("disk_limit", None)
    assert ended.observed["file_size"] == "1048576 bytes (RLIMIT_FSIZE)"
    unasked = run("kill -XFSZ $$")
    assert (unasked.termination, unasked.signal) == ("signal", 25)


def test_open_files(run: Run) -> None:
    ended = run("ulimit -n | grep -q '^20$'", open_files=20)
    assert (ended.termination, ended.observed["open_files"]) == ("completed", "20 (RLIMIT_NOFILE)")


def test_what_is_used_where_nothing_was_asked_for(run: Run, lab: Lab) -> None:
    ended = run("i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo x > f")
    assert ended.termination == "completed"
    if "cpu" in vars(module)["find_homes"]():
        assert ended.usage.cpu is not None and 0.01 < ended.usage.cpu < 30
    else:  # what is seen of processes is less than they used
        assert ended.usage.cpu is None
    assert ended.usage.disk == (4096 if lab.executor.info.trusted else None)
    assert {"memory", "processes", "cpu", "disk"}.isdisjoint(ended.observed)


def test_a_machine_that_ran_out_of_memory_is_infrastructure(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain kill is the agent's own; with a killing of the kernel's that no group of ours made, it is the host's."""
    assert run("kill -9 $$").signal == 9
    monkeypatch.setattr(Machine, "ran_out", lambda self: True)
    if "memory" in vars(module)["find_homes"]():  # the group knows that it was none of its processes
        assert run("kill -9 $$").signal == 9
        assert run("kill -9 $$", memory=1 << 30).signal == 9
        return
    with pytest.raises(HostError, match="the machine ran out of memory while the agent ran") as caught:
        run("kill -9 $$")
    assert caught.value.forgeable
    assert run("exit 3").exit_code == 3


@pytest.fixture
def around(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A group around those of agents, as a container is one, with little memory."""
    homes = find_homes()
    if not {"memory", "pids", "cpu"} <= set(homes):
        pytest.skip("this user can't make control groups here")
    outer = {key: Home(home.version, home.path / f"rollout-around-{os.getpid()}") for key, home in homes.items()}
    places = {home.path for home in outer.values()}
    try:
        for place in places:
            place.mkdir()
        memory = outer["memory"]
        if memory.version == 2:
            (memory.path / "cgroup.subtree_control").write_text("+memory +pids")
        (memory.path / ("memory.max" if memory.version == 2 else "memory.limit_in_bytes")).write_text(str(64 << 20))
        monkeypatch.setattr(module, "find_homes", lambda: outer)
        yield
    finally:
        for place in places:
            place.rmdir()


@pytest.mark.parametrize("limits", [{}, {"memory": 1 << 30}])
@pytest.mark.parametrize("run", ["groups"], indirect=True)
def test_memory_that_ran_out_around_the_agent_is_no_limit_of_its(
    run: Run, lab: Lab, around: None, limits: dict[str, float]
) -> None:
    with pytest.raises(HostError, match="the machine ran out of memory while the agent ran") as caught:
        run(("/usr/bin/python3", "-c", GROW), **limits)
    assert caught.value.forgeable == (not limits or not lab.executor.info.trusted)
    assert run(("/usr/bin/python3", "-c", GROW), memory=32 << 20).termination == "memory_limit"


# -- the machine


def test_pressure_and_what_the_kernel_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "pressure"
    folder.mkdir()

    def say(cpu: int, kills: int) -> None:
        for kind in ("cpu", "memory", "io"):
            total = cpu if kind == "cpu" else 0
            head = "avg10=1.00 avg60=0.00 avg300=0.00"
            (folder / kind).write_text(f"some {head} total={total}\nfull {head} total=9\n")
        (tmp_path / "vmstat").write_text(f"nr_free_pages 5\noom_kill {kills}\n")

    clock = [100.0]
    monkeypatch.setattr("pytest_rollout.executors.pressure.time.monotonic", lambda: clock[0])
    say(1_000_000, 4)
    machine = Machine(tmp_path)
    clock[0] += 10
    assert (machine.pressure(), machine.ran_out()) == ({"cpu": 0.0, "memory": 0.0, "io": 0.0}, False)
    say(3_500_000, 5)
    assert (machine.pressure(), machine.ran_out()) == ({"cpu": 0.25, "memory": 0.0, "io": 0.0}, True)
    unknown = Machine(tmp_path / "none")
    assert (unknown.pressure(), unknown.ran_out()) == (None, False)
