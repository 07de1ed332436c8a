"""A process of a session is killed, or told to end, in every phase of a rollout.

What holds in every cell of this table: no process of an agent lives on; what was recorded before is kept, and can be
listed; the next start removes what is left of stages. ``kept``: the rollout that is struck has its result. ``rest``:
its worker is replaced, and the rest of the suite is run.

=============  ===================  ==================  ======================  ======================
phase          SIGKILL, no workers  SIGKILL, a worker   SIGKILL, the controller  SIGTERM; Ctrl-C twice
=============  ===================  ==================  ======================  ======================
collection     no run               rest                nothing                 SIGTERM as without us
control run    unmeasured           –                   as far as workers came  infra cancelled
provisioning   unmeasured           –                   –                       infra cancelled
agent          unmeasured           in ``test_xdist``   –                       infra cancelled
collecting     unmeasured           –                   –                       infra cancelled
judging        unmeasured           infra worker, rest  as far as workers came  infra cancelled
recording      kept                 –                   –                       kept
teardown       kept                 kept, rest          –                       kept
finish         all kept             (the controller's)  –                       all kept
=============  ===================  ==================  ======================  ======================

``–`` was tried by hand with this module and holds too; sessions with workers are dear.
SIGINT to all processes, SIGHUP and a worker that gets SIGTERM, while agents run, are in ``test_failure_of_machine``; a
killed holder of a place in ``test_capacity``; interrupts at odd moments of a wait in ``test_exit_status``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

import pytest

from pytest_rollout.cli.tool import main
from pytest_rollout.stage.root import StageRoot
from pytest_rollout.store.folder import ResultsFolder
from pytest_rollout.store.load import load_results
from tests.plugin.support import PLUGINS, SUITE, marker, processes, wait_for

PHASES = ("collection", "control", "provisioning", "agent", "collecting", "judging", "recording", "teardown", "finish")
PASSED: tuple[str, str | None] = ("passed", None)
INTERRUPTED, UNMEASURED, TERMINATED = 2, 75, 143
CONFTEST = """
    import os
    import signal
    import subprocess
    from pathlib import Path

    import pytest_rollout._reporting
    import pytest_rollout._trials
    import pytest_rollout.attempt
    import pytest_rollout.executors.capture
    import pytest_rollout.executors.sandbox
    import pytest_rollout.run

    PHASE, TARGET, SIGNALS = (os.environ[name] for name in ("PHASE", "TARGET", "SIGNALS"))
    HERE = Path(__file__).parent

    def strike(phase, pid=None):
        if phase != PHASE:
            return
        try:
            os.close(os.open(HERE / "struck", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        living = [path for path in Path("/proc").glob("[0-9]*/cmdline") if os.environ["WORD"] in text_of(path)]
        (HERE / "living").write_text(str(len(living)))
        pid = pid or (os.getpid() if TARGET == "self" or phase == "finish" else os.getppid())
        lines = "; sleep 0.1; ".join(f"kill -{name} {pid}" for name in SIGNALS.split())
        subprocess.run(["sh", "-c", lines], check=False)

    def text_of(path):
        try:
            return path.read_text()
        except OSError:
            return ""

    def before(owner, name, phase, when=lambda *args: True, first=False):
        old = getattr(owner, name)

        def new(*args, **options):
            if first and when(*args):
                strike(phase)
            result = old(*args, **options)
            if not first and when(*args):
                strike(phase)
            return result

        setattr(owner, name, new)

    def pytest_collection_modifyitems():
        strike("collection")

    def of_struck(*args):
        return any("test_struck" in str(getattr(arg, "node", "")) for arg in args)

    trial = pytest_rollout._trials.Trials._said

    def said(self, state, *args):
        if PHASE == "control" and "test_struck" in state.item.nodeid and not (HERE / "struck").exists():
            worker = os.getppid()
            strike("control", worker if TARGET == "self" else int(Path(f"/proc/{worker}/stat").read_text().split()[3]))
            signal.pause()
        return trial(self, state, *args)

    pytest_rollout._trials.Trials._said = said
    before(pytest_rollout.executors.capture.Capture, "feed", "agent", lambda self, data: b"struck" in bytes(data))
    before(pytest_rollout.attempt, "collect", "collecting", lambda view, place, *more: "struck" in str(place))
    before(pytest_rollout.run.Run, "append", "recording", of_struck)
    ends = lambda self, *args: "struck" in str(self.folder)
    before(pytest_rollout.attempt.Attempt, "_end_stage", "teardown", ends, True)
    before(pytest_rollout._reporting.Reporting, "_write_junit", "finish", first=True)
    provision = pytest_rollout.executors.sandbox.SandboxExecutor.provision

    def provisioned(self, *args):
        stage = provision(self, *args)
        if (HERE / "first").exists():
            strike("provisioning")
        return stage

    pytest_rollout.executors.sandbox.SandboxExecutor.provision = provisioned
    """
TESTS = """
    import os
    from pathlib import Path

    import pytest
    from conftest import strike

    @pytest.mark.rollout(agent="echo hi > a.txt")
    def test_first(bundle):
        assert bundle.exists("a.txt")
        (Path(__file__).parent / "first").touch()

    @pytest.mark.rollout(agent="echo hi > a.txt; setsid sleep {word} & echo struck{agent}")
    def test_struck(bundle):
        assert bundle.exists("a.txt")
        strike("judging")

    @pytest.mark.rollout(agent="echo hi > a.txt")
    def test_last(bundle):
        assert bundle.exists("a.txt")
    """


class Cell(NamedTuple):
    """What a session left that was struck in a phase. ``results`` is None where there is no run."""

    status: int
    living: int
    results: dict[str, tuple[str, str | None]] | None
    text: str


def cells(
    folder: Path, stage_root: Path, phases: Sequence[str], workers: str, target: str, signals: str
) -> dict[str, Cell]:
    """A session for each phase, three at a time; none leaves a process."""
    found: dict[str, Cell] = {}
    for number in range(0, len(phases), 3):
        words = {phase: marker() for phase in phases[number : number + 3]}
        running = {
            phase: start(folder / phase, stage_root, phase, workers, target, signals, word)
            for phase, word in words.items()
        }
        for phase, process in running.items():
            try:
                process.wait(90)
                wait_for(lambda: not processes(words[phase]), 20, f"the end of the agent in {phase}")  # noqa: B023
                wait_for(lambda: not inside(folder / phase), 30, f"the end of the workers in {phase}")  # noqa: B023
            finally:
                process.kill()
                process.wait()
            found[phase] = look(folder / phase, process.returncode)
    return found


def start(
    folder: Path, stage_root: Path, phase: str, workers: str, target: str, signals: str, word: str
) -> subprocess.Popen[bytes]:
    folder.mkdir()
    (folder / "pytest.ini").write_text(f"[pytest]\nrollout_stage_root = {stage_root}\n")
    (folder / "conftest.py").write_text(dedent(CONFTEST))
    acts = f"; sleep {word}" if phase == "agent" else ""
    (folder / SUITE).write_text(dedent(TESTS).replace("{word}", word).replace("{agent}", acts))
    controls = "auto" if phase == "control" else "none"
    with open(folder / "out.txt", "wb") as out:
        return subprocess.Popen(
            [sys.executable, "-m", "pytest", *PLUGINS, workers, "--dist=loadfile", f"--rollout-controls={controls}"],
            cwd=folder,
            env={**os.environ, "PHASE": phase, "TARGET": target, "SIGNALS": signals, "WORD": word},
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def inside(folder: Path) -> set[int]:
    """The processes that have this folder as their own."""
    found = set()
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{name}/cwd") == str(folder):
                found.add(int(name))
        except OSError:
            continue
    return found


def look(folder: Path, status: int) -> Cell:
    living = folder / "living"
    assert living.exists(), (folder / "out.txt").read_text()
    run = ResultsFolder(folder / ".rollout").latest()
    found: dict[str, tuple[str, str | None]] = {}
    if run is not None:
        assert main(["--dir", str(folder / ".rollout"), "list", "last"]) == 0
        loaded = load_results(run)
        assert loaded.broken == 0
        for result in loaded.results:
            found[result.node.partition("::")[2].removeprefix("test_")] = (result.outcome, result.kind)
    return Cell(status, int(living.read_text()), found if run is not None else None, (folder / "out.txt").read_text())


def left(stage_root: Path) -> list[str]:
    """What there is of stages and of their leases."""
    return [str(path) for name in ("stages", "leases") for path in (stage_root / name).glob("*")]


def reap(stage_root: Path) -> None:
    """What the next start does first."""
    root = StageRoot(stage_root)
    root.reap()
    root.close()


def expected(phase: str, struck: tuple[str, str | None] | None, *, rest: bool) -> dict[str, tuple[str, str | None]]:
    """The results of a session whose rollout came to ``struck`` (None: to nothing), with or without what follows it."""
    at = PHASES.index(phase)
    if at >= PHASES.index("recording"):
        struck = PASSED
    found: dict[str, tuple[str, str | None]] = {"first": PASSED} if at else {}
    if at and struck is not None:
        found["struck"] = struck
    if phase == "finish" or rest:
        found = {"first": PASSED, "struck": struck or PASSED, "last": PASSED}
    return found


@pytest.fixture(autouse=True)
def no_other_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


@pytest.mark.slow
def test_a_session_that_is_killed(tmp_path: Path, stage_root: Path) -> None:
    found = cells(tmp_path, stage_root, PHASES, "-n0", "self", "KILL")
    assert {phase: cell.results for phase, cell in found.items()} == {
        phase: None if phase == "collection" else expected(phase, None, rest=False) for phase in PHASES
    }
    assert {cell.status for cell in found.values()} == {-9}
    assert found["agent"].living > 0
    assert found["collecting"].living == 0, "the tree is dead before its evidence is read"
    assert left(stage_root) != []
    reap(stage_root)
    assert left(stage_root) == []


@pytest.mark.slow
def test_a_session_that_is_told_to_end(tmp_path: Path, stage_root: Path) -> None:
    found = cells(tmp_path, stage_root, PHASES[1:], "-n0", "self", "TERM")
    assert {phase: cell.results for phase, cell in found.items()} == {
        phase: expected(phase, ("infra", "cancelled"), rest=False) for phase in PHASES[1:]
    }
    assert {cell.status for cell in found.values()} == {TERMINATED}
    assert found["agent"].living > 0
    assert left(stage_root) == []
    for cell in found.values():
        assert "Traceback" not in cell.text
        assert " rollouts =" in cell.text


@pytest.mark.slow
def test_a_session_that_is_interrupted_twice(tmp_path: Path, stage_root: Path) -> None:
    """The second time pytest itself may be hit while it ends: then it shows no summary, and nothing is lost."""
    phases = ("collection", "control", "agent", "judging", "finish")
    found = cells(tmp_path, stage_root, phases, "-n0", "self", "INT INT")
    assert {phase: cell.results for phase, cell in found.items()} == {
        phase: None if phase == "collection" else expected(phase, ("infra", "cancelled"), rest=False)
        for phase in phases
    }
    assert {cell.status for cell in found.values()} <= {INTERRUPTED, -INTERRUPTED}
    assert found["agent"].living > 0
    reap(stage_root)
    assert left(stage_root) == []


@pytest.mark.slow
def test_a_worker_that_is_killed(tmp_path: Path, stage_root: Path) -> None:
    """Another one takes its place; pytest-xdist hands the rollout out once more, and it is not begun again."""
    phases = ("collection", "judging", "teardown")
    found = cells(tmp_path, stage_root, phases, "-n2", "self", "KILL")
    died = {"judging"}
    assert {phase: cell.results for phase, cell in found.items()} == {
        phase: expected(phase, ("infra", "worker") if phase in died else PASSED, rest=True) for phase in phases
    }
    assert {phase: cell.status for phase, cell in found.items()} == {
        phase: UNMEASURED if phase in died else 0 for phase in phases
    }
    assert all(
        cell.text.count("INFRA worker test_suite.py::test_struck") == (phase in died) for phase, cell in found.items()
    )
    assert left(stage_root) == []


@pytest.mark.slow
def test_a_controller_that_is_killed(tmp_path: Path, stage_root: Path) -> None:
    """Its workers end by themselves, some with what they are doing; what they leave is removed."""
    phases = ("collection", "control", "judging")
    found = cells(tmp_path, stage_root, phases, "-n2", "controller", "KILL")
    assert {cell.status for cell in found.values()} == {-9}
    assert found["collection"].results in (None, {})
    for phase in phases[1:]:
        results = found[phase].results
        assert results is not None
        assert results["first"] == PASSED
        assert results.get("struck", PASSED) in (PASSED, ("infra", "cancelled"))
        assert results.get("last", PASSED) == PASSED
    reap(stage_root)
    assert left(stage_root) == []
