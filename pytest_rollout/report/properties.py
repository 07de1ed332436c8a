"""What a testcase of JUnit carries of a rollout: (name, value) pairs of text, names ``rollout.*``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pytest_rollout.bundle import BundleRecord, Pins
from pytest_rollout.plain import xml_text
from pytest_rollout.reward import Check, Reward
from pytest_rollout.store.records import Result

__all__ = ["ROLLOUT_ID", "properties_of", "recorded_properties"]

ROLLOUT_ID = "rollout.rollout_id"


def properties_of(
    result: Result, bundle: BundleRecord | None, reward: Reward, *, run: str, samples: int | None
) -> list[tuple[str, str]]:
    """The properties; a figure that is not known is left out, so that nobody reads it as 0."""
    pins = bundle.pins if bundle is not None else None
    return _pairs(result, pins, reward.all_checks, reward.metrics, run, samples)


def recorded_properties(result: Result, checks: Iterable[Check], *, run: str) -> list[tuple[str, str]]:
    """The same, out of what was written of a rollout: its line of results, and the checks of its ``score.json``."""
    return _pairs(result, result.pins, checks, result.metrics, run, result.samples)


def _pairs(
    result: Result,
    pins: Pins | None,
    checks: Iterable[Check],
    metrics: Mapping[str, float],
    run: str,
    samples: int | None,
) -> list[tuple[str, str]]:
    values: dict[str, object] = {
        ROLLOUT_ID: result.rollout,
        "rollout.run_id": run,
        "rollout.task": result.task,
        "rollout.sample": result.sample,
        "rollout.samples": samples,
        "rollout.attempts": len(result.earlier) + 1,
        "rollout.earlier": ", ".join(each.kind for each in result.earlier) or None,
        "rollout.agent": result.agent,
        "rollout.tags": ", ".join(result.tags) or None,
        "rollout.split": result.split,
        "rollout.outcome": result.outcome,
        "rollout.kind": result.kind,
        "rollout.forgeable": "true" if result.forgeable else None,
        "rollout.reward": result.reward,
        "rollout.checks_reward": result.checks_reward,
        "rollout.termination": result.termination,
        "rollout.trusted": None if result.trusted is None else str(result.trusted).lower(),
        "rollout.waited": result.waited,
        "rollout.seed": pins.seed if pins is not None else None,
        "rollout.environment_revision": pins.environment_revision if pins is not None else None,
        "rollout.evaluator_revision": result.evaluator_revision,
        "rollout.in_process": "true" if result.in_process else None,
        "rollout.audit": result.audit,
        "rollout.folder": result.folder,
        "rollout.source": result.source.rollout if result.source is not None else None,
        **{f"rollout.check.{check.name}": check.value for check in checks},
        **{f"rollout.metric.{name}": value for name, value in metrics.items()},
    }
    return [(xml_text(name), _text(value)) for name, value in values.items() if value is not None]


def _text(value: object) -> str:
    return f"{value:.10g}" if isinstance(value, float) else xml_text(str(value))
