"""From why a rung does not hold to what can be done about it. Values in, values out.

The causes are told by what bubblewrap, unshare and mount say; each has remedies for the machines on
which it is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from pytest_rollout.doctor.facts import Facts
from pytest_rollout.executors.ladder import NONE, Climb, Rejected
from pytest_rollout.executors.protocol import ExecutorInfo
from pytest_rollout.executors.rungs import GUARANTEES, Level, unmet

__all__ = ["Cause", "Diagnosis", "Remedy", "cause_of", "diagnose", "remedies"]

Cause = Literal["system", "program", "namespaces", "proc", "overlay", "landlock", "other"]

# What is said, in the order in which it is looked for.
_SAYINGS: tuple[tuple[Cause, tuple[str, ...]], ...] = (
    ("system", ("is not Linux",)),
    ("program", ("no bubblewrap", "not found", "No such file or directory: 'unshare'")),
    ("landlock", ("Landlock",)),
    ("proc", ("mount proc", "proc on /newroot")),
    (
        "namespaces",
        ("uid map", "uid_map", "RTM_NEWADDR", "namespace", "unshare failed", "setgroups", "Operation not permitted"),
    ),
    ("overlay", ("overlay", "wrong fs type", "does not show its changes")),
)
_PROFILE = """\
Write an AppArmor profile to /etc/apparmor.d/pytest-rollout-bwrap, and load it with apparmor_parser -r and that path:
  abi <abi/4.0>,
  include <tunables/global>
  profile pytest-rollout-bwrap {path} flags=(unconfined) {{
    userns,
  }}"""


class Remedy(msgspec.Struct, frozen=True, kw_only=True):
    """What to do: for which machine, and the words; the rungs that it could bring back."""

    machine: str
    text: str
    rungs: tuple[int, ...]


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """What a doctor says: the executor, its level of each guarantee, and whether ``required`` runs a usual task."""

    rung: int | None
    executor: str | None
    required_holds: bool
    guarantees: dict[str, Level]
    rejected: tuple[Rejected, ...]
    remedies: tuple[Remedy, ...]
    facts: Facts


def cause_of(message: str) -> Cause:
    """The cause that a rung's message tells of."""
    return next((cause for cause, words in _SAYINGS if any(word in message for word in words)), "other")


def diagnose(facts: Facts, climbed: Climb, info: ExecutorInfo | None) -> Diagnosis:
    """``climbed`` went down to no isolation; ``info`` is of the rung that holds."""
    holds = info is not None and info.trusted and not unmet(info.unenforced, "none")
    return Diagnosis(
        rung=climbed.rung,
        executor=info.describe() if info is not None else None,
        required_holds=holds,
        guarantees=info.levels if info is not None else dict.fromkeys(GUARANTEES, "no"),
        rejected=climbed.rejected,
        remedies=remedies(facts, climbed.rejected),
        facts=facts,
    )


def remedies(facts: Facts, rejected: Sequence[Rejected]) -> tuple[Remedy, ...]:
    """What to do about the rungs that do not hold, each remedy once, the first rung's first."""
    causes: dict[Cause, list[int]] = {}
    for each in rejected:
        if each.rung != NONE:
            causes.setdefault(cause_of(each.message), []).append(each.rung)
    found = []
    for cause, rungs in causes.items():
        found += [Remedy(machine=machine, text=text, rungs=tuple(rungs)) for machine, text in _about(cause, facts)]
    return tuple(found)


def _about(cause: Cause, facts: Facts) -> list[tuple[str, str]]:
    if cause == "system":
        return [(facts.system, "Agents are isolated on Linux only: run the suite in a Linux machine or container.")]
    if cause == "program":
        return [(_named(facts), _about_program(facts))]
    if cause == "namespaces":
        return _about_namespaces(facts)
    if cause == "proc":
        return [("a container", "Let it mount /proc: docker run --security-opt systempaths=unconfined …")]
    if cause == "overlay":
        return [_about_overlay(facts)]
    if cause == "landlock":
        return [(_named(facts), "Landlock needs Linux 5.13 or newer, with 'landlock' in the kernel's parameter lsm=.")]
    return []


def _named(facts: Facts) -> str:
    return facts.distribution or facts.system


def _about_program(facts: Facts) -> str:
    text = "pip install 'pytest-rollout[sandbox]' brings bubblewrap 0.11"
    versions = [program.version for program in facts.bwraps if program.version is not None]
    return f"{text}; {facts.bwraps[0].path} is {versions[0]}." if versions else f"{text}."


def _about_namespaces(facts: Facts) -> list[tuple[str, str]]:
    found = []
    if facts.apparmor_restrict == "1":
        path = facts.bwraps[0].path if facts.bwraps else "/usr/bin/bwrap"
        found.append(("Ubuntu's AppArmor", _PROFILE.format(path=path)))
        found.append(("Ubuntu's AppArmor", "Or: sysctl kernel.apparmor_restrict_unprivileged_userns=0"))
    if facts.container or facts.filtered:
        text = (
            "Let the container make namespaces and mounts: docker run --security-opt seccomp=unconfined "
            "--security-opt systempaths=unconfined --security-opt apparmor=unconfined …, with a volume for the stage "
            "root."
        )
        found.append(("a container", text))
    if facts.userns_clone == "0":
        found.append((_named(facts), "sysctl kernel.unprivileged_userns_clone=1"))
    if facts.max_user_namespaces == "0":
        found.append((_named(facts), "sysctl user.max_user_namespaces=15000"))
    return found or [(_named(facts), "Allow unprivileged user namespaces: the message above says what was refused.")]


def _about_overlay(facts: Facts) -> tuple[str, str]:
    where = f"{facts.stage_root} is on {facts.stage_fs or 'an unknown file system'}"
    if facts.container or facts.stage_fs == "overlay":
        text = f"{where}: put the stage root on a volume: docker run -v rollout-stages:{facts.stage_root} …"
        return "a container", text
    return _named(facts), f"{where}: set the ini key rollout_stage_root to a folder on ext4, xfs, btrfs or tmpfs."
