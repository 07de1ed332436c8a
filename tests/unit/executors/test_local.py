"""The executor without isolation: what it still promises, and what it says of itself."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_rollout.errors import EvidenceError, HostError, SpawnError, StageError
from pytest_rollout.executors import local as module
from pytest_rollout.executors.local import LocalExecutor, kill_tree
from pytest_rollout.executors.protocol import ExecutorInfo

if TYPE_CHECKING:
    from tests.unit.conftest import Lab


def test_what_it_says_of_itself(local: Lab) -> None:
    assert local.executor.info == ExecutorInfo(name="local", trusted=False)
    assert local.executor.info.describe() == "local (no isolation, untrusted)"
    ended = local.run("true").ended
    assert ended.tree_dead is None  # it can't be known
    assert ended.observed == {"network": "host"}


def test_the_environment_is_exactly_what_is_given(local: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "PYTHONPATH", "LD_PRELOAD", "GIT_DIR", "PYTEST_OF_THE_HOST"):
        monkeypatch.setenv(name, "/secret-of-the-host")
    trial = local.run(["env", "-0"], env={"GIVEN": "yes"})
    found = dict(item.split("=", 1) for item in trial.text.split("\0") if item)
    assert found == {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": f"{trial.stage.path}/home",
        "TMPDIR": f"{trial.stage.path}/tmp",
        "ROLLOUT_PROCESS_MARK": os.path.basename(trial.stage.path),
        "GIVEN": "yes",
    }
    assert trial.stderr == b""


def test_it_works_on_a_copy_of_this_users_own(local: Lab) -> None:
    trial = local.run("pwd; echo more >> a; chmod 600 d/x; mkdir e; ls -l l", over={"a": "x\n", "d/x": "y"})
    copy = f"{trial.stage.path}/copy"
    assert trial.text.splitlines()[0] == copy
    for path in (Path(copy), *Path(copy).rglob("*")):
        assert path.lstat().st_uid == os.geteuid()
    assert stat.S_IMODE(os.stat(trial.stage.path).st_mode) == 0o700
    assert trial.changes == {"a": "modified file", "d/x": "modified file", "e": "added dir"}


def test_links_of_the_workspace_are_copied_as_links(local: Lab, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "link").symlink_to("/etc/passwd")
    trial = local.run("readlink link", over=source)
    assert (trial.text, trial.changes) == ("/etc/passwd\n", {})


def test_a_program_that_is_not_there_was_not_started(local: Lab) -> None:
    with pytest.raises(SpawnError) as caught:
        local.run(["no-such-program"])
    assert str(caught.value) == "the agent's program 'no-such-program' was not found"
    with pytest.raises(SpawnError) as caught:
        local.run(["./data"], over={"data": "x"})
    assert str(caught.value) == "the agent's program './data' can't be run: Permission denied"


def test_a_program_of_the_workspace_is_run(local: Lab, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "agent").write_text("#!/bin/sh\necho mine\n")
    (source / "agent").chmod(0o755)
    assert local.run(["./agent"], over=source).text == "mine\n"


def test_a_machine_without_room_for_a_process(local: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(module, "spawn", full)
    with pytest.raises(HostError) as caught:
        local.run("true")
    assert str(caught.value) == "no process could be started: Resource temporarily unavailable"


def test_a_baseline_that_is_gone_leaves_no_half_made_stage(local: Lab) -> None:
    baseline = local.executor.prepare(None)
    os.rename(baseline.path, f"{baseline.path}-gone")
    with pytest.raises(StageError, match=r"the stage can't be made: .*No such file or directory"):
        local.executor.provision(baseline)
    assert list(local.root.stages.iterdir()) == []


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), OSError(122, "Disk quota exceeded")])
def test_a_full_disk_is_the_hosts_failure(local: Lab, monkeypatch: pytest.MonkeyPatch, error: OSError) -> None:
    def full(*_: object, **__: object) -> None:
        raise error

    baseline = local.executor.prepare(local.workspace({"a": "x", "d/b": "y"}))
    for name in ("shutil.copy2", "os.pwrite"):
        monkeypatch.setattr(name, full)
    with pytest.raises(HostError) as caught:
        local.executor.provision(baseline)
    assert str(caught.value) == f"the stage can't be made: {error}"
    assert list(local.root.stages.iterdir()) == []


def test_what_cleared_its_group_is_found_by_its_environment(local: Lab) -> None:
    """A process that left session and group is killed by the mark, one without the mark is not ours to kill."""
    with subprocess.Popen(["sleep", "60"]) as bystander:
        trial = local.run("setsid sh -c 'echo $$; exec sleep 60' & sleep 0.3")
        daemon = int(trial.text)
        assert not _lives(daemon)
        assert bystander.poll() is None
        bystander.kill()


def _lives(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] != b"Z"
    except FileNotFoundError:
        return False


def test_kill_tree_kills_the_group_and_the_marked_and_nothing_else() -> None:
    def start(mark: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(["sleep", "60"], env={"ROLLOUT_PROCESS_MARK": mark}, start_new_session=True)

    leader, marked, other, longer = start("none"), start("one-1"), start("two-1"), start("one-12")
    for process in (leader, marked, other, longer):
        _until_exec(process.pid)
    kill_tree(leader.pid, "one-1")
    assert (leader.wait(10), marked.wait(10)) == (-signal.SIGKILL, -signal.SIGKILL)
    assert (other.poll(), longer.poll()) == (None, None)
    kill_tree(leader.pid, "one-1")  # nothing is left of it
    for process in (other, longer):
        process.kill()
        process.wait(10)


def _until_exec(pid: int) -> None:
    """Wait until a process is the program that it was started as."""
    for _ in range(1000):
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            if file.read().startswith(b"sleep"):
                return
        time.sleep(0.01)
    pytest.fail(f"{pid} is not started")


def test_closing_gives_the_root_back(local: Lab) -> None:
    executor = LocalExecutor(local.root)
    stage = executor.provision(executor.prepare(None))
    executor.close()
    assert not os.path.lexists(stage.path)


def test_the_interpreter_of_this_session_needs_no_bind(local: Lab) -> None:
    trial = local.run([sys.executable, "-c", "import sys; print(sys.executable)"])
    assert trial.text == f"{sys.executable}\n"


# One chain of folders moved to the end of another: longer than any path that a shell can go to.
CHAIN = 'for _ in 1 2 3; do mkdir -p "$p"; test ! -d x || mv x "$p/x"; mv {name} x; done'


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (f"p=$(printf 'd/%.0s' $(seq 1000)); {CHAIN.format(name='d')}", "more than 200 levels of folders"),
        (f"n={'n' * 250}; p=$n/$n/$n/$n/$n/$n/$n; {CHAIN.format(name='$n')}", "a path is too long"),
    ],
    ids=["deep", "long"],
)
def test_what_can_not_be_copied_for_an_evaluation_is_the_candidates(local: Lab, script: str, why: str) -> None:
    trial = local.run(script)
    assert trial.end == ("completed", 0, None), trial.stderr
    with pytest.raises(EvidenceError) as caught:
        local.above(trial.stage)
    assert str(caught.value) == f"what the agent left can't be copied for an evaluation: {why}"
    assert len(os.listdir(local.root.stages)) == 1


def test_a_sparse_terabyte_is_copied_as_one(local: Lab) -> None:
    above = local.above(local.run("truncate -s 1T big").stage)
    info = os.stat(f"{above.path}/copy/big")
    assert (info.st_size, info.st_blocks) == (1 << 40, 0)


def test_a_disk_that_is_full_at_an_evaluation_may_be_the_candidates_doing(
    local: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    stage = local.run("echo x > f").stage
    with monkeypatch.context() as patch:
        patch.setattr("os.pwrite", full)
        with pytest.raises(HostError) as caught:
            local.above(stage)
    assert caught.value.forgeable
