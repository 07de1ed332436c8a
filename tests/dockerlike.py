"""Run a command as a container with Docker's defaults would: ``python dockerlike.py COMMAND …``.

As root it leaves Docker's default capabilities. The filter refuses what Docker's default profile does of
what isolation needs: new namespaces and mounts (EPERM), and clone3 (ENOSYS).
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys

_LOAD, _EQUAL, _ANY_OF, _RETURN = 0x20, 0x15, 0x45, 0x06
_ALLOW, _REFUSE, _UNKNOWN = 0x7FFF0000, 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS
_NAMESPACES = 0x7E020000
# unshare, setns, mount, umount2, pivot_root, open_tree, move_mount, fsopen, fsconfig, fsmount, fspick, mount_setattr
_NEW = (428, 429, 430, 431, 432, 433, 442)
_REFUSED = {"x86_64": (272, 308, 165, 166, 155, *_NEW), "aarch64": (97, 268, 40, 39, 41, *_NEW)}
_CLONE, _CLONE3 = {"x86_64": 56, "aarch64": 220}, 435
_CAPABILITIES = (
    "chown dac_override fsetid fowner mknod net_raw setgid setuid setfcap setpcap net_bind_service sys_chroot kill "
    "audit_write"
)


def refuse() -> None:
    """Put the filter on this process and all that come of it."""
    machine = platform.machine()
    lines = [(_LOAD, 0, 0, 0)]
    for number in _REFUSED[machine]:
        lines += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _REFUSE)]
    lines += [(_EQUAL, 0, 1, _CLONE3), (_RETURN, 0, 0, _UNKNOWN)]
    lines += [(_EQUAL, 0, 3, _CLONE[machine]), (_LOAD, 0, 0, 16), (_ANY_OF, 0, 1, _NAMESPACES)]
    lines += [(_RETURN, 0, 0, _REFUSE), (_RETURN, 0, 0, _ALLOW)]
    program = b"".join(struct.pack("HBBI", *line) for line in lines)
    text = ctypes.create_string_buffer(program, len(program))
    head = struct.pack("HxxxxxxQ", len(lines), ctypes.addressof(text))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    zero = ctypes.c_ulong(0)
    if os.geteuid() != 0:
        assert prctl(38, ctypes.c_ulong(1), zero, zero, zero) == 0  # no new privileges: the filter needs it
    assert prctl(22, ctypes.c_ulong(2), ctypes.c_char_p(head), zero, zero) == 0, os.strerror(ctypes.get_errno())


if __name__ == "__main__":
    refuse()
    words = sys.argv[1:]
    if os.geteuid() == 0:
        kept = ",".join(f"+{name}" for name in _CAPABILITIES.split())
        words = ["setpriv", f"--bounding-set=-all,{kept}", "--inh-caps=-all", "--", *words]
    os.execvp(words[0], words)
