"""The filter of system calls: what it refuses, as a program and in force."""

from __future__ import annotations

import errno
import platform
import struct
from typing import TYPE_CHECKING

import pytest

from pytest_rollout.executors.seccomp import filter_program

if TYPE_CHECKING:
    from pytest_rollout.executors.protocol import Bind
    from tests.unit.conftest import Lab

ALLOW, REFUSE, UNKNOWN = 0x7FFF0000, 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS
ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
SOCKET = {"x86_64": 41, "aarch64": 198}
REFUSED = {
    "x86_64": {101, 310, 311, 312, 248, 249, 250, 323, 438},
    "aarch64": {117, 270, 271, 272, 217, 218, 219, 282, 438},
}

LASTING = {  # shmget, semget, msgget, mq_open; setpriority, sched_set*, ioprio_set
    "x86_64": {29, 64, 68, 240, 141, 142, 144, 203, 314, 251},
    "aarch64": {194, 190, 186, 180, 140, 118, 119, 122, 274, 30},
}
FCNTL = {"x86_64": 72, "aarch64": 25}
PRLIMIT = {"x86_64": 302, "aarch64": 261}


def judge(program: bytes, number: int, arch: int, argument: int = 0, second: int = 0) -> int:
    """Run the filter, as the kernel does: loads, jumps on equal, on at least and on any bit, returns."""
    data = {0: number, 4: arch, 16: argument, 24: second}
    lines = list(struct.iter_unpack("HBBI", program))
    at = accumulator = 0
    while True:
        code, yes, no, value = lines[at]
        at += 1
        if code == 0x20:
            accumulator = data[value]
        elif code == 0x15:
            at += yes if accumulator == value else no
        elif code == 0x35:
            at += yes if accumulator >= value else no
        elif code == 0x45:
            at += yes if accumulator & value else no
        else:
            assert code == 0x06
            return int(value)


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_every_call_of_the_table(machine: str) -> None:
    program = filter_program(machine)
    assert program is not None
    found = {number: judge(program, number, ARCH[machine]) for number in range(600)}
    assert {number for number, verdict in found.items() if verdict == REFUSE} == REFUSED[machine]
    assert {number for number, verdict in found.items() if verdict == UNKNOWN} == {425, 426, 427}  # io_uring
    assert all(found[number] == ALLOW for number in (0, 1, 2, 59, 60, SOCKET[machine]))


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_a_sealed_command_makes_nothing_that_outlives_it_either(machine: str) -> None:
    program = filter_program(machine, sealed=True)
    assert program is not None
    found = {number: judge(program, number, ARCH[machine], 1) for number in range(600)}
    expected = REFUSED[machine] | LASTING[machine] | {PRLIMIT[machine]}
    assert {number for number, verdict in found.items() if verdict == REFUSE} == expected
    assert judge(program, PRLIMIT[machine], ARCH[machine], 0) == ALLOW  # of itself
    families = {family: judge(program, SOCKET[machine], ARCH[machine], family) for family in range(50)}
    assert [family for family, verdict in families.items() if verdict == ALLOW] == [1]  # unix
    orders = {order: judge(program, FCNTL[machine], ARCH[machine], 1, order) for order in range(1100)}
    assert [order for order, verdict in orders.items() if verdict == REFUSE] == [1036, 1038]  # hints on a file
    assert {verdict for order, verdict in orders.items() if order not in (1036, 1038)} == {ALLOW}


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_sockets_by_their_family(machine: str) -> None:
    program = filter_program(machine)
    assert program is not None
    families = {family: judge(program, SOCKET[machine], ARCH[machine], family) for family in range(50)}
    assert [family for family, verdict in families.items() if verdict != ALLOW] == [40]  # vsock
    assert families[40] == REFUSE


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_calls_of_another_architecture_are_refused(machine: str) -> None:
    program = filter_program(machine)
    assert program is not None
    for arch in (0x40000003, 0, *(value for name, value in ARCH.items() if name != machine)):
        assert judge(program, 1, arch) == REFUSE


def test_calls_of_x32_are_unknown() -> None:
    program = filter_program("x86_64")
    assert program is not None
    assert judge(program, 0x40000000 + 521, ARCH["x86_64"]) == UNKNOWN  # ptrace of x32
    assert judge(program, 0x3FFFFFFF, ARCH["x86_64"]) == ALLOW


def test_there_is_none_for_a_machine_without_a_table() -> None:
    assert filter_program("riscv64") is None
    assert filter_program() == filter_program(platform.machine())


CALLS = """
import ctypes, errno, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
numbers = {"x86_64": (101, 250, 248, 310, 438, 425), "aarch64": (117, 219, 217, 270, 438, 425)}[sys.argv[1]]
for name, number in zip(("ptrace", "keyctl", "add_key", "process_vm_readv", "pidfd_getfd", "io_uring_setup"), numbers):
    ctypes.set_errno(0)
    answer = libc.syscall(number, 0, 0, 0, 0, 0, 0)
    print(name, answer, errno.errorcode.get(ctypes.get_errno()))
for name, family in (("vsock", 40), ("inet", socket.AF_INET), ("unix", socket.AF_UNIX)):
    try:
        socket.socket(family, socket.SOCK_STREAM).close()
        print(name, "made")
    except OSError as error:
        print(name, errno.errorcode[error.errno])
"""


@pytest.mark.skipif(platform.machine() not in ARCH, reason="there is no table for this machine")
def test_it_is_in_force_in_the_sandbox(sandbox: Lab, python: tuple[str, tuple[Bind, ...]]) -> None:
    trial = sandbox.run([python[0], "-c", CALLS, platform.machine()], binds=python[1])
    assert trial.text.splitlines() == [
        "ptrace -1 EPERM",
        "keyctl -1 EPERM",
        "add_key -1 EPERM",
        "process_vm_readv -1 EPERM",
        "pidfd_getfd -1 EPERM",
        "io_uring_setup -1 ENOSYS",
        "vsock EPERM",
        "inet made",
        "unix made",
    ], trial.stderr
    assert "2\n" in sandbox.run("grep ^Seccomp: /proc/self/status").text


MADE = """
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
def say(name, answer):
    print(name, "made" if answer >= 0 else errno.errorcode[ctypes.get_errno()])
say("shmget", libc.shmget(0, 4096, 0o1600))
say("semget", libc.semget(0, 1, 0o1600))
say("msgget", libc.msgget(0, 0o1600))
say("mq_open", libc.mq_open(b"/a", 0o102, 0o600, None))
"""


@pytest.mark.skipif(platform.machine() not in ARCH, reason="there is no table for this machine")
def test_sealing_is_in_force_in_the_sandbox(sandbox: Lab, python: tuple[str, tuple[Bind, ...]]) -> None:
    def made(*, sealed: bool) -> set[str]:
        trial = sandbox.run([python[0], "-c", MADE], binds=python[1], sealed=sealed)
        assert trial.stderr == b""
        return {line.partition(" ")[2] for line in trial.text.splitlines()}

    assert made(sealed=False) == {"made"}
    assert made(sealed=True) == {"EPERM"}


ENTERING = {"x86_64": {272, 308}, "aarch64": {97, 268}}  # unshare, setns
CLONE = {"x86_64": 56, "aarch64": 220}


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_without_a_namespace_around_it_makes_none_and_leaves_others_alone(machine: str) -> None:
    program = filter_program(machine, shared=True)
    assert program is not None
    found = {number: judge(program, number, ARCH[machine]) for number in range(600)}
    refused = REFUSED[machine] | LASTING[machine] | ENTERING[machine]
    assert {number for number, verdict in found.items() if verdict == REFUSE} == refused
    assert {number for number, verdict in found.items() if verdict == UNKNOWN} == {425, 426, 427, 435}  # and clone3
    for flags, verdict in ((0x11, ALLOW), (0x3D0F00, ALLOW), (0x10000011, REFUSE), (0x20000000, REFUSE)):
        assert judge(program, CLONE[machine], ARCH[machine], flags) == verdict
    assert judge(program, PRLIMIT[machine], ARCH[machine], 0) == ALLOW
    assert judge(program, PRLIMIT[machine], ARCH[machine], 77) == REFUSE


@pytest.mark.parametrize("offline", [False, True])
def test_the_sockets_of_one_that_is_offline_are_of_the_family_unix(offline: bool) -> None:
    program = filter_program("x86_64", shared=True, offline=offline)
    assert program is not None
    found = {family: judge(program, SOCKET["x86_64"], ARCH["x86_64"], family) for family in range(46)}
    allowed = {family for family, verdict in found.items() if verdict == ALLOW}
    assert allowed == ({1} if offline else set(range(46)) - {40})
