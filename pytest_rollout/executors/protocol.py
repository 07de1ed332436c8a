"""The contract between an attempt and the place where its agent acts.

``prepare`` a baseline, ``provision`` a stage over it, ``run`` commands in the stage one after the
other, ``view`` what they left, then ``drop`` or ``keep`` it. ``drop`` may be called twice, and after
a loss. What crosses the contract is plain data, so that an executor on another machine can fit it.

For an evaluation, ``above`` gives a fresh stage over what an earlier one holds, with layers on it:
trees that win over what is below them, last the last. In a layer a whiteout (a character device 0:0)
deletes what is below it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from pytest_rollout.bundle import Ended
from pytest_rollout.executors.cancel import Cancel
from pytest_rollout.executors.capture import Capture
from pytest_rollout.executors.rungs import Level, enforced
from pytest_rollout.limits import Resources
from pytest_rollout.stage.baseline import Baseline
from pytest_rollout.stage.view import View
from pytest_rollout.task import Network

__all__ = ["Bind", "Command", "Executor", "ExecutorInfo", "Stage"]


class ExecutorInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What is recorded of an executor. ``trusted`` is false where the agent is not isolated.

    ``levels`` says how far each guarantee (:mod:`.rungs`) is enforced; ``mounts`` says that binds appear
    at their targets: else they are where they are on the host.
    """

    name: str
    trusted: bool
    levels: dict[str, Level] = msgspec.field(default_factory=lambda: enforced(1))
    mounts: bool = True
    tool: str = "bwrap"
    rung: int | None = None
    path: str | None = None
    version: str | None = None
    digest: str | None = None

    @property
    def unenforced(self) -> tuple[str, ...]:
        """The guarantees that it does not give, or not wholly."""
        return tuple(name for name, level in self.levels.items() if level != "yes")

    def describe(self) -> str:
        """For a header line: ``sandbox (rung 1, bwrap 0.11.0)``."""
        if self.version is None:
            return f"{self.name} (no isolation, untrusted)"
        missing = f"; not enforced: {', '.join(self.unenforced)}" if self.unenforced else ""
        return f"{self.name} (rung {self.rung}, {self.tool} {self.version}{missing})"


class Bind(msgspec.Struct, frozen=True, kw_only=True):
    """A path of the host that an agent may read: ``source`` (real) appears at ``target``."""

    source: str
    target: str


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """One command in a stage: what is run, the variables that it gets, the paths that it may read.

    ``inherit`` are descriptors of ours that it gets under their numbers. ``sealed`` commands find the
    stage read-only and make no object that outlives their processes (shared memory, queues). ``resources`` is what all
    its processes may use.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = {}
    binds: tuple[Bind, ...] = ()
    network: Network = "none"
    wall: float
    prompt: str = ""
    inherit: tuple[int, ...] = ()
    sealed: bool = False
    resources: Resources = Resources()


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """A provisioned stage: its folder on this machine, its baseline, and the layers between them, the lowest first."""

    path: str
    baseline: Baseline
    layers: tuple[str, ...] = ()


class Executor(Protocol):
    """Where agents act. Methods raise InfraError of the fitting kind, and nothing else."""

    @property
    def info(self) -> ExecutorInfo: ...

    def prepare(self, workspace: Path | None) -> Baseline:
        """The frozen baseline of a folder, or of an empty one."""
        ...

    def provision(self, baseline: Baseline, layers: Sequence[str] = ()) -> Stage:
        """A fresh private stage."""
        ...

    def above(self, stage: Stage, layers: Sequence[str]) -> Stage:
        """A fresh stage over what ``stage`` holds now, in which nothing runs."""
        ...

    def layer(self, write: Callable[[str], None]) -> str:
        """A layer that ``write`` fills, given its folder; it is there until :meth:`drop_layer`."""
        ...

    def drop_layer(self, layer: str) -> None:
        """Remove a layer."""
        ...

    def prompt_file(self, stage: Stage) -> str:
        """Where the agent finds its prompt."""
        ...

    def run(self, stage: Stage, command: Command, stdout: Capture, stderr: Capture, cancel: Cancel) -> Ended:
        """Run one command and wait until every process of it is dead."""
        ...

    def view(self, stage: Stage) -> View:
        """What the stage holds now, over its baseline."""
        ...

    def keep(self, stage: Stage) -> str:
        """Keep the stage after the attempt; returns where it is."""
        ...

    def drop(self, stage: Stage) -> str | None:
        """Remove the stage; returns what went wrong, or None."""
        ...

    def close(self) -> None:
        """Give back what the executor holds."""
        ...
