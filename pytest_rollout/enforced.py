"""Controls: what a task asked for, beside what was observed in force while its agent ran."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_rollout.bundle import Captured, Control, Ended
from pytest_rollout.executors.protocol import ExecutorInfo
from pytest_rollout.limits import Limits
from pytest_rollout.task import Task

__all__ = ["controls_of"]

_UNITS = {"memory": " bytes", "cpu": " s", "file_size": " bytes"}


def controls_of(task: Task, executor: ExecutorInfo, ended: Ended, captured: Sequence[Captured]) -> dict[str, Control]:
    """The controls of an attempt. A limit that was not asked for is not in it; one that nobody saw is ``unknown``."""
    limits = task.limits
    kept = " and ".join(str(stream.kept) for stream in captured)
    controls = {
        "network": Control(asked=task.network, observed=ended.observed.get("network", "unknown")),
        "pid_namespace": Control(
            asked=None if "sight" in executor.unenforced else "private",
            observed=ended.observed.get("pid_namespace", "unknown"),
        ),
        "wall": Control(asked=f"{limits.wall:g} s", observed=f"{ended.duration:.3f} s used"),
        "output": Control(asked=f"{limits.output} bytes", observed=f"{kept} bytes kept"),
    }
    for name, asked in _asked(limits).items():
        controls[name] = Control(asked=asked, observed=ended.observed.get(name, "unknown"))
    return controls


def _asked(limits: Limits) -> dict[str, str]:
    names = ("memory", "cpu", "processes", "open_files", "file_size")
    values = {name: getattr(limits, name) for name in names}
    found = {name: f"{value}{_UNITS.get(name, '')}" for name, value in values.items() if value is not None}
    disk = [f"{limits.disk} bytes"] if limits.disk is not None else []
    disk += [f"{limits.files} files"] if limits.files is not None else []
    return {**found, "disk": " and ".join(disk)} if disk else found
