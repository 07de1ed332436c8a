"""Rung 4: what an agent can't do under Landlock, and that its processes end whoever is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_rollout.errors import HostError, IsolationError
from pytest_rollout.executors import drain
from pytest_rollout.executors import landlock as module
from pytest_rollout.executors.cancel import Cancel
from pytest_rollout.executors.ladder import make
from pytest_rollout.executors.landlock import LandlockExecutor, landlock_version
from pytest_rollout.executors.protocol import Bind
from pytest_rollout.executors.rungs import enforced
from pytest_rollout.executors.uids import UIDS, take_uid
from pytest_rollout.stage.root import StageRoot

if TYPE_CHECKING:
    from tests.unit.conftest import Lab

ROOT = os.geteuid() == 0
apart = pytest.mark.skipif(
    enforced(4, own_uid=ROOT, landlock=landlock_version())["tree"] != "yes",
    reason="this kernel's Landlock does not keep an agent from signalling this user's processes",
)


def marked(word: str) -> set[int]:
    """The living processes with a word in their command line."""
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file, open(f"/proc/{pid}/stat", "rb") as state:
                if word.encode() in file.read() and state.read().rpartition(b")")[2].split()[0] != b"Z":
                    found.add(int(pid))
        except OSError:
            continue
    return found - {os.getpid()}


def reapers() -> set[int]:
    """The reapers that this process started."""
    found = set()
    for pid in marked("executors/reaper.py"):
        with open(f"/proc/{pid}/stat", "rb") as file:
            if int(file.read().rpartition(b")")[2].split()[1]) == os.getpid():
                found.add(pid)
    return found


def test_what_is_recorded_of_the_executor(rung4: Lab) -> None:
    info = rung4.executor.info
    version = landlock_version()
    assert (info.name, info.rung, info.mounts, info.version) == ("landlock", 4, False, str(version))
    assert info.levels == enforced(4, own_uid=ROOT, landlock=version)
    assert info.trusted is ROOT
    missing = "network, sight" if ROOT else ", ".join(info.unenforced)
    assert info.describe() == f"landlock (rung 4, Landlock {version}; not enforced: {missing})"


def test_what_is_observed(rung4: Lab) -> None:
    assert rung4.run("true").ended.observed == {"network": "unix sockets", "pid_namespace": "host"}
    assert rung4.run("true", network="host").ended.observed["network"] == "host"


@pytest.mark.parametrize(
    "script",
    [
        "ls /tmp",
        "ls /home",
        "ls ..",
        "cat /etc/shadow /etc/hostname",
        "touch /tmp/x",
        "touch /var/tmp/x",
        "touch /dev/shm/x",
        "touch ../x",
        "mv ../home ../other",
        "echo x > $ROLLOUT_PROMPT_FILE",
        "cat /proc/$PPID/environ",
        "ls /proc/$PPID/fd",
        "unshare --user true",
        "setpriv --reuid 0 true",
        "renice -n 1 -p $PPID",
        "ipcmk --shmem 8",
    ],
)
def test_what_it_is_not_allowed_to(rung4: Lab, script: str) -> None:
    stage = rung4.stage()
    env = {"ROLLOUT_PROMPT_FILE": rung4.executor.prompt_file(stage)}
    trial = rung4.run(f"{script} && echo done", over=stage, env=env)
    assert trial.ended.termination == "exit_code", trial.text
    assert "done" not in trial.text
    assert b"not found" not in trial.stderr
    assert trial.changes == {}


def test_its_own_places_can_be_written(rung4: Lab) -> None:
    trial = rung4.run("echo x > a; echo x > $HOME/b; echo x > $TMPDIR/c; chmod 700 a; cat a $HOME/b $TMPDIR/c >&1")
    assert (trial.text, trial.stderr, trial.changes) == ("x\nx\nx\n", b"", {"a": "added file"})


def test_a_sealed_command_finds_its_stage_read_only(rung4: Lab) -> None:
    trial = rung4.run("cat a; echo x > a || echo x > b || echo sealed", over={"a": "one\n"}, sealed=True)
    assert (trial.text, trial.changes) == ("one\nsealed\n", {})


def test_a_program_that_is_not_there(rung4: Lab) -> None:
    trial = rung4.run(["no-such-program"])
    assert trial.end == ("exit_code", 127, None)
    assert b"no-such-program" in trial.stderr


@pytest.mark.skipif(not ROOT, reason="an ordinary user's agents reach what the user reaches")
def test_a_path_that_the_uid_of_a_stage_does_not_reach_is_told(rung4: Lab, private_folder: Path) -> None:
    (private_folder / "closed/tool").mkdir(parents=True)
    (private_folder / "closed").chmod(0o700)
    place = str(private_folder / "closed/tool")
    with pytest.raises(IsolationError, match=f"{place} can't be read by the uid of a stage"):
        rung4.run("true", binds=(Bind(source=place, target=place),))


@pytest.mark.skipif(not ROOT, reason="only root has uids to give")
def test_every_stage_has_a_uid_of_its_own_until_it_is_dropped(rung4: Lab) -> None:
    first, second = rung4.stage({"a": "x"}), rung4.stage()
    ids = [int(rung4.run("id -u; ls -n a >&2", over=stage).text) for stage in (first, second)]
    assert len(set(ids)) == 2
    assert set(ids) <= set(UIDS)
    assert os.lstat(f"{first.path}/copy/a").st_uid == ids[0]
    trial = rung4.run(f"cat {first.path}/copy/a", over=second)
    assert trial.ended.termination == "exit_code"
    rung4.run("cp /usr/bin/id i; chmod 6755 i; ls -l i", over=first)
    place = rung4.executor.keep(first)
    assert {os.lstat(f"{place}/copy/{name}").st_uid for name in ("a", "i")} == {0}
    assert os.lstat(f"{place}/copy/i").st_mode & 0o7777 == 0o755
    assert take_uid().uid not in ids[1:]


def test_a_uid_is_one_users_at_a_time(tmp_path: Path) -> None:
    first, second = take_uid(tmp_path / "locks"), take_uid(tmp_path / "locks")
    assert [own.uid - UIDS.start for own in (first, second)] == [0, 1]
    first.give_back()
    assert take_uid(tmp_path / "locks").uid == first.uid


@apart
def test_it_can_not_kill_its_reaper(rung4: Lab) -> None:
    trial = rung4.run("kill -9 $PPID; kill -STOP $PPID; kill -9 -1; sleep 0.1; echo alive")
    assert (trial.text, trial.ended.tree_dead) == ("alive\n", True)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_where_the_reaper_is_killed_or_stopped_the_agent_is_found_by_its_mark(
    rung4: Lab, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    monkeypatch.setattr(drain, "_PATIENCE", 0.2)
    cancel = Cancel()
    word = f"word-{os.getpid()}-{os.urandom(4).hex()}"
    caught: list[BaseException] = []

    def run() -> None:
        try:
            rung4.run(f"setsid sh -c ': {word}; echo up > up; sleep 600' & sleep 600", cancel=cancel)
        except HostError as error:
            caught.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    _wait(lambda: bool(marked(f": {word}; echo")) and bool(reapers()))
    for pid in reapers():
        os.kill(pid, number)
    if number == signal.SIGSTOP:
        cancel.set()
    thread.join()
    cancel.close()
    assert [str(error) for error in caught] == ["the reaper of the agent's processes was ended, or could not end them"]
    _wait(lambda: not marked(word) and not reapers())


SESSION = """
    import sys
    from pathlib import Path
    from pytest_rollout.executors.cancel import Cancel
    from pytest_rollout.executors.capture import Capture
    from pytest_rollout.executors.ladder import make
    from pytest_rollout.executors.protocol import Command
    from pytest_rollout.stage.root import StageRoot

    folder, word = Path(sys.argv[1]), sys.argv[2]
    executor = make(StageRoot(folder / "root"), 4)
    stage = executor.provision(executor.prepare(None))
    command = Command(argv=("sh", "-c", f"setsid sh -c ': {word}; sleep 600' & sleep 600"), wall=600.0)
    streams = [Capture(folder / name, 1000) for name in ("out", "err")]
    executor.run(stage, command, *streams, Cancel())
"""


def test_the_tree_dies_with_a_session_that_is_killed(private_folder: Path) -> None:
    word = f"word-{os.urandom(4).hex()}"
    words = [sys.executable, "-c", textwrap.dedent(SESSION), str(private_folder), word]
    session = subprocess.Popen(words)
    _wait(lambda: bool(marked(f": {word}; sleep") - {session.pid}))
    session.kill()
    session.wait()
    _wait(lambda: not marked(word))
    StageRoot(private_folder / "root").reap()


def _wait(condition: object, rounds: int = 3000) -> None:
    """Wait until a condition holds, at most half a minute on a quiet machine."""
    pause = threading.Event()
    for _ in range(rounds):
        if condition():  # type: ignore[operator]
            return
        pause.wait(0.01)
    raise AssertionError("it did not come")


def test_a_kernel_without_landlock_is_told(stage_root: StageRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "landlock_version", lambda: 0)
    with pytest.raises(IsolationError, match="this kernel has no Landlock, or it is switched off"):
        make(stage_root, 4)


def test_a_processor_without_a_filter_is_told(stage_root: StageRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "filter_program", lambda **_: None)
    with pytest.raises(IsolationError, match="there is no filter of system calls for this processor"):
        LandlockExecutor(stage_root)
