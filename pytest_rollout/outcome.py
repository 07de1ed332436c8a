"""Outcomes: passed, failed (the model) or infra (the harness), decided by one pure function.

Infrastructure needs evidence from outside the candidate's reach. What the candidate could have
brought about itself and still is called infrastructure is marked *forgeable*, so that every summary
can also show what the mean would be with it as 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal, get_args

import msgspec

from pytest_rollout.bundle import Termination

__all__ = ["INFRA_KINDS", "SLACK", "Blame", "Body", "Infra", "Means", "Score", "Verdict", "classify", "lost", "means"]

InfraKind = Literal[
    "stage",
    "isolation",
    "spawn",
    "agent",
    "provider",
    "authentication",
    "recording",
    "host",
    "evaluator",
    "vacuous",
    "fixture",
    "worker",
    "cancelled",
]
INFRA_KINDS: tuple[str, ...] = get_args(InfraKind)
Outcome = Literal["passed", "failed", "infra"]
Blame = Literal["unknown", "candidate", "evaluator"]
SLACK = 1e-9


class Infra(msgspec.Struct, frozen=True, kw_only=True):
    """An infrastructure failure that was decided before the checks."""

    kind: InfraKind
    message: str
    forgeable: bool = False


class Body(msgspec.Struct, frozen=True, kw_only=True):
    """How the body of the test ended.

    ``assertion`` is an AssertionError or ``pytest.fail``; ``error`` anything else that was raised;
    ``skipped`` a skip or an imperative xfail after the agent ran. ``looked`` says that the bundle
    was read, ``recorded`` that the reward was. ``where`` names the type and the place of what was raised,
    ``asked`` that an evaluation was asked for what can't be done, and ``blame`` whose fault an error or a skip is, as
    far as control runs have shown.
    """

    end: Literal["passed", "assertion", "error", "skipped"]
    message: str = ""
    looked: bool = True
    recorded: bool = False
    where: str = ""
    asked: bool = False
    blame: Blame = "unknown"


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """What the checks say: their weighted mean, or ``None`` where there were none."""

    checks_reward: float | None = None
    threshold: float = 1.0
    score_on: Literal["any", "completed"] = "any"


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The judgement of one rollout. ``reward`` is ``None`` exactly when nothing was measured.

    ``type`` is what JUnit shows as the type of the failure or error; empty for a pass.
    """

    outcome: Outcome
    kind: InfraKind | None = None
    forgeable: bool = False
    reward: float | None = None
    checks_reward: float | None = None
    type: str = ""
    message: str = ""


def lost(infra: Infra | None) -> Verdict:
    """The judgement of an attempt that infrastructure ended."""
    return Verdict(outcome="infra", kind=infra.kind if infra is not None else None)


def classify(*, infra: Infra | None, termination: Termination | None, body: Body | None, score: Score) -> Verdict:
    """Judge one rollout; the table is in ``docs/explanation/outcomes.md``."""
    found = infra or _infra_of(body)
    if found is not None:
        return Verdict(
            outcome="infra",
            kind=found.kind,
            forgeable=found.forgeable,
            checks_reward=score.checks_reward,
            type=f"infra.{found.kind}",
            message=found.message,
        )
    assert body is not None  # without evidence there is no body, and then there is an infra
    ended_well = termination == "completed"
    if body.end in ("error", "skipped"):
        return Verdict(
            outcome="failed",
            reward=0.0,
            checks_reward=score.checks_reward,
            type="check_crashed",
            message=f"the test {_DID[body.end]} {body.message}, which it does not on a bundle of the evaluator's own",
        )
    if body.end == "assertion":
        return Verdict(
            outcome="failed",
            reward=0.0,
            checks_reward=score.checks_reward,
            type="assertion" if ended_well else f"termination.{termination}",
            message=body.message,
        )
    checks_reward = 1.0 if score.checks_reward is None else score.checks_reward
    reward = checks_reward if ended_well or score.score_on == "any" else 0.0
    if reward >= score.threshold - SLACK:
        return Verdict(outcome="passed", reward=reward, checks_reward=checks_reward)
    return Verdict(
        outcome="failed",
        reward=reward,
        checks_reward=checks_reward,
        type="reward" if ended_well else f"termination.{termination}",
        message=_below(reward, score.threshold) + _unless(reward, checks_reward, termination),
    )


def _below(reward: float, threshold: float) -> str:
    digits = 4 if f"{reward:.4g}" != f"{threshold:.4g}" else 12
    return f"reward {reward:.{digits}g} is below the threshold {threshold:.{digits}g}"


def _unless(reward: float, checks_reward: float, termination: Termination | None) -> str:
    """Why the reward is not what the checks give."""
    if reward == checks_reward:
        return ""
    return f": the checks give {checks_reward:.4g}, but the agent ended by {termination} and score_on is 'completed'"


def _infra_of(body: Body | None) -> Infra | None:
    """The body itself may show that the evaluator is broken."""
    if body is None:
        return Infra(kind="fixture", message="the test ended before there was evidence")
    if body.end in ("error", "skipped"):
        if body.blame == "candidate":
            return None
        message = f"the test {_DID[body.end]} {body.message}"
        return Infra(kind="evaluator", message=message, forgeable=body.blame == "unknown")
    if body.end == "passed" and not body.looked and not body.recorded:
        return Infra(kind="vacuous", message="the test looked at nothing of the bundle and recorded no check")
    return None


_DID = {"error": "raised", "skipped": "skipped after the agent ran:"}


class Means(msgspec.Struct, frozen=True, kw_only=True):
    """The mean reward, of the means of tasks, and with forgeable infra as 0; with counts of rollouts."""

    mean: float | None
    measured: int
    forgeable_mean: float | None
    forgeable_measured: int


def means(verdicts: Iterable[tuple[str, float | None, bool]]) -> Means:
    """Means of (task, reward, forgeable); a reward of ``None`` is unmeasured, never 0.

    Each task that has a reward weighs the same, however many of its samples were measured. A reward that is forgeable
    was measured after an attempt that the candidate may have ended itself.
    """
    rewards: dict[str, list[float]] = {}
    forged: dict[str, list[float]] = {}
    for task, reward, forgeable in verdicts:
        if reward is not None:
            rewards.setdefault(task, []).append(reward)
        if reward is not None or forgeable:
            forged.setdefault(task, []).append(0.0 if reward is None or forgeable else reward)
    return Means(
        mean=_mean_of(rewards.values()),
        measured=sum(map(len, rewards.values())),
        forgeable_mean=_mean_of(forged.values()),
        forgeable_measured=sum(map(len, forged.values())),
    )


def _mean_of(tasks: Iterable[Sequence[float]]) -> float | None:
    """The mean of the means of tasks, each of which has something; None of no task."""
    found = [math.fsum(task) / len(task) for task in tasks]
    return math.fsum(found) / len(found) if found else None
