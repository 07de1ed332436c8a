"""The rungs of isolation, and what each of them enforces: data that the documents are compared with.

A rung is asked for guarantees. Four are asked for by every task, ``network`` by a task without
network. ``sight`` is asked for by none: a rung that lacks it says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

__all__ = ["ALWAYS", "GUARANTEES", "RUNGS", "Level", "Rung", "enforced", "unmet"]

Level = Literal["yes", "partly", "no"]

GUARANTEES = {
    "files": "reads only its stage, the system, and what its agent's `paths` name",
    "writes": "changes only its stage and its private folders",
    "network": 'with `network="none"`: reaches nothing outside',
    "tree": "no process outlives the command",
    "reach": "signals, traces and reads no other process",
    "sight": "sees no other process",
}
ALWAYS = ("files", "writes", "tree", "reach")
_SIGNAL_SCOPE = 6  # the first version of Landlock's interface that has it


class Rung(msgspec.Struct, frozen=True, kw_only=True):
    """One rung: how the tree of a stage is made, and what confines a command in it."""

    number: int
    tree: str
    confined: str


RUNGS = (
    Rung(number=1, tree="an overlay by bubblewrap", confined="bubblewrap 0.11 or newer"),
    Rung(number=2, tree="an overlay by mount(8)", confined="bubblewrap 0.8 or newer"),
    Rung(number=3, tree="a copy", confined="bubblewrap 0.8 or newer"),
    Rung(number=4, tree="a copy", confined="Landlock, a filter of system calls, a reaper"),
    Rung(number=5, tree="a copy", confined="nothing"),
)


def enforced(rung: int, *, own_uid: bool = False, landlock: int = 0) -> dict[str, Level]:
    """What a rung enforces. ``own_uid``: each stage has a uid of its own; ``landlock``: the kernel's version of it."""
    if rung <= 3:
        return dict.fromkeys(GUARANTEES, "yes")
    if rung >= 5:
        return dict.fromkeys(GUARANTEES, "no")
    apart: Level = "yes" if own_uid or landlock >= _SIGNAL_SCOPE else "no"
    return {
        "files": "yes",
        # Landlock knows no modes, times and attributes: a file's owner changes them wherever it lies.
        "writes": "yes" if own_uid else "partly",
        # No socket but of the family unix, and those that lie in the file system can be reached.
        "network": "partly",
        "tree": apart,
        "reach": apart,
        "sight": "no",
    }


def unmet(unenforced: Sequence[str], network: str) -> tuple[str, ...]:
    """The guarantees that a task asks for and that are not enforced, of those that are not."""
    asked = (*ALWAYS, *(("network",) if network == "none" else ()))
    return tuple(name for name in asked if name in unenforced)
