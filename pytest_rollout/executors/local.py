"""The executor ``local``: a plain process on a copy of the baseline, without isolation.

It keeps a suite runnable where there is no sandbox, only where ``--rollout-isolation`` is ``none`` or
``preferred``, and its results are marked untrusted. What an agent leaves running is looked for by the
rollout's variable in its environment and killed; a process that clears its environment can escape that.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from contextlib import closing

import msgspec

from pytest_rollout.bundle import Ended
from pytest_rollout.errors import HostError, SpawnError
from pytest_rollout.executors.account import Account, account_of_copy
from pytest_rollout.executors.cancel import Cancel
from pytest_rollout.executors.capture import Capture
from pytest_rollout.executors.drain import Stop, drain
from pytest_rollout.executors.pressure import Machine
from pytest_rollout.executors.protocol import Command, ExecutorInfo, Stage
from pytest_rollout.executors.result import ended, usage_of
from pytest_rollout.executors.rungs import enforced
from pytest_rollout.executors.spawner import spawn
from pytest_rollout.executors.stages import Stages, write_prompt
from pytest_rollout.executors.trees import Copies, give_tree
from pytest_rollout.limits import Resources
from pytest_rollout.stage.leftovers import MARK, kill_marked
from pytest_rollout.stage.root import StageRoot

__all__ = ["LocalExecutor"]
__tracebackhide__ = True  # pytest shows the suite's line, not ours


class LocalExecutor(Stages):
    """No isolation: the agent runs as this user, with this user's rights."""

    info = ExecutorInfo(name="local", trusted=False, rung=5, levels=enforced(5), mounts=False)

    def __init__(self, root: StageRoot) -> None:
        give = (lambda path: give_tree(0, 0, path)) if os.geteuid() == 0 else None
        super().__init__(root, Copies(root, "home", "tmp", give=give))

    def run(self, stage: Stage, command: Command, stdout: Capture, stderr: Capture, cancel: Cancel) -> Ended:
        write_prompt(stage, command.prompt)
        mark = os.path.basename(stage.path)
        env = {"HOME": f"{stage.path}/home", "TMPDIR": f"{stage.path}/tmp", **command.env, MARK: mark}
        machine, began = Machine(), time.monotonic()
        with closing(account_of_copy(command.resources, mark, f"{stage.path}/copy")) as account:
            process = self._start(command, account, env, f"{stage.path}/copy")
            stop = self._drain(process, (stdout, stderr), mark, began + command.wall, cancel, account)
            duration, code = time.monotonic() - began, process.returncode
            self._root.reopen(stage.path)
            if stop == "ended" and code == -signal.SIGKILL and account.ran_out(machine):
                raise HostError("the machine ran out of memory while the agent ran", forgeable=True)
            return ended(
                stop,
                code if code >= 0 else 128 - code,
                duration=duration,
                stdout=stdout,
                stderr=stderr,
                tree_dead=None,
                usage=usage_of(account, machine, duration, stdout, stderr),
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
    ) -> Stop:
        """Wait until it is dead; why it is."""
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
            process.wait()
        if not dead:
            raise HostError("the agent's process was killed and did not end", forgeable=True)
        return (account.settle() or stop) if stop == "ended" else stop

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


def kill_tree(leader: int, mark: str) -> None:
    """Kill the process group of ``leader`` and every process that carries ``mark`` in its environment."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    kill_marked(lambda found: found == mark)
