"""From trials to a verdict on a task's checks: ``sound``, ``in-process``, ``weak`` or ``unknown``."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_rollout.bundle import AuditVerdict
from pytest_rollout.control import Facts
from pytest_rollout.outcome import SLACK
from pytest_rollout.store.facts import Trial

__all__ = ["oracle_problem", "verdict_of"]


def oracle_problem(facts: Sequence[Facts], broken: Sequence[str], ended: str = "") -> str:
    """What is wrong with an oracle that was scored these times, or nothing.

    ``broken`` are protected paths that it changed, ``ended`` says how it ended where that was not well.
    """
    if broken:
        return f"the oracle changes protected paths: {', '.join(broken[:5])}"
    rewards = ["none" if found.reward is None else f"{found.reward:.4g}" for found in facts]
    first = _values(facts[0]) if facts else []
    for number, found in enumerate(facts, 1):
        if found.end == "infra":
            return _with(f"the oracle could not be measured: {found.message}", ended)
        if found.reward is None or found.reward < 1 - SLACK:
            scores = rewards[0] if len(set(rewards)) == 1 else f"in turn {', '.join(rewards)}"
            return _with(f"the oracle scores {scores}, not 1{_why(found)}", ended)
        if _values(found) != first:
            return f"the oracle's checks differ between scoring 1 and scoring {number}"
    return ""


def _why(found: Facts) -> str:
    """The first reason that a rollout gives for being below 1."""
    failed = next((check for check in found.checks if check.value < 1), None)
    said = found.message or (f"{failed.name}: {failed.message or failed.value}" if failed is not None else "")
    return f": {said.splitlines()[0]}" if said else ""


def _with(problem: str, ended: str) -> str:
    return f"{problem}; {ended}" if ended else problem


def _values(facts: Facts) -> list[tuple[str, float, float]]:
    return [(check.name, check.weight, check.value) for check in facts.checks]


def verdict_of(
    oracle: Sequence[Facts] | None, problem: str, trials: Sequence[tuple[Trial, bool]]
) -> tuple[AuditVerdict, str, bool]:
    """The verdict, the reason for it, and whether it fails the audit.

    ``oracle`` is None where the task has none; of each trial the flag says that a verdict in the candidate's
    process can't rule it out.
    """
    in_process = any(facts.in_process for facts in oracle or ()) or any(t.facts.in_process for t, _ in trials)
    scored = [(trial, excused and trial.facts.in_process) for trial, excused in trials if not trial.good]
    weak = [trial for trial, excused in scored if not excused]
    if weak:
        return "weak", f"these scored too: {_listed(weak)}", True
    if problem:
        return "unknown", problem, True
    if oracle is None:
        return "unknown", "the task has no oracle, so it is not known that right work scores 1", False
    if in_process:
        known = f"; these scored: {_listed([trial for trial, _ in scored])}" if scored else ""
        return "in-process", f"candidate code runs in the process of a verdict{known}", False
    return "sound", "the oracle scores 1, and nothing else that was tried reaches the threshold", False


def _listed(trials: Sequence[Trial]) -> str:
    named = [f"{trial.name} ({trial.facts.reward:.4g})" for trial in trials if trial.facts.reward is not None]
    return ", ".join(named[:8]) + (f" and {len(named) - 8} more" if len(named) > 8 else "")
