"""The run: what it refuses, what it prepares, records and prunes, and what it asks once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytest_rollout import __version__
from pytest_rollout.agents.config import AgentConfig
from pytest_rollout.agents.noop import NoopAgent
from pytest_rollout.attempt import Attempt
from pytest_rollout.bundle import BundleRecord
from pytest_rollout.errors import ConfigError, HostError, InfraError, IsolationError
from pytest_rollout.executors import ladder
from pytest_rollout.executors.cancel import Cancel
from pytest_rollout.executors.ladder import ISOLATED
from pytest_rollout.executors.protocol import Bind, Executor
from pytest_rollout.executors.rungs import unmet
from pytest_rollout.job import Job
from pytest_rollout.outcome import Verdict
from pytest_rollout.reward import Reward
from pytest_rollout.run import Run
from pytest_rollout.settings import Settings
from pytest_rollout.store.folder import read_record
from pytest_rollout.store.load import load_plan, load_results
from pytest_rollout.store.records import Earlier, Plan, Planned, Result, RunRecord, ScoreRecord
from pytest_rollout.task import Folder, Task

ROOT = os.geteuid() == 0
NAME = "2026-11-29T22-08-01Z-3f9ac01d"
REMEDY = "Move it elsewhere, or bind a narrower folder."
TASK = Task(id="test_x.py::test_x", seed=7)
PASSED = Verdict(outcome="passed", reward=1.0)
FAILED = Verdict(outcome="failed", reward=0.0, type="assertion", message="no")
LOCAL = {"executor": "local", "isolation": "none"}
Make = Callable[..., Run]


def job(sample: int = 0, node: str = "n", **more: Any) -> Job:
    return Job(task=TASK, sample=sample, node=node, suite=Path("/suite"), **more)


@pytest.fixture
def settings(tmp_path: Path, private_folder: Path) -> Callable[..., Settings]:
    """Settings in folders of this test's own, with some of them changed."""

    def make(**changes: Any) -> Settings:
        values: dict[str, Any] = {
            "agent": None,
            "agent_from": "",
            "samples": None,
            "samples_from": "default",
            "agent_forced": False,
            "pins": {},
            "executor": "sandbox",
            "isolation": "required",
            "keep": "failed",
            "dir": str(tmp_path / "suite" / ".rollout"),
            "stage_root": str(private_folder / "root"),
            "config": str(tmp_path / "suite" / "rollout.toml"),
            "config_given": False,
            "keep_runs": 50,
            "root": str(tmp_path / "suite"),
        }
        return Settings(**{**values, **changes})

    (tmp_path / "suite").mkdir()
    return make


@pytest.fixture
def make_run(settings: Callable[..., Settings]) -> Iterator[Make]:
    """A run of this process; closed at the end."""
    made: list[Run] = []

    def make(name: str = NAME, worker: str = "main", *, opened: bool = True, **changes: Any) -> Run:
        run = Run(settings(**changes), name, worker)
        made.append(run)
        if opened:
            run.prepare()
            run.open(Plan(rollouts=()), {})
        return run

    yield make
    for run in made:
        run.close()


@pytest.fixture
def cancel() -> Iterator[Cancel]:
    token = Cancel()
    yield token
    token.close()


def refusal(call: Callable[..., object], *args: object) -> str:
    with pytest.raises(ConfigError) as caught:
        call(*args)
    return str(caught.value)


# What an agent could read


def named(*paths: Path) -> AgentConfig:
    return AgentConfig(
        name="mine", command="true", binds=tuple(Bind(source=str(path), target=str(path)) for path in paths)
    )


def test_a_suite_below_usr_is_refused(make_run: Make) -> None:
    run = make_run(opened=False)
    shown = "lies under /usr, which an agent could read: the sandbox shows it to every agent"
    expected = f"the suite (/usr/src/app/test_a.py) {shown}\n{REMEDY}"
    files = {Path("/usr/src/app/test_b.py"), Path("/usr/src/app/test_a.py"), Path("/srv/test_c.py")}
    assert refusal(run.check_hidden, files, set(), [NoopAgent()]) == expected
    run.check_hidden({Path("/srv/test_c.py"), Path("/usrlocal/test_d.py")}, {Path("/srv/hidden")}, [NoopAgent()])


def test_hidden_files_below_usr_are_refused(make_run: Make) -> None:
    run = make_run(opened=False)
    shown = "lies under /usr, which an agent could read: the sandbox shows it to every agent"
    expected = f"what the evaluator keeps hidden (/usr/share/a) {shown}\n{REMEDY}"
    hidden = {Path("/usr/share/b"), Path("/usr/share/a"), Path("/srv/hidden")}
    assert refusal(run.check_hidden, {Path("/srv/test_c.py")}, hidden, [NoopAgent()]) == expected
    make_run(opened=False, **LOCAL).check_hidden(set(), hidden, [])


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"dir": "/usr/share/x/.rollout"}, "the folder of the results (/usr/share/x/.rollout)"),
        ({"stage_root": "/usr/local/stages"}, "the stage root (/usr/local/stages)"),
    ],
)
def test_results_and_stages_below_usr_are_refused(make_run: Make, changes: dict[str, str], what: str) -> None:
    run = make_run(opened=False, **changes)
    shown = "lies under /usr, which an agent could read: the sandbox shows it to every agent"
    assert refusal(run.check_hidden, set(), set(), []) == f"{what} {shown}\n{REMEDY}"
    make_run(opened=False, **LOCAL, **changes).check_hidden({Path("/usr/test_x.py")}, set(), [])  # it hides nothing


def test_what_lies_below_a_bound_path_is_refused(make_run: Make, tmp_path: Path, private_folder: Path) -> None:
    run = make_run(opened=False)
    suite, link = tmp_path / "suite", tmp_path / "link"
    link.symlink_to(suite)
    file = suite / "evals" / "test_x.py"
    tail = "which an agent could read: agent 'mine' names it in 'paths'"
    for folder in (suite, suite / "evals", file):
        expected = f"the suite ({file}) lies under {folder}, {tail}\n{REMEDY}"
        assert refusal(run.check_hidden, {file}, set(), [NoopAgent(), named(folder)]) == expected
    through = link / "evals" / "test_x.py"
    expected = f"the suite ({through}) lies under {suite}, {tail}\n{REMEDY}"
    assert refusal(run.check_hidden, {through}, set(), [named(suite)]) == expected
    expected = f"the folder of the results ({suite}/.rollout) lies under {suite}, {tail}\n{REMEDY}"
    assert refusal(run.check_hidden, set(), set(), [named(suite)]) == expected
    expected = f"the stage root ({private_folder}/root) lies under {private_folder}, {tail}\n{REMEDY}"
    assert refusal(run.check_hidden, set(), set(), [named(private_folder)]) == expected
    secret = suite / "hidden"
    expected = f"what the evaluator keeps hidden ({secret}) lies under {secret}, {tail}\n{REMEDY}"
    assert refusal(run.check_hidden, {file}, {secret}, [named(secret)]) == expected
    run.check_hidden({file}, {secret}, [named(suite / "tools", suite / "eval", suite / "hidden-not")])


# Before anything is started


def snapshot(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.rglob("*"))


@pytest.mark.parametrize("changes", [{}, LOCAL])
def test_results_below_a_file_are_refused(make_run: Make, tmp_path: Path, changes: dict[str, str]) -> None:
    (tmp_path / "file").write_text("")
    run = make_run(opened=False, dir=str(tmp_path / "file" / "results"), **changes)
    before = snapshot(run.stage_root.parent), snapshot(tmp_path)
    assert refusal(run.prepare) == (
        f"the folder of the results, {tmp_path}/file/results, can't be written: {tmp_path}/file is not a folder\n"
        "Set another with --rollout-dir, or the ini key rollout_dir."
    )
    assert (snapshot(run.stage_root.parent), snapshot(tmp_path)) == before


def test_results_that_are_a_file_are_refused(make_run: Make, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    run = make_run(opened=False, dir=str(tmp_path / "file"))
    message = f"the folder of the results, {tmp_path}/file, is not a folder\nSet it with --rollout-dir."
    assert refusal(run.prepare) == message
    assert not run.stage_root.exists()


@pytest.mark.skipif(ROOT, reason="root may write everywhere")
def test_results_in_a_folder_of_somebody_elses_are_refused(make_run: Make) -> None:
    run = make_run(opened=False, dir="/etc/rollout")
    message = "the folder of the results, /etc/rollout, can't be written: no right to write in /etc\n"
    assert refusal(run.prepare) == f"{message}Set another with --rollout-dir, or the ini key rollout_dir."
    assert not run.stage_root.exists()


def test_stages_in_a_folder_with_other_things_are_refused(make_run: Make, private_folder: Path) -> None:
    (private_folder / "full").mkdir()
    (private_folder / "full" / "thesis.txt").write_text("mine")
    run = make_run(opened=False, stage_root=str(private_folder / "full"))
    before = snapshot(private_folder)
    assert refusal(run.prepare) == (
        f"rollout_stage_root: {private_folder}/full is a folder with other things in it\n"
        "Name a folder that is empty, or not there yet: it becomes a private one."
    )
    assert snapshot(private_folder) == before
    assert not Path(run.settings.dir).exists()


@pytest.mark.skipif(ROOT, reason="root may write everywhere")
def test_stages_in_a_folder_of_somebody_elses_are_refused(make_run: Make) -> None:
    run = make_run(opened=False, stage_root="/etc/stages")
    assert refusal(run.prepare) == (
        "rollout_stage_root: the folder /etc/stages can't be written: Permission denied\n"
        "Set the ini key rollout_stage_root to a folder that this user can write."
    )
    assert not Path(run.settings.dir).exists()


def test_a_run_is_opened_by_the_first_process(make_run: Make) -> None:
    planned = Planned(node="n", rollout="r", task="t", sample=0, agent="a")
    first = make_run(opened=False, pins={"site": "here"})
    first.open(Plan(rollouts=(planned,)), {"samples": 4, "path": Path("x"), "odd": "\udcff"})
    second = make_run(worker="gw0", opened=False)
    second.open(Plan(rollouts=()), {"samples": 8})
    assert first.folder.path == second.folder.path == Path(first.settings.dir) / "runs" / NAME
    record = read_record(first.folder.record, RunRecord)
    assert (record.run, record.pins, record.plugin_version) == (NAME, {"site": "here"}, __version__)
    assert record.options == {"samples": 4, "path": "x", "odd": "\\udcff"}
    assert record.environment["user"] == ("root" if ROOT else "ordinary")
    assert load_plan(first.folder) == Plan(rollouts=(planned,))
    latest = first.results.latest()
    assert latest is not None
    assert latest.name == NAME


def test_stages_of_the_dead_are_counted_once(make_run: Make, private_folder: Path) -> None:
    run = make_run()
    for number in range(3):
        (run.stage_root / "stages" / f"dead-{number}").mkdir()
    (run.stage_root / "leases" / "dead").touch()
    without = make_run(worker="gw0", opened=False)
    without.prepare(reap=False)
    assert without.reaped == 0
    assert len(list((run.stage_root / "stages").iterdir())) == 3
    other = make_run(worker="gw1")
    assert other.reaped == 3
    other.prepare()
    assert other.reaped == 3
    assert list((run.stage_root / "stages").iterdir()) == []


# The executor, probed once a run

PROBING = """
import json, sys
from pytest_rollout import run as module
from pytest_rollout.executors import ladder
from pytest_rollout.settings import Settings
from pytest_rollout.store.records import Plan

real = ladder.probe

def probe(executor, root):
    with open(sys.argv[4], "a") as file:
        file.write("probed\\n")
    real(executor, root)

ladder.probe = probe
run = module.Run(Settings(**json.loads(sys.argv[1])), sys.argv[2], sys.argv[3])
run.prepare(reap=False)
run.open(Plan(rollouts=()), {})
print(run.executor_info().describe())
run.close()
"""


def test_one_probe_for_all_processes(settings: Callable[..., Settings], tmp_path: Path) -> None:
    given = json.dumps(asdict(settings()))
    words = [[sys.executable, "-c", PROBING, given, NAME, f"gw{n}", str(tmp_path / "probes")] for n in range(3)]
    running = [subprocess.Popen(word, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for word in words]
    said = [process.communicate(timeout=60) for process in running]
    assert [error for _, error in said] == ["", "", ""]
    assert {text.partition(", bwrap")[0] for text, _ in said} == {"sandbox (rung 1"}
    assert (tmp_path / "probes").read_text() == "probed\n"


def test_one_probe_in_a_process(make_run: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    probes: list[object] = []
    monkeypatch.setattr(ladder, "probe", lambda executor, root: probes.append(executor))
    run = make_run()
    assert run.executor() is run.executor()
    assert run.executor_info() == run.executor().info
    assert probes == [run.executor()]
    make_run(worker="gw0").executor()
    assert len(probes) == 1
    make_run("2026-11-29T22-08-02Z-00000000").executor()
    assert len(probes) == 2


def test_a_refusal_is_told_by_every_process(make_run: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    probes: list[Executor] = []

    def refuse(executor: Executor, root: object) -> None:
        probes.append(executor)
        raise IsolationError("it does not hold", hint="do this")

    monkeypatch.setattr(ladder, "probe", refuse)
    for worker in ("main", "gw0"):
        run = make_run(worker=worker)
        for _ in range(2):
            with pytest.raises(IsolationError) as caught:
                run.executor()
            assert (caught.value.message, caught.value.hint) == ("it does not hold", "do this")
        info = run.executor_info()
        assert isinstance(info, InfraError)
        assert info.kind == "isolation"
    assert [executor.info.rung for executor in probes] == list(ISOLATED)


def test_another_kind_of_refusal_stays_what_it_is(make_run: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(executor: object, root: object) -> None:
        raise HostError("no process could be started")

    monkeypatch.setattr(ladder, "probe", refuse)
    for worker in ("main", "gw0"):
        info = make_run(worker=worker).executor_info()
        assert isinstance(info, InfraError)
        assert (info.kind, info.message) == ("host", "no process could be started")


def test_where_isolation_is_preferred_the_last_rung_is_none(make_run: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(executor: Executor, root: object) -> None:
        raise IsolationError(f"rung {executor.info.rung} does not hold")

    monkeypatch.setattr(ladder, "probe", refuse)
    for worker in ("main", "gw0"):
        info = make_run(worker=worker, isolation="preferred").executor().info
        assert (info.name, info.rung, info.trusted) == ("local", 5, False)
    with pytest.raises(IsolationError) as caught:
        make_run("2026-11-29T22-08-02Z-00000000", isolation="preferred", rung=3).executor()
    assert (caught.value.message, caught.value.hint) == ("rung 3 does not hold", "")


def test_a_task_that_asks_for_more_than_the_rung_enforces_is_refused_where_that_is_required(
    make_run: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(executor: Executor, root: object) -> None:
        if executor.info.rung != 4:
            raise IsolationError(f"rung {executor.info.rung} does not hold")

    monkeypatch.setattr(ladder, "probe", refuse)
    run = make_run()
    with pytest.raises(IsolationError) as caught:
        run.rollout(job(), NoopAgent(), Cancel())
    missing = ", ".join(unmet(run.executor().info.unenforced, "none"))
    assert caught.value.message == f"rung 4 does not enforce what the task asks for: {missing}"
    assert caught.value.hint.splitlines() == [
        *(f"Rung {number} does not hold here: rung {number} does not hold" for number in (1, 2, 3)),
        "What to do about it: pytest-rollout doctor",
    ]
    assert list((run.stage_root / "stages").iterdir()) == []


def test_without_isolation_nothing_is_probed(make_run: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ladder, "probe", lambda executor, root: pytest.fail("it was probed"))
    run = make_run(**LOCAL)
    assert run.executor().info.name == "local"
    assert not (run.folder.path / "probe.json").exists()


# Versions of agents


@pytest.fixture(params=["sandbox", "local"])
def version(request: pytest.FixtureRequest, make_run: Make) -> Callable[[Any], str | None]:
    """The version of an agent with this version command, on each executor."""
    run = make_run(**(LOCAL if request.param == "local" else {}))

    def ask(command: Any) -> str | None:
        agent = run.ready_agent(AgentConfig(name="mine", command="true", version=command))
        assert list((run.stage_root / "stages").iterdir()) == []
        return agent.info.version

    return ask


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        pytest.param(None, None, id="none"),
        pytest.param("echo 1.2.3; echo more", "1.2.3", id="text"),
        pytest.param(("echo", "mine 4"), "mine 4", id="list"),
        pytest.param("echo; echo '  1.2.3 '", "1.2.3", id="blanks"),
        pytest.param("echo 1.2.3; exit 1", None, id="fails"),
        pytest.param("echo 1.2.3 >&2", None, id="stderr"),
        pytest.param("no-such-program", None, id="missing"),
        pytest.param("kill -9 $$", None, id="signal"),
        pytest.param("printf 1.2; yes | head -c 1000000", "1.2y", id="much"),
        pytest.param("head -c 1000 /dev/zero | tr '\\0' x", "x" * 200, id="long"),
        pytest.param("printf '1\\377'", "1\ufffd", id="bytes"),
        pytest.param("ls -A; cat; echo end", "end", id="empty"),
    ],
)
def test_version_commands(version: Callable[[Any], str | None], command: Any, expected: str | None) -> None:
    assert version(command) == expected


def test_a_version_command_that_hangs(version: Callable[[Any], str | None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_rollout.agents.version._SECONDS", 0.3)
    began = time.monotonic()
    assert version("echo 1.2.3; sleep 60") is None
    assert 0.3 <= time.monotonic() - began < 10


def test_a_version_program_that_is_gone(version: Callable[[Any], str | None]) -> None:
    assert version(("no-such-program",)) is None


def test_a_version_is_asked_for_once(make_run: Make, tmp_path: Path) -> None:
    run = make_run(**LOCAL)
    config = AgentConfig(name="mine", command="true", version=f"echo x >> {tmp_path}/asked; echo 1")
    agents = [run.ready_agent(config) for _ in range(3)]
    assert agents[0] is agents[1] is agents[2]
    assert (tmp_path / "asked").read_text() == "x\n"
    noop = NoopAgent()
    assert run.ready_agent(noop) is noop


# Rollouts and their records


def test_a_rollout_has_its_ids_and_its_seed(make_run: Make, cancel: Cancel) -> None:
    run = make_run(pins={"model": "m"})
    config = AgentConfig(name="mine", command='echo "$ROLLOUT_SEED" > seed', pins={"temperature": 0.5})
    attempt = run.rollout(job(2, "test_x.py::test_x[s2]"), config, cancel)
    assert attempt.record is not None
    identity, pins = attempt.record.identity, attempt.record.pins
    assert (identity.run, identity.sample, identity.attempt, pins.seed) == (NAME, 2, 1, 9)
    assert identity.rollout == f"3f9ac01d-{attempt.folder.parent.parent.name}-s2"
    assert (pins.model, pins.sampling, pins.agent) == ("m", {"temperature": 0.5}, "mine")
    assert attempt.folder == run.folder.attempt(TASK.id, 2, 1)
    assert (attempt.folder / "changes" / "seed").read_text() == "9\n"
    attempt.finish(keep=False)


@pytest.mark.parametrize(("keep", "kept"), [("failed", True), ("none", False)])
def test_an_attempt_after_infrastructure_starts_anew(make_run: Make, cancel: Cancel, keep: str, kept: bool) -> None:
    """The second attempt finds nothing of the first, whose evidence, cost and stage are kept as a failure's are."""
    run = make_run(keep=keep, retries={"agent": 1}, retry_forgeable=True)
    pauses: list[int] = []
    run.backoff = lambda retry: pauses.append(retry) or 0.0  # type: ignore[func-returns-value]
    command = "test -f m && echo ok > out; touch m; echo $ROLLOUT_ATTEMPT > number; exit 75"
    attempt = run.rollout(job(), AgentConfig(name="a", command=command, infra_exit_codes=(75,)), cancel)
    assert (attempt.number, pauses) == (2, [1])
    folders = [run.folder.attempt(TASK.id, 0, number) for number in (1, 2)]
    assert attempt.folder == folders[1]
    for number, folder in enumerate(folders, 1):
        record = read_record(folder / "bundle.json", BundleRecord)
        assert record.identity.attempt == number
        assert [change.path for change in record.changes] == ["m", "number"]
        assert (folder / "changes" / "number").read_text() == f"{number}\n"
    first = read_record(folders[0] / "bundle.json", BundleRecord)
    (earlier,) = attempt.earlier
    assert (earlier.attempt, earlier.kind, earlier.forgeable, earlier.usage) == (1, "agent", True, first.usage)
    assert earlier.folder == run.folder.relative(folders[0])
    assert (first.stage is not None and Path(first.stage).is_dir()) is kept
    assert not (folders[0] / "score.json").exists()
    infra = Verdict(outcome="infra", kind="agent", type="infra.agent")
    result = run.record(task=TASK, sample=0, node="n", agent="a", verdict=infra, attempt=attempt, reward=Reward())
    assert (result.attempt, result.earlier) == (2, attempt.earlier)
    assert read_record(folders[1] / "score.json", ScoreRecord).attempt == 2
    attempt.finish(keep=False)


def test_no_place_is_held_while_a_retry_waits(make_run: Make, cancel: Cancel) -> None:
    run = make_run(retries={"agent": 1}, retry_forgeable=True, slots=1, **LOCAL)
    ended = Cancel()
    ended.set()  # whoever does not get a place at once gets none
    places: list[float] = []

    def backoff(retry: int) -> float:
        assert run._capacity is not None
        with run._capacity.held((), ended) as held:
            places.append(held.waited)
        return 0.0

    run.backoff = backoff
    attempt = run.rollout(job(), AgentConfig(name="a", command="exit 75", infra_exit_codes=(75,)), cancel)
    assert (len(places), attempt.number, attempt.infra is not None) == (1, 2, True)
    attempt.finish(keep=False)
    ended.close()


def test_a_trial_is_made_once(make_run: Make, cancel: Cancel) -> None:
    run = make_run(retries={"agent": 1}, retry_forgeable=True, **LOCAL)
    agent = AgentConfig(name="a", command="exit 75", infra_exit_codes=(75,))
    attempt = run.rollout(job(trial="noop"), agent, cancel)
    assert (attempt.infra is not None, attempt.earlier) == (True, ())
    attempt.finish(keep=False)


def test_what_is_recorded(make_run: Make, cancel: Cancel) -> None:
    run = make_run(worker="gw1", **LOCAL)
    attempt = run.rollout(job(evaluator_revision="sha256:22", audit="weak"), NoopAgent(), cancel)
    assert attempt.record is not None
    assert (attempt.record.pins.evaluator_revision, attempt.record.audit) == ("sha256:22", "weak")
    reward = Reward()
    reward.add("half", 0.5)
    verdict = Verdict(outcome="failed", reward=0.5, checks_reward=0.5, type="reward", message="low")
    result = run.record(task=TASK, sample=0, node="n", agent="noop", verdict=verdict, attempt=attempt, reward=reward)
    assert result.folder == attempt.folder.relative_to(run.folder.path).as_posix()
    lines = (run.folder.results / "gw1.jsonl").read_bytes().splitlines()
    assert [msgspec.json.decode(line, type=Result) for line in lines] == [result]
    score = read_record(attempt.folder / "score.json", ScoreRecord)
    assert (score.outcome, score.reward, [check.name for check in score.checks]) == ("failed", 0.5, ["half"])
    for record in (score, result):
        assert (record.evaluator_revision, record.in_process, record.audit) == ("sha256:22", False, "weak")
    last = json.loads((attempt.folder / "journal.jsonl").read_text().splitlines()[-1])
    assert (last["event"], last["outcome"], last["reward"]) == ("scored", "failed", 0.5)
    attempt.finish(keep=False)


def test_a_verdict_of_a_process_with_candidate_code_is_recorded_so(make_run: Make, cancel: Cancel) -> None:
    run = make_run(**LOCAL)
    attempt = run.rollout(job(), NoopAgent(), cancel)
    assert attempt.evaluator is not None
    attempt.evaluator.in_process = True
    result = run.record(task=TASK, sample=0, node="n", agent="noop", verdict=PASSED, attempt=attempt, reward=Reward())
    assert (result.in_process, read_record(attempt.folder / "score.json", ScoreRecord).in_process) == (True, True)
    attempt.finish(keep=False)


def test_a_trial_of_checks_lies_apart_from_the_rollouts(make_run: Make, cancel: Cancel) -> None:
    run = make_run(**LOCAL)
    attempt = run.rollout(job(trial="noop"), NoopAgent(), cancel)
    assert attempt.folder.parts[-4] == "trials"
    assert attempt.folder.parts[-2:] == ("s0", f"noop-{run.worker}")
    assert attempt.folder.is_relative_to(run.folder.path)
    assert not (run.folder.path / "rollouts").exists()
    attempt.finish(keep=False)


def test_the_revision_of_an_environment_is_that_of_its_baseline(make_run: Make, tmp_path: Path) -> None:
    run = make_run(**LOCAL)
    (tmp_path / "w").mkdir()
    empty = run.environment_of(TASK)
    assert run.environment_of(TASK.replace(workspace=Folder(path=str(tmp_path / "w")))) == empty
    (tmp_path / "w" / "a").write_text("x")
    changed = run.environment_of(TASK.replace(workspace=Folder(path=str(tmp_path / "w"))))
    assert changed != empty
    assert changed == run.executor().prepare(tmp_path / "w").revision


def test_an_audit_has_a_folder_of_its_own(make_run: Make) -> None:
    run = make_run(audit=True, **LOCAL)
    assert run.folder.path == Path(run.settings.dir) / "audits" / NAME
    assert not (Path(run.settings.dir) / "latest").exists()


def test_a_rollout_without_an_attempt_is_a_line(make_run: Make) -> None:
    run = make_run(**LOCAL)
    verdict = Verdict(outcome="infra", kind="fixture", type="infra.fixture", message="broken")
    before = (Earlier(attempt=1, kind="stage"),)
    late = run.record(
        task=TASK, sample=1, node="n", agent="a", verdict=verdict, attempt=None, reward=Reward(), earlier=before
    )
    assert (late.attempt, late.earlier) == (2, before)
    run.folder.results.joinpath("main.jsonl").write_bytes(b"")
    result = run.record(task=TASK, sample=0, node="n", agent="a", verdict=verdict, attempt=None, reward=Reward())
    assert (result.folder, result.termination, result.kind) == (None, None, "fixture")
    assert load_results(run.folder).results == (result,)
    assert not (run.folder.path / "rollouts").exists()


@pytest.mark.parametrize(
    ("keep", "kept"),
    [
        ("failed", [False, True, True, True]),
        ("all", [True, True, True, True]),
        ("none", [False, False, False, False]),
    ],
)
def test_which_stages_are_kept(make_run: Make, keep: str, kept: list[bool]) -> None:
    run = make_run(opened=False, keep=keep)
    infra = Verdict(outcome="infra", kind="spawn")
    assert [run.keeps(verdict) for verdict in (PASSED, FAILED, infra, None)] == kept


# Afterwards


def make_kept(run: Run, cancel: Cancel, sample: int = 0) -> Path:
    attempt: Attempt = run.rollout(job(sample), NoopAgent(), cancel)
    assert attempt.finish(keep=True) == []
    assert attempt.record is not None
    assert attempt.record.stage is not None
    return Path(attempt.record.stage)


def test_old_runs_go_with_the_stages_that_they_kept(make_run: Make, cancel: Cancel, tmp_path: Path) -> None:
    runs = [make_run(f"2026-11-29T22-08-0{number}Z-0000000{number}", keep_runs=2, **LOCAL) for number in range(4)]
    stages = [[make_kept(run, cancel, sample) for sample in (0, 1)] for run in runs]
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    bundle = runs[0].folder.attempt(TASK.id, 0, 1) / "bundle.json"
    known = read_record(bundle, BundleRecord)
    bundle.write_bytes(msgspec.json.encode(msgspec.structs.replace(known, stage=str(foreign))))
    (runs[0].folder.attempt(TASK.id, 1, 1) / "bundle.json").write_text("{broken")
    runs[1].folder.hold()
    assert runs[3].prune() == [runs[0].name]
    runs[1].folder.release()
    assert foreign.is_dir()
    assert all(stage.is_dir() for some in stages for stage in some)
    assert runs[3].prune() == [runs[1].name]
    assert [[stage.is_dir() for stage in some] for some in stages] == [[True] * 2, [False] * 2, [True] * 2, [True] * 2]
    assert [run.name for run in runs[3].results.all_runs()] == [runs[2].name, runs[3].name]
    assert runs[3].prune() == []


def test_a_closed_run_holds_nothing(make_run: Make, cancel: Cancel) -> None:
    run = make_run(**LOCAL)
    attempt = run.rollout(job(), NoopAgent(), cancel)
    assert len(list((run.stage_root / "stages").iterdir())) == 1
    run.close()
    run.close()
    for name in ("stages", "leases"):
        assert list((run.stage_root / name).iterdir()) == []
    attempt.finish(keep=False)
