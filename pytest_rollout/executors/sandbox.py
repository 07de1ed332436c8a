"""The executor ``sandbox``: bubblewrap over a stage, for root and ordinary users alike: rungs 1 to 3.

No mount is made on the host and no root is needed; what an agent changed is in a folder of the host
to be read afterwards. Root's agents run as uid 65534, never as root. Rungs differ in how the tree of
the stage is made (:mod:`.trees`); what confines a command in it is the same.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Literal

from pytest_rollout.bundle import Ended, Usage
from pytest_rollout.errors import HostError
from pytest_rollout.executors.account import Account, account_of_copy
from pytest_rollout.executors.bwrap import INSIDE, PROMPT, TMP_BYTES, Bwrap, arguments, reachable
from pytest_rollout.executors.cancel import Cancel
from pytest_rollout.executors.capture import Capture
from pytest_rollout.executors.drain import Stop, drain
from pytest_rollout.executors.launch import Sandbox, Status, launch, local_mounts
from pytest_rollout.executors.prelude import with_odd_names
from pytest_rollout.executors.pressure import Machine
from pytest_rollout.executors.protocol import Command, ExecutorInfo, Stage
from pytest_rollout.executors.result import ended, usage_of
from pytest_rollout.executors.stages import Stages, write_prompt
from pytest_rollout.executors.trees import Copies, InnerOverlay, OuterOverlay, Trees, give_tree
from pytest_rollout.limits import Resources
from pytest_rollout.stage.leftovers import note_tree
from pytest_rollout.stage.root import StageRoot

__all__ = ["SandboxExecutor"]


class SandboxExecutor(Stages):
    """bubblewrap around a stage. ``rung`` 1: it makes the overlay; 2: we do, around it; 3: the stage is a copy."""

    def __init__(self, root: StageRoot, bwrap: Bwrap, rung: Literal[1, 2, 3] = 1) -> None:
        self._bwrap = bwrap
        kinds: dict[int, Callable[[], Trees]] = {
            1: lambda: InnerOverlay(root),
            2: lambda: OuterOverlay(root),
            3: lambda: Copies(root, give=self._give),
        }
        super().__init__(root, kinds[rung]())
        self._own_net = _inode("/proc/self/ns/net")
        self.info = ExecutorInfo(
            name="sandbox",
            trusted=True,
            rung=rung,
            path=bwrap.origin,
            version=bwrap.version,
            digest=bwrap.digest,
        )

    def _give(self, path: str) -> None:
        owner = self._root.owner
        if owner.uid != os.geteuid():
            give_tree(owner.uid, owner.gid, path)

    def prompt_file(self, stage: Stage) -> str:
        return PROMPT

    def run(self, stage: Stage, command: Command, stdout: Capture, stderr: Capture, cancel: Cancel) -> Ended:
        prompt = write_prompt(stage, command.prompt)
        hidden = [self._root.owner.uid != os.geteuid() and not reachable(Path(bind.source)) for bind in command.binds]
        binds, mounts = local_mounts(command.binds, stage.path, hidden)
        placed = self._trees.placed(stage, INSIDE, sealed=command.sealed)
        args = arguments(
            overlay=placed.arguments,
            env={"HOME": "/home/agent", "TMPDIR": "/tmp", **command.env},
            binds=binds,
            prompt=prompt,
            host_network=command.network == "host",
            scratch=_scratch(command.resources),
        )
        argv = with_odd_names(command.env, command.argv)
        machine, began = Machine(), time.monotonic()
        mark = os.path.basename(stage.path)
        with closing(self._account(command.resources, stage, mark)) as account:

            def entered(pid: int) -> None:
                note_tree(stage.path, pid)
                account.enter(pid)

            sandbox = launch(
                self._bwrap,
                args,
                argv,
                owner=self._root.owner,
                mounts=mounts,
                around=placed.around,
                mark=mark,
                prelude=account.prelude(),
                entered=entered,
                inherit=command.inherit,
                sealed=command.sealed,
            )
            streams = {sandbox.stdout.fileno(): stdout, sandbox.stderr.fileno(): stderr}
            stop = self._drain(sandbox, streams, began + command.wall, cancel, account)
            duration = time.monotonic() - began
            status = sandbox.finish()
            usage = usage_of(account, machine, duration, stdout, stderr)
            return self._ended(command, stop, status, account, machine, usage, (stdout, stderr))

    def _account(self, resources: Resources, stage: Stage, mark: str) -> Account:
        if self.info.rung == 3:
            return account_of_copy(resources, mark, f"{stage.path}/copy")
        return Account(resources, mark, f"{stage.path}/u")

    def _drain(
        self, sandbox: Sandbox, streams: dict[int, Capture], deadline: float, cancel: Cancel, account: Account
    ) -> Stop:
        """Wait until the tree is dead; why it is."""
        try:
            stop, dead = drain(
                streams, dead=sandbox.pidfd, kill=sandbox.kill, deadline=deadline, cancel=cancel, watch=account
            )
        except BaseException:
            sandbox.kill()
            sandbox.finish()
            raise
        if not dead:
            sandbox.finish()
            raise HostError("the processes of the sandbox were killed and did not end", forgeable=True)
        return (account.settle() or stop) if stop == "ended" else stop

    def _ended(
        self,
        command: Command,
        stop: Stop,
        status: Status,
        account: Account,
        machine: Machine,
        usage: Usage,
        streams: tuple[Capture, Capture],
    ) -> Ended:
        if stop == "ended" and status.exit_code in (None, 128 + signal.SIGKILL) and account.ran_out(machine):
            raise HostError("the machine ran out of memory while the agent ran", forgeable=not account.bounds_memory)
        if stop == "ended" and status.exit_code is None:
            raise HostError("the sandbox was killed from outside", forgeable=True)
        net = status.namespaces.get("net-namespace")
        return ended(
            stop,
            status.exit_code,
            duration=usage.wall or 0.0,
            stdout=streams[0],
            stderr=streams[1],
            tree_dead=True,
            usage=usage,
            resources=command.resources,
            observed={
                **account.observed(),
                "network": "host" if net is None or net == self._own_net else "none",
                "pid_namespace": "private" if "pid-namespace" in status.namespaces else "unknown",
            },
        )


def _scratch(resources: Resources) -> int:
    """The bound of a folder that is kept in memory, in bytes."""
    return min(limit for limit in (TMP_BYTES, resources.memory, resources.disk) if limit is not None)


def _inode(path: str) -> int | None:
    try:
        return os.stat(path).st_ino
    except OSError:
        return None
