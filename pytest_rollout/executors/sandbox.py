"""The executor ``sandbox``: bubblewrap over a kernel overlay, for root and ordinary users alike.

The overlay is made inside the sandbox's own namespaces, with its upper layer in a folder of the
host: no mount on the host, no root needed, and the changes are there to be read afterwards. Root's
agents run as uid 65534, never as root.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from pytest_rollout.bundle import Ended, Usage
from pytest_rollout.errors import HostError, StageError
from pytest_rollout.executors.account import Account
from pytest_rollout.executors.bwrap import INSIDE, PROMPT, TMP_BYTES, Bwrap, arguments, reachable
from pytest_rollout.executors.cancel import Cancel
from pytest_rollout.executors.capture import Capture
from pytest_rollout.executors.drain import Stop, drain
from pytest_rollout.executors.launch import Sandbox, Status, launch, local_mounts
from pytest_rollout.executors.pressure import Machine
from pytest_rollout.executors.protocol import Command, ExecutorInfo, Stage
from pytest_rollout.executors.result import ended, usage_of
from pytest_rollout.limits import Resources
from pytest_rollout.stage.baseline import Baseline, freeze
from pytest_rollout.stage.leftovers import note_tree
from pytest_rollout.stage.removal import remove_tree
from pytest_rollout.stage.root import StageRoot
from pytest_rollout.stage.view import OverlayView, View

__all__ = ["SandboxExecutor"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


class SandboxExecutor:
    """Rung 1 of isolation: bubblewrap 0.11 or newer with ``--overlay``."""

    def __init__(self, root: StageRoot, bwrap: Bwrap) -> None:
        self._root, self._bwrap = root, bwrap
        self._own_net = _inode("/proc/self/ns/net")
        self.info = ExecutorInfo(
            name="sandbox",
            trusted=True,
            rung=1,
            path=bwrap.origin,
            version=bwrap.version,
            digest=bwrap.digest,
        )

    def prepare(self, workspace: Path | None) -> Baseline:
        return freeze(self._root, workspace)

    def provision(self, baseline: Baseline, layers: Sequence[str] = ()) -> Stage:
        return Stage(path=self._root.new_stage("u", "w"), baseline=baseline, layers=tuple(layers))

    def above(self, stage: Stage, layers: Sequence[str]) -> Stage:
        return self.provision(stage.baseline, (*stage.layers, f"{stage.path}/u", *layers))

    def layer(self, write: Callable[[str], None]) -> str:
        return self._root.new_layer(write)

    def drop_layer(self, layer: str) -> None:
        self._root.drop_layer(layer)

    def prompt_file(self, stage: Stage) -> str:
        return PROMPT

    def run(self, stage: Stage, command: Command, stdout: Capture, stderr: Capture, cancel: Cancel) -> Ended:
        prompt = self._write_prompt(stage, command.prompt)
        hidden = [self._root.owner.uid != os.geteuid() and not reachable(Path(bind.source)) for bind in command.binds]
        binds, mounts = local_mounts(command.binds, stage.path, hidden)
        args = arguments(
            overlay=_overlay(stage, sealed=command.sealed),
            env={"HOME": "/home/agent", "TMPDIR": "/tmp", **command.env},
            binds=binds,
            prompt=prompt,
            host_network=command.network == "host",
            scratch=_scratch(command.resources),
        )
        odd = [f"{name}={value}" for name, value in command.env.items() if not _NAME.fullmatch(name)]
        argv = ("env", *odd, *command.argv) if odd else command.argv  # a shell drops a name that it can't use itself
        machine, began = Machine(), time.monotonic()
        mark = os.path.basename(stage.path)
        with closing(Account(command.resources, mark, f"{stage.path}/u")) as account:

            def entered(pid: int) -> None:
                note_tree(stage.path, pid)
                account.enter(pid)

            sandbox = launch(
                self._bwrap,
                args,
                argv,
                owner=self._root.owner,
                mounts=mounts,
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
            usage = usage_of(account, machine, duration, None, stdout, stderr)
            return self._ended(command, stop, status, account, machine, usage, (stdout, stderr))

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
        if stop == "ended" and status.exit_code in (None, 128 + signal.SIGKILL) and machine.ran_out():
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

    def _write_prompt(self, stage: Stage, prompt: str) -> str:
        path = f"{stage.path}/prompt"
        try:
            with open(path, "wb") as file:
                file.write(prompt.encode("utf-8", "backslashreplace"))
            os.chmod(path, 0o644)
        except OSError as error:
            raise StageError(f"the prompt can't be written: {error.strerror}") from error
        return path

    def view(self, stage: Stage) -> View:
        return OverlayView(f"{stage.path}/u", stage.baseline.path)

    def keep(self, stage: Stage) -> str:
        return self._root.keep(stage.path)

    def drop(self, stage: Stage) -> str | None:
        try:
            os.chmod(f"{stage.path}/w/work", 0o700)  # the kernel leaves it with mode 000
        except OSError:
            pass
        return remove_tree(stage.path)

    def close(self) -> None:
        self._root.close()


def _overlay(stage: Stage, *, sealed: bool) -> list[str]:
    """bubblewrap's arguments that put the stage at its place, writable or not."""
    lower = [word for layer in (stage.baseline.path, *stage.layers) for word in ("--overlay-src", layer)]
    if sealed:
        return [*lower, "--overlay-src", f"{stage.path}/u", "--ro-overlay", INSIDE]
    return [*lower, "--overlay", f"{stage.path}/u", f"{stage.path}/w", INSIDE]


def _scratch(resources: Resources) -> int:
    """The bound of a folder that is kept in memory, in bytes."""
    return min(limit for limit in (TMP_BYTES, resources.memory, resources.disk) if limit is not None)


def _inode(path: str) -> int | None:
    try:
        return os.stat(path).st_ino
    except OSError:
        return None
