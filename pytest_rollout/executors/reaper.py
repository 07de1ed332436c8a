"""Runs one command under Landlock and a filter of system calls, and ends every process that comes of it.

A program of its own (``python3 -I -S reaper.py SPEC CONTROL``), because a threaded process can't safely do
all this between fork and exec. It needs nothing but the standard library. ``SPEC`` is a descriptor with
JSON: ``argv, env, cwd, uid, rules, filter, processes, inherit, tcp, landlock``. ``CONTROL`` is a socket: a byte, or
its end, asks for the kill; one line of JSON tells how it ended:

- ``{"exit": 0, "dead": true}``: the command's exit status (negative: minus its signal), whether all are dead
- ``{"failed": "exec", "errno": 2, "said": …}``: it was not started

It is the subreaper of all that the command starts, so nothing can leave its tree; it ends when that is empty.
"""

from __future__ import annotations

import base64
import ctypes
import json
import os
import resource
import select
import signal
import socket
import stat
import struct
import sys
import time
from typing import Any, NoReturn

__all__ = ["descendants", "handled", "main", "restrict"]

_NO_NEW_PRIVS, _SECCOMP, _SUBREAPER, _DUMPABLE = 38, 22, 36, 4
_CREATE, _ADD, _RESTRICT = 444, 445, 446  # landlock_create_ruleset and so on, of every architecture
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_REFER, _TRUNCATE, _IOCTL = 1 << 13, 1 << 14, 1 << 15
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL
_PATIENCE = 8.0  # seconds for a tree to die
_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _prctl(option: int, value: int) -> None:
    _checked(_libc.prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)))


def handled(version: int) -> int:
    """The rights over files that a version of Landlock's interface can take away."""
    rights = (1 << 13) - 1
    for since, right in ((2, _REFER), (3, _TRUNCATE), (5, _IOCTL)):
        rights |= right if version >= since else 0
    return rights


def restrict(rules: list[list[str]], version: int, *, tcp: bool) -> None:
    """Take away all rights over files but those of ``rules`` ([path, ``read`` | ``device`` | ``all``])."""
    rights = handled(version)
    words = [rights]
    if version >= 4:
        words.append(0 if tcp else 0b11)  # bind and connect of TCP
    if version >= 6:
        words.append(0b10 if tcp else 0b11)  # abstract unix sockets, signals
    attributes = struct.pack(f"{len(words)}Q", *words)
    ruleset = _checked(_libc.syscall(_CREATE, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0)))
    allowed = {"read": _EXECUTE | _READ_FILE | _READ_DIR, "device": _READ_FILE | _WRITE_FILE, "all": rights}
    for path, kind in rules:
        try:
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            continue
        some = allowed[kind] & (rights if stat.S_ISDIR(os.fstat(fd).st_mode) else _OF_FILES & rights)
        rule = struct.pack("=Qi", some, fd)
        _checked(_libc.syscall(_ADD, ruleset, ctypes.c_int(1), rule, ctypes.c_uint32(0)))
        os.close(fd)
    _prctl(_NO_NEW_PRIVS, 1)
    _checked(_libc.syscall(_RESTRICT, ruleset, ctypes.c_uint32(0)))
    os.close(ruleset)


def _filter(program: bytes) -> None:
    text = ctypes.create_string_buffer(program, len(program))
    head = struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(text))
    _checked(_libc.prctl(_SECCOMP, ctypes.c_ulong(2), ctypes.c_char_p(head), ctypes.c_ulong(0), ctypes.c_ulong(0)))


def _become(uid: int) -> None:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def _command(spec: dict[str, Any], told: int) -> NoReturn:
    """In the child: give every right away, and become the command. What goes wrong is written to ``told``."""
    step = "start"
    try:
        os.setsid()
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        _close_all_but({0, 1, 2, told, *spec["inherit"]})
        if spec["processes"] is not None:
            hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
            count = spec["processes"] if hard == resource.RLIM_INFINITY else min(spec["processes"], hard)
            resource.setrlimit(resource.RLIMIT_NPROC, (count, count))
        os.umask(0o022)
        step = "stage"
        os.chdir(spec["cwd"])
        step = "landlock"
        restrict(spec["rules"], spec["landlock"], tcp=spec["tcp"])
        if spec["uid"] is not None:
            _become(spec["uid"])
        _filter(base64.b64decode(spec["filter"]))
        step = "exec"
        os.execvpe(spec["argv"][0], spec["argv"], spec["env"])  # noqa: S606 - that is what it is for
    except Exception as error:  # noqa: BLE001 - it is told, and nothing of this process runs on
        code = error.errno if isinstance(error, OSError) else None
        os.write(told, json.dumps({"failed": step, "errno": code, "said": str(error)}).encode())
    finally:
        os._exit(125)


def _close_all_but(kept: set[int]) -> None:
    for fd in [int(name) for name in os.listdir("/proc/self/fd")]:
        if fd not in kept:
            try:
                os.close(fd)
            except OSError:
                pass


def descendants(top: int) -> set[int]:
    """Every process below ``top``."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                words = file.read().rpartition(b")")[2].split()
        except OSError:
            continue
        children.setdefault(int(words[1]), []).append(int(name))
    found, todo = set[int](), [top]
    while todo:
        for pid in children.get(todo.pop(), ()):
            if pid not in found:
                found.add(pid)
                todo.append(pid)
    return found


def _signal_all(uid: int | None) -> None:
    """Kill the whole tree: by its uid at one stroke, or else stop what is found until nothing new comes."""
    if uid is not None:
        killer = os.fork()
        if killer == 0:
            try:
                _become(uid)
                os.kill(-1, signal.SIGKILL)
            finally:
                os._exit(0)
        os.waitpid(killer, 0)
        return
    stopped = set[int]()
    while fresh := descendants(os.getpid()) - stopped:
        _send(fresh, signal.SIGSTOP)
        stopped |= fresh
    _send(stopped, signal.SIGKILL)


def _send(pids: set[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            pass


def _reap(child: int, known: int | None) -> tuple[int | None, bool]:
    """Take the dead; returns the wait status of ``child`` once it is among them, and whether a child is left."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return known, False
        if pid == 0:
            return known, True
        known = status if pid == child else known


def _end(child: int, known: int | None, uid: int | None) -> tuple[int | None, bool]:
    """Kill and reap until nothing is left; returns the status of ``child``, and whether all are dead."""
    until = time.monotonic() + _PATIENCE
    pause = 0.0005
    while True:
        known, left = _reap(child, known)
        if not left or time.monotonic() > until:
            return known, not left
        _signal_all(uid)
        time.sleep(pause)
        pause = min(pause * 2, 0.05)


def _readable(*fds: int) -> set[int]:
    """Wait until one of these can be read (or has ended), and say which."""
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return {fd for fd, _ in poll.poll()}


def _watch(child: int, control: socket.socket, wakeup: int) -> int | None:
    """Wait for the end of the command, or for a word to end it; returns its wait status if it has one."""
    known: int | None = None
    while True:
        known, _ = _reap(child, known)
        if known is not None:
            return known
        if control.fileno() in _readable(control.fileno(), wakeup):
            return known
        os.read(wakeup, 4096)


def main() -> None:
    """Run the command that is asked for."""
    with open(int(sys.argv[1]), "rb") as file:
        spec = json.loads(file.read())
    control = socket.socket(fileno=int(sys.argv[2]))
    control.set_inheritable(False)
    _prctl(_SUBREAPER, 1)
    _prctl(_DUMPABLE, 0)
    wakeup, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    if spec["uid"] is not None:
        _signal_all(spec["uid"])  # what a reaper left that was killed
    told_read, told = os.pipe()
    child = os.fork()
    if child == 0:
        _command(spec, told)
    os.close(told)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)  # the command alone holds what it waits at
    os.close(nothing)
    for fd in (1, 2, *spec["inherit"]):
        os.close(fd)
    known = None
    failed = b""
    if control.fileno() not in _readable(told_read, control.fileno()):
        failed = os.read(told_read, 4096)
        known = None if failed else _watch(child, control, wakeup)
    known, dead = _end(child, known, spec["uid"])
    code = None if known is None else os.waitstatus_to_exitcode(known)
    said = {**(json.loads(failed) if failed else {}), "exit": code, "dead": dead}
    try:
        control.sendall(json.dumps(said).encode() + b"\n")
    except OSError:
        pass


if __name__ == "__main__":
    main()
