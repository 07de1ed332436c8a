"""The executor ``landlock``: rung 4, for machines that refuse namespaces (a container with Docker's defaults).

The stage is a copy. What confines a command is the kernel's Landlock, a filter of system calls, and a
reaper (:mod:`.reaper`) that ends its processes; as root each stage has a uid of its own. There is no
mount: what an agent may read is where it is on the host, and it sees that other processes are there.
"""

from __future__ import annotations

import base64
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from pytest_rollout.bundle import Ended
from pytest_rollout.errors import HostError, IsolationError, SpawnError
from pytest_rollout.executors import reaper
from pytest_rollout.executors.account import Account, account_of_copy
from pytest_rollout.executors.bwrap import FIXED_BINDS, etc_files, reachable, root_folders
from pytest_rollout.executors.cancel import Cancel
from pytest_rollout.executors.capture import Capture
from pytest_rollout.executors.drain import Stop, drain
from pytest_rollout.executors.memory import memory_file
from pytest_rollout.executors.prelude import with_odd_names
from pytest_rollout.executors.pressure import Machine
from pytest_rollout.executors.protocol import Command, ExecutorInfo, Stage
from pytest_rollout.executors.result import ended, usage_of
from pytest_rollout.executors.rungs import enforced
from pytest_rollout.executors.seccomp import filter_program
from pytest_rollout.executors.spawner import spawn
from pytest_rollout.executors.stages import Stages, write_prompt
from pytest_rollout.executors.trees import Copies, give_tree
from pytest_rollout.executors.uids import OwnUid, take_uid
from pytest_rollout.processes import below
from pytest_rollout.stage.leftovers import MARK, kill_marked
from pytest_rollout.stage.root import StageRoot

__all__ = ["LandlockExecutor", "landlock_version"]

_PATIENCE = 30.0
_OF_USER = 4096  # processes of an ordinary user, the agent's among them
_DEVICES = ("null", "zero", "full", "random", "urandom")
_STEPS = {"landlock": "Landlock can't be put on", "stage": "the stage can't be entered", "start": "it can't be started"}


def landlock_version() -> int:
    """The version of Landlock's interface that this kernel has; 0 where it has none."""
    try:
        call = ctypes.CDLL(None, use_errno=True).syscall
        return max(int(call(444, None, ctypes.c_size_t(0), ctypes.c_uint32(1))), 0)
    except (AttributeError, OSError):
        return 0


class LandlockExecutor(Stages):
    """Rung 4 of isolation. Raises IsolationError where the kernel has no Landlock, or the processor no filter."""

    def __init__(self, root: StageRoot) -> None:
        self._version = landlock_version()
        if self._version == 0:
            raise IsolationError("this kernel has no Landlock, or it is switched off")
        if filter_program(shared=True) is None:
            raise IsolationError("there is no filter of system calls for this processor")
        self._as_root = os.geteuid() == 0
        self._uids: dict[str, OwnUid] = {}
        super().__init__(root, Copies(root, "home", "tmp", give=self._give if self._as_root else None))
        levels = enforced(4, own_uid=self._as_root, landlock=self._version)
        self._apart = levels["tree"] == "yes"
        self.info = ExecutorInfo(
            name="landlock",
            trusted=all(levels[name] == "yes" for name in ("files", "writes", "tree", "reach")),
            levels=levels,
            mounts=False,
            tool="Landlock",
            rung=4,
            version=str(self._version),
        )

    def _give(self, path: str) -> None:
        """Give what lies in a stage to a uid of its own; the stage itself stays root's, and can be passed through."""
        own = take_uid()
        self._uids[path] = own
        give_tree(own.uid, own.uid, *(f"{path}/{name}" for name in ("copy", "home", "tmp")))
        os.chmod(path, 0o711)

    def run(self, stage: Stage, command: Command, stdout: Capture, stderr: Capture, cancel: Cancel) -> Ended:
        write_prompt(stage, command.prompt)
        mark, machine, began = os.path.basename(stage.path), Machine(), time.monotonic()
        with closing(account_of_copy(command.resources, mark, stage.path, extra=0)) as account:
            process, control = self._spawn(stage, command, account)
            with control:
                stop, said = _watch(process, control, account, (stdout, stderr), began + command.wall, cancel)
            if not said.get("dead"):
                kill_marked(lambda found: found == mark)
                process.kill()  # somebody stopped it
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_PATIENCE)
                raise HostError("the reaper of the agent's processes was ended, or could not end them", forgeable=True)
            if not self._as_root:
                self._root.reopen(stage.path)  # Landlock lets it change the modes of what is this user's
            _check_started(said, command)
            code: int | None = said["exit"]
            if stop == "ended" and code == -signal.SIGKILL and account.ran_out(machine):
                raise HostError(
                    "the machine ran out of memory while the agent ran", forgeable=not account.bounds_memory
                )
            duration = time.monotonic() - began
            network = "host" if command.network == "host" else "unix sockets"
            return ended(
                stop,
                code if code is None or code >= 0 else 128 - code,
                duration=duration,
                stdout=stdout,
                stderr=stderr,
                tree_dead=True if self._apart else None,
                usage=usage_of(account, machine, duration, stdout, stderr),
                observed={**account.observed(), "network": network, "pid_namespace": "host"},
                resources=command.resources,
            )

    def _spawn(self, stage: Stage, command: Command, account: Account) -> tuple[subprocess.Popen[bytes], socket.socket]:
        """A reaper whose command was let go, its account begun; and the socket that controls it."""
        argv = (*account.prelude(own_user=self._as_root), *with_odd_names(command.env, command.argv))
        given = memory_file(json.dumps(self._spec(stage, command, argv)).encode())
        control, inside = socket.socketpair()
        gate, waiting = socket.socketpair()
        try:
            with inside, waiting:
                process = spawn(
                    [sys.executable, "-I", "-S", reaper.__file__, str(given), str(inside.fileno())],
                    env={},
                    cwd="/",
                    stdin=waiting,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                    pass_fds=(given, inside.fileno(), *command.inherit),
                )
        except OSError as error:
            control.close()
            gate.close()
            raise HostError(f"no process could be started: {error.strerror}") from error
        finally:
            os.close(given)
        try:
            with gate:
                _let_go(process, gate, account)
        except BaseException:
            _give_up(process, control)
            raise
        return process, control

    def _spec(self, stage: Stage, command: Command, argv: Sequence[str]) -> dict[str, Any]:
        own = self._uids.get(stage.path)
        if own is not None:
            for bind in command.binds:
                if not reachable(Path(bind.source)):
                    raise IsolationError(
                        f"{bind.source} can't be read by the uid of a stage, and rung 4 makes no mounts",
                        hint="Install it below /usr, or where every user can read it.",
                    )
        program = filter_program(shared=True, sealed=command.sealed, offline=command.network == "none")
        assert program is not None
        shown = [*FIXED_BINDS, *root_folders(), "/proc", *etc_files(command.network == "host")]
        shown += [bind.source for bind in command.binds]
        rules = [[path, "read"] for path in (*shown, self.prompt_file(stage))]
        rules += [[f"/dev/{name}", "device"] for name in _DEVICES]
        rules += [[f"{stage.path}/{name}", "all"] for name in ("home", "tmp")]
        rules += [[f"{stage.path}/copy", "read" if command.sealed else "all"]]
        mark = os.path.basename(stage.path)
        return {
            "argv": list(argv),
            "env": {"HOME": f"{stage.path}/home", "TMPDIR": f"{stage.path}/tmp", **command.env, MARK: mark},
            "cwd": f"{stage.path}/copy",
            "uid": None if own is None else own.uid,
            "rules": rules,
            "filter": base64.b64encode(program).decode(),
            "processes": None if self._as_root else _OF_USER,
            "inherit": list(command.inherit),
            "tcp": command.network == "host",
            "landlock": self._version,
        }

    def keep(self, stage: Stage) -> str:
        own = self._uids.pop(stage.path, None)
        if own is not None:
            give_tree(0, 0, stage.path)
            os.chmod(stage.path, 0o700)
            own.give_back()
        return super().keep(stage)

    def drop(self, stage: Stage) -> str | None:
        problem = super().drop(stage)
        own = self._uids.pop(stage.path, None)
        if own is not None:
            own.give_back()
        return problem

    def close(self) -> None:
        for own in self._uids.values():
            own.give_back()
        self._uids.clear()
        super().close()


def _let_go(process: subprocess.Popen[bytes], gate: socket.socket, account: Account) -> None:
    """Begin the account of a command that waits at its gate; one that could not be started ends by itself.

    Raises HostError where nothing comes of it.
    """
    gate.settimeout(_PATIENCE)
    try:
        ready = gate.recv(1) == b"\n"
    except TimeoutError:
        raise HostError(f"the agent was not ready in {_PATIENCE:g} s") from None
    except ConnectionError:
        ready = False
    waiting = below(process.pid) if ready else []
    if waiting:
        account.enter(waiting[0], keeper=process.pid)
        gate.sendall(b"\n")


def _give_up(process: subprocess.Popen[bytes], control: socket.socket) -> None:
    """End everything: to the reaper the end of its socket is a word to kill, which it can't miss."""
    control.close()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()
    process.wait()


def _watch(
    process: subprocess.Popen[bytes],
    control: socket.socket,
    account: Account,
    captures: tuple[Capture, Capture],
    deadline: float,
    cancel: Cancel,
) -> tuple[Stop, dict[str, Any]]:
    """Wait until the reaper has ended; why, and what it told."""
    assert process.stdout is not None and process.stderr is not None
    pidfd = os.pidfd_open(process.pid)
    try:
        stop, gone = drain(
            {process.stdout.fileno(): captures[0], process.stderr.fileno(): captures[1]},
            dead=pidfd,
            kill=lambda: _ask(control),
            deadline=deadline,
            cancel=cancel,
            watch=account,
        )
    except BaseException:
        _give_up(process, control)
        raise
    finally:
        os.close(pidfd)
    process.stdout.close()
    process.stderr.close()
    if not gone:
        return stop, {}
    said = _said(control)
    process.wait()
    return ((account.settle() or stop) if stop == "ended" else stop), said


def _ask(control: socket.socket) -> None:
    """Ask the reaper to end everything."""
    try:
        control.send(b"k", socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT)
    except OSError:
        pass


def _said(control: socket.socket) -> dict[str, Any]:
    """What the reaper told before it ended; nothing where it was killed."""
    data = b""
    control.settimeout(5.0)
    try:
        while piece := control.recv(4096):
            data += piece
    except OSError:
        pass
    return json.loads(data) if data.endswith(b"\n") else {}


def _check_started(said: dict[str, Any], command: Command) -> None:
    """Raise the fitting error where the command was not started."""
    step = said.get("failed")
    if step == "exec":
        found = "was not found" if said["errno"] == 2 else f"can't be run: {said['said']}"
        raise SpawnError(f"the agent's program {command.argv[0]!r} {found}")
    if step is not None:
        raise IsolationError(f"{_STEPS[step]}: {said['said']}")
