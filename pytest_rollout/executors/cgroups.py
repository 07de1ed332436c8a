"""Control groups: count what a process tree uses, and bound it, where this user may make one.

A group is made below the one that this process is in: of version 2 where that is delegated to us
(``systemd-run --user --scope -p Delegate=yes``, a privileged container), else of the version 1
hierarchies that are writable (root, mostly). In version 2 a group with processes can't have
controlled groups below it, so where all processes of ours alone are in it they move to a leaf first.
Files and their units: cgroup-v2.rst, and memory.rst and pids.rst of cgroup-v1, of the kernel.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

import msgspec

from pytest_rollout.limits import Resources
from pytest_rollout.processes import below, stat_of

__all__ = ["Group", "Home", "find_homes", "homes_of"]

_PREFIX = "rollout-"
_LEAF = "rollout-self"
_STALE = 60.0  # seconds after which an empty group is one that somebody lost
_NANO, _MICRO = 1e-9, 1e-6
_UNLIMITED = 1 << 62
_NEARLY = 1 << 20  # bytes below a limit that are too few for what was asked for


class Home(msgspec.Struct, frozen=True):
    """Where groups of one controller can be made."""

    version: int
    path: Path


def homes_of(cgroup: str, mountinfo: str) -> dict[str, Home]:
    """Where this process is, by controller (``unified`` is version 2), from the texts of ``/proc/self``."""
    mounts: dict[str, tuple[int, str, str]] = {}
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        words, kind = before.split(), after.split()
        if len(words) < 5 or len(kind) < 3 or kind[0] not in ("cgroup", "cgroup2"):
            continue
        for name in ["unified"] if kind[0] == "cgroup2" else kind[2].split(","):
            mounts.setdefault(name, (2 if kind[0] == "cgroup2" else 1, words[3], words[4]))
    found = {}
    for line in cgroup.splitlines():
        number, _, rest = line.partition(":")
        names, _, own = rest.partition(":")
        for name in ["unified"] if number == "0" else names.split(","):
            if name in mounts:
                version, root, place = mounts[name]
                below = os.path.relpath(own, root) if own == root or own.startswith(root.rstrip("/") + "/") else "."
                found[name] = Home(version, Path(os.path.normpath(os.path.join(place, below))))
    return found


@cache
def find_homes() -> dict[str, Home]:
    """Where this process can make groups, by ``memory``, ``pids`` and ``cpu``; none where it may not."""
    try:
        own = homes_of(Path("/proc/self/cgroup").read_text("utf-8"), Path("/proc/self/mountinfo").read_text("utf-8"))
    except OSError:
        return {}
    found: dict[str, Home] = {}
    unified = own.get("unified")
    if unified is not None:
        base = unified.path.parent if unified.path.name == _LEAF else unified.path
        if _can_make(base):
            found = {name: Home(2, base) for name in ("cpu", *_enabled(base))}
    for name, controller in (("memory", "memory"), ("pids", "pids"), ("cpu", "cpuacct")):
        home = own.get(controller)
        if name not in found and home is not None and home.version == 1 and _can_make(home.path):
            found[name] = home
    for path in {home.path for home in found.values()}:
        _sweep(path)
    return found


def _can_make(path: Path) -> bool:
    trial = path / f"{_PREFIX}trial-{os.getpid()}"
    try:
        trial.mkdir()
        trial.rmdir()
    except OSError:
        return False
    return True


def _enabled(base: Path) -> list[str]:
    """The controllers of version 2 that groups below ``base`` have, after an attempt to enable them."""
    try:
        there = (base / "cgroup.controllers").read_text("utf-8").split()
        wanted: list[str] = [name for name in ("memory", "pids") if name in there]
        missing = set(wanted) - set((base / "cgroup.subtree_control").read_text("utf-8").split())
        if missing:
            text = " ".join(f"+{name}" for name in sorted(missing))
            try:
                (base / "cgroup.subtree_control").write_text(text, "utf-8")
            except OSError:
                if not _evacuate(base):
                    return []
                (base / "cgroup.subtree_control").write_text(text, "utf-8")
    except OSError:
        return []
    return wanted


def _evacuate(base: Path) -> bool:
    """Move this process, with those above and below it, from ``base`` to a leaf; not where others are in it."""
    pids, me = _pids(base), os.getpid()
    if not set(pids) <= {me, *_above(me), *below(me)}:
        return False
    leaf = base / _LEAF
    leaf.mkdir(exist_ok=True)
    for pid in pids:
        (leaf / "cgroup.procs").write_text(str(pid), "utf-8")
    return True


def _above(pid: int) -> list[int]:
    """The processes that started a process: its parent, that one's, and so on."""
    found: list[int] = []
    while pid > 1 and (fields := stat_of(pid)):
        pid = int(fields[1])
        found.append(pid)
    return found


def _sweep(path: Path) -> None:
    """Remove groups of sessions that were killed."""
    for group in path.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            if group.name != _LEAF and time.time() - group.stat().st_mtime > _STALE and not _pids(group):
                group.rmdir()


def _pids(group: Path) -> list[int]:
    return [int(word) for word in (group / "cgroup.procs").read_text("utf-8").split()]


class Group:
    """A control group of one process tree. ``name`` is unique; raises OSError where it can't be made."""

    def __init__(self, homes: dict[str, Home], name: str, resources: Resources, *, extra: int = 0) -> None:
        self._homes = homes
        self._paths = {key: home.path / f"{_PREFIX}{name}" for key, home in homes.items()}
        self.limited = frozenset(
            key
            for key, limit in (("memory", resources.memory), ("pids", resources.processes))
            if limit is not None and key in homes
        )
        self._memory = resources.memory or 0
        try:
            for path in dict.fromkeys(self._paths.values()):
                path.mkdir()
            if "memory" in self.limited and resources.memory is not None:
                self._limit_memory(resources.memory)
            if "pids" in self.limited and resources.processes is not None:
                self._write("pids", "pids.max", resources.processes + extra)
        except OSError:
            self.close()
            raise

    def _limit_memory(self, limit: int) -> None:
        if self._homes["memory"].version == 2:
            self._write("memory", "memory.max", limit)
            for file, value in (("memory.swap.max", 0), ("memory.oom.group", 1)):
                with suppress(OSError):  # without swap, or before Linux 4.19
                    self._write("memory", file, value)
            return
        self._write("memory", "memory.limit_in_bytes", limit)
        with suppress(OSError):  # where swap is counted
            self._write("memory", "memory.memsw.limit_in_bytes", limit)

    def describe(self, key: str) -> str:
        """The version of a controller, for a record."""
        return f"cgroup v{self._homes[key].version}"

    def enter(self, pid: int) -> None:
        """Take in a process and all below it: what they start later is in it as well. Raises OSError."""
        for path in dict.fromkeys(self._paths.values()):
            for each in (pid, *below(pid)):
                with suppress(ProcessLookupError):
                    (path / "cgroup.procs").write_text(str(each), "utf-8")

    def pids(self) -> list[int]:
        """Its processes now."""
        for path in self._paths.values():
            with suppress(OSError):
                return _pids(path)
        return []

    @property
    def oom_kills(self) -> int | None:
        """How many of its processes the kernel killed for want of memory, whoever's limit that was; None: not known."""
        file = "memory.events" if self._version("memory") == 2 else "memory.oom_control"
        return self._counted("memory", file, "oom_kill")

    @property
    def reached_memory(self) -> bool:
        """Whether a process was refused memory because of its own limit, and not of one around it."""
        if "memory" not in self.limited:
            return False
        if self._version("memory") == 2:
            return self._counted("memory", "memory.events", "oom") != 0
        kinds = ("memory.max_usage_in_bytes", "memory.memsw.max_usage_in_bytes")  # not every kernel counts its refusals
        peaks = [peak for kind in kinds if (peak := self._number("memory", kind)) is not None]
        return not peaks or max(peaks) > self._memory - _NEARLY

    @property
    def refused_forks(self) -> int:
        """How often a process or a thread was refused because of its own limit."""
        return self._counted("pids", "pids.events", "max") or 0

    @property
    def cpu(self) -> float | None:
        """Seconds of processors."""
        if self._version("cpu") == 2:
            used = self._counted("cpu", "cpu.stat", "usage_usec")
            return None if used is None else used * _MICRO
        used = self._number("cpu", "cpuacct.usage")
        return None if used is None else used * _NANO

    @property
    def peak_memory(self) -> int | None:
        """Bytes."""
        return self._number("memory", "memory.peak" if self._version("memory") == 2 else "memory.max_usage_in_bytes")

    @property
    def peak_processes(self) -> int | None:
        """Processes and threads at once."""
        return self._number("pids", "pids.peak")

    def kill(self) -> bool:
        """Kill all of it; returns whether nothing of it is left."""
        for path in self._paths.values():
            with suppress(OSError):
                (path / "cgroup.kill").write_text("1", "utf-8")
                break
        for _ in range(200):
            pids = self.pids()
            if not pids:
                return True
            for pid in pids:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.005)
        return False

    def close(self) -> None:
        """Remove it; its processes are dead. May be called twice."""
        for path in dict.fromkeys(self._paths.values()):
            for _ in range(100):
                try:
                    path.rmdir()
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(0.005)
                else:
                    break

    def _version(self, key: str) -> int | None:
        return self._homes[key].version if key in self._homes else None

    def _write(self, key: str, file: str, value: int) -> None:
        (self._paths[key] / file).write_text(str(value), "utf-8")

    def _read(self, key: str, file: str) -> str | None:
        if key not in self._paths:
            return None
        try:
            return (self._paths[key] / file).read_text("utf-8")
        except OSError:
            return None

    def _number(self, key: str, file: str) -> int | None:
        text = (self._read(key, file) or "").strip()
        return int(text) if text.isdigit() and int(text) < _UNLIMITED else None

    def _counted(self, key: str, file: str, name: str) -> int | None:
        for line in (self._read(key, file) or "").splitlines():
            word, _, value = line.partition(" ")
            if word == name and value.strip().isdigit():
                return int(value)
        return None
