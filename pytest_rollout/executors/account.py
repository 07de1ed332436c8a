"""The account of one command: what its process tree uses, and whether that is more than it may.

A control group counts where there is one. Where there is none, the tree is looked at several times a
second: less sure, and the record says so. Time, memory and processes that go beyond a limit end the
whole tree, as does what it wrote to the stage.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import Literal

from pytest_rollout.errors import HostError
from pytest_rollout.executors.cgroups import Group, find_homes
from pytest_rollout.executors.prelude import data_bound, limiting
from pytest_rollout.executors.pressure import Machine
from pytest_rollout.limits import Resources
from pytest_rollout.processes import below, stat_of
from pytest_rollout.stage.usage import Taken, taken

__all__ = ["Account", "Exceeded", "account_of_copy"]

Exceeded = Literal["memory_limit", "cpu_limit", "process_limit", "disk_limit"]
_OFTEN, _SHARE = 0.1, 20  # seconds between looks; a look takes at most a twentieth of the time
_SLACK = 8
_numbers = itertools.count()
_TICKS = os.sysconf("SC_CLK_TCK")


class Account:
    """``name`` begins the name of its group; ``top`` says where the stage's own layer lies, None not to count it.

    ``before`` is what that layer takes before the command, for a stage that is a copy; ``extra`` how many
    processes of ours are in the tree and its group.
    """

    def __init__(
        self,
        resources: Resources,
        name: str,
        top: str | None,
        *,
        before: Taken | None = None,
        extra: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._resources, self._top, self._clock = resources, top, clock
        self._before, self._extra = before, extra
        self._pid: int | None = None
        self._in_force: dict[str, int] = {}
        self._peak_disk, self._peak_processes = 0, 0
        self._next = inf
        self._exceeded: Exceeded | None = None
        self.group: Group | None = None
        homes = find_homes()
        if homes:
            with suppress(OSError):
                self.group = Group(homes, f"{name}-{next(_numbers)}", resources, extra=extra)

    @property
    def bounds_memory(self) -> bool:
        """Whether the group holds the memory of the whole tree below the limit."""
        return self.group is not None and "memory" in self.group.limited

    def prelude(self, *, own_user: bool = True) -> tuple[str, ...]:
        """The words before a command that set the limits of each process, and wait to be let go.

        ``own_user`` says that no other processes than the command's have its user.
        """
        more: int | None = None
        if own_user:
            counted = self.group is not None and "pids" in self.group.limited
            more = _SLACK if counted else (self._resources.processes or 0) + _SLACK
        return limiting(self._resources, memory=not self.bounds_memory, more=more, gated=True)

    def ran_out(self, machine: Machine) -> bool:
        """Whether the kernel killed a process because memory ran out around the tree.

        A group knows it of its own processes; where none counts, it may have been another one of the machine.
        """
        kills = None if self.group is None else self.group.oom_kills
        if self.group is None or kills is None:
            return machine.ran_out()
        return kills > 0 and not self.group.reached_memory

    def enter(self, pid: int, *, keeper: int | None = None) -> None:
        """Begin: ``pid`` is the first process of the tree, and nothing of the agent's runs yet.

        ``keeper`` is a process of ours around the tree, outside its group, that orphans come to.
        """
        self._pid = pid if keeper is None else keeper
        self._in_force = _limits_of([pid, *below(pid)][-1])
        if self.group is not None:
            try:
                self.group.enter(pid)
            except OSError as error:
                raise HostError(f"a sandbox can't be put into its control group: {error.strerror}") from error
        if self._looks():
            self._next = self._clock() + _OFTEN

    def _looks(self) -> bool:
        asked = self._resources
        return any(limit is not None for limit in (asked.memory, asked.cpu, asked.processes, asked.disk, asked.files))

    # -- while it runs

    def pause(self) -> float:
        """Seconds until the next look; infinite where none is needed."""
        return max(self._next - self._clock(), 0.0)

    def check(self) -> Exceeded | None:
        """Look, where it is time to: what is exceeded by now."""
        began = self._clock()
        if began < self._next or self._pid is None:
            return None
        self._exceeded = self._exceeded or self._of_group() or self._of_tree() or self._of_disk(force=False)
        self._next = self._clock() + max(_OFTEN, (self._clock() - began) * _SHARE)
        return self._exceeded

    def settle(self) -> Exceeded | None:
        """Look a last time, when the tree is dead."""
        self._exceeded = self._exceeded or self._of_group() or self._of_disk(force=True)
        return self._exceeded

    def _of_group(self) -> Exceeded | None:
        group, asked = self.group, self._resources
        if group is None:
            return None
        if group.oom_kills and group.reached_memory:
            return "memory_limit"
        if "pids" in group.limited and group.refused_forks:
            return "process_limit"
        used = group.cpu if asked.cpu is not None else None
        return "cpu_limit" if used is not None and asked.cpu is not None and used > asked.cpu else None

    def _of_tree(self) -> Exceeded | None:
        """What no group counts, counted by looking at each process."""
        asked, group = self._resources, self.group
        memory = None if self.bounds_memory else asked.memory
        processes = None if group is not None and "pids" in group.limited else asked.processes
        cpu = None if group is not None and group.cpu is not None else asked.cpu
        if (memory, processes, cpu) == (None, None, None) or self._pid is None:
            return None
        pids = [self._pid, *below(self._pid)]
        if processes is not None:
            tasks = sum(_tasks(pid) for pid in pids) - 1
            self._peak_processes = max(self._peak_processes, tasks)
            if tasks > processes:
                return "process_limit"
        if memory is not None and sum(map(_mapped, pids)) > memory and sum(map(_proportional, pids)) > memory:
            return "memory_limit"
        return "cpu_limit" if cpu is not None and sum(map(_cpu, pids)) > cpu else None

    def _of_disk(self, *, force: bool) -> Exceeded | None:
        asked = self._resources
        if self._top is None or (asked.disk is None and asked.files is None and not force):
            return None
        try:
            top = os.open(self._top, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return None
        before = self._before or Taken()
        try:
            found = taken(
                top,
                size=None if asked.disk is None else before.size + asked.disk,
                files=before.files + (asked.files if asked.files is not None else _MOST_FILES),
                force=force,
            )
        finally:
            os.close(top)
        size, files = found.size - before.size, found.files - before.files
        self._peak_disk = max(self._peak_disk, size)
        beyond = (asked.disk is not None and size > asked.disk) or (asked.files is not None and files > asked.files)
        hidden = found.too_deep and (asked.disk is not None or asked.files is not None)  # any amount may be there
        return "disk_limit" if beyond or hidden else None

    # -- afterwards

    @property
    def cpu(self) -> float | None:
        """Seconds of processors; None where no group counted: what is seen of processes is less."""
        return None if self.group is None else self.group.cpu

    @property
    def peak_memory(self) -> int | None:
        """Bytes of the whole tree; None where no group counted them."""
        return None if self.group is None else self.group.peak_memory

    @property
    def peak_processes(self) -> int | None:
        """Processes and threads at once, without the sandbox's own; None where nobody counted."""
        counted = None if self.group is None else self.group.peak_processes
        return max(counted - self._extra, 1) if counted is not None else self._peak_processes or None

    @property
    def peak_disk(self) -> int | None:
        """Bytes of the stage's own layer, as far as it was looked at; None where it was not."""
        return None if self._top is None else self._peak_disk

    def observed(self) -> dict[str, str]:
        """What enforces each limit that was asked for."""
        asked, group, found = self._resources, self.group, dict[str, str]()
        if asked.memory is not None:
            found["memory"] = (
                f"{asked.memory} bytes together ({group.describe('memory')})"
                if group is not None and self.bounds_memory
                else f"{asked.memory} bytes together, looked at at intervals; each process {data_bound(asked.memory)} "
                "bytes of data (RLIMIT_DATA)"
            )
        if asked.processes is not None:
            counted = group is not None and "pids" in group.limited
            found["processes"] = f"{asked.processes} (RLIMIT_NPROC" + (
                f" and {group.describe('pids')})" if group is not None and counted else "), looked at at intervals"
            )
        if asked.cpu is not None:
            counted = group is not None and group.cpu is not None
            how = group.describe("cpu") if group is not None and counted else "summed over living processes"
            found["cpu"] = f"{asked.cpu:g} s together ({how}), looked at at intervals; each process (RLIMIT_CPU)"
        for name, kind in (("file_size", "RLIMIT_FSIZE"), ("open_files", "RLIMIT_NOFILE")):
            if getattr(asked, name) is not None and name in self._in_force:
                found[name] = f"{self._in_force[name]}{' bytes' if name == 'file_size' else ''} ({kind})"
        if asked.disk is not None or asked.files is not None:
            bounds = [f"{asked.disk} bytes"] if asked.disk is not None else []
            bounds += [f"{asked.files} files"] if asked.files is not None else []
            found["disk"] = f"{' and '.join(bounds)}, looked at at intervals and at the end"
        return found

    def close(self) -> None:
        """Give the group back; the tree is dead. May be called twice."""
        if self.group is not None:
            self.group.close()
            self.group = None


def account_of_copy(resources: Resources, name: str, copy: str, *, extra: int = 1) -> Account:
    """What the agent adds to a copy is counted only where that is limited: it means to walk all of the copy."""
    if resources.disk is None and resources.files is None:
        return Account(resources, name, None, extra=extra)
    top = os.open(copy, os.O_PATH | os.O_DIRECTORY)
    try:
        return Account(resources, name, copy, before=taken(top), extra=extra)
    finally:
        os.close(top)


_MOST_FILES = 200_000


def _limits_of(pid: int) -> dict[str, int]:
    """The limits that the kernel has for a process, soft, where they are not infinite."""
    found = {}
    with suppress(OSError), open(f"/proc/{pid}/limits", encoding="utf-8") as file:
        for line in file:
            for name, title in (("file_size", "Max file size"), ("open_files", "Max open files")):
                word = line.removeprefix(title).split()[0] if line.startswith(title) else ""
                if word.isdigit():
                    found[name] = int(word)
    return found


def _tasks(pid: int) -> int:
    fields = stat_of(pid)
    return int(fields[17]) if fields else 0


def _cpu(pid: int) -> float:
    """Seconds of a process, and of those of its children that it has waited for."""
    fields = stat_of(pid)
    return sum(map(int, fields[11:15])) / _TICKS if fields else 0.0


def _sum(path: str, *names: bytes) -> int:
    """Bytes, from lines in kB of a file of ``/proc``."""
    try:
        with open(path, "rb") as file:
            return sum(int(line.split()[1]) * 1024 for line in file if line.startswith(names))
    except (OSError, IndexError, ValueError):
        return 0


def _mapped(pid: int) -> int:
    """What it has in memory and on no disk, its own and shared."""
    return _sum(f"/proc/{pid}/status", b"RssAnon:", b"RssShmem:")


def _proportional(pid: int) -> int:
    """What is its own, and its part of what it shares; all of both where that can't be read."""
    return _sum(f"/proc/{pid}/smaps_rollup", b"Pss_Anon:", b"Pss_Shmem:") or _mapped(pid)
