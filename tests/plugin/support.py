"""Run a suite that is to be refused, and look at all that it left; find processes by a word of their command line."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tests.plugin.conftest import Ran, Suite

USAGE = 4
UNISOLATED = "rollout_isolation = none"  # an agent that ran leaves a file where the test sees it
SUITE = "test_suite.py"
GOOD = """
    import pytest

    @pytest.mark.rollout(agent="echo started >> '{probe}'")
    def test_it(bundle):
        assert bundle.exit_code == 0
"""


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
    """What there is of stages, of their leases, and of stages that were kept."""
    return [str(path) for name in ("stages", "leases", "kept") for path in (suite.stage_root / name).glob("*")]


def left(suite: Suite, ran: Ran) -> Left:
    """What a session left."""
    return Left(
        status=ran.status,
        errors=ran.errors.strip("\n"),
        shown=[line for line in ran.lines if "rollout:" in line or "Traceback" in line or "ERROR" in line],
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
