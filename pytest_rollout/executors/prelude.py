"""The limits of each process, set by a shell inside the sandbox before the command replaces it.

They hold inside the user namespace only: ``RLIMIT_NPROC`` counts its processes there, and nothing of
the host's user. A limit of the machine's that is lower stays in force.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import ceil

from pytest_rollout.limits import Resources

__all__ = ["MAX_PROCESSES", "data_bound", "limiting", "with_odd_names"]

MAX_PROCESSES = 1024  # where a task says nothing: no fork bomb makes the machine unusable
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_BLOCK, _KILO = 512, 1024
_MORE_DATA = 64 * 2**20
_CPU_GRACE = 5  # seconds from SIGXCPU to SIGKILL
# Says that the sandbox is made, waits to be let go, and becomes the agent. If we die first, it ends.
_GATE = 'echo >&0 && read -r go && exec "$@" </dev/null'
_OPEN = 'exec "$@"'


def limiting(
    resources: Resources, *, memory: bool = True, more: int | None = 0, gated: bool = False
) -> tuple[str, ...]:
    """The words that run a command within ``resources``.

    ``memory`` says to bound the data of each process at :func:`data_bound` (RLIMIT_DATA; address space is no measure:
    node and Java reserve far more than they use). ``more`` processes than the limit are let through, so that who counts
    them sees it; None sets no limit of them, for a process that shares its user with others. ``gated`` lets the command
    go only when a line comes from standard input.
    """
    parts = ["ulimit -c 0"]
    if more is not None:
        processes = (resources.processes or MAX_PROCESSES) + 1 + more  # pid 1 of the namespace is one
        parts.append(f"ulimit -u {processes} 2>/dev/null || ulimit -p {processes} 2>/dev/null")
    size = resources.file_size if resources.file_size is not None else resources.disk
    if size is not None:
        parts.append(f"ulimit -f {ceil(size / _BLOCK)}")
    if resources.open_files is not None:
        parts.append(f"ulimit -n {resources.open_files}")
    if memory and resources.memory is not None:
        parts.append(f"ulimit -d {ceil(data_bound(resources.memory) / _KILO)}")
    if resources.cpu is not None:
        seconds = ceil(resources.cpu)
        parts += [f"ulimit -S -t {seconds}", f"ulimit -H -t {seconds + _CPU_GRACE}"]
    settings = "; ".join(f"{{ {part}; }} 2>/dev/null" for part in parts)
    return ("sh", "-c", f"{settings}; {_GATE if gated else _OPEN}", "sh")


def with_odd_names(env: Mapping[str, str], argv: Sequence[str]) -> tuple[str, ...]:
    """The words of a command with the variables that a shell before it would drop: those whose names it can't use."""
    odd = [f"{name}={value}" for name, value in env.items() if not _NAME.fullmatch(name)]
    return ("env", *odd, *argv) if odd else tuple(argv)


def data_bound(memory: int) -> int:
    """The bytes of data that each process may have where only looks at it hold it to ``memory``.

    It is more, so that a process that grows beyond its limit is seen and ended by it, and does not end as it may when
    it is refused memory.
    """
    return 2 * memory + _MORE_DATA
