"""What is looked at on a machine, as plain values: the diagnosis needs nothing else."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from pathlib import Path

import msgspec

from pytest_rollout.executors.bwrap import bwraps
from pytest_rollout.executors.cgroups import find_homes
from pytest_rollout.stage.root import StageRoot

__all__ = ["Facts", "Program", "look", "type_of_mount"]

_SYSCTLS = {
    "apparmor_restrict": "kernel/apparmor_restrict_unprivileged_userns",
    "userns_clone": "kernel/unprivileged_userns_clone",
    "max_user_namespaces": "user/max_user_namespaces",
}


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """A bubblewrap: its path, and its version; None where it does not run."""

    path: str
    version: str | None


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """A machine. A sysctl that is not there is None.

    ``filtered`` says that a filter of system calls was on before us, as in a container of Docker's;
    ``stage_fs`` is the type of the file system of the stage root. ``groups`` are the control groups that this user can
    make: the version by ``memory``, ``pids`` and ``cpu``.
    """

    system: str
    kernel: str
    distribution: str | None = None
    root: bool
    container: bool = False
    filtered: bool = False
    apparmor_restrict: str | None = None
    userns_clone: str | None = None
    max_user_namespaces: str | None = None
    bwraps: tuple[Program, ...] = ()
    stage_root: str
    stage_fs: str | None = None
    groups: dict[str, int] = {}


def look(root: StageRoot) -> Facts:
    """The facts of this machine; what can't be read is None."""
    status = _text("/proc/self/status") or ""
    return Facts(
        system=platform.system(),
        kernel=platform.release(),
        distribution=_distribution(_text("/etc/os-release") or ""),
        root=os.geteuid() == 0,
        container=any(os.path.exists(path) for path in ("/.dockerenv", "/run/.containerenv")),
        filtered="Seccomp:\t2" in status,
        bwraps=tuple(Program(path=str(path), version=version) for path, version in bwraps()),
        stage_root=str(root.path),
        stage_fs=type_of_mount(_text("/proc/self/mountinfo") or "", os.path.realpath(root.path)),
        groups={name: home.version for name, home in find_homes().items()},
        **{name: _text(f"/proc/sys/{place}") for name, place in _SYSCTLS.items()},
    )


def _text(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def _distribution(release: str) -> str | None:
    """``ID`` and ``VERSION_ID`` of ``/etc/os-release``: ``ubuntu 24.04``."""
    found = dict(line.split("=", 1) for line in release.splitlines() if "=" in line)
    words = [found[name].strip("\"'") for name in ("ID", "VERSION_ID") if name in found]
    return " ".join(words) or None


def type_of_mount(mountinfo: str, path: str) -> str | None:
    """The type of the file system that ``path`` lies on, from the lines of proc(5)'s ``mountinfo``."""
    best: tuple[int, str | None] = (-1, None)
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields: Sequence[str] = before.split()
        if len(fields) < 5 or not after:
            continue
        place = fields[4].encode().decode("unicode_escape")
        if (path == place or path.startswith(place.rstrip("/") + "/")) and len(place) >= best[0]:
            best = (len(place), after.split()[0])
    return best[1]
