"""From facts and messages to remedies, for machines that are not here."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pytest_rollout.doctor.diagnosis import cause_of, diagnose, remedies
from pytest_rollout.doctor.facts import Facts, Program, type_of_mount
from pytest_rollout.doctor.text import lines
from pytest_rollout.executors.ladder import Climb, Rejected
from pytest_rollout.executors.protocol import ExecutorInfo
from pytest_rollout.executors.rungs import enforced

UID_MAP = "this machine refuses the sandbox: bwrap: setting up uid map: Permission denied"
LOOPBACK = "this machine refuses the sandbox: bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted"
MOUNT = "the stage can't be mounted: bwrap: Can't make overlay mount on /newroot/stage: Invalid argument"


def machine(**changed: Any) -> Facts:
    """A Debian 12 without trouble, with some facts changed."""
    facts = Facts(
        groups={"memory": 2},
        system="Linux",
        kernel="6.1.0",
        distribution="debian 12",
        root=False,
        max_user_namespaces="15000",
        bwraps=(Program(path="/usr/bin/bwrap", version="0.8.0"),),
        stage_root="/var/tmp/pytest-rollout-1000",
        stage_fs="ext4",
    )
    return msgspec.structs.replace(facts, **changed)


def told(facts: Facts, *messages: str) -> list[tuple[str, str]]:
    """(machine, text) of each remedy where these are the reasons against rungs 1, 2 …"""
    rejected = [
        Rejected(rung=number, kind="isolation", message=message) for number, message in enumerate(messages, start=1)
    ]
    return [(remedy.machine, remedy.text) for remedy in remedies(facts, rejected)]


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        (UID_MAP, "namespaces"),
        (LOOPBACK, "namespaces"),
        ("this machine refuses the sandbox: unshare: unshare failed: Operation not permitted", "namespaces"),
        ("this machine refuses the sandbox: bwrap: No permissions to creating new namespace, likely …", "namespaces"),
        ("this machine refuses the sandbox: bwrap: Can't mount proc on /newroot/proc: Operation not permitted", "proc"),
        (MOUNT, "overlay"),
        ("the stage can't be mounted: mount: t: wrong fs type, bad option, bad superblock on overlay.", "overlay"),
        ("the tree of the stage does not show its changes on the host", "overlay"),
        ("no bubblewrap 0.11 or newer: /usr/bin/bwrap is 0.8.0", "program"),
        ("this kernel has no Landlock, or it is switched off", "landlock"),
        ("this machine is not Linux: Darwin", "system"),
        ("the sandbox does not hold: there is a network", "other"),
    ],
)
def test_the_cause_is_told_by_what_the_programs_say(message: str, cause: str) -> None:
    assert cause_of(message) == cause


def test_debian_with_its_old_bubblewrap() -> None:
    assert told(machine(), "no bubblewrap 0.11 or newer: /usr/bin/bwrap is 0.8.0") == [
        ("debian 12", "pip install 'pytest-rollout[sandbox]' brings bubblewrap 0.11; /usr/bin/bwrap is 0.8.0.")
    ]
    assert told(machine(bwraps=()), "no bubblewrap 0.11 or newer: there is none") == [
        ("debian 12", "pip install 'pytest-rollout[sandbox]' brings bubblewrap 0.11.")
    ]


@pytest.mark.parametrize("message", [UID_MAP, LOOPBACK])
def test_ubuntu_with_its_apparmor(message: str) -> None:
    facts = machine(
        distribution="ubuntu 24.04", apparmor_restrict="1", bwraps=(Program(path="/opt/v/bwrap", version="0.11.0"),)
    )
    profile, sysctl = told(facts, message, message)
    assert profile[0] == sysctl[0] == "Ubuntu's AppArmor"
    assert profile[1].splitlines()[-5:] == [
        "  abi <abi/4.0>,",
        "  include <tunables/global>",
        "  profile pytest-rollout-bwrap /opt/v/bwrap flags=(unconfined) {",
        "    userns,",
        "  }",
    ]
    assert sysctl[1] == "Or: sysctl kernel.apparmor_restrict_unprivileged_userns=0"


def test_a_container_of_docker() -> None:
    (found,) = told(machine(container=True, filtered=True), UID_MAP)
    assert found[0] == "a container"
    assert "--security-opt seccomp=unconfined --security-opt systempaths=unconfined" in found[1]
    assert told(machine(container=True), "bwrap: Can't mount proc on /newroot/proc: Operation not permitted") == [
        ("a container", "Let it mount /proc: docker run --security-opt systempaths=unconfined …")
    ]
    assert told(machine(container=True, stage_fs="overlay"), MOUNT) == [
        (
            "a container",
            "/var/tmp/pytest-rollout-1000 is on overlay: put the stage root on a volume: "
            "docker run -v rollout-stages:/var/tmp/pytest-rollout-1000 …",
        )
    ]


def test_kernels_that_are_set_to_refuse() -> None:
    assert told(machine(userns_clone="0"), UID_MAP) == [("debian 12", "sysctl kernel.unprivileged_userns_clone=1")]
    assert told(machine(max_user_namespaces="0"), UID_MAP) == [("debian 12", "sysctl user.max_user_namespaces=15000")]
    assert told(machine(), UID_MAP) == [
        ("debian 12", "Allow unprivileged user namespaces: the message above says what was refused.")
    ]


def test_a_file_system_that_holds_no_upper_layer() -> None:
    assert told(machine(stage_fs="nfs4"), MOUNT) == [
        (
            "debian 12",
            "/var/tmp/pytest-rollout-1000 is on nfs4: "
            "set the ini key rollout_stage_root to a folder on ext4, xfs, btrfs or tmpfs.",
        )
    ]


def test_macos() -> None:
    facts = machine(system="Darwin", distribution=None, bwraps=())
    assert told(facts, "this machine is not Linux: Darwin") == [
        ("Darwin", "Agents are isolated on Linux only: run the suite in a Linux machine or container.")
    ]


def test_a_remedy_is_told_once_with_the_rungs_that_it_is_for() -> None:
    rejected = [Rejected(rung=number, kind="isolation", message=UID_MAP) for number in (1, 2, 3)]
    (remedy,) = remedies(machine(userns_clone="0"), rejected)
    assert remedy.rungs == (1, 2, 3)


MOUNTINFO = """\
22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
23 22 0:30 / /var/tmp rw,nosuid - tmpfs tmpfs rw
24 23 0:31 / /var/tmp/with\\040blank rw - xfs /dev/sdb rw
broken
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/home/x", "ext4"), ("/var/tmp/x", "tmpfs"), ("/var/tmpx", "ext4"), ("/var/tmp/with blank/x", "xfs")],
)
def test_the_type_of_a_file_system(path: str, kind: str) -> None:
    assert type_of_mount(MOUNTINFO, path) == kind
    assert type_of_mount("", path) is None


def test_what_is_printed() -> None:
    info = ExecutorInfo(
        name="landlock",
        trusted=True,
        levels=enforced(4, own_uid=True, landlock=7),
        tool="Landlock",
        rung=4,
        version="7",
    )
    rejected = (Rejected(rung=1, kind="isolation", message=UID_MAP),)
    found = diagnose(machine(userns_clone="0"), Climb(rung=4, rejected=rejected), info)
    assert found.required_holds is False
    assert lines(found) == [
        "isolation  rung 4 of 5: a copy, confined by Landlock, a filter of system calls, a reaper",
        "executor   landlock (rung 4, Landlock 7; not enforced: network, sight)",
        'required   holds for tasks with network="host" only',
        "machine    debian 12, kernel 6.1.0",
        "stages     /var/tmp/pytest-rollout-1000 (ext4)",
        "limits     memory by cgroup v2; processes, cpu looked at at intervals"
        " (systemd-run --user --scope -p Delegate=yes pytest … has them counted)",
        "",
        "what is enforced",
        "  files    yes     reads only its stage, the system, and what its agent's paths name",
        "  writes   yes     changes only its stage and its private folders",
        '  network  partly  with network="none": reaches nothing outside',
        "  tree     yes     no process outlives the command",
        "  reach    yes     signals, traces and reads no other process",
        "  sight    no      sees no other process",
        "",
        "why the better rungs do not hold",
        f"  rung 1   {UID_MAP}",
        "",
        "what to do",
        "  debian 12: sysctl kernel.unprivileged_userns_clone=1",
    ]


@pytest.mark.parametrize(
    ("rung", "levels", "trusted", "holds", "said"),
    [
        (1, enforced(1), True, True, "holds"),
        (4, enforced(4, own_uid=True, landlock=7), True, False, 'holds for tasks with network="host" only'),
        (4, enforced(4, landlock=7), False, False, "refuses every task"),
        (5, enforced(5), False, False, "refuses every task"),
    ],
)
def test_required_holds_where_a_task_without_network_would_run(
    rung: int, levels: Any, trusted: bool, holds: bool, said: str
) -> None:
    info = ExecutorInfo(name="x", trusted=trusted, levels=levels, rung=rung, version="1")
    found = diagnose(machine(), Climb(rung=rung), info)
    assert (found.required_holds, found.guarantees) == (holds, levels)
    assert lines(found)[2] == f"required   {said}"
