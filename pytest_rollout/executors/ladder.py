"""The ladder: take the best rung of isolation that holds here, and say why the better ones do not.

Each rung is made and tried with a canary (:mod:`.probe`), the best first. The reasons are kept, for
the one who has to repair the machine. A machine that is full ends the climb: no rung is to blame.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import msgspec

from pytest_rollout.errors import HostError, InfraError, IsolationError
from pytest_rollout.executors.bwrap import WITH_OVERLAY, WITHOUT_OVERLAY, find_bwrap
from pytest_rollout.executors.landlock import LandlockExecutor
from pytest_rollout.executors.local import LocalExecutor
from pytest_rollout.executors.probe import probe
from pytest_rollout.executors.protocol import Executor
from pytest_rollout.executors.sandbox import SandboxExecutor
from pytest_rollout.stage.root import StageRoot

__all__ = ["ISOLATED", "NONE", "Climb", "Rejected", "climb", "make", "none_holds"]

ISOLATED = (1, 2, 3, 4)
NONE = 5


class Rejected(msgspec.Struct, frozen=True, kw_only=True):
    """A rung that does not hold here: why, and what to do about it."""

    rung: int
    kind: str
    message: str
    hint: str = ""


class Climb(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a climb: the rung that holds (None: not one of those asked for), and those that do not."""

    rung: int | None
    rejected: tuple[Rejected, ...] = ()


def make(root: StageRoot, rung: int) -> Executor:
    """The executor of a rung, not tried yet; raises IsolationError where its programs are not there."""
    if rung == NONE:
        return LocalExecutor(root)
    if rung == 4:
        return LandlockExecutor(root)
    dropped = root.owner.uid != os.geteuid()
    needed = WITH_OVERLAY if rung == 1 else WITHOUT_OVERLAY
    bwrap = find_bwrap(root.path / "bin", dropped=dropped, needed=needed)
    return SandboxExecutor(root, bwrap, 1 if rung == 1 else 2 if rung == 2 else 3)


def _tried(root: StageRoot, rung: int) -> Executor:
    executor = make(root, rung)
    if rung != NONE:
        probe(executor, root)
    return executor


def climb(
    root: StageRoot, rungs: Sequence[int], tried: Callable[[StageRoot, int], Executor] = _tried
) -> tuple[Executor | None, Climb]:
    """Try ``rungs`` in their order until one holds. Raises HostError where the machine has no room to try."""
    rejected: list[Rejected] = []
    for rung in rungs:
        try:
            executor = tried(root, rung)
        except HostError:
            raise
        except InfraError as error:
            rejected.append(Rejected(rung=rung, kind=error.kind, message=error.message, hint=error.hint))
            continue
        return executor, Climb(rung=rung, rejected=tuple(rejected))
    return None, Climb(rung=None, rejected=tuple(rejected))


def none_holds(rejected: Sequence[Rejected]) -> IsolationError:
    """The error where no rung holds: the best one's reason, then those of the others, then the best one's remedy."""
    first, *others = rejected
    said = {first.message}
    lines = []
    for each in others:
        if each.message not in said:
            said.add(each.message)
            lines.append(f"Rung {each.rung}: {each.message}")
    return IsolationError(first.message, hint="\n".join([*lines, first.hint]).strip())
