"""What control runs say of a crash, of checks that were left out, and of a failure."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_rollout.control import Control, Facts, blame, hold, unfit
from pytest_rollout.outcome import Blame, Body
from pytest_rollout.reward import Check

CRASH = Body(end="error", message="KeyError", where="KeyError test_x.py:3")
ASKED = Body(end="error", message="no", where="EvaluatorError test_x.py:3", asked=True)


def facts(end: Any, where: str = "", **more: Any) -> Facts:
    return Facts(end=end, where=where, **more)


SAME = facts("error", CRASH.where)


@pytest.mark.parametrize(
    ("body", "control", "whose"),
    [
        (CRASH, Control(), "unknown"),
        (CRASH, Control(oracle=facts("error", "elsewhere")), "evaluator"),
        (CRASH, Control(oracle=facts("skipped")), "evaluator"),
        (CRASH, Control(oracle=facts("passed", accepted=True), noop=SAME), "candidate"),
        (CRASH, Control(oracle=facts("assertion")), "candidate"),
        (CRASH, Control(noop=SAME), "unknown"),
        (CRASH, Control(noop=facts("error", "KeyError test_x.py:4")), "candidate"),
        (CRASH, Control(noop=facts("passed")), "candidate"),
        (CRASH, Control(noop=facts("infra")), "unknown"),
        # What a limit cut short shows nothing, of either.
        (CRASH, Control(oracle=facts("error", limited=True), noop=facts("passed")), "candidate"),
        (CRASH, Control(noop=facts("passed", limited=True)), "unknown"),
        # What a test asked wrongly, only the oracle can say.
        (ASKED, Control(noop=facts("passed")), "unknown"),
        (ASKED, Control(oracle=facts("passed")), "candidate"),
    ],
)
def test_whose_a_crash_is(body: Body, control: Control, whose: Blame) -> None:
    assert blame(body, control) == whose


RIGHT = (Check(name="a", weight=3.0, value=1.0), Check(name="b", weight=1.0, value=1.0))


@pytest.mark.parametrize(
    ("oracle", "known"),
    [
        (None, False),
        (facts("passed", accepted=True, checks=RIGHT), True),
        (facts("passed", accepted=True, checks=RIGHT, limited=True), False),
        (facts("passed", accepted=True, checks=RIGHT, direct=True), False),
        (facts("passed", accepted=True), False),
        (facts("passed", checks=RIGHT), False),
        (facts("infra", accepted=True, checks=RIGHT), False),
    ],
)
def test_when_a_right_solution_fixes_the_checks(oracle: Facts | None, known: bool) -> None:
    assert Control(oracle=oracle).weights == ({"a": 3.0, "b": 1.0} if known else None)


def test_checks_are_held_to_those_of_a_right_solution() -> None:
    found = hold(
        [Check(name="b", weight=5.0, value=0.5), Check(name="mine", weight=9.0, value=1.0)], {"a": 3.0, "b": 1.0}
    )
    assert [(check.name, check.weight, check.value) for check in found] == [
        ("a", 3.0, 0.0),
        ("b", 1.0, 0.5),
        ("mine", 0.0, 1.0),
    ]
    assert found[0].message == "not recorded: the test never came to it"


@pytest.mark.parametrize(
    ("oracle", "reward", "why"),
    [
        (facts("assertion", reward=0.5, message="b is missing\nmore"), 0.5, "b is missing"),
        (facts("assertion", reward=0.5, message="b is missing"), 0.25, ""),
        (facts("assertion", reward=0.5, accepted=True), 0.5, ""),
        (facts("assertion", reward=0.0, limited=True), 0.0, ""),
        (facts("error"), 0.0, "error"),
        (None, 0.0, ""),
    ],
)
def test_a_failure_that_measures_nothing(oracle: Facts | None, reward: float, why: str) -> None:
    said = f"the oracle does not pass these checks either: {why}" if why else ""
    assert unfit(Control(oracle=oracle), reward) == said


@pytest.mark.parametrize(
    ("oracle", "noop", "kept"),
    [
        (None, facts("assertion"), True),
        (None, None, False),
        (None, facts("infra"), False),
        (None, facts("error", limited=True), True),
        (facts("passed", accepted=True), facts("assertion"), True),
        (facts("passed"), facts("assertion"), False),
        (facts("passed", accepted=True, limited=True), facts("assertion"), False),
    ],
)
def test_what_is_kept_for_later_sessions(oracle: Facts | None, noop: Facts | None, kept: bool) -> None:
    assert Control(oracle=oracle, noop=noop).lasting is kept


def test_facts_of_one_seed() -> None:
    assert not Control(oracle=facts("passed"), noop=facts("passed")).seeded
    assert Control(oracle=facts("passed"), noop=facts("passed", seeded=True)).seeded
