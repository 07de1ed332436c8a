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
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from pytest_rollout.errors import HostError, InfraError, IsolationError, SpawnError, StageError
from pytest_rollout.executors.bwrap import MAX_PROCESSES, REMEDY, Bwrap
from pytest_rollout.executors.protocol import Bind
from pytest_rollout.executors.spawner import spawn
from pytest_rollout.plain import printable
from pytest_rollout.stage.root import Owner

__all__ = ["Sandbox", "Status", "launch", "local_mounts", "prepared", "refusal"]

_ENV = {"PATH": "/usr/sbin:/usr/bin:/bin"}
_PATIENCE = 30.0
_MOUNT = (
    'while [ $# -gt 0 ] && [ "$1" != : ]; do mount --bind -- "$1" "$2" || exit 125; shift 2; done; shift; exec "$@"'
)


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """What bubblewrap said of the command: its exit code (None: it never started, or bubblewrap was killed).

    ``bubblewrap`` is the exit status of bubblewrap itself, ``namespaces`` the numbers of the command's.
    """

    exit_code: int | None
    bubblewrap: int
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
        self.process.wait()
        said = [self._first, *_lines(self._status)]
        os.close(self._status)
        code = next((line["exit-code"] for line in said if "exit-code" in line), None)
        namespaces = {key: value for key, value in self._first.items() if key.endswith("-namespace")}
        return Status(exit_code=code, bubblewrap=self.process.returncode, namespaces=namespaces)


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
    bwrap: Bwrap, args: Sequence[str], command: Sequence[str], *, owner: Owner, mounts: Sequence[str]
) -> Sandbox:
    """Start ``command`` in a sandbox, without standard input, and let it go once its pid 1 is held.

    Raises IsolationError when the machine refuses namespaces, HostError when it has no room for a
    process, StageError when the stage can't be mounted, SpawnError otherwise.
    """
    status_read, status_write = os.pipe()
    block_read, block_write = os.pipe()
    extra = {"--json-status-fd": status_write, "--block-fd": block_read}
    try:
        with prepared(bwrap, args, command, owner=owner, mounts=mounts, extra=extra) as (argv, options):
            process = spawn(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                **options,
            )
    except OSError as error:
        os.close(status_read)
        os.close(block_write)
        raise HostError(f"no process could be started: {error.strerror}") from error
    finally:
        os.close(status_write)
        os.close(block_read)
    return _hold(process, status_read, block_write)


@contextmanager
def prepared(
    bwrap: Bwrap,
    args: Sequence[str],
    command: Sequence[str],
    *,
    owner: Owner,
    mounts: Sequence[str] = (),
    extra: Mapping[str, int] | None = None,
) -> Iterator[tuple[list[str], dict[str, Any]]]:
    """The words and the Popen options that start ``command`` in a sandbox, as the uid of ``owner``.

    ``extra`` are options of bubblewrap that take a descriptor.
    """
    args_fd = _memory_file(args)
    try:
        descriptors = {"--args": args_fd, **(extra or {})}
        words = [bwrap.path, *(word for option, fd in descriptors.items() for word in (option, str(fd)))]
        words += ["--", "prlimit", f"--nproc={MAX_PROCESSES}", "--core=0:0", "--", *command]
        if owner.uid != os.geteuid():
            words = [*_mounting(mounts), *_dropping(owner), *words]
        yield words, {"env": _ENV, "cwd": "/", "pass_fds": tuple(descriptors.values())}
    finally:
        os.close(args_fd)


def _mounting(mounts: Sequence[str]) -> list[str]:
    if not mounts:
        return []
    return ["unshare", "--mount", "--propagation", "private", "--", "sh", "-c", _MOUNT, "sh", *mounts, ":"]


def _dropping(owner: Owner) -> list[str]:
    """Drop the uid by a program: Popen does it only where it forks, and a fork of a large session is slow."""
    return ["setpriv", f"--reuid={owner.uid}", f"--regid={owner.gid}", "--clear-groups", "--inh-caps=-all", "--"]


def _memory_file(args: Sequence[str]) -> int:
    """bubblewrap's arguments in memory: on its command line the agent could read them."""
    fd = os.memfd_create("rollout-args")
    with open(fd, "wb", closefd=False) as file:
        file.write(b"".join(os.fsencode(arg) + b"\0" for arg in args))
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _hold(process: subprocess.Popen[bytes], status: int, block: int) -> Sandbox:
    try:
        first = _first_line(status)
        pidfd = None if first is None else os.pidfd_open(first["child-pid"])
    except ProcessLookupError:
        pidfd = None
    except BaseException:
        _end(process)  # first: closing the block lets the agent go
        os.close(status)
        os.close(block)
        raise
    if first is None or pidfd is None:
        said = _end(process)
        os.close(status)
        os.close(block)
        raise refusal(said or f"exit status {process.returncode}")
    try:
        os.write(block, b"x")
    except BrokenPipeError:
        pass  # it failed while it made the sandbox, and has said why
    finally:
        os.close(block)
    return Sandbox(process, pidfd, status, first)


def _end(process: subprocess.Popen[bytes]) -> str:
    """Kill a bubblewrap that has not let its agent go; returns what it said."""
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
    text = printable(said.strip().replace("\n", "; "))[:500] or "it said nothing"
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
    lines.append(REMEDY.splitlines()[-1])
    return "\n".join(lines)
