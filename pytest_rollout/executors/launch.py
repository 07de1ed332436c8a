"""Start one sandbox and hold on to its process tree.

The agent's processes live in a pid namespace. bubblewrap tells its pid 1 before anything runs in
it; a pidfd on that process is held, and only then is the sandbox let go. When that pidfd fires, the
kernel has killed every process of the namespace.

As root, bubblewrap runs as another uid. What that uid can't reach (an interpreter below root's 0700
home) is first mounted below the stage, in a mount namespace of this one launch.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from pytest_rollout.errors import HostError, InfraError, IsolationError, SpawnError, StageError
from pytest_rollout.executors.bwrap import REMEDY, Bwrap
from pytest_rollout.executors.memory import memory_file
from pytest_rollout.executors.prelude import limiting
from pytest_rollout.executors.protocol import Bind
from pytest_rollout.executors.seccomp import filter_program
from pytest_rollout.executors.spawner import spawn
from pytest_rollout.limits import Resources
from pytest_rollout.plain import printable
from pytest_rollout.stage.leftovers import MARK
from pytest_rollout.stage.root import Owner

__all__ = ["Sandbox", "Status", "launch", "local_mounts", "prepared", "refusal"]

_ENV = {"PATH": "/usr/sbin:/usr/bin:/bin"}
_PATIENCE = 30.0
_MOUNT = (
    'while [ $# -gt 0 ] && [ "$1" != : ]; do mount --bind -- "$1" "$2" || exit 125; shift 2; done; shift; exec "$@"'
)


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """What bubblewrap said of the command: its exit code (None: it was killed), and its namespaces."""

    exit_code: int | None
    namespaces: dict[str, int]


class Sandbox:
    """A started sandbox: streams to read, a pidfd of its pid 1, and the way to kill it."""

    def __init__(self, process: subprocess.Popen[bytes], pidfd: int, status: int, first: dict[str, Any]) -> None:
        self.process, self.pidfd, self._status, self._first = process, pidfd, status, first
        assert process.stdout is not None and process.stderr is not None
        self.stdout, self.stderr = process.stdout, process.stderr

    def kill(self) -> None:
        """Kill pid 1 of the namespace: the kernel kills the rest."""
        try:
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def finish(self) -> Status:
        """Reap bubblewrap itself and read what it reported; call it after the tree is dead."""
        self.stdout.close()
        self.stderr.close()
        os.close(self.pidfd)
        try:
            self.process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:  # somebody stopped it
            self.process.kill()
            self.process.wait()
        said = [self._first, *_lines(self._status)]
        os.close(self._status)
        code = next((line["exit-code"] for line in said if line.get("exit-code") in range(256)), None)
        namespaces = {key: value for key, value in self._first.items() if key.endswith("-namespace")}
        return Status(exit_code=code, namespaces=namespaces)


def local_mounts(binds: Sequence[Bind], stage: str, unreachable: Sequence[bool]) -> tuple[list[Bind], list[str]]:
    """Binds whose source this uid can reach, and the (from, to) pairs to mount before that."""
    placed, pairs = [], []
    for number, (bind, hidden) in enumerate(zip(binds, unreachable, strict=True)):
        if not hidden:
            placed.append(bind)
            continue
        target = f"{stage}/m{number}"
        if os.path.isdir(bind.source):
            os.makedirs(target, mode=0o755, exist_ok=True)
        else:
            os.close(os.open(target, os.O_WRONLY | os.O_CREAT, 0o644))
        placed.append(Bind(source=target, target=bind.target))
        pairs += [bind.source, target]
    return placed, pairs


def launch(
    bwrap: Bwrap,
    args: Sequence[str],
    command: Sequence[str],
    *,
    owner: Owner,
    mounts: Sequence[str],
    around: Sequence[str] = (),
    mark: str,
    prelude: Sequence[str] = limiting(Resources(), gated=True),
    entered: Callable[[int], None] = lambda pid: None,
    inherit: Sequence[int] = (),
    sealed: bool = False,
) -> Sandbox:
    """Start ``command`` in a sandbox, without standard input, and let it go once its pid 1 is held.

    ``mark`` is in bubblewrap's environment: killed with us while it makes the sandbox, it leaves a process.
    ``prelude`` waits for a line from standard input, and becomes the command; ``entered`` is told of pid 1 before that.
    ``inherit`` are descriptors for the command; ``sealed`` refuses it objects that outlive processes.
    Raises IsolationError when the machine refuses namespaces, HostError when it has no room for a
    process, StageError when the stage can't be mounted, SpawnError otherwise.
    """
    status_read, status_write = os.pipe()
    gate, inside = socket.socketpair()
    extra = {"--json-status-fd": status_write}
    try:
        with prepared(
            bwrap,
            args,
            command,
            owner=owner,
            mounts=mounts,
            around=around,
            prelude=prelude,
            extra=extra,
            inherit=inherit,
            sealed=sealed,
        ) as (argv, options):
            process = spawn(
                argv,
                stdin=inside,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                **{**options, "env": {**options["env"], MARK: mark}},
            )
    except OSError as error:
        os.close(status_read)
        gate.close()
        raise HostError(f"no process could be started: {error.strerror}") from error
    finally:
        os.close(status_write)
        inside.close()
    return _hold(process, status_read, gate, entered)


@contextmanager
def prepared(
    bwrap: Bwrap,
    args: Sequence[str],
    command: Sequence[str],
    *,
    owner: Owner,
    mounts: Sequence[str] = (),
    around: Sequence[str] = (),
    prelude: Sequence[str] = limiting(Resources()),
    extra: Mapping[str, int] | None = None,
    inherit: Sequence[int] = (),
    sealed: bool = False,
) -> Iterator[tuple[list[str], dict[str, Any]]]:
    """The words and the Popen options that start ``command`` in a sandbox, as the uid of ``owner``.

    ``around`` are words that bubblewrap is started by, as that uid. ``prelude`` becomes the command
    inside, ``extra`` are options of bubblewrap that take a descriptor.
    """
    program = filter_program(sealed=sealed)
    own = {"--args": memory_file(b"".join(os.fsencode(arg) + b"\0" for arg in args))}
    if program is not None:
        own["--seccomp"] = memory_file(program)
    try:
        descriptors = {**own, **(extra or {})}
        words = [*around, bwrap.path, *(word for option, fd in descriptors.items() for word in (option, str(fd)))]
        words += ["--", *prelude, *command]
        if owner.uid != os.geteuid():
            words = [*_mounting(mounts), *_dropping(owner), *words]
        yield words, {"env": _ENV, "cwd": "/", "pass_fds": (*descriptors.values(), *inherit)}
    finally:
        for fd in own.values():
            os.close(fd)


def _mounting(mounts: Sequence[str]) -> list[str]:
    if not mounts:
        return []
    return ["unshare", "--mount", "--propagation", "private", "--", "sh", "-c", _MOUNT, "sh", *mounts, ":"]


def _dropping(owner: Owner) -> list[str]:
    """Drop the uid by a program: Popen does it only where it forks, and a fork of a large session is slow."""
    return ["setpriv", f"--reuid={owner.uid}", f"--regid={owner.gid}", "--clear-groups", "--inh-caps=-all", "--"]


def _hold(
    process: subprocess.Popen[bytes], status: int, gate: socket.socket, entered: Callable[[int], None]
) -> Sandbox:
    """Hold the pid 1 of a sandbox, then let its agent go.

    The agent waits inside until bubblewrap has tied every process to its parent's life. Let go before
    that (as ``--block-fd`` does, also when we die), it would outlive a kill of ours.
    """
    pidfd = None
    try:
        first = _first_line(status)
        if first is not None:
            pidfd = _pidfd(first["child-pid"])
        if first is not None and pidfd is not None and _is_ready(gate):
            entered(first["child-pid"])
            gate.sendall(b"\n")
            return Sandbox(process, pidfd, status, first)
    except BaseException:
        _give_up(process, status, pidfd, gate)
        raise
    finally:
        gate.close()
    said = _give_up(process, status, pidfd, gate)
    if process.returncode == -signal.SIGKILL:
        said = said or f"it was not ready in {_PATIENCE:g} s"
    raise refusal(said or f"exit status {process.returncode}")


def _pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None


def _is_ready(gate: socket.socket) -> bool:
    """Whether the sandbox was made, and its agent waits to be let go."""
    gate.settimeout(_PATIENCE)
    try:
        return gate.recv(1) == b"\n"
    except (TimeoutError, ConnectionError):
        return False


def _give_up(process: subprocess.Popen[bytes], status: int, pidfd: int | None, gate: socket.socket) -> str:
    """End a sandbox whose agent was not let go; returns what bubblewrap said."""
    gate.close()
    os.close(status)
    if pidfd is not None:
        os.close(pidfd)
    try:
        os.killpg(process.pid, signal.SIGKILL)  # it leads a session of its own
    except ProcessLookupError:
        pass
    try:
        said = process.communicate(timeout=_PATIENCE)[1]
    except subprocess.TimeoutExpired:
        return ""
    return os.fsdecode(said)


def _first_line(fd: int) -> dict[str, Any] | None:
    data = b""
    while b"\n" not in data and b"}" not in data:
        if not select.select([fd], [], [], _PATIENCE)[0]:
            return None
        piece = os.read(fd, 4096)
        if not piece:
            return None
        data += piece
    line: dict[str, Any] = json.loads(data[: data.index(b"}") + 1])
    return line


def _lines(fd: int) -> list[dict[str, Any]]:
    data = b""
    while select.select([fd], [], [], 1.0)[0] and (piece := os.read(fd, 4096)):
        data += piece
    return [json.loads(line) for line in data.splitlines() if line.strip().startswith(b"{")]


def refusal(said: str) -> InfraError:
    """bubblewrap ended before the agent did anything: from what it said, tell whose fault that is."""
    text = printable("; ".join(" ".join(line.split()) for line in said.strip().splitlines()))[:500] or "it said nothing"
    if any(word in text for word in ("uid map", "RTM_NEWADDR", "namespace", "Operation not permitted", "unshare")):
        return IsolationError(f"this machine refuses the sandbox: {text}", hint=_namespace_remedy())
    if any(word in text.lower() for word in ("overlay", "stage", "mount", "source path")):
        return StageError(f"the stage can't be mounted: {text}")
    return SpawnError(f"the sandbox did not start: {text}")


def _namespace_remedy() -> str:
    lines = ["Unprivileged user namespaces have to be allowed."]
    if os.path.exists("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"):
        lines.append(
            "Ubuntu: install an AppArmor profile for bwrap, or: sysctl kernel.apparmor_restrict_unprivileged_userns=0"
        )
    if os.path.exists("/.dockerenv") or shutil.which("systemd-detect-virt") is None:
        lines.append(
            "Docker: --security-opt seccomp=unconfined --security-opt systempaths=unconfined, and a volume for"
        )
        lines.append("the stage root.")
    lines.append("pytest-rollout doctor says more.")
    lines.append(REMEDY.splitlines()[-1])
    return "\n".join(lines)
