"""Turn how a process ended into the record that an attempt keeps."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_rollout.bundle import Captured, Ended, Termination, Usage
from pytest_rollout.executors.capture import Capture
from pytest_rollout.executors.drain import Stop

__all__ = ["ended"]

_LAST_SIGNAL = 64


def ended(
    stop: Stop,
    exit_code: int | None,
    *,
    duration: float,
    stdout: Capture,
    stderr: Capture,
    tree_dead: bool | None,
    usage: Usage,
    observed: Mapping[str, str],
) -> Ended:
    """``exit_code`` is a shell's: 128 + n for a signal n. Our own kill leaves neither code nor signal."""
    code = exit_code if stop == "ended" else None
    number = code - 128 if code is not None and 128 < code <= 128 + _LAST_SIGNAL else None
    termination: Termination
    if stop != "ended":
        termination = stop
    elif number is not None:
        termination = "signal"
    else:
        termination = "exit_code" if code else "completed"
    return Ended(
        exit_code=code,
        signal=number,
        termination=termination,
        duration=duration,
        stdout=Captured(file=stdout.path.name),
        stderr=Captured(file=stderr.path.name),
        tree_dead=tree_dead,
        usage=usage,
        observed=dict(observed),
    )
