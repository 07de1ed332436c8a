"""Processes that are killed, sessions that are interrupted, folders that vanish: nothing is lost, nothing lives on."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_rollout.store.folder import ResultsFolder
from pytest_rollout.store.load import load_results
from tests.plugin.conftest import read_junit
from tests.plugin.support import (
    SUITE,
    background,
    children,
    journal,
    last_run,
    left_of_stages,
    marker,
    processes,
    results,
    session,
    wait_for,
)

if TYPE_CHECKING:
    import subprocess

    from tests.plugin.conftest import Suite

INTERRUPTED, UNMEASURED = 2, 75
END = 20  # seconds in which every process of an agent has to be gone
LIVELY = """
    import pytest

    @pytest.mark.rollout(agent="echo hi > a.txt")
    def test_first(bundle):
        assert bundle.exists("a.txt")

    @pytest.mark.rollout(agent="echo hi > a.txt; trap '' INT TERM HUP; setsid sleep {word} & sleep {word}")
    def test_long(bundle):
        assert bundle.exists("a.txt")

    @pytest.mark.rollout(agent="echo hi > a.txt")
    def test_second(bundle):
        assert bundle.exists("a.txt")

    @pytest.mark.rollout(agent="echo hi > a.txt; trap '' INT TERM HUP; setsid sleep {word} & sleep {word}")
    def test_longer(bundle):
        assert bundle.exists("a.txt")

    @pytest.mark.rollout(agent="echo hi > a.txt")
    def test_third(bundle):
        assert bundle.exists("a.txt")

    @pytest.mark.rollout(agent="echo hi > a.txt")
    def test_last(bundle):
        assert bundle.exists("a.txt")
"""
QUICK = """
    import pytest

    @pytest.mark.rollout(agent="echo hi > a.txt")
    def test_quick(bundle):
        assert bundle.exists("a.txt")
"""


class Lively:
    """A suite whose agents live until they are killed; two of them at once where there are two workers."""

    def __init__(self, suite: Suite, pytester: pytest.Pytester) -> None:
        self.suite, self.pytester, self.word = suite, pytester, marker()
        self.living = 2 if suite.workers == "-n0" else 4
        suite.write({SUITE: LIVELY.replace("{word}", self.word)})

    def wait(self) -> None:
        """Wait until the agents live and what came before them is in the journal."""
        wait_for(lambda: len(processes(self.word)) == self.living, 60, "the agents")
        wait_for(lambda: len(self.finished()) >= self.living // 2, 60, "the first results")

    def finished(self) -> dict[str, tuple[str, str | None]]:
        """Outcome and kind of every result of the last run."""
        return {node: (result.outcome, result.kind) for node, result in results(self.pytester).items()}

    def check_end(self, running: subprocess.Popen[bytes], others: set[int]) -> None:
        """Every process of the session and of its agents ends within 20 seconds."""
        running.wait(END)
        wait_for(lambda: not processes(self.word), END, "the end of the agents")
        wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in others), END, "the end of the workers")


@pytest.fixture
def lively(suite: Suite, pytester: pytest.Pytester) -> Lively:
    """A suite that is still running when a test interferes."""
    return Lively(suite, pytester)


def ancestors(pid: int) -> set[int]:
    """The processes that a process comes from."""
    found: set[int] = set()
    while pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[1])
        found.add(pid)
    return found


def start_again(suite: Suite, pytester: pytest.Pytester) -> list[str]:
    """Run a quick suite, and give its header lines about stages."""
    suite.write({SUITE: QUICK})
    done = session(pytester, "-p", "xdist", "-p", "rollout", suite.workers)
    assert (done.status, done.errors) == (0, "")
    return [line for line in done.text.splitlines() if line.startswith("rollout: removed")]


# -- kill -9


@pytest.mark.slow
def test_a_session_that_is_killed(lively: Lively) -> None:
    suite, pytester = lively.suite, lively.pytester
    with background(pytester, suite.workers) as running:
        lively.wait()
        before, workers = lively.finished(), children(running.pid)
        running.kill()
        lively.check_end(running, workers)
        assert running.returncode == -signal.SIGKILL
    after = lively.finished()
    assert {node: after[node] for node in before} == before
    assert set(before.values()) == {("passed", None)}
    assert set(after.values()) <= {("passed", None), ("infra", "cancelled")}
    assert not {"test_long", "test_longer"} & {node for node, found in after.items() if found == ("passed", None)}
    stale = [path for path in left_of_stages(suite) if "/stages/" in path]
    assert len(stale) == 1 or suite.workers == "-n2"  # a worker whose controller died puts its stage away
    counted = "1 stage" if len(stale) == 1 else f"{len(stale)} stages"
    assert start_again(suite, pytester) == ([f"rollout: removed {counted} of sessions that died"] if stale else [])
    assert left_of_stages(suite) == []


@pytest.mark.slow
def test_stages_of_a_dead_session_are_told_of(lively: Lively, suite: Suite, pytester: pytest.Pytester) -> None:
    """Also by a start with workers, which find them removed."""
    lively.living = 2
    with background(pytester, "-n0") as running:
        lively.wait()
        running.kill()
        lively.check_end(running, set())
    assert len(left_of_stages(suite)) == 2, "a stage and its lease"
    assert start_again(suite, pytester) == ["rollout: removed 1 stage of sessions that died"]
    assert left_of_stages(suite) == []
    assert start_again(suite, pytester) == []


# -- Ctrl-C, and what ends a session as that does


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "status", "to_all"),
    [
        pytest.param(signal.SIGINT, INTERRUPTED, True, id="Ctrl-C"),
        pytest.param(signal.SIGTERM, 143, False, id="kill"),
        pytest.param(signal.SIGHUP, 129, True, id="a terminal that is closed"),
    ],
)
def test_an_interrupt(lively: Lively, number: signal.Signals, status: int, to_all: bool) -> None:
    suite, pytester = lively.suite, lively.pytester
    with background(pytester, suite.workers, "--junitxml=report.xml") as running:
        lively.wait()
        before, workers = lively.finished(), children(running.pid)
        began = time.monotonic()
        (os.killpg if to_all else os.kill)(running.pid, number)
        assert running.wait(30) == status
        assert time.monotonic() - began < 12
        lively.check_end(running, workers)
    after = lively.finished()
    cancelled = {"test_long"} if suite.workers == "-n0" else {"test_long", "test_longer"}
    by_itself = number != signal.SIGINT and to_all and suite.workers == "-n2"  # each worker was told to die
    kind = "worker" if by_itself else "cancelled"
    said = f"the worker was ended by {number.name}" if by_itself else "the session was interrupted"
    assert after == {**before, **dict.fromkeys(cancelled, ("infra", kind))}
    assert left_of_stages(suite) == []
    text = (suite.root / "out.txt").read_text()
    passed = len(before)
    summary = f"{len(after)} rollouts: {passed} passed, 0 failed, {len(cancelled)} infra; {6 - len(after)} not run"
    assert summary in text.splitlines()
    assert f"  {len(cancelled)} × {kind}: {said}" in text.splitlines()
    assert "Traceback" not in text
    told = {case.name for case in read_junit(suite.root / "report.xml")}
    assert by_itself or told == set(after)
    assert len(journal(last_run(pytester))) == len(after)


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["-n2"])
def test_a_worker_that_is_told_to_end(lively: Lively) -> None:
    """It puts its rollout away, and another worker goes on with the rest."""
    suite, pytester = lively.suite, lively.pytester
    suite.write({SUITE: LIVELY.replace("{word}", lively.word, 2).replace("{word}", "0")})
    lively.living = 2
    with background(pytester, suite.workers) as running:
        lively.wait()
        holder = next(iter(processes(lively.word)))
        worker = next(pid for pid in children(running.pid) if pid in ancestors(holder))
        os.kill(worker, signal.SIGTERM)
        lively.check_end(running, {worker})
        assert running.returncode == UNMEASURED
    found = lively.finished()
    assert found.pop("test_long") == ("infra", "worker")
    assert set(found.values()) == {("passed", None)}
    assert len(found) == 5
    assert "  1 × worker: the worker was ended by SIGTERM" in (suite.root / "out.txt").read_text().splitlines()
    assert left_of_stages(suite) == []


@pytest.mark.slow
def test_an_interrupt_of_an_agent_that_does_not_heed_it(suite: Suite, pytester: pytest.Pytester) -> None:
    """A callable agent runs in this process, and can't be killed; the session ends all the same."""
    source = """
        import pathlib
        import time
        import pytest

        def agent(stage):
            pathlib.Path("acting").touch()
            time.sleep(90)

        @pytest.mark.rollout(agent=agent)
        def test_it(bundle):
            assert bundle.exit_code == 0
    """
    suite.write({SUITE: source})
    with background(pytester, suite.workers) as running:
        wait_for((suite.root / "acting").exists, 60, "the agent")
        workers, began = children(running.pid), time.monotonic()
        os.killpg(running.pid, signal.SIGINT)
        assert running.wait(30) == INTERRUPTED
        assert time.monotonic() - began < 12
        wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers), END, "the end of the workers")
    assert [(r.outcome, r.kind, r.message) for r in results(pytester).values()] == [
        ("infra", "cancelled", "the session was interrupted")
    ]
    assert left_of_stages(suite) == []


# -- a clock that is set


@pytest.mark.parametrize("workers", ["-n0"])
@pytest.mark.parametrize("jump", [-86_400, 86_400])
def test_a_clock_that_is_set_while_an_agent_runs(suite: Suite, jump: int) -> None:
    """Durations, limits and the order of times do not come from it; the whole process sees the new time."""
    ran = suite.run(
        f"""
        import time

        import pytest

        def agent(stage):
            real = time.time
            time.time = lambda: real() + {jump}
            stage.run("sleep 0.2")

        @pytest.mark.rollout(agent=agent)
        def test_it(bundle):
            assert bundle.termination == "completed"
            assert 0.2 <= bundle.duration < 30

        @pytest.mark.rollout(agent="echo hi > a.txt")
        def test_after(bundle):
            assert bundle.exists("a.txt")
        """,
        "--rollout-controls=none",
    )
    assert set(ran.verdicts.values()) == {("passed", None, 1.0)}
    times = [time for node in ran.results for time in (ran.bundle(node).times.started, ran.bundle(node).times.ended)]
    assert times == sorted(times)
    assert ran.run is not None
    events = [json.loads(line) for line in (ran.attempt("test_it") / "journal.jsonl").read_text().splitlines()]
    assert [event["time"] for event in events] == sorted(event["time"] for event in events)
    assert (suite.root / ".rollout" / "latest").read_text().strip() == ran.run.name


# -- the folder of the results


@pytest.mark.parametrize("removed", [".rollout", ".rollout/runs/*/results"])
def test_results_that_are_removed_midway(suite: Suite, removed: str) -> None:
    source = f"""
        import pathlib
        import shutil
        import pytest

        @pytest.mark.parametrize("number", range(4))
        @pytest.mark.rollout(agent="echo hi > a.txt")
        def test_it(bundle, number):
            assert bundle.exists("a.txt")
            if number == 1:
                for folder in pathlib.Path().glob({removed!r}):
                    shutil.rmtree(folder)
    """
    ran = suite.run(source, checked=False)
    assert ran.status == UNMEASURED
    assert not list(suite.root.glob(removed)), "the run is not begun again"
    assert ran.block()[:3] == [
        "4 rollouts: 0 passed, 0 failed, 4 infra",
        "infra: 4 recording",
        "mean reward: none over 0 measured of 4 (4 unmeasured)",
    ]
    if suite.workers == "-n0":
        assert ran.counts == {"passed": 1, "errors": 3}, "what can't be recorded is said at once"
    assert {(case.verdict, case.type) for case in ran.cases} == {("error", "infra.recording")}
    assert len(ran.cases) == 4
    assert not any("rollout.reward" in case.properties for case in ran.cases)
    assert left_of_stages(suite) == []


@pytest.mark.parametrize("workers", ["-n0"])
@pytest.mark.parametrize(("phase", "struck"), [("agent", "infra"), ("finish", "passed")])
def test_results_that_become_a_file(suite: Suite, phase: str, struck: str) -> None:
    source = f"""
        import pathlib

        import pytest

        def strike(phase):
            if phase == {phase!r}:
                pathlib.Path(".rollout").rename("moved")
                pathlib.Path(".rollout").touch()

        @pytest.fixture(scope="session", autouse=True)
        def finish():
            yield
            strike("finish")

        def agent(stage):
            stage.run("echo hi > a.txt")
            strike("agent")

        @pytest.mark.rollout(agent="echo hi > a.txt")
        def test_first(bundle):
            assert bundle.exists("a.txt")

        @pytest.mark.rollout(agent=agent)
        def test_struck(bundle):
            assert bundle.exists("a.txt")
    """
    ran = suite.run(source, "--rollout-controls=none", checked=False)
    assert ran.status == UNMEASURED
    assert ran.block()[:2] == ["2 rollouts: 0 passed, 0 failed, 2 infra", "infra: 2 recording"]
    assert "Traceback" not in ran.text + ran.errors
    (run,) = ResultsFolder(suite.root / "moved").all_runs()
    kept = {result.node.partition("::")[2]: result.outcome for result in load_results(run).results}
    assert kept == {"test_first": "passed", "test_struck": struck}
    assert left_of_stages(suite) == []


@pytest.mark.slow
def test_two_sessions_share_the_folder_of_results(suite: Suite, pytester: pytest.Pytester) -> None:
    """The one that ends first removes old runs, and not the one that is still going on."""
    suite.ini("rollout_keep_runs = 1")
    source = """
        import pathlib
        import time
        import pytest

        def agent(stage):
            pathlib.Path("acting").touch()
            while not pathlib.Path("go").exists():
                time.sleep(0.02)

        @pytest.mark.rollout(agent=agent)
        def test_slow(bundle):
            assert bundle.exit_code == 0
    """
    suite.write({"test_slow.py": source, SUITE: QUICK})
    with background(pytester, suite.workers, "test_slow.py") as running:
        wait_for((suite.root / "acting").exists, 60, "the agent")
        slow = last_run(pytester)
        quick = [session(pytester, "-p", "xdist", "-p", "rollout", suite.workers, SUITE) for _ in range(2)]
        assert [done.status for done in quick] == [0, 0]
        assert slow.path.exists()
        (suite.root / "go").touch()
        assert running.wait(60) == 0
    runs = suite.root / ".rollout" / "runs"
    assert quick[0].run is not None
    assert quick[1].run is not None
    assert not quick[0].run.path.exists(), "the second session removed the first one's run"
    assert {path.name for path in runs.iterdir()} == {slow.name, quick[1].run.name}
    assert re.search(r"^1 rollout: 1 passed, 0 failed, 0 infra$", (suite.root / "out.txt").read_text(), re.M)
