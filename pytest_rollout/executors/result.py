"""Turn how a process ended into the record that an attempt keeps."""

from __future__ import annotations

import signal
from collections.abc import Mapping

from pytest_rollout.bundle import Captured, Ended, Termination, Usage
from pytest_rollout.executors.account import Account
from pytest_rollout.executors.capture import Capture
from pytest_rollout.executors.drain import Stop
from pytest_rollout.executors.pressure import Machine
from pytest_rollout.limits import Resources

__all__ = ["ended", "usage_of"]

_LAST_SIGNAL = 64
_OF_A_LIMIT: dict[int, Stop] = {signal.SIGXCPU: "cpu_limit", signal.SIGXFSZ: "disk_limit"}


def usage_of(account: Account, machine: Machine, duration: float, *streams: Capture) -> Usage:
    """What a command used, from those who counted."""
    return Usage(
        wall=duration,
        output_bytes=sum(stream.total for stream in streams),
        cpu=account.cpu,
        peak_memory=account.peak_memory,
        processes=account.peak_processes,
        disk=account.peak_disk,
        pressure=machine.pressure(),
    )


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
    resources: Resources = Resources(),  # noqa: B008 - it is frozen
) -> Ended:
    """``exit_code`` is a shell's: 128 + n for a signal n. Our own kill leaves neither code nor signal.

    A command that died of the signal of a limit that was asked for ended by that limit.
    """
    if stop == "ended" and exit_code is not None:
        stop = _by_signal(exit_code - 128, resources)
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


def _by_signal(number: int, resources: Resources) -> Stop:
    asked = {
        signal.SIGXCPU: resources.cpu,
        signal.SIGXFSZ: resources.file_size if resources.file_size is not None else resources.disk,
    }
    return _OF_A_LIMIT[number] if number in _OF_A_LIMIT and asked[signal.Signals(number)] is not None else "ended"
