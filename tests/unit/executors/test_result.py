"""How a process ended, as the record says it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_rollout.bundle import Captured, Ended, Usage
from pytest_rollout.executors.capture import Capture
from pytest_rollout.executors.drain import Stop
from pytest_rollout.executors.result import ended


@pytest.fixture
def streams(tmp_path: Path) -> Iterator[tuple[Capture, Capture]]:
    """Both streams of a command."""
    captures = Capture(tmp_path / "stdout", 10), Capture(tmp_path / "stderr", 10)
    yield captures
    for capture in captures:
        capture.close()


@pytest.mark.parametrize(
    ("stop", "code", "found"),
    [
        ("ended", 0, ("completed", 0, None)),
        ("ended", 1, ("exit_code", 1, None)),
        ("ended", 128, ("exit_code", 128, None)),
        ("ended", 129, ("signal", 129, 1)),
        ("ended", 137, ("signal", 137, 9)),
        ("ended", 192, ("signal", 192, 64)),
        ("ended", 193, ("exit_code", 193, None)),
        ("ended", 255, ("exit_code", 255, None)),
        ("wall_limit", 137, ("wall_limit", None, None)),
        ("wall_limit", 0, ("wall_limit", None, None)),
        ("cancelled", 137, ("cancelled", None, None)),
        ("cancelled", None, ("cancelled", None, None)),
    ],
)
def test_termination_exit_code_and_signal(
    streams: tuple[Capture, Capture], stop: Stop, code: int | None, found: tuple[str, int | None, int | None]
) -> None:
    result = ended(
        stop,
        code,
        duration=1.5,
        stdout=streams[0],
        stderr=streams[1],
        tree_dead=True,
        usage=Usage(wall=1.5),
        observed={"network": "none"},
    )
    assert (result.termination, result.exit_code, result.signal) == found
    assert result == Ended(
        termination=result.termination,
        exit_code=result.exit_code,
        signal=result.signal,
        duration=1.5,
        stdout=Captured(file="stdout"),
        stderr=Captured(file="stderr"),
        tree_dead=True,
        usage=Usage(wall=1.5),
        observed={"network": "none"},
    )
