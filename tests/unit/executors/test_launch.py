"""Starting a sandbox: whose fault a refusal is, and that nothing is left running or open after one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_rollout.errors import HostError, InfraError, IsolationError, SpawnError, StageError
from pytest_rollout.executors import launch as module
from pytest_rollout.executors import sandbox as its_module
from pytest_rollout.executors.bwrap import Bwrap
from pytest_rollout.executors.launch import launch, local_mounts, refusal
from pytest_rollout.executors.protocol import Bind
from pytest_rollout.stage.root import Owner, StageRoot

if TYPE_CHECKING:
    from tests.unit.conftest import Lab

ROOT = os.geteuid() == 0
BASH = """#!/bin/bash
while [ $# -gt 0 ]; do case "$1" in --json-status-fd) status=$2;; esac; shift; done
"""

pytestmark = pytest.mark.skipif(not os.access("/bin/bash", os.X_OK), reason="the fake bubblewrap is a bash script")


@pytest.fixture
def fake(private_folder: Path) -> Callable[[str], Bwrap]:
    """A bubblewrap out of bash lines; ``$status`` is its descriptor, standard input the gate."""

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
        launch(bwrap, [], ["true"], owner=Owner.of_this_process(), mounts=(), mark="x-0")
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
@pytest.mark.parametrize("when", ["", "sleep 30 & echo '{ \"child-pid\": '$!' }' >&$status; kill -9 $!; "])
def test_a_refusal_tells_whose_fault_it_is(
    fake: Callable[[str], Bwrap], when: str, said: str, kind: type[InfraError], message: str
) -> None:
    """The same before bubblewrap's first line and after it, when the pid is known already."""
    tell = f"printf '%s' {_quoted(said)} >&2; " if said else ""
    error = failure(fake(f"{when}{tell}exit 1"))
    assert type(error) is kind
    assert error.message == message
    assert not error.forgeable
    hint = "--rollout-executor=local --rollout-isolation=none"
    assert (hint in error.hint) is (kind is IsolationError)
    if kind is IsolationError:
        assert error.hint.startswith("Unprivileged user namespaces have to be allowed.")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


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
        "pytest-rollout doctor says more.",
        "To run without isolation (results are marked untrusted): --rollout-executor=local --rollout-isolation=none",
    ]


@pytest.mark.parametrize("when", ["", "echo '{ \"child-pid\": '$$' }' >&$status; "])
def test_one_that_hangs_is_killed_with_its_children(
    fake: Callable[[str], Bwrap], monkeypatch: pytest.MonkeyPatch, private_folder: Path, when: str
) -> None:
    monkeypatch.setattr(module, "_PATIENCE", 1.0)
    pids = private_folder / "pids"
    pids.mkdir(mode=0o777)
    pids.chmod(0o777)
    error = failure(fake(f"{when}sleep 300 & echo $! $$ > {pids}/these; wait"))
    assert (type(error), error.message) == (SpawnError, "the sandbox did not start: it was not ready in 1 s")
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


def test_an_agent_is_not_let_go_where_it_can_not_be_held(sandbox: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(pid: int) -> int:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr("os.pidfd_open", no_room)
        stage = sandbox.stage()
        with pytest.raises(OSError, match="Too many open files"):
            sandbox.run("echo x > ran", over=stage)
    assert sandbox.run("ls", over=stage).text == ""
    assert sandbox.run("echo x > ran", over=stage).changes == {"ran": "added file"}


def test_an_agent_ends_unstarted_where_we_are_killed_before_it_was_let_go(
    sandbox: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of the gate, as a kill of this process brings it about, is no permission to start."""
    stage = sandbox.stage()
    with monkeypatch.context() as patch:
        patch.setattr(module, "_is_ready", lambda gate: gate.recv(1) == b"never")
        with pytest.raises(SpawnError):
            sandbox.run("echo x > ran", over=stage)
    assert sandbox.run("true", over=stage).changes == {}
    assert sandbox.run("echo x > ran", over=stage).changes == {"ran": "added file"}


def test_a_bubblewrap_that_is_not_there_is_the_hosts_failure(tmp_path: Path) -> None:
    error = failure(Bwrap(path=str(tmp_path / "none"), origin="x", version="0.11.0", digest="x"))
    if ROOT:  # the program that drops the uid does not find it
        assert (type(error), error.message.split(":")[0]) == (SpawnError, "the sandbox did not start")
        assert "No such file or directory" in error.message
    else:
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


ORPHAN = """
import os, sys
from pathlib import Path
from pytest_rollout.executors import bwrap, cancel, capture, protocol, sandbox
from pytest_rollout.stage.root import StageRoot
top = Path(sys.argv[1])
root = StageRoot(top / "root")
found = bwrap.find_bwrap(root.path / "bin", dropped=os.geteuid() == 0)
executor = sandbox.SandboxExecutor(root, found)
stage = executor.provision(executor.prepare(None))
streams = [capture.Capture(top / f"{root._lease_name}-{name}", 1000) for name in ("stdout", "stderr")]
print(f"{stage.path}/u/beat", flush=True)
script = "while :; do echo x >> beat; sleep 0.05; done"
command = protocol.Command(argv=("sh", "-c", script), env={"PATH": "/usr/bin:/bin"}, wall=600.0)
executor.run(stage, command, streams[0], streams[1], cancel.Cancel())
"""


@pytest.mark.slow
def test_no_agent_outlives_a_kill_of_this_process_at_any_moment(private_folder: Path) -> None:
    """Killed 0 to 200 ms after a launch began, 60 times: while the sandbox is made, and while the agent runs."""
    beats = []
    for number in range(60):
        with subprocess.Popen(
            [sys.executable, "-c", ORPHAN, str(private_folder)],
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            beats.append(Path(process.stdout.readline().strip()))
            time.sleep(0.2 * (number / 60) ** 3)  # a third of them within 7 ms: a launch may take no longer
            process.kill()
    time.sleep(1.0)
    sizes = [beat.stat().st_size if beat.exists() else 0 for beat in beats]
    ran = sum(size > 0 for size in sizes)
    assert 5 <= ran <= 55  # some were killed before, and some after their agent had begun
    time.sleep(1.0)
    assert [beat.stat().st_size if beat.exists() else 0 for beat in beats] == sizes
    root = StageRoot(private_folder / "root")
    root.reap()  # what was killed while it made a sandbox may have left a process that waits for ever
    root.close()
    leases = {beat.parent.parent.name for beat in beats}
    assert [pid for pid, mark in _marked().items() if mark in leases] == []


def _marked() -> dict[int, str]:
    """The marks of the processes of this machine."""
    found: dict[int, str] = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            items = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        marks = [item.partition(b"=")[2].decode() for item in items if item.startswith(b"ROLLOUT_PROCESS_MARK=")]
        found |= {int(pid): mark for mark in marks}
    return found


def test_a_sandbox_that_was_killed_from_outside_is_the_hosts_failure(
    sandbox: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*args: object, **options: object) -> module.Sandbox:
        started = launch(*args, **options)  # type: ignore[arg-type]
        started.process.send_signal(signal.SIGKILL)
        return started

    monkeypatch.setattr(its_module, "launch", killed)
    with pytest.raises(HostError) as caught:
        sandbox.run("sleep 60")
    assert caught.value.message == "the sandbox was killed from outside"
    assert caught.value.forgeable


def test_a_bubblewrap_that_was_stopped_holds_nobody_up(sandbox: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*given: Any, **options: Any) -> Any:
        made = launch(*given, **options)
        os.kill(made.process.pid, signal.SIGSTOP)
        return made

    monkeypatch.setattr(its_module, "launch", stopped)
    monkeypatch.setattr(module, "_PATIENCE", 0.2)
    with pytest.raises(HostError, match="killed from outside"):
        sandbox.run("sleep 0.05")


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
    echo >&0; read -r go; [ "$go" = "" ] || exit 1
    kill -9 $pid; wait $pid
    echo out; echo '{ "exit-code": 7 }' >&$status; exit 7
    """
    before = sorted(os.listdir("/proc/self/fd"))
    sandbox = launch(fake(script), [], ["true"], owner=Owner.of_this_process(), mounts=(), mark="x-0")
    assert sandbox.stdout.read() == b"out\n"
    status = sandbox.finish()
    assert (status.exit_code, status.namespaces) == (7, {"net-namespace": 42})
    assert sorted(os.listdir("/proc/self/fd")) == before
