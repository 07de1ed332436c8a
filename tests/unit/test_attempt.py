"""One attempt: from task and agent to a bundle, or to the reason why there is none."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import re
import secrets
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_rollout.agents.command import CommandAgent
from pytest_rollout.agents.function import FunctionAgent
from pytest_rollout.agents.noop import NoopAgent
from pytest_rollout.agents.protocol import Agent, Episode, LiveStage
from pytest_rollout.attempt import Attempt, Request, run_attempt
from pytest_rollout.bundle import BundleRecord, Captured, Control, Ended, Finding, Identity
from pytest_rollout.errors import (
    AgentError,
    AgentFailure,
    AuthenticationError,
    Cancelled,
    ConfigError,
    HostError,
    IsolationError,
    ProviderError,
    RecordingError,
    SpawnError,
    StageError,
)
from pytest_rollout.evaluated import Exec
from pytest_rollout.executors.cancel import Cancel
from pytest_rollout.executors.capture import Capture
from pytest_rollout.executors.cgroups import find_homes
from pytest_rollout.executors.protocol import Command, Executor, ExecutorInfo, Stage
from pytest_rollout.limits import DEFAULT_LIMITS, Limits
from pytest_rollout.outcome import Infra
from pytest_rollout.stage.baseline import Baseline
from pytest_rollout.stage.collect import CollectBounds
from pytest_rollout.stage.removal import remove_tree
from pytest_rollout.stage.view import CopyView, View
from pytest_rollout.store.folder import read_record
from pytest_rollout.task import Folder, Task

if TYPE_CHECKING:
    from tests.unit.conftest import Lab

ROOT = os.geteuid() == 0
RUN = "2026-11-29T22-08-01Z-3f9ac01d"
Act = Callable[[Stage, Command, Capture], int]


class FakeExecutor:
    """Honest but without processes: a stage is a folder, a command is a function that acts in it.

    ``fails`` has an error by the name of a method, raised where that is called. ``calls`` are the methods in order.
    """

    def __init__(self, folder: Path, act: Act | None = None, **fails: Exception) -> None:
        self.info = ExecutorInfo(name="fake", trusted=True, version="1")
        self.calls: list[str] = []
        self._folder, self._act, self._fails = folder, act, fails
        (folder / "baseline").mkdir(parents=True)

    def _step(self, name: str) -> None:
        self.calls.append(name)
        if name in self._fails:
            raise self._fails[name]

    def prepare(self, workspace: Path | None) -> Baseline:
        self._step("prepare")
        return Baseline(path=str(self._folder / "baseline"), revision="sha256:00")

    def provision(self, baseline: Baseline, layers: Sequence[str] = ()) -> Stage:
        self._step("provision")
        (self._folder / "stage").mkdir()
        return Stage(path=str(self._folder / "stage"), baseline=baseline, layers=tuple(layers))

    def above(self, stage: Stage, layers: Sequence[str]) -> Stage:
        raise NotImplementedError("an attempt evaluates nothing by itself")

    def layer(self, write: Callable[[str], None]) -> str:
        raise NotImplementedError("an attempt evaluates nothing by itself")

    def drop_layer(self, layer: str) -> None:
        raise NotImplementedError("an attempt evaluates nothing by itself")

    def prompt_file(self, stage: Stage) -> str:
        return "/prompt"

    def run(self, stage: Stage, command: Command, stdout: Capture, stderr: Capture, cancel: Cancel) -> Ended:
        self._step("run")
        code = 0 if self._act is None else self._act(stage, command, stdout)
        return Ended(
            exit_code=code,
            termination="exit_code" if code else "completed",
            stdout=Captured(file="stdout"),
            stderr=Captured(file="stderr"),
            tree_dead=True,
        )

    def view(self, stage: Stage) -> View:
        self._step("view")
        return CopyView(stage.path, stage.baseline.path)

    def keep(self, stage: Stage) -> str:
        self._step("keep")
        os.rename(stage.path, self._folder / "kept")
        return str(self._folder / "kept")

    def drop(self, stage: Stage) -> str | None:
        self._step("drop")
        return remove_tree(stage.path)

    def close(self) -> None:
        self._step("close")


class Bench:
    """Makes attempts, each with a folder of its own; all are finished at the end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cancel = Cancel()
        self._attempts: list[Attempt] = []

    def folder(self) -> Path:
        folder = self.path / f"a{len(list(self.path.iterdir()))}"
        folder.mkdir()
        return folder

    def run(
        self,
        agent: Agent | str | Sequence[str] | Callable[[LiveStage], object],
        executor: Executor,
        *,
        folder: Path | None = None,
        task: Task | None = None,
        pins: dict[str, Any] | None = None,
        bounds: CollectBounds | None = None,
        **known: Any,
    ) -> Attempt:
        request = Request(
            run=RUN,
            node="test_x.py::test_x[s1]",
            episode=Episode(
                rollout="3f9ac01d-x-s1", task=task or Task(id="test_x.py::test_x"), sample=1, attempt=1, seed=5
            ),
            pins=pins or {},
            plugin_version="0.1",
            bounds=bounds or CollectBounds(),
            **known,
        )
        where = folder or self.folder()
        made = run_attempt(request, agent=as_agent(agent), executor=executor, folder=where, cancel=self.cancel)
        self._attempts.append(made)
        return made

    def close(self) -> None:
        for attempt in self._attempts:
            attempt.finish(keep=False)
        self.cancel.close()


def as_agent(agent: Any, **options: Any) -> Agent:
    if isinstance(agent, str):
        return CommandAgent(name="agent", command=agent, **options)
    if isinstance(agent, list | tuple):
        return CommandAgent(name="agent", command=tuple(agent), **options)
    found: Agent = FunctionAgent(agent) if callable(agent) else agent
    return found


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    folder = tmp_path / "attempts"
    folder.mkdir()
    bench = Bench(folder)
    yield bench
    bench.close()


@pytest.fixture
def make_fake(tmp_path: Path) -> Callable[..., FakeExecutor]:
    """A fake executor, in a folder of its own."""

    def make(act: Act | None = None, **fails: Exception) -> FakeExecutor:
        return FakeExecutor(tmp_path / f"fake-{secrets.token_hex(4)}", act, **fails)

    return make


def events(attempt: Attempt) -> list[dict[str, Any]]:
    """The journal; positions and times are looked at here, and left out."""
    lines = [json.loads(line) for line in (attempt.folder / "journal.jsonl").read_text("utf-8").splitlines()]
    assert [line.pop("position") for line in lines] == list(range(len(lines)))
    times = [line.pop("time") for line in lines]
    assert times == sorted(times)
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00", stamp) for stamp in times)
    return lines


def names(attempt: Attempt) -> list[str]:
    return [event["event"] for event in events(attempt)]


def record(attempt: Attempt) -> BundleRecord:
    """The record, which is also the one on the disk."""
    assert attempt.record is not None
    assert read_record(attempt.folder / "bundle.json", BundleRecord) == attempt.record
    return attempt.record


def changes(attempt: Attempt) -> list[str]:
    return [change.path for change in record(attempt).changes]


def alive(marker: str) -> bool:
    """Whether a process has this word in its command line."""
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and marker.encode() in Path("/proc", name, "cmdline").read_bytes().split(b"\0"):
                return True
        except OSError:
            continue
    return False


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come"
        time.sleep(0.01)


def descriptors() -> list[str]:
    """What this process has open, pipes and files, by what they lead to."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{name}"))
        except OSError:
            continue
    return sorted(found)


# What comes of an attempt that went well


def test_events_in_their_order(bench: Bench, lab: Lab) -> None:
    attempt = bench.run("echo x > a.txt; echo said", lab.executor)
    assert attempt.infra is None
    name = lab.executor.info.name
    ended = {"event": "ended", "termination": "completed", "exit_code": 0, "signal": None}
    dead = [{"event": "tree_dead"}] if name == "sandbox" else []
    revision = record(attempt).pins.environment_revision
    expected = [
        {"event": "provisioned", "environment_revision": revision, "executor": name},
        {"event": "started", "agent": "agent"},
        {"event": "exec", "argv": ["sh", "-c", "echo x > a.txt; echo said"]},
        ended,
        *dead,
        {"event": "collected", "changes": 1, "findings": 0},
    ]
    assert events(attempt) == expected
    assert attempt.finish(keep=False) == []
    assert events(attempt) == [*expected, {"event": "dropped"}]


def test_the_record_says_what_happened(bench: Bench, lab: Lab) -> None:
    workspace = lab.workspace({"old.txt": "old"})
    task = Task(id="test_x.py::test_x", workspace=Folder(path=str(workspace)), limits=Limits(wall=20, output=1000))
    attempt = bench.run("rm old.txt; echo x > a.txt; echo out; echo err >&2; exit 3", lab.executor, task=task)
    found = record(attempt)
    assert attempt.infra is None
    assert found.identity == Identity(
        run=RUN, task="test_x.py::test_x", sample=1, attempt=1, rollout="3f9ac01d-x-s1", node="test_x.py::test_x[s1]"
    )
    assert (found.exit_code, found.signal, found.termination, found.truncated) == (3, None, "exit_code", False)
    assert [(change.path, change.kind) for change in found.changes] == [("a.txt", "added"), ("old.txt", "deleted")]
    assert (attempt.folder / "changes" / "a.txt").read_text() == "x\n"
    assert (attempt.folder / "stdout").read_text() == "out\n"
    assert (attempt.folder / "stderr").read_text() == "err\n"
    assert found.stdout == Captured(file="stdout", kept=4)
    assert found.stderr == Captured(file="stderr", kept=4)
    assert found.usage.output_bytes == 8
    assert found.usage.wall == found.times.duration > 0
    assert found.times.started < found.times.ended
    assert found.pins.task_digest == task.digest()
    assert found.pins.limits == {"wall": 20.0, "output": 1000}
    assert attempt.reader is not None
    assert attempt.reader.read("a.txt") == b"x\n"


def test_controls_as_asked_and_as_observed(bench: Bench, lab: Lab) -> None:
    found = record(bench.run("true", lab.executor, task=Task(id="t", limits=Limits(wall=20, output=1000))))
    isolated = lab.executor.info.name == "sandbox"
    assert found.trusted is isolated
    assert found.rung == (1 if isolated else 5)
    assert found.tree_dead is (True if isolated else None)
    assert found.controls == {
        "network": Control(asked="none", observed="none" if isolated else "host"),
        "pid_namespace": Control(asked="private" if isolated else None, observed="private" if isolated else "unknown"),
        "wall": Control(asked="20 s", observed=f"{found.times.duration:.3f} s used"),
        "output": Control(asked="1000 bytes", observed="0 and 0 bytes kept"),
    }


def test_the_network_of_the_host_is_observed(bench: Bench, sandbox: Lab) -> None:
    found = record(bench.run("true", sandbox.executor, task=Task(id="t", network="host")))
    assert found.controls["network"] == Control(asked="host", observed="host")


def test_what_is_not_measured_is_null(bench: Bench, lab: Lab) -> None:
    homes = find_homes()
    attempt = bench.run("true", lab.executor)
    usage = json.loads((attempt.folder / "bundle.json").read_bytes())["usage"]
    unknown = {name for name, value in usage.items() if value is None}
    assert {"steps", "model_calls", "tokens", "cost"} <= unknown
    assert {"wall", "output_bytes"}.isdisjoint(unknown)
    assert ("cpu" in unknown) == ("cpu" not in homes)
    assert ("peak_memory" in unknown, "processes" in unknown) == ("memory" not in homes, "pids" not in homes)
    assert ("disk" in unknown) == (not lab.executor.info.trusted)


def test_pins_go_where_they_belong(bench: Bench, make_fake: Callable[..., FakeExecutor]) -> None:
    own = {"model": "own", "temperature": 0.7, "policy": "candidate-17", "note": "own"}
    agent = CommandAgent(name="named", command="true", version="1.2", pins=own)
    found = record(bench.run(agent, make_fake(), pins={"model": "given", "top_p": "0.9", "site": "here"})).pins
    assert (found.agent, found.agent_version, found.agent_digest) == ("named", "1.2", agent.info.digest)
    assert (found.model, found.policy_revision) == ("given", "candidate-17")
    assert found.sampling == {"temperature": 0.7, "top_p": "0.9"}
    assert found.extra == {"note": "own", "site": "here"}
    assert (found.seed, found.network, found.executor, found.executor_version) == (5, "none", "fake", "1")
    assert (found.environment_revision, found.plugin_version) == ("sha256:00", "0.1")


def test_whatever_a_user_names_can_be_recorded(bench: Bench, make_fake: Callable[..., FakeExecutor]) -> None:
    agent = CommandAgent(name="odd \udcff", command="true", pins={"model": Path("m"), "stop": ["\udcff"], "x": {1}})
    found = record(bench.run(agent, make_fake())).pins
    assert (found.agent, found.model) == ("odd \\udcff", "m")
    assert (found.sampling, found.extra) == ({"stop": ["\\udcff"]}, {"x": [1]})


def test_no_pins_are_null(bench: Bench, make_fake: Callable[..., FakeExecutor]) -> None:
    found = record(bench.run("true", make_fake())).pins
    assert (found.model, found.policy_revision, found.sampling, found.extra) == (None, None, None, {})


def test_dropped_output_is_a_finding(bench: Bench, lab: Lab) -> None:
    task = Task(id="t", limits=Limits(wall=30, output=100))
    found = record(bench.run("head -c 1000 /dev/zero", lab.executor, task=task))
    assert found.stdout == Captured(file="stdout", kept=100, dropped=900)
    assert found.findings == (Finding(code="output.dropped", message="900 bytes of stdout were dropped"),)


# Protected paths, and judging


def test_any_number_of_odd_files_makes_few_findings(bench: Bench, make_fake: Callable[..., FakeExecutor]) -> None:
    def act(stage: Stage, command: Command, stdout: Capture) -> int:
        (Path(stage.path) / "000").touch()
        for number in range(1, 250):
            os.link(Path(stage.path) / "000", Path(stage.path) / f"{number:03}")
        return 0

    found = record(bench.run("true", make_fake(act)))
    assert len(found.changes) == 250
    assert [finding.path for finding in found.findings] == [*(f"{number:03}" for number in range(200)), None]
    assert found.findings[-1] == Finding(code="hardlink", message="50 more findings of this kind")


def test_changes_to_protected_paths_are_counted_and_told(bench: Bench, lab: Lab) -> None:
    workspace = lab.workspace({"tests/a": "1", "tests/deep/b": "1", "setup.cfg": "1", "mine": "1"})
    task = Task(id="t", workspace=Folder(path=str(workspace)), protect=("tests/**", "setup.cfg", "nothing"))
    script = "echo x > tests/a; rm -r tests/deep; echo x > tests/new; echo x > mine; echo x > other"
    found = record(bench.run(script, lab.executor, task=task))
    assert found.findings == tuple(
        Finding(code="protected", message="changed, and restored for checks", path=path)
        for path in ("tests/a", "tests/deep", "tests/deep/b", "tests/new")
    )
    assert found.usage.invalid_actions == 4
    quiet = record(bench.run("echo x > mine", lab.executor, task=task))
    assert (quiet.usage.invalid_actions, quiet.findings) == (0, ())


def test_bytecode_that_running_protected_tests_leaves_is_no_invalid_action(bench: Bench, lab: Lab) -> None:
    workspace = lab.workspace({"tests/test_a.py": "1", "tests/deep/test_b.py": "1"})
    task = Task(id="t", workspace=Folder(path=str(workspace)), protect=("tests/**",))
    script = "for each in tests tests/deep; do mkdir $each/__pycache__; touch $each/__pycache__/a.cpython-311.pyc; done"
    found = record(bench.run(script, lab.executor, task=task))
    assert len(found.changes) == 4
    assert (found.usage.invalid_actions, found.findings) == (0, ())
    script = "mkdir tests/__pycache__; touch tests/__pycache__/a.py tests/b.pyc"
    found = record(bench.run(script, lab.executor, task=task))
    assert [finding.path for finding in found.findings] == ["tests/__pycache__/a.py", "tests/b.pyc"]


def test_without_protected_paths_no_action_is_known_to_be_invalid(
    bench: Bench, make_fake: Callable[..., FakeExecutor]
) -> None:
    assert record(bench.run("true", make_fake())).usage.invalid_actions is None


def test_an_attempt_can_be_judged_until_it_is_finished(bench: Bench, lab: Lab) -> None:
    attempt = bench.run("echo mine > a", lab.executor)
    evaluator = attempt.evaluator
    assert evaluator is not None
    assert evaluator.run("cat a", "").stdout == "mine\n"
    assert not attempt.judged_in_process
    evaluator.in_process = True
    assert attempt.judged_in_process
    attempt.finish(keep=False)
    assert attempt.evaluator is None
    assert list(lab.root.stages.iterdir()) == []


def test_what_is_known_of_the_checks_is_in_the_record(bench: Bench, make_fake: Callable[..., FakeExecutor]) -> None:
    found = record(bench.run("true", make_fake(), evaluator_revision="sha256:22", audit="weak"))
    assert (found.pins.evaluator_revision, found.audit) == ("sha256:22", "weak")
    unknown = record(bench.run("true", make_fake()))
    assert (unknown.pins.evaluator_revision, unknown.audit) == (None, None)


def test_the_wall_limit_is_no_infrastructure(bench: Bench, lab: Lab) -> None:
    task = Task(id="t", limits=Limits(wall=0.5).over(DEFAULT_LIMITS))
    attempt = bench.run("echo x > early; sleep 60", lab.executor, task=task)
    found = record(attempt)
    assert attempt.infra is None
    assert (found.termination, found.truncated, found.exit_code, found.signal) == ("wall_limit", True, None, None)
    assert changes(attempt) == ["early"]


def test_a_stage_can_be_kept(bench: Bench, lab: Lab) -> None:
    attempt = bench.run("echo x > a.txt", lab.executor)
    assert record(attempt).stage is None
    assert attempt.finish(keep=True) == []
    place = record(attempt).stage
    assert place is not None
    assert Path(place).parent == lab.root.kept
    assert events(attempt)[-1] == {"event": "kept", "stage": place}
    assert attempt.finish(keep=True) == []
    assert [path.read_text() for path in Path(place).rglob("a.txt")] == ["x\n"]


def test_a_stage_is_dropped_once(bench: Bench, make_fake: Callable[..., FakeExecutor]) -> None:
    fake = make_fake()
    attempt = bench.run("true", fake)
    assert attempt.finish(keep=False) == attempt.finish(keep=False) == []
    assert fake.calls == ["prepare", "provision", "run", "view", "drop"]
    assert attempt.reader is None


@pytest.mark.parametrize(
    ("fails", "warning"),
    [
        pytest.param(OSError(errno.EIO, "Input/output error"), "[Errno 5] Input/output error", id="system"),
        pytest.param(StageError("it is gone"), "it is gone", id="stage"),
    ],
)
def test_a_failed_teardown_is_a_warning(
    bench: Bench, make_fake: Callable[..., FakeExecutor], fails: Exception, warning: str
) -> None:
    attempt = bench.run("true", make_fake(drop=fails))
    before = record(attempt)
    assert attempt.finish(keep=False) == [f"the stage could not be put away: {warning}"]
    assert attempt.infra is None
    assert record(attempt) == before


# Infrastructure


@pytest.mark.parametrize(
    ("step", "error", "infra"),
    [
        ("prepare", ConfigError("no such", hint="do"), Infra(kind="stage", message="no such\ndo")),
        ("prepare", StageError("broken"), Infra(kind="stage", message="broken")),
        ("prepare", RecordingError("unwritable"), Infra(kind="recording", message="unwritable")),
        ("provision", OSError(errno.ENOSPC, "full"), Infra(kind="host", message="[Errno 28] full")),
        ("provision", OSError(errno.EIO, "broken"), Infra(kind="recording", message="[Errno 5] broken")),
        ("provision", IsolationError("refused", hint="do"), Infra(kind="isolation", message="refused\ndo")),
        ("provision", HostError("full"), Infra(kind="host", message="full")),
        ("run", SpawnError("not started"), Infra(kind="spawn", message="not started")),
        ("run", HostError("killed", forgeable=True), Infra(kind="host", message="killed", forgeable=True)),
        ("run", RecordingError("unwritable"), Infra(kind="recording", message="unwritable")),
        ("run", AgentError("it says so"), Infra(kind="agent", message="it says so")),
        ("run", Cancelled("the session ended"), Infra(kind="cancelled", message="the session ended")),
        (
            "run",
            OSError(errno.EMFILE, "Too many"),
            Infra(kind="host", message="the command could not be run: Too many"),
        ),
        ("view", OSError(errno.ENOSPC, "full"), Infra(kind="host", message="[Errno 28] full", forgeable=True)),
        ("view", OSError(errno.ENOMEM, "memory"), Infra(kind="host", message="[Errno 12] memory", forgeable=True)),
        ("view", OSError(errno.EIO, "broken"), Infra(kind="recording", message="[Errno 5] broken")),
        (
            "view",
            OSError(errno.ENOENT, "lone \udcff"),
            Infra(kind="recording", message="[Errno 2] lone \\udcff"),
        ),
    ],
)
def test_kinds(bench: Bench, make_fake: Callable[..., FakeExecutor], step: str, error: Exception, infra: Infra) -> None:
    """A machine that is full after the agent acted is forgeable: the agent may have filled it."""
    fake = make_fake(**{step: error})
    attempt = bench.run("true", fake)
    assert attempt.infra == infra
    assert attempt.record is None
    said = {"kind": infra.kind, "message": infra.message, "forgeable": infra.forgeable}
    assert events(attempt)[-1] == {"event": "infra", **said}
    assert attempt.finish(keep=False) == []
    assert fake.calls[-1] == (step if step in ("prepare", "provision") else "drop")


def test_nothing_stays_open(bench: Bench, make_fake: Callable[..., FakeExecutor]) -> None:
    for step in ("prepare", "provision", "run", "view", "none"):
        fake = make_fake(**{step: StageError("broken")})
        before = descriptors()
        attempt = bench.run("true", fake)
        assert descriptors() != before
        attempt.finish(keep=False)
        assert descriptors() == before, step


def test_a_workspace_that_is_not_there(bench: Bench, lab: Lab) -> None:
    missing = lab.folder / "missing"
    attempt = bench.run("true", lab.executor, task=Task(id="t", workspace=Folder(path=str(missing))))
    message = f"the workspace {missing} can't be read: No such file or directory"
    assert attempt.infra == Infra(kind="stage", message=message)
    assert names(attempt) == ["infra"]


SPAWN = "exit code {}: the agent's program, or one that it starts, is not {}"


@pytest.mark.parametrize(("code", "meaning"), [(127, "found"), (126, "runnable")])
def test_a_shell_that_starts_nothing(bench: Bench, lab: Lab, code: int, meaning: str) -> None:
    attempt = bench.run(f"echo x > a.txt; exit {code}", lab.executor)
    assert attempt.infra == Infra(kind="spawn", message=SPAWN.format(code, meaning), forgeable=True)
    assert (record(attempt).exit_code, changes(attempt)) == (code, ["a.txt"])
    assert names(attempt)[-2:] == ["collected", "infra"]


def test_a_program_that_is_not_there(bench: Bench, lab: Lab) -> None:
    attempt = bench.run(["no-such-program-here"], lab.executor)
    if lab.executor.info.name == "local":
        message = "the agent's program 'no-such-program-here' was not found"
        assert attempt.infra == Infra(kind="spawn", message=message)
    else:
        assert attempt.infra == Infra(kind="spawn", message=SPAWN.format(127, "found"), forgeable=True)
    assert attempt.finish(keep=False) == []


def test_a_declared_exit_code(bench: Bench, lab: Lab) -> None:
    agent = as_agent("echo x > a.txt; exit 75", infra_exit_codes=(75,))
    attempt = bench.run(agent, lab.executor)
    message = "the agent ended with exit code 75, which it declares for infrastructure"
    assert attempt.infra == Infra(kind="agent", message=message, forgeable=True)
    assert (record(attempt).exit_code, record(attempt).termination, changes(attempt)) == (75, "exit_code", ["a.txt"])
    assert bench.run("exit 75", lab.executor).infra is None


# Cancelling


def test_cancel_from_another_thread(bench: Bench, lab: Lab) -> None:
    word = f"60.{secrets.randbelow(10**12):012}"
    folder = bench.folder()
    took: list[float] = []

    def cancel() -> None:
        wait_for(lambda: (folder / "stdout").exists() and (folder / "stdout").read_bytes() == b"up\n", "the agent")
        wait_for(lambda: alive(word), "the sleep")
        took.append(time.monotonic())
        bench.cancel.set()

    thread = threading.Thread(target=cancel)
    thread.start()
    attempt = bench.run(f"echo x > a.txt; echo up; sleep {word}", lab.executor, folder=folder)
    seconds = time.monotonic() - took[0]
    thread.join()
    assert seconds < 4
    assert attempt.infra == Infra(kind="cancelled", message="the session ended while the agent ran")
    assert not alive(word)
    found = record(attempt)
    assert (found.termination, found.truncated, found.exit_code) == ("cancelled", False, None)
    assert changes(attempt) == ["a.txt"]


def test_a_cancelled_session_starts_no_agent(bench: Bench, make_fake: Callable[..., FakeExecutor]) -> None:
    bench.cancel.set()
    fake = make_fake()
    attempt = bench.run("true", fake)
    assert attempt.infra == Infra(kind="cancelled", message="the session ended")
    assert "run" not in fake.calls
    assert names(attempt) == ["provisioned", "started", "infra"]


def test_a_callable_agent_is_cancelled_between_two_commands(
    bench: Bench, make_fake: Callable[..., FakeExecutor]
) -> None:
    fake = make_fake()

    def act(stage: LiveStage) -> None:
        stage.run("true")
        bench.cancel.set()
        stage.run("true")

    assert bench.run(act, fake).infra == Infra(kind="cancelled", message="the session ended")
    assert fake.calls.count("run") == 1


def test_an_agent_that_ended_well_after_the_cancel_is_cancelled(
    bench: Bench, make_fake: Callable[..., FakeExecutor]
) -> None:
    attempt = bench.run(lambda stage: bench.cancel.set(), make_fake())
    assert attempt.infra == Infra(kind="cancelled", message="the session ended while the agent ran")
    assert record(attempt).termination == "completed"


# Many at once


def test_sixteen_at_once_from_threads_that_come_and_go(bench: Bench, lab: Lab) -> None:
    """All sixteen are in flight between their two commands; the thread that was first has ended by then."""
    together = threading.Barrier(16, timeout=60)
    found: dict[int, tuple[Attempt, list[str]]] = {}

    def one(number: int, *, alone: bool = False) -> None:
        said: list[str] = []

        def act(stage: LiveStage) -> None:
            stage.run(f"echo {number} > mine; sleep 0.2")
            if not alone:
                together.wait()
            said.append(stage.run("cat mine; sleep 0.2").stdout)

        found[number] = bench.run(act, lab.executor, folder=folders[number]), said

    folders = [bench.folder() for _ in range(17)]
    first = threading.Thread(target=one, args=(16,), kwargs={"alone": True})
    first.start()
    first.join()
    threads = [threading.Thread(target=one, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == list(range(17))
    for number, (attempt, said) in found.items():
        assert attempt.infra is None, attempt.infra
        assert said == [f"{number}\n"]
        assert (attempt.folder / "changes" / "mine").read_text() == f"{number}\n"
        assert (attempt.folder / "stdout").read_text() == f"{number}\n"
        assert names(attempt)[:2] == ["provisioned", "started"]
        assert record(attempt).termination == "completed"


# Our own folder fails


def test_no_attempt_without_a_journal(bench: Bench, make_fake: Callable[..., FakeExecutor]) -> None:
    fake, missing = make_fake(), bench.path / "missing"
    with pytest.raises(RecordingError) as caught:
        bench.run("true", fake, folder=missing)
    message = f"the journal can't be written to {missing}/journal.jsonl: No such file or directory"
    assert str(caught.value) == message
    assert fake.calls == []


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        pytest.param(shutil.rmtree, "the journal can't be written to {}/journal.jsonl: it was removed", id="removed"),
        pytest.param(
            lambda folder: (folder / "changes").write_text(""),
            "a changed file can't be written to {}/changes: File exists",
            id="no-changes",
        ),
        pytest.param(
            lambda folder: (folder / "bundle.json").mkdir(),
            "a record can't be written to {}/bundle.json: Is a directory",
            id="no-bundle",
        ),
    ],
)
def test_results_that_can_not_be_written(bench: Bench, lab: Lab, spoil: Callable[[Path], object], message: str) -> None:
    folder = bench.folder()

    def act(stage: LiveStage) -> None:
        stage.run("echo x > a.txt")
        spoil(folder)

    attempt = bench.run(act, lab.executor, folder=folder)
    assert attempt.infra == Infra(kind="recording", message=message.format(folder))
    assert len(list(lab.root.stages.iterdir())) == 1
    attempt.finish(keep=False)
    assert list(lab.root.stages.iterdir()) == []


@pytest.mark.skipif(ROOT, reason="root may write everywhere")
def test_a_folder_that_became_read_only(bench: Bench, lab: Lab) -> None:
    folder = bench.folder()

    def act(stage: LiveStage) -> None:
        stage.run("echo x > a.txt")
        folder.chmod(0o555)

    try:
        attempt = bench.run(act, lab.executor, folder=folder)
        message = f"a changed file can't be written to {folder}/changes: Permission denied"
        assert attempt.infra == Infra(kind="recording", message=message)
    finally:
        folder.chmod(0o755)


def test_a_full_disk_below_the_journal(bench: Bench, lab: Lab) -> None:
    folder = bench.folder()
    (folder / "journal.jsonl").symlink_to("/dev/full")
    attempt = bench.run("true", lab.executor, folder=folder)
    message = f"the journal can't be written to {folder}/journal.jsonl: No space left on device"
    assert attempt.infra == Infra(kind="host", message=message)
    attempt.finish(keep=False)
    assert list(lab.root.stages.iterdir()) == []


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 KiB; only root can make one."""
    place = tmp_path / "tiny"
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", place], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"no disk can be mounted: {done.stderr.decode().strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


@pytest.mark.skipif(not ROOT, reason="only root can mount a disk")
@pytest.mark.parametrize(
    ("command", "what"),
    [
        pytest.param("head -c 500000 /dev/zero", "the output can't be written to {}/stdout", id="output"),
        pytest.param("head -c 500000 /dev/zero > big", "a changed file can't be written to {}/changes", id="changes"),
    ],
)
def test_a_full_disk(bench: Bench, lab: Lab, tiny: Path, command: str, what: str) -> None:
    folder = tiny / "a1"
    folder.mkdir()
    attempt = bench.run(command, lab.executor, folder=folder)
    message = f"{what.format(folder)}: No space left on device"
    assert attempt.infra == Infra(kind="host", message=message, forgeable=True)
    assert attempt.record is None
    attempt.finish(keep=False)
    assert list(lab.root.stages.iterdir()) == []


@pytest.mark.skipif(not ROOT, reason="only root can mount a disk")
def test_a_disk_that_became_read_only(bench: Bench, lab: Lab, tiny: Path) -> None:
    """Files that are open for writing keep a disk from it, so it is a second mount of the disk that is read-only."""
    folder, attempt = tiny / "a1", None
    folder.mkdir()

    def act(stage: LiveStage) -> None:
        stage.run("echo x > a.txt")
        subprocess.run(["mount", "--bind", tiny, tiny], check=True)
        subprocess.run(["mount", "-o", "remount,bind,ro", tiny], check=True)

    try:
        attempt = bench.run(act, lab.executor, folder=folder)
    finally:
        subprocess.run(["umount", "--lazy", tiny], check=True)
    message = f"a changed file can't be written to {folder}/changes: Read-only file system"
    assert attempt.infra == Infra(kind="recording", message=message)


# Callable agents


def test_a_callable_agent_runs_commands(bench: Bench, lab: Lab) -> None:
    given: list[Exec] = []
    told: list[object] = []

    def act(stage: LiveStage) -> None:
        told.extend([stage.prompt, stage.task, stage.sample, stage.attempt, stage.seed])
        given.append(stage.run('echo "$ROLLOUT_SEED $EXTRA"; cat "$ROLLOUT_PROMPT_FILE"', env={"EXTRA": "more"}))
        given.append(stage.run(["sh", "-c", "echo x > a.txt; echo bad >&2; exit 3"]))
        given.append(stage.run("cat a.txt; kill -9 $$"))

    attempt = bench.run(act, lab.executor, task=Task(id="t", prompt="Do it."))
    assert attempt.infra is None
    assert told == ["Do it.", "t", 1, 1, 5]
    assert given == [
        Exec(exit_code=0, signal=None, termination="completed", stdout="5 more\nDo it.", stderr=""),
        Exec(exit_code=3, signal=None, termination="exit_code", stdout="", stderr="bad\n"),
        Exec(exit_code=137, signal=9, termination="signal", stdout="x\n", stderr=""),
    ]
    found = record(attempt)
    assert (found.exit_code, found.signal, found.termination) == (0, None, "completed")
    assert (attempt.folder / "stdout").read_text() == "5 more\nDo it.x\n"
    assert (attempt.folder / "stderr").read_text() == "bad\n"
    assert names(attempt).count("exec") == 3
    assert found.usage.output_bytes == 19
    assert found.pins.agent == f"{__name__}:test_a_callable_agent_runs_commands.<locals>.act"


def test_an_agent_failure_is_the_agents(bench: Bench, lab: Lab) -> None:
    def act(stage: LiveStage) -> None:
        stage.run("echo x > a.txt")
        raise AgentFailure("it gave up \udcff", hint="ask again")

    attempt = bench.run(act, lab.executor)
    found = record(attempt)
    assert attempt.infra is None
    assert (found.exit_code, found.signal, found.termination) == (1, None, "exit_code")
    assert found.findings == (Finding(code="agent.failure", message="it gave up \\udcff\nask again"),)
    assert changes(attempt) == ["a.txt"]


@pytest.mark.parametrize(
    ("error", "infra"),
    [
        (ProviderError("429"), Infra(kind="provider", message="429")),
        (ProviderError("429", forgeable=True), Infra(kind="provider", message="429", forgeable=True)),
        (AuthenticationError("401", hint="log in"), Infra(kind="authentication", message="401\nlog in")),
    ],
)
def test_what_a_provider_did_keeps_the_evidence(bench: Bench, lab: Lab, error: Exception, infra: Infra) -> None:
    def act(stage: LiveStage) -> None:
        stage.run("echo x > a.txt")
        raise error

    attempt = bench.run(act, lab.executor)
    assert attempt.infra == infra
    assert changes(attempt) == ["a.txt"]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (KeyError("x"), "the agent raised KeyError: 'x'"),
        (OSError(errno.ENOSPC, "full"), "the agent raised OSError: [Errno 28] full"),
        (AssertionError("no \udcff"), "the agent raised AssertionError: no \\udcff"),
        (SystemExit(3), "the agent raised SystemExit: 3"),
        (asyncio.CancelledError("gone"), "the agent raised CancelledError: gone"),
    ],
)
def test_whatever_else_an_agent_raises_is_infrastructure(
    bench: Bench, lab: Lab, error: BaseException, message: str
) -> None:
    def act(stage: LiveStage) -> None:
        stage.run("echo x > a.txt")
        raise error

    attempt = bench.run(act, lab.executor)
    assert attempt.infra == Infra(kind="agent", message=message)
    assert record(attempt).findings == (Finding(code="agent.failure", message=message),)
    assert record(attempt).exit_code == 1
    assert changes(attempt) == ["a.txt"]


def test_an_interrupt_is_not_swallowed(bench: Bench, make_fake: Callable[..., FakeExecutor]) -> None:
    def act(stage: LiveStage) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bench.run(act, make_fake())


def test_the_wall_limit_holds_over_all_commands_together(bench: Bench, lab: Lab) -> None:
    given: list[str] = []

    def act(stage: LiveStage) -> None:
        given.extend(stage.run(f"sleep 0.5; echo x > f{number}").termination for number in range(8))

    attempt = bench.run(act, lab.executor, task=Task(id="t", limits=Limits(wall=1.8).over(DEFAULT_LIMITS)))
    cut = given.index("wall_limit")
    assert cut <= 3
    assert given == ["completed"] * cut + ["wall_limit"] * (8 - cut)
    written = [f"f{number}" for number in range(cut + 1)]  # the last one may have written, and not ended
    assert changes(attempt) in (written[:-1], written)
    found = record(attempt)
    assert (found.termination, found.truncated, found.exit_code) == ("wall_limit", True, None)
    assert attempt.infra is None
    assert names(attempt).count("exec") in (cut, cut + 1)  # the time may be over between two


def live_stage(executor: Executor, folder: Path, clock: Callable[[], float], cancel: Cancel) -> LiveStage:
    task = Task(id="t", limits=Limits(wall=10).over(DEFAULT_LIMITS))
    return LiveStage(
        executor=executor,
        stage=executor.provision(executor.prepare(None)),
        episode=Episode(rollout="r", task=task, sample=0, attempt=1, seed=0),
        stdout=Capture(folder / "stdout", 100),
        stderr=Capture(folder / "stderr", 100),
        cancel=cancel,
        journal=lambda event, **facts: None,
        clock=clock,
    )


@pytest.mark.parametrize("commands", [0, 1])
def test_time_that_an_agent_spent_itself_counts(
    bench: Bench, make_fake: Callable[..., FakeExecutor], commands: int
) -> None:
    """No command starts after the limit, and the one that was asked for does not look as the one before it."""
    now, fake = [100.0], make_fake()
    stage = live_stage(fake, bench.folder(), lambda: now[0], bench.cancel)
    for _ in range(commands):
        now[0] += 3
        assert stage.run("true").termination == "completed"
    now[0] = 110.0
    late = stage.run("true")
    assert late == Exec(exit_code=None, signal=None, termination="wall_limit", stdout="", stderr="")
    assert fake.calls.count("run") == commands
    ended = stage.finished()
    assert (ended.termination, ended.exit_code, ended.duration) == ("wall_limit", None, 10.0)


def test_a_command_gets_the_time_that_is_left(bench: Bench, make_fake: Callable[..., FakeExecutor]) -> None:
    now, walls = [100.0], list[float]()

    def act(stage: Stage, command: Command, stdout: Capture) -> int:
        walls.append(command.wall)
        return 0

    stage = live_stage(make_fake(act), bench.folder(), lambda: now[0], bench.cancel)
    for _ in range(3):
        stage.run("true")
        now[0] += 4
    assert walls == [10.0, 6.0, 2.0]


@pytest.mark.parametrize("commands", [0, 1])
def test_where_no_output_can_be_taken_the_host_is_full(
    bench: Bench, make_fake: Callable[..., FakeExecutor], monkeypatch: pytest.MonkeyPatch, commands: int
) -> None:
    """It is forgeable once a command ran, which may have filled the disk."""

    def full(*args: object, **options: object) -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    def act(stage: LiveStage) -> None:
        for _ in range(commands):
            stage.run("true")
        monkeypatch.setattr("tempfile.mkdtemp", full)
        stage.run("true")

    attempt = bench.run(act, make_fake())
    message = "the command could not be run: No space left on device"
    assert attempt.infra == Infra(kind="host", message=message, forgeable=commands > 0)


# The no-op


def test_the_noop_leaves_the_baseline_as_it_is(bench: Bench, lab: Lab) -> None:
    workspace = lab.workspace({"a.txt": "x"})
    attempt = bench.run(NoopAgent(), lab.executor, task=Task(id="t", workspace=Folder(path=str(workspace))))
    found = record(attempt)
    assert attempt.infra is None
    assert (found.exit_code, found.termination, found.changes) == (0, "completed", ())
    assert found.pins.agent == "noop"
    assert found.controls["network"] == Control(asked="none", observed="unknown")
    assert names(attempt) == ["provisioned", "started", "ended", "tree_dead", "collected"]
    assert attempt.reader is not None
    assert attempt.reader.read("a.txt") == b"x"
