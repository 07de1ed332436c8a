"""A small filter of system calls, for what namespaces leave open.

The agent shares its uid with pid 1 of its namespace, and the session keyring and vsock with the
host. So it may not trace or read other processes, take their descriptors, use keyrings, make vsock
sockets, or reach any of that through io_uring or another architecture's calls. Tracing among the
agent's own processes goes with it: no debugger works in a stage. A sealed command leaves nothing
that stays when its processes are gone either: no System V object, message queue or closed connection,
no limit, priority or processor of another process's, no hint on a file.

The program is classic BPF as in seccomp(2); the numbers are those of the kernel's tables.
"""

from __future__ import annotations

import errno
import platform
import struct

import msgspec

__all__ = ["filter_program"]

_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_LOAD, _EQUAL, _AT_LEAST, _ANY_OF, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCH, _FIRST_ARGUMENT, _SECOND_ARGUMENT = 0, 4, 16, 24
_SET_HINT, _SET_FILE_HINT = 1036, 1038  # F_SET_RW_HINT, F_SET_FILE_RW_HINT
_AF_UNIX, _AF_VSOCK = 1, 40
_X32 = 0x40000000


class _Table(msgspec.Struct, frozen=True):
    """The audit number of an architecture, and its numbers of the calls."""

    arch: int
    refused: tuple[int, ...]
    lasting: tuple[int, ...]
    prlimit: int
    fcntl: int
    socket: int
    entering: tuple[int, ...]
    clone: int


# refused: ptrace, process_vm_readv, process_vm_writev, kcmp, add_key, request_key, keyctl, userfaultfd, pidfd_getfd
# lasting: shmget, semget, msgget, mq_open; setpriority, sched_setparam, sched_setscheduler, sched_setaffinity,
#          sched_setattr, ioprio_set
# entering: unshare, setns
_TABLES = {
    "x86_64": _Table(
        arch=0xC000003E,
        refused=(101, 310, 311, 312, 248, 249, 250, 323, 438),
        lasting=(29, 64, 68, 240, 141, 142, 144, 203, 314, 251),
        prlimit=302,
        fcntl=72,
        socket=41,
        entering=(272, 308),
        clone=56,
    ),
    "aarch64": _Table(
        arch=0xC00000B7,
        refused=(117, 270, 271, 272, 217, 218, 219, 282, 438),
        lasting=(194, 190, 186, 180, 140, 118, 119, 122, 274, 30),
        prlimit=261,
        fcntl=25,
        socket=198,
        entering=(97, 268),
        clone=220,
    ),
}
_IO_URING, _CLONE3 = (425, 426, 427), 435  # clone3 has its flags in memory, where no filter sees them
_NAMESPACES = 0x7E020000  # the flags of clone(2) that make one


def filter_program(
    machine: str | None = None, *, sealed: bool = False, shared: bool = False, offline: bool = False
) -> bytes | None:
    """The filter for this machine (as ``uname -m`` names it), or None for one without a table here.

    ``shared``: no namespace is around the command, so it makes none, nor what would lie in one, and leaves
    other processes alone. ``offline``: its sockets are of the family unix only, as with ``sealed``.
    """
    table = _TABLES.get(machine or platform.machine())
    if table is None:
        return None
    refuse, unknown, allow = _ERRNO | errno.EPERM, _ERRNO | errno.ENOSYS, _ALLOW
    lines = [(_LOAD, 0, 0, _ARCH), (_EQUAL, 1, 0, table.arch), (_RETURN, 0, 0, refuse), (_LOAD, 0, 0, _NUMBER)]
    if table.arch == _TABLES["x86_64"].arch:
        lines += [(_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, unknown)]
    refused = (*table.refused, *(table.lasting if sealed or shared else ()), *(table.entering if shared else ()))
    for number in refused:
        lines += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, refuse)]
    for number in (*_IO_URING, *((_CLONE3,) if shared else ())):
        lines += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, unknown)]
    if shared:
        lines += [(_EQUAL, 0, 4, table.clone), (_LOAD, 0, 0, _FIRST_ARGUMENT)]
        lines += [(_ANY_OF, 0, 1, _NAMESPACES), (_RETURN, 0, 0, refuse), (_RETURN, 0, 0, allow)]
    if sealed or shared:  # of its own process only
        lines += [(_EQUAL, 0, 4, table.prlimit), (_LOAD, 0, 0, _FIRST_ARGUMENT)]
        lines += [(_EQUAL, 0, 1, 0), (_RETURN, 0, 0, allow), (_RETURN, 0, 0, refuse)]
        lines += [(_EQUAL, 0, 5, table.fcntl), (_LOAD, 0, 0, _SECOND_ARGUMENT), (_EQUAL, 1, 0, _SET_HINT)]
        lines += [(_EQUAL, 0, 1, _SET_FILE_HINT), (_RETURN, 0, 0, refuse), (_RETURN, 0, 0, allow)]
    lines += [(_EQUAL, 0, 3, table.socket), (_LOAD, 0, 0, _FIRST_ARGUMENT)]
    lines += [(_EQUAL, 1, 0, _AF_UNIX) if sealed or offline else (_EQUAL, 0, 1, _AF_VSOCK)]
    lines += [(_RETURN, 0, 0, refuse), (_RETURN, 0, 0, allow)]
    return b"".join(struct.pack("HBBI", *line) for line in lines)
