"""Starting a sandbox: whose fault a refusal is, and that nothing is left running or open after one."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_rollout.errors import HostError, InfraError, IsolationError, SpawnError, StageError
from pytest_rollout.executors import launch as module
from pytest_rollout.executors.bwrap import Bwrap
from pytest_rollout.executors.launch import launch, local_mounts, refusal
from pytest_rollout.executors.protocol import Bind
from pytest_rollout.executors.sandbox import SandboxExecutor
from pytest_rollout.stage.root import Owner, StageRoot

if TYPE_CHECKING:
    from tests.unit.conftest import Lab

ROOT = os.geteuid() == 0
BASH = """#!/bin/bash
while [ $# -gt 0 ]; do case "$1" in --json-status-fd) status=$2;; --block-fd) block=$2;; esac; shift; done
"""

pytestmark = pytest.mark.skipif(not os.access("/bin/bash", os.X_OK), reason="the fake bubblewrap is a bash script")


@pytest.fixture
def fake(private_folder: Path) -> Callable[[str], Bwrap]:
    """A bubblewrap out of bash lines; ``$status`` and ``$block`` are its descriptors."""

    def make(script: str) -> Bwrap:
        path = private_folder / "bwrap"
        path.write_text(BASH + script + "\n")
        path.chmod(0o755)
        return Bwrap(path=str(path), origin=str(path), version="0.11.0", digest="sha256:0")

    return make


def failure(bwrap: Bwrap) -> InfraError:
    """The error of a launch; no descriptor is left open."""
    before = sorted(os.listdir("/proc/self/fd"))
    with pytest.raises(InfraError) as caught:
        launch(bwrap, [], ["true"], owner=Owner.of_this_process(), mounts=())
    assert sorted(os.listdir("/proc/self/fd")) == before
    return caught.value


@pytest.mark.parametrize(
    ("said", "kind", "message"),
    [
        (
            "bwrap: setting up uid map: Permission denied",
            IsolationError,
            "this machine refuses the sandbox: bwrap: setting up uid map: Permission denied",
        ),
        (
            "bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted",
            IsolationError,
            "this machine refuses the sandbox: bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted",
        ),
        (
            "bwrap: No permissions to create new namespace, likely because the kernel does not allow it",
            IsolationError,
            "this machine refuses the sandbox: bwrap: No permissions to create new namespace, likely because the "
            "kernel does not allow it",
        ),
        (
            "unshare: unshare failed: Operation not permitted",
            IsolationError,
            "this machine refuses the sandbox: unshare: unshare failed: Operation not permitted",
        ),
        (
            "bwrap: Can't make overlay mount on /newroot/stage with options x: Invalid argument",
            StageError,
            "the stage can't be mounted: bwrap: Can't make overlay mount on /newroot/stage with options x: "
            "Invalid argument",
        ),
        (
            "bwrap: Can't find source path /x: No such file or directory",
            StageError,
            "the stage can't be mounted: bwrap: Can't find source path /x: No such file or directory",
        ),
        ("bwrap: one\nbwrap: two", SpawnError, "the sandbox did not start: bwrap: one; bwrap: two"),
        ("bwrap: \033[31mred", SpawnError, "the sandbox did not start: bwrap: \\x1b[31mred"),
        ("", SpawnError, "the sandbox did not start: exit status 1"),
    ],
)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_refusal_tells_whose_fault_it_is(
    fake: Callable[[str], Bwrap], stage_root: StageRoot, when: str, said: str, kind: type[InfraError], message: str
) -> None:
    """The same message before bubblewrap's first line and after it, where the pid is known already."""
    tell = "printf '%s\\n' \"$said\" >&2; exit 1"
    if when == "before":
        error = failure(fake(f"said={_quoted(said)}; {tell}"))
    else:
        error = failure_in_stage(fake(f"said={_quoted(said)}; sleep 30 & echo '{{ \"child-pid\": '$!' }}' >&$status; kill -9 $!; {tell}"), stage_root)  # fmt: skip  # noqa: E501
        message = message.replace("exit status 1", "it said nothing")
    assert type(error) is kind
    assert error.message == message
    assert not error.forgeable
    hint = "--rollout-executor=local --rollout-isolation=none"
    assert (hint in error.hint) is (kind is IsolationError)
    if kind is IsolationError:
        assert error.hint.startswith("Unprivileged user namespaces have to be allowed.")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def failure_in_stage(bwrap: Bwrap, root: StageRoot) -> InfraError:
    """The error of a run with this bubblewrap."""
    from pytest_rollout.executors.cancel import Cancel
    from pytest_rollout.executors.capture import Capture
    from pytest_rollout.executors.protocol import Command

    executor = SandboxExecutor(root, bwrap)
    stage = executor.provision(executor.prepare(None))
    streams = [Capture(root.path / name, 10_000) for name in ("stdout", "stderr")]
    cancel = Cancel()
    before = sorted(os.listdir("/proc/self/fd"))
    try:
        with pytest.raises(InfraError) as caught:
            executor.run(stage, Command(argv=("true",), wall=20.0), streams[0], streams[1], cancel)
        assert sorted(os.listdir("/proc/self/fd")) == before
    finally:
        cancel.close()
        for stream in streams:
            stream.close()
    return caught.value


def test_the_remedy_for_ubuntu_is_named_where_its_switch_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.path.exists
    switch = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"
    monkeypatch.setattr("os.path.exists", lambda path: path in (switch, "/.dockerenv") or real(path))
    error = refusal("bwrap: setting up uid map: Permission denied\n")
    assert error.hint.splitlines() == [
        "Unprivileged user namespaces have to be allowed.",
        "Ubuntu: install an AppArmor profile for bwrap, or: sysctl kernel.apparmor_restrict_unprivileged_userns=0",
        "Docker: --security-opt seccomp=unconfined --security-opt systempaths=unconfined, and a volume for",
        "the stage root.",
        "To run without isolation (results are marked untrusted): --rollout-executor=local --rollout-isolation=none",
    ]


def test_one_that_hangs_is_killed_with_its_children(
    fake: Callable[[str], Bwrap], monkeypatch: pytest.MonkeyPatch, private_folder: Path
) -> None:
    monkeypatch.setattr(module, "_PATIENCE", 1.0)
    pids = private_folder / "pids"
    pids.mkdir(mode=0o777)
    pids.chmod(0o777)
    error = failure(fake(f"sleep 300 & echo $! $$ > {pids}/these; echo started >&2; wait"))
    assert (type(error), error.message) == (SpawnError, "the sandbox did not start: started")
    for pid in map(int, (pids / "these").read_text().split()):
        assert gone(pid), f"{pid} lives"


def gone(pid: int) -> bool:
    """Whether a process is dead, or is within five seconds."""
    for _ in range(500):
        try:
            with open(f"/proc/{pid}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] == "Z":
                    return True
        except FileNotFoundError:
            return True
        time.sleep(0.01)
    return False


def test_an_agent_is_not_let_go_where_it_can_not_be_held(
    fake: Callable[[str], Bwrap], monkeypatch: pytest.MonkeyPatch, private_folder: Path
) -> None:
    def no_room(pid: int) -> int:
        raise OSError(24, "Too many open files")

    (private_folder / "marks").mkdir()
    (private_folder / "marks").chmod(0o777)
    mark = private_folder / "marks/let-go"
    bwrap = fake(f"echo '{{ \"child-pid\": '$$' }}' >&$status; echo up > {mark}.up; read -n1 <&$block; echo x > {mark}")
    with monkeypatch.context() as patch:
        patch.setattr("os.pidfd_open", no_room)
        before = sorted(os.listdir("/proc/self/fd"))
        with pytest.raises(OSError, match="Too many open files"):
            launch(bwrap, [], ["true"], owner=Owner.of_this_process(), mounts=())
        assert sorted(os.listdir("/proc/self/fd")) == before
    assert not mark.exists()


def test_a_bubblewrap_that_is_not_there_is_the_hosts_failure(tmp_path: Path) -> None:
    error = failure(Bwrap(path=str(tmp_path / "none"), origin="x", version="0.11.0", digest="x"))
    assert (type(error), error.message) == (HostError, "no process could be started: No such file or directory")


def test_a_baseline_that_is_gone_is_a_failure_of_the_stage(sandbox: Lab) -> None:
    stage = sandbox.stage({"a": "x"})
    os.rename(stage.baseline.path, f"{stage.baseline.path}-gone")
    with pytest.raises(StageError, match="the stage can't be mounted: bwrap: Can't find source path"):
        sandbox.run("true", over=stage)


def test_a_stage_that_is_gone_is_a_failure_of_the_stage(sandbox: Lab) -> None:
    stage = sandbox.stage()
    os.rename(f"{stage.path}/u", f"{stage.path}/gone")
    with pytest.raises(StageError, match="the stage can't be mounted: bwrap: Can't find source path"):
        sandbox.run("true", over=stage)


def test_a_bind_that_is_gone_is_a_failure_of_the_stage(sandbox: Lab) -> None:
    with pytest.raises(StageError, match=r"the stage can't be mounted: .*/no/such"):
        sandbox.run("true", binds=(Bind(source="/no/such", target="/opt/x"),))


def test_a_sandbox_that_was_killed_from_outside_is_the_hosts_failure(
    sandbox: Lab, bwrap: Bwrap, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pytest_rollout.executors import sandbox as its_module

    def killed(*args: object, **options: object) -> module.Sandbox:
        started = launch(*args, **options)  # type: ignore[arg-type]
        started.process.send_signal(signal.SIGKILL)
        return started

    monkeypatch.setattr(its_module, "launch", killed)
    with pytest.raises(HostError) as caught:
        sandbox.run("sleep 60")
    assert caught.value.message == "the sandbox was killed from outside"
    assert caught.value.forgeable


def test_what_the_dropped_uid_can_not_reach_is_mounted_below_the_stage(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "stage").mkdir()
    binds = [
        Bind(source="/usr/share", target="/usr/share"),
        Bind(source=str(tmp_path / "folder"), target="/opt/folder"),
        Bind(source=str(tmp_path / "file"), target="/opt/file"),
    ]
    placed, mounts = local_mounts(binds, str(tmp_path / "stage"), [False, True, True])
    assert placed == [
        binds[0],
        Bind(source=f"{tmp_path}/stage/m1", target="/opt/folder"),
        Bind(source=f"{tmp_path}/stage/m2", target="/opt/file"),
    ]
    assert mounts == [f"{tmp_path}/folder", f"{tmp_path}/stage/m1", f"{tmp_path}/file", f"{tmp_path}/stage/m2"]
    assert (tmp_path / "stage/m1").is_dir()
    assert (tmp_path / "stage/m2").is_file()


def test_what_is_said_in_pieces_is_read_whole(fake: Callable[[str], Bwrap]) -> None:
    """The first line comes in pieces, and the rest after the end."""
    script = """
    sleep 60 & pid=$!
    printf '{ "child-pid": ' >&$status; sleep 0.1; printf "$pid, \\"net-namespace\\": 42 " >&$status; sleep 0.1
    echo '}' >&$status
    read -n1 <&$block
    kill -9 $pid; wait $pid
    echo out; echo '{ "exit-code": 7 }' >&$status; exit 7
    """
    before = sorted(os.listdir("/proc/self/fd"))
    sandbox = launch(fake(script), [], ["true"], owner=Owner.of_this_process(), mounts=())
    assert sandbox.stdout.read() == b"out\n"
    status = sandbox.finish()
    assert (status.exit_code, status.bubblewrap, status.namespaces) == (7, 7, {"net-namespace": 42})
    assert sorted(os.listdir("/proc/self/fd")) == before
