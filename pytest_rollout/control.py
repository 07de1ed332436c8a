"""Control runs: what a task's checks do on a bundle that no candidate made.

The same body is run on the bundle of the oracle (a right solution) and of the no-op (nothing done).
Against that, a body that crashes on a candidate's bundle is judged, checks that a candidate made a
test leave out are noticed, and checks that pay for nothing are found. Pure values and functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from pytest_rollout.outcome import SLACK, Blame, Body
from pytest_rollout.reward import Check

__all__ = ["Control", "Facts", "blame", "hold", "unfit"]


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What a body came to on one bundle. ``accepted`` says that the rollout passed.

    ``where`` names the type and the place of what was raised; ``in_process`` that candidate code ran in the
    process of a verdict, ``limited`` that a limit had a part in it, and ``seeded`` that the body looked at what tells
    the samples of a task apart.
    """

    end: Literal["passed", "assertion", "error", "skipped", "infra"]
    accepted: bool = False
    reward: float | None = None
    message: str = ""
    where: str = ""
    kind: str | None = None
    checks: tuple[Check, ...] = ()
    direct: bool = False
    in_process: bool = False
    limited: bool = False
    seeded: bool = False

    @property
    def telling(self) -> bool:
        """Whether it shows anything of the checks: another time, a machine may be quick enough for a limit."""
        return self.end != "infra" and not self.limited


class Control(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of one task under one evaluator revision; None where it was not run, or not measured."""

    oracle: Facts | None = None
    noop: Facts | None = None

    @property
    def weights(self) -> Mapping[str, float] | None:
        """The checks that a right solution records, with their weights; None where that is not known."""
        oracle = self.oracle
        if oracle is None or not oracle.telling or not oracle.accepted or oracle.direct or not oracle.checks:
            return None
        return {check.name: check.weight for check in oracle.checks}

    @property
    def seeded(self) -> bool:
        """Whether it holds for one seed of the task."""
        return any(facts is not None and facts.seeded for facts in (self.oracle, self.noop))

    @property
    def lasting(self) -> bool:
        """Whether it may be kept: not where an oracle failed, which is to be mended, or met a limit.

        The no-op's may have met one: what there is to mend may be a loop.
        """
        oracle, noop = self.oracle, self.noop
        return noop is not None and noop.end != "infra" and (oracle is None or (oracle.telling and oracle.accepted))


def blame(body: Body, control: Control) -> Blame:
    """Whose fault a body is that raised or skipped.

    On the oracle's bundle any crash shows that the checks are broken. On the no-op's, only the same
    one does, and not for certain: a candidate can leave behind what the no-op leaves, nothing.
    """
    if control.oracle is not None and control.oracle.telling:
        return "evaluator" if control.oracle.end in ("error", "skipped") else "candidate"
    if body.asked:  # a suite that was never tried on right work may well be wrong about it
        return "unknown"
    if control.noop is not None and control.noop.telling:
        same = control.noop.end == body.end and control.noop.where == body.where
        return "unknown" if same else "candidate"
    return "unknown"


def unfit(control: Control, reward: float) -> str:
    """Why a failure with this reward measures nothing, or nothing: a right solution fails too, and scores no more."""
    oracle = control.oracle
    if oracle is None or not oracle.telling or oracle.accepted or reward < (oracle.reward or 0.0) - SLACK:
        return ""
    said = oracle.message.splitlines()[0] if oracle.message else oracle.end
    return f"the oracle does not pass these checks either: {said}"


def hold(checks: Sequence[Check], weights: Mapping[str, float]) -> tuple[Check, ...]:
    """The checks as a right solution fixes them: one that was not recorded is 0, a further one has no weight."""
    found = {check.name: check for check in checks}
    held = []
    for name, weight in weights.items():
        check = found.pop(name, None)
        if check is None:
            check = Check(name=name, weight=weight, value=0.0, message="not recorded: the test never came to it")
        held.append(msgspec.structs.replace(check, weight=weight))
    note = "not counted: the oracle's rollout records no check of this name"
    return (*held, *(msgspec.structs.replace(check, weight=0.0, message=note) for check in found.values()))
