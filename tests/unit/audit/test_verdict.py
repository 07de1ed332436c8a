"""The verdict of an audit, from what its trials came to."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_rollout.audit.verdict import oracle_problem, verdict_of
from pytest_rollout.control import Facts
from pytest_rollout.reward import Check
from pytest_rollout.store.facts import Trial


def facts(reward: float | None = 1.0, **more: Any) -> Facts:
    return Facts(end="passed", accepted=reward == 1.0, reward=reward, **more)


def named(*values: float, weight: float = 1.0) -> tuple[Check, ...]:
    return tuple(Check(name=f"c{number}", weight=weight, value=value) for number, value in enumerate(values))


SAME = [facts(checks=named(1.0, 1.0))] * 3


@pytest.mark.parametrize(
    ("found", "broken", "ended", "problem"),
    [
        (SAME, [], "", ""),
        (SAME, ["tests/a"], "", "the oracle changes protected paths: tests/a"),
        (
            [*SAME, facts(checks=named(1.0))],
            [],
            "",
            "the oracle's checks differ between scoring 1 and scoring 4",
        ),
        (
            [*SAME, facts(checks=named(1.0, 1.0, weight=2.0))],
            [],
            "",
            "the oracle's checks differ between scoring 1 and scoring 4",
        ),
        ([facts(), facts(0.5)], [], "", "the oracle scores in turn 1, 0.5, not 1"),
        ([facts(0.5)] * 2, [], "it changed nothing", "the oracle scores 0.5, not 1; it changed nothing"),
        (
            [facts(0.5, checks=named(1.0, 0.0))],
            [],
            "",
            "the oracle scores 0.5, not 1: c1: 0.0",
        ),
        ([facts(None, message="it raised\nmore")], [], "", "the oracle scores none, not 1: it raised"),
        (
            [Facts(end="infra", message="no room")],
            [],
            "it ended by signal",
            "the oracle could not be measured: no room; it ended by signal",
        ),
    ],
)
def test_what_is_wrong_with_an_oracle(found: list[Facts], broken: list[str], ended: str, problem: str) -> None:
    assert oracle_problem(found, broken, ended) == problem


def trial(name: str, reward: float, *, good: bool, in_process: bool = False) -> Trial:
    return Trial(name=name, wanted="below the threshold", facts=facts(reward, in_process=in_process), good=good)


@pytest.mark.parametrize(
    ("oracle", "problem", "trials", "verdict", "reason", "failed"),
    [
        (SAME, "", [(trial("noop", 0, good=True), False)], "sound", "the oracle scores 1, and nothing else", False),
        (SAME, "", [(trial("noop", 1, good=False), False)], "weak", "these scored too: noop (1)", True),
        (SAME, "it varies", [(trial("noop", 1, good=False), False)], "weak", "these scored too: noop (1)", True),
        (SAME, "it varies", [(trial("noop", 0, good=True), False)], "unknown", "it varies", True),
        (None, "", [(trial("noop", 0, good=True), False)], "unknown", "the task has no oracle", False),
        (None, "", [(trial("noop", 1, good=False), False)], "weak", "these scored too: noop (1)", True),
        (
            SAME,
            "",
            [(trial("frames", 1, good=False, in_process=True), True)],
            "in-process",
            "candidate code runs in the process of a verdict; these scored: frames (1)",
            False,
        ),
        # What a process of its own rules out is not excused.
        (SAME, "", [(trial("frames", 1, good=False), True)], "weak", "these scored too: frames (1)", True),
        (
            SAME,
            "",
            [(trial("frames", 1, good=False, in_process=True), False)],
            "weak",
            "these scored too: frames (1)",
            True,
        ),
    ],
)
def test_verdicts(
    oracle: list[Facts] | None, problem: str, trials: list[tuple[Trial, bool]], verdict: str, reason: str, failed: bool
) -> None:
    found = verdict_of(oracle, problem, trials)
    assert (found[0], found[2]) == (verdict, failed)
    assert found[1].startswith(reason)
