"""Run a suite that is to be refused, and look at all that it left; find processes by a word of their command line."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pytest

from pytest_rollout.store.folder import ResultsFolder, RunFolder
from pytest_rollout.store.load import load_results
from pytest_rollout.store.records import Result

if TYPE_CHECKING:
    from tests.plugin.conftest import Ran, Suite

ALIKE = pytest.mark.parametrize("workers", ["-n0"], indirect=True)  # what is decided here, a worker decides alike
USAGE = 4
UNISOLATED = "rollout_isolation = none"  # an agent that ran leaves a file where the test sees it
SUITE = "test_suite.py"
GOOD = """
    import pytest

    @pytest.mark.rollout(agent="echo started >> '{probe}'")
    def test_it(bundle):
        assert bundle.exit_code == 0
"""


def cases(
    names: str, rows: Mapping[str, tuple[Any, ...]], *, n2: Collection[str], n0: Collection[str] | None = None
) -> pytest.MarkDecorator:
    """Parametrize over the rows named in ``n0`` (None: all) without workers, and those in ``n2`` with two."""
    marked = [
        pytest.param(workers, *rows[name], id=f"{name}{workers}")
        for workers, wanted in (("-n0", rows if n0 is None else n0), ("-n2", n2))
        for name in wanted
    ]
    return pytest.mark.parametrize(f"workers, {names}", marked, indirect=["workers"])


class Left(NamedTuple):
    """What a session left. ``shown`` are the lines of ours, and tracebacks, on standard output."""

    status: int
    errors: str
    shown: list[str]
    started: bool
    results: bool
    stages: list[str]


def refused(*messages: str) -> Left:
    """One message on standard error with these problems, and nothing else anywhere."""
    errors = "ERROR: " + "\n".join(f"rollout: {message}" for message in messages)
    return Left(USAGE, errors, shown=[], started=False, results=False, stages=[])


def probe(suite: Suite) -> Path:
    """What an agent that was started leaves, outside of every stage."""
    return suite.root / "started"


def filled(suite: Suite, source: str = GOOD) -> str:
    """The source of a suite with the path of the probe in it."""
    return source.replace("{probe}", str(probe(suite)))


def left_of_stages(suite: Suite) -> list[str]:
    """What there is of stages and of their leases."""
    return [str(path) for name in ("stages", "leases") for path in (suite.stage_root / name).glob("*")]


def left(suite: Suite, ran: Ran | Session) -> Left:
    """What a session left."""
    return Left(
        status=ran.status,
        errors=ran.errors.strip("\n"),
        shown=[line for line in ran.text.splitlines() if "rollout:" in line or "Traceback" in line or "ERROR" in line],
        started=probe(suite).exists(),
        results=(suite.root / ".rollout").exists(),
        stages=left_of_stages(suite),
    )


def attempt(
    suite: Suite, source: str | None = GOOD, args: Sequence[str] = (), ini: Sequence[str] = (UNISOLATED,)
) -> Left:
    """Run a suite (None: the one that was written) that is to be refused."""
    suite.ini(*ini)
    return left(suite, suite.run(None if source is None else filled(suite, source), *args))


def processes(marker: str) -> set[int]:
    """The processes that have this word in their command line."""
    found = set()
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    words = file.read().split(b"\0")
            except OSError:
                continue
            if marker.encode() in words:
                found.add(int(name))
    return found


def wait_for(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Wait until a condition holds; an AssertionError says what did not come."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come within {seconds:g} s")
        time.sleep(0.02)


class Session(NamedTuple):
    """What a session said and recorded. ``lines`` are those of its journals, as they stand there."""

    status: int
    text: str
    errors: str
    run: RunFolder | None
    results: dict[str, Result]
    lines: list[Result]


def session(pytester: pytest.Pytester, *args: str) -> Session:
    """Run the suite that was written, with these arguments alone, and read the one run that it made."""
    results = ResultsFolder(pytester.path / ".rollout")
    known = {run.name for run in results.all_runs()}
    done = pytester.runpytest_subprocess(*args, timeout=120)
    runs = [run for run in results.all_runs() if run.name not in known]
    if len(runs) > 1:
        raise AssertionError(f"one session made {len(runs)} runs")
    found = runs[0] if runs else None
    return Session(
        status=int(done.ret),
        text="\n".join(done.outlines),
        errors="\n".join(done.errlines),
        run=found,
        results={}
        if found is None
        else {result.node.partition("::")[2]: result for result in load_results(found).results},
        lines=[] if found is None else journal(found),
    )


def journal(run: RunFolder) -> list[Result]:
    """Every line of a run's journals, also those that amend an earlier one."""
    lines = [line for path in sorted(run.results.glob("*.jsonl")) for line in path.read_bytes().splitlines()]
    return [msgspec.json.decode(line, type=Result) for line in lines]


PLUGINS = ("-p", "xdist", "-p", "rollout", "-p", "no:cacheprovider")


@contextmanager
def background(pytester: pytest.Pytester, *args: str) -> Iterator[subprocess.Popen[bytes]]:
    """A session of the suite that was written, in a process group of its own; its output goes to ``out.txt``."""
    with open(pytester.path / "out.txt", "w", encoding="utf-8") as out:
        words = [sys.executable, "-m", "pytest", *PLUGINS, *args]
        running = pytester.popen(words, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            yield running
        finally:
            if running.poll() is None:
                os.killpg(running.pid, signal.SIGKILL)
            running.wait()


def last_run(pytester: pytest.Pytester) -> RunFolder:
    """The run that was started last."""
    found = ResultsFolder(pytester.path / ".rollout").latest()
    if found is None:
        raise AssertionError("there is no run")
    return found


def results(pytester: pytest.Pytester) -> dict[str, Result]:
    """The results of the last run, by the name of the test."""
    return {result.node.partition("::")[2]: result for result in load_results(last_run(pytester)).results}


def marker() -> str:
    """A number of seconds (about 300) that no other process has in its command line."""
    return f"300.{secrets.randbelow(10**12):012}"


def children(pid: int) -> set[int]:
    """The processes that a process started and that live."""
    found = set()
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                    parent = int(file.read().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if parent == pid:
                found.add(int(name))
    return found
