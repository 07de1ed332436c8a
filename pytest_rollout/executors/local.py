"""The executor ``local``: a plain process on a copy of the baseline, without isolation.

It keeps a suite runnable where there is no sandbox, only with ``--rollout-isolation=none``, and its
results are marked untrusted. What an agent leaves running is looked for by the rollout's variable
in its environment and killed; a process that clears its environment can escape that.
"""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import msgspec

from pytest_rollout.bundle import Ended
from pytest_rollout.errors import EvidenceError, HostError, InfraError, SpawnError, StageError
from pytest_rollout.executors.account import Account
from pytest_rollout.executors.cancel import Cancel
from pytest_rollout.executors.capture import Capture
from pytest_rollout.executors.drain import Stop, drain
from pytest_rollout.executors.pressure import Machine
from pytest_rollout.executors.protocol import Command, ExecutorInfo, Stage
from pytest_rollout.executors.result import ended, reap, usage_of
from pytest_rollout.executors.spawner import spawn
from pytest_rollout.limits import Resources
from pytest_rollout.stage.baseline import Baseline, freeze
from pytest_rollout.stage.copying import copy_tree
from pytest_rollout.stage.layers import merge_layer
from pytest_rollout.stage.leftovers import MARK, kill_marked
from pytest_rollout.stage.removal import remove_tree
from pytest_rollout.stage.root import StageRoot
from pytest_rollout.stage.tree import Bound
from pytest_rollout.stage.usage import taken
from pytest_rollout.stage.view import CopyView, View

__all__ = ["LocalExecutor"]
__tracebackhide__ = True  # pytest shows the suite's line, not ours

_UNCOPIED = "what the agent left can't be copied for an evaluation"


class LocalExecutor:
    """No isolation: the agent runs as this user, with this user's rights."""

    info = ExecutorInfo(name="local", trusted=False)

    def __init__(self, root: StageRoot) -> None:
        self._root = root

    def prepare(self, workspace: Path | None) -> Baseline:
        return freeze(self._root, workspace)

    def provision(self, baseline: Baseline, layers: Sequence[str] = ()) -> Stage:
        return self._copied(baseline.path, baseline, layers)

    def above(self, stage: Stage, layers: Sequence[str]) -> Stage:
        opening = ["chmod", "-R", "u+rwX", "--", f"{stage.path}/copy"]  # what the agent closed, it closed for itself
        subprocess.run(opening, capture_output=True, check=False)
        try:
            return self._copied(f"{stage.path}/copy", stage.baseline, layers)
        except Bound as bound:
            what = "levels of folders" if bound.what == "depth" else bound.what
            raise EvidenceError(f"{_UNCOPIED}: more than {bound.limit} {what}") from None
        except InfraError as error:
            if isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.ENAMETOOLONG:
                raise EvidenceError(
                    "what the agent left can't be copied for an evaluation: a path is too long"
                ) from None
            error.forgeable = True  # the agent may have filled the disk, say
            raise

    def _copied(self, tree: str, baseline: Baseline, layers: Sequence[str]) -> Stage:
        path = self._root.new_stage("home", "tmp", ours=True)
        try:
            copy_tree(tree, f"{path}/copy")
            for layer in layers:
                merge_layer(layer, f"{path}/copy")
        except Bound:
            remove_tree(path)
            raise
        except OSError as error:
            remove_tree(path)
            kind = HostError if error.errno in (errno.ENOSPC, errno.EDQUOT) else StageError
            raise kind(f"the stage can't be made: {error}") from error
        return Stage(path=path, baseline=baseline)

    def layer(self, write: Callable[[str], None]) -> str:
        return self._root.new_layer(write)

    def drop_layer(self, layer: str) -> None:
        self._root.drop_layer(layer)

    def prompt_file(self, stage: Stage) -> str:
        return f"{stage.path}/prompt"

    def run(self, stage: Stage, command: Command, stdout: Capture, stderr: Capture, cancel: Cancel) -> Ended:
        Path(self.prompt_file(stage)).write_bytes(command.prompt.encode("utf-8", "backslashreplace"))
        mark = os.path.basename(stage.path)
        env = {"HOME": f"{stage.path}/home", "TMPDIR": f"{stage.path}/tmp", **command.env, MARK: mark}
        machine, began = Machine(), time.monotonic()
        with closing(_account(command.resources, mark, f"{stage.path}/copy")) as account:
            process = self._start(command, account, env, f"{stage.path}/copy")
            stop, cpu = self._drain(process, (stdout, stderr), mark, began + command.wall, cancel, account)
            duration, code = time.monotonic() - began, process.returncode
            if stop == "ended" and code == -signal.SIGKILL and machine.ran_out():
                raise HostError("the machine ran out of memory while the agent ran", forgeable=True)
            return ended(
                stop,
                code if code >= 0 else 128 - code,
                duration=duration,
                stdout=stdout,
                stderr=stderr,
                tree_dead=None,
                usage=usage_of(account, machine, duration, cpu, stdout, stderr),
                observed={"network": "host", **account.observed()},
                resources=command.resources,
            )

    def _drain(
        self,
        process: subprocess.Popen[bytes],
        captures: tuple[Capture, Capture],
        mark: str,
        deadline: float,
        cancel: Cancel,
        account: Account,
    ) -> tuple[Stop, float | None]:
        """Wait until it is dead; why it is, and the seconds of processors."""
        pidfd = os.pidfd_open(process.pid)
        assert process.stdout is not None and process.stderr is not None
        try:
            stop, dead = drain(
                {process.stdout.fileno(): captures[0], process.stderr.fileno(): captures[1]},
                dead=pidfd,
                kill=lambda: kill_tree(process.pid, mark),
                deadline=deadline,
                cancel=cancel,
                watch=account,
            )
        except BaseException:
            kill_tree(process.pid, mark)
            raise
        finally:
            os.close(pidfd)
            process.stdout.close()
            process.stderr.close()
            cpu = reap(process)
        if not dead:
            raise HostError("the agent's process was killed and did not end", forgeable=True)
        return ((account.settle() or stop), cpu) if stop == "ended" else (stop, None)

    def _start(self, command: Command, account: Account, env: dict[str, str], cwd: str) -> subprocess.Popen[bytes]:
        """Start the command, its account begun. With limits it waits until then; without, a missing program is told."""
        if command.resources == Resources():
            process = self._spawn(command, env, cwd, subprocess.DEVNULL)
            account.enter(process.pid)
            return process
        limited = msgspec.structs.replace(command, argv=(*account.prelude(own_user=False), *command.argv))
        ours, theirs = socket.socketpair()
        with ours, theirs:
            process = self._spawn(limited, env, cwd, theirs)
            theirs.close()
            if ours.recv(1) == b"\n":
                account.enter(process.pid)
                ours.sendall(b"\n")
        return process

    def _spawn(
        self, command: Command, env: dict[str, str], cwd: str, stdin: int | socket.socket
    ) -> subprocess.Popen[bytes]:
        try:
            return spawn(
                command.argv,
                env=env,
                cwd=cwd,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                pass_fds=command.inherit,
            )
        except FileNotFoundError as error:
            raise SpawnError(f"the agent's program {command.argv[0]!r} was not found") from error
        except PermissionError as error:
            raise SpawnError(f"the agent's program {command.argv[0]!r} can't be run: {error.strerror}") from error
        except OSError as error:
            raise HostError(f"no process could be started: {error.strerror}") from error

    def view(self, stage: Stage) -> View:
        return CopyView(f"{stage.path}/copy", stage.baseline.path)

    def keep(self, stage: Stage) -> str:
        return self._root.keep(stage.path)

    def drop(self, stage: Stage) -> str | None:
        return remove_tree(stage.path)

    def close(self) -> None:
        self._root.close()


def _account(resources: Resources, name: str, copy: str) -> Account:
    """What the agent adds to the copy is counted only where that is limited: it means to walk all of the copy."""
    if resources.disk is None and resources.files is None:
        return Account(resources, name, None)
    top = os.open(copy, os.O_PATH | os.O_DIRECTORY)
    try:
        return Account(resources, name, copy, before=taken(top))
    finally:
        os.close(top)


def kill_tree(leader: int, mark: str) -> None:
    """Kill the process group of ``leader`` and every process that carries ``mark`` in its environment."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    kill_marked(lambda found: found == mark)
