"""From a verdict to the records that are written of it: ``score.json`` and a line of results."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping

from pytest_rollout.bundle import BundleRecord
from pytest_rollout.outcome import Verdict
from pytest_rollout.plain import clean_text
from pytest_rollout.reward import Reward
from pytest_rollout.store.journal import utc_now
from pytest_rollout.store.records import Earlier, Planned, Result, ScoreRecord
from pytest_rollout.task import Task

__all__ = ["lost_result", "news", "result_of", "score_of", "this_process"]

_MAX_MESSAGE = 4000


def this_process() -> dict[str, str]:
    """What ``run.json`` says of the process that makes a run."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "executable": clean_text(sys.executable),
        "user": "root" if os.geteuid() == 0 else "ordinary",
    }


def score_of(
    task: Task,
    *,
    rollout: str,
    sample: int,
    verdict: Verdict,
    bundle: BundleRecord | None,
    reward: Reward,
    attempt: int = 1,
    in_process: bool = False,
) -> ScoreRecord:
    """What ``score.json`` says of an attempt."""
    return ScoreRecord(
        task=task.id,
        rollout=rollout,
        sample=sample,
        attempt=attempt,
        outcome=verdict.outcome,
        kind=verdict.kind,
        forgeable=verdict.forgeable,
        reward=verdict.reward,
        checks_reward=verdict.checks_reward,
        checks=reward.all_checks,
        metrics=reward.metrics,
        threshold=task.threshold,
        termination=bundle.termination if bundle is not None else None,
        message=clean_text(verdict.message),
        bundle="bundle.json" if bundle is not None else None,
        evaluator_revision=bundle.pins.evaluator_revision if bundle is not None else None,
        in_process=in_process,
        audit=bundle.audit if bundle is not None else None,
    )


def result_of(
    task: Task,
    *,
    rollout: str,
    sample: int,
    node: str,
    agent: str,
    verdict: Verdict,
    bundle: BundleRecord | None = None,
    folder: str | None = None,
    attempt: int = 1,
    earlier: tuple[Earlier, ...] = (),
    in_process: bool = False,
    metrics: Mapping[str, float] | None = None,
    xfail: str | None = None,
    warnings: tuple[str, ...] = (),
) -> Result:
    """The line of results of a judged rollout; ``folder`` is relative to the run's."""
    return Result(
        rollout=rollout,
        task=task.id,
        sample=sample,
        attempt=attempt,
        node=clean_text(node),
        agent=clean_text(agent),
        outcome=verdict.outcome,
        kind=verdict.kind,
        forgeable=verdict.forgeable,
        reward=verdict.reward,
        checks_reward=verdict.checks_reward,
        termination=bundle.termination if bundle is not None else None,
        type=verdict.type,
        message=clean_text(verdict.message)[:_MAX_MESSAGE],
        trusted=bundle.trusted if bundle is not None else None,
        duration=bundle.times.duration if bundle is not None else None,
        waited=bundle.times.waited if bundle is not None else None,
        folder=folder,
        earlier=earlier,
        tags=task.tags,
        split=task.split,
        samples=task.samples,
        pins=bundle.pins if bundle is not None else None,
        usage=bundle.usage if bundle is not None else None,
        truncated=bundle.truncated if bundle is not None else None,
        rung=bundle.rung if bundle is not None else None,
        metrics=dict(metrics or {}),
        evaluator_revision=bundle.pins.evaluator_revision if bundle is not None else None,
        in_process=in_process,
        audit=bundle.audit if bundle is not None else None,
        xfail=None if xfail is None else clean_text(xfail)[:_MAX_MESSAGE],
        time=utc_now(),
        warnings=warnings,
    )


def news(bundle: BundleRecord | None, told: set[str]) -> tuple[str, ...]:
    """The warnings of a bundle that were not told yet; they are from now on."""
    found = tuple(text for text in (bundle.warnings if bundle is not None else ()) if text not in told)
    told.update(found)
    return found


def lost_result(
    planned: Planned,
    message: str,
    *,
    forgeable: bool = False,
    attempt: int = 1,
    earlier: tuple[Earlier, ...] = (),
    folder: str | None = None,
) -> Result:
    """The result of a rollout that nobody could judge, because its worker died: infra ``worker``."""
    return Result(
        rollout=planned.rollout,
        task=planned.task,
        sample=planned.sample,
        attempt=attempt,
        node=planned.node,
        agent=planned.agent,
        tags=planned.tags,
        split=planned.split,
        folder=folder,
        earlier=earlier,
        outcome="infra",
        kind="worker",
        forgeable=forgeable,
        type="infra.worker",
        message=clean_text(message)[:_MAX_MESSAGE],
        time=utc_now(),
    )
