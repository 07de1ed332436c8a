"""The table of outcomes, row by row, and the means with both of their denominators."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from msgspec.structs import replace

from pytest_rollout.bundle import TRUNCATED, Termination
from pytest_rollout.outcome import INFRA_KINDS, SLACK, Body, Infra, InfraKind, Means, Score, Verdict, classify, means

PASSED = Body(end="passed")
ASSERTION = Body(end="assertion", message="assert 1 == 2")
CRASHES = [Body(end="error", message="KeyError: 'x'"), Body(end="skipped", message="no awk")]
SAID = {"error": "the test raised KeyError: 'x'", "skipped": "the test skipped after the agent ran: no awk"}
NOT_COMPLETED = sorted(set(get_args(Termination)) - {"completed"})


def judge(
    termination: Any = "completed", body: Body | None = PASSED, infra: Infra | None = None, **score: Any
) -> Verdict:
    return classify(infra=infra, termination=termination, body=body, score=Score(**score))


def passed(reward: float) -> Verdict:
    return Verdict(outcome="passed", reward=reward, checks_reward=reward)


def failed(reward: float, checks_reward: float | None, kind: str, message: str) -> Verdict:
    return Verdict(outcome="failed", reward=reward, checks_reward=checks_reward, type=kind, message=message)


def infra(kind: Any, message: str, *, forgeable: bool = False, checks_reward: float | None = None) -> Verdict:
    return Verdict(
        outcome="infra",
        kind=kind,
        forgeable=forgeable,
        reward=None,
        checks_reward=checks_reward,
        type=f"infra.{kind}",
        message=message,
    )


# No gate broke


@pytest.mark.parametrize(
    ("checks_reward", "threshold", "expected"),
    [
        (None, 1.0, passed(1.0)),
        (1.0, 1.0, passed(1.0)),
        (0.5, 0.5, passed(0.5)),
        (0.0, 0.0, passed(0.0)),
        (1 - SLACK, 1.0, passed(1 - SLACK)),
        (1 - 2e-9, 1.0, failed(1 - 2e-9, 1 - 2e-9, "reward", "reward 0.999999998 is below the threshold 1")),
        (0.75, 1.0, failed(0.75, 0.75, "reward", "reward 0.75 is below the threshold 1")),
        (0.0, 0.5, failed(0.0, 0.0, "reward", "reward 0 is below the threshold 0.5")),
        (1 / 3, 0.5, failed(1 / 3, 1 / 3, "reward", "reward 0.3333 is below the threshold 0.5")),
        (0.99999, 1.0, failed(0.99999, 0.99999, "reward", "reward 0.99999 is below the threshold 1")),
        (0.50001, 0.50002, failed(0.50001, 0.50001, "reward", "reward 0.50001 is below the threshold 0.50002")),
    ],
)  # fmt: skip
def test_the_reward_against_the_threshold(checks_reward: float | None, threshold: float, expected: Verdict) -> None:
    body = Body(end="passed", recorded=checks_reward is not None)
    assert judge(body=body, checks_reward=checks_reward, threshold=threshold) == expected


# A hard gate


@pytest.mark.parametrize("checks_reward", [None, 0.75, 1.0])
@pytest.mark.parametrize("threshold", [0.0, 1.0])
@pytest.mark.parametrize("score_on", ["any", "completed"])
def test_a_plain_assertion_gives_0_and_keeps_the_checks(
    checks_reward: float | None, threshold: float, score_on: str
) -> None:
    verdict = judge(body=ASSERTION, checks_reward=checks_reward, threshold=threshold, score_on=score_on)
    assert verdict == failed(0.0, checks_reward, "assertion", "assert 1 == 2")


@pytest.mark.parametrize("termination", NOT_COMPLETED)
def test_a_plain_assertion_after_an_early_end_is_typed_by_the_end(termination: str) -> None:
    verdict = judge(termination, ASSERTION, checks_reward=0.5)
    assert verdict == failed(0.0, 0.5, f"termination.{termination}", "assert 1 == 2")


# The agent ended in a readable way


@pytest.mark.parametrize("termination", NOT_COMPLETED)
def test_checks_count_also_after_an_early_end(termination: str) -> None:
    assert judge(termination, checks_reward=1.0) == passed(1.0)
    assert judge(termination) == passed(1.0)
    expected = failed(0.25, 0.25, f"termination.{termination}", "reward 0.25 is below the threshold 1")
    assert judge(termination, checks_reward=0.25) == expected


@pytest.mark.parametrize("termination", NOT_COMPLETED)
def test_score_on_completed_gives_0_after_an_early_end_and_records_the_checks(termination: str) -> None:
    message = (
        "reward 0 is below the threshold 1: the checks give 1, "
        f"but the agent ended by {termination} and score_on is 'completed'"
    )
    nothing = failed(0.0, 0.0, f"termination.{termination}", "reward 0 is below the threshold 1")
    assert judge(termination, checks_reward=0.0, score_on="completed") == nothing
    expected = failed(0.0, 1.0, f"termination.{termination}", message)
    assert judge(termination, checks_reward=1.0, score_on="completed") == expected
    assert judge(termination, score_on="completed") == expected


def test_score_on_completed_scores_what_completed() -> None:
    assert judge(checks_reward=1.0, score_on="completed") == passed(1.0)
    verdict = judge(checks_reward=0.5, score_on="completed")
    assert verdict == failed(0.5, 0.5, "reward", "reward 0.5 is below the threshold 1")


# Infrastructure


@pytest.mark.parametrize("kind", INFRA_KINDS)
@pytest.mark.parametrize("forgeable", [False, True])
@pytest.mark.parametrize("body", [None, PASSED, ASSERTION, Body(end="error"), Body(end="passed", looked=False)])
@pytest.mark.parametrize("termination", [None, "completed", "wall_limit"])
def test_infrastructure_that_is_known_wins_over_everything(
    kind: Any, forgeable: bool, body: Body | None, termination: str | None
) -> None:
    found = Infra(kind=kind, message="why", forgeable=forgeable)
    verdict = judge(termination, body, found, checks_reward=1.0)
    assert verdict == infra(kind, "why", forgeable=forgeable, checks_reward=1.0)


@pytest.mark.parametrize("termination", ["completed", "wall_limit"])
@pytest.mark.parametrize("checks_reward", [None, 0.5])
@pytest.mark.parametrize("body", CRASHES, ids=lambda body: body.end)
def test_a_body_that_raised_or_skipped_is_forgeable_infrastructure(
    body: Body, termination: str, checks_reward: float | None
) -> None:
    assert body.blame == "unknown"
    verdict = judge(termination, body, checks_reward=checks_reward)
    assert verdict == infra("evaluator", SAID[body.end], forgeable=True, checks_reward=checks_reward)


@pytest.mark.parametrize("body", CRASHES, ids=lambda body: body.end)
@pytest.mark.parametrize("termination", ["completed", "wall_limit"])
def test_a_body_that_crashes_on_a_right_solution_too_is_infrastructure_that_nobody_forged(
    body: Body, termination: str
) -> None:
    verdict = judge(termination, replace(body, blame="evaluator"), checks_reward=0.5)
    assert verdict == infra("evaluator", SAID[body.end], forgeable=False, checks_reward=0.5)


@pytest.mark.parametrize("body", CRASHES, ids=lambda body: body.end)
@pytest.mark.parametrize("looked", [False, True])
@pytest.mark.parametrize("termination", ["completed", "exit_code", "wall_limit"])
@pytest.mark.parametrize("score_on", ["any", "completed"])
def test_a_body_that_only_a_candidate_makes_crash_is_the_candidates(
    body: Body, looked: bool, termination: str, score_on: str
) -> None:
    blamed = replace(body, blame="candidate", looked=looked)
    verdict = judge(termination, blamed, checks_reward=1.0, threshold=0.0, score_on=score_on)
    message = f"{SAID[body.end]}, which it does not on a bundle of the evaluator's own"
    assert verdict == failed(0.0, 1.0, "check_crashed", message)


@pytest.mark.parametrize("blame", ["unknown", "candidate", "evaluator"])
def test_blame_is_for_crashes_only(blame: Any) -> None:
    assert judge(body=replace(PASSED, blame=blame), checks_reward=1.0) == passed(1.0)
    assert judge(body=replace(ASSERTION, blame=blame)) == failed(0.0, None, "assertion", "assert 1 == 2")
    empty = replace(PASSED, blame=blame, looked=False)
    assert judge(body=empty).kind == "vacuous"


@pytest.mark.parametrize(
    ("looked", "recorded", "outcome"),
    [(False, False, "infra"), (True, False, "passed"), (False, True, "passed"), (True, True, "passed")],
)
def test_a_body_that_looked_at_nothing_is_vacuous(looked: bool, recorded: bool, outcome: str) -> None:
    verdict = judge(body=Body(end="passed", looked=looked, recorded=recorded), checks_reward=1.0 if recorded else None)
    assert verdict.outcome == outcome
    if outcome == "infra":
        assert verdict == infra("vacuous", "the test looked at nothing of the bundle and recorded no check")


def test_an_assertion_of_a_body_that_looked_at_nothing_is_still_a_gate() -> None:
    verdict = judge(body=Body(end="assertion", message="m", looked=False))
    assert verdict == failed(0.0, None, "assertion", "m")


def test_without_a_body_and_without_a_reason_a_fixture_failed() -> None:
    assert judge(None, None) == infra("fixture", "the test ended before there was evidence")


# The words


def test_the_kinds_are_those_of_the_type() -> None:
    assert get_args(InfraKind) == INFRA_KINDS
    assert len(set(INFRA_KINDS)) == 13


def test_what_a_limit_or_a_budget_ended_is_truncated() -> None:
    assert set(get_args(Termination)) - TRUNCATED == {"completed", "exit_code", "signal", "cancelled"}
    assert set(get_args(Termination)) >= TRUNCATED
    assert all(name.endswith(("_limit", "_budget")) for name in TRUNCATED)


# Means


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ([], (None, 0, None, 0)),
        ([(1.0, False)], (1.0, 1, 1.0, 1)),
        ([(1.0, False), (0.0, False), (0.5, False)], (0.5, 3, 0.5, 3)),
        ([(None, False)], (None, 0, None, 0)),
        ([(None, True)], (None, 0, 0.0, 1)),
        ([(1.0, False), (None, False)], (1.0, 1, 1.0, 1)),
        ([(1.0, False), (None, True)], (1.0, 1, 0.5, 2)),
        ([(1.0, False), (0.5, False), (None, True), (None, True), (None, False)], (0.75, 2, 0.375, 4)),
        ([(0.0, False), (None, False)], (0.0, 1, 0.0, 1)),
    ],
)
def test_unmeasured_is_never_0_and_forgeable_is_also_shown_as_0(
    verdicts: list[tuple[float | None, bool]], expected: tuple[float | None, int, float | None, int]
) -> None:
    mean, measured, forgeable_mean, forgeable_measured = expected
    assert means(("t", reward, forgeable) for reward, forgeable in verdicts) == Means(
        mean=mean, measured=measured, forgeable_mean=forgeable_mean, forgeable_measured=forgeable_measured
    )


def test_a_reward_after_an_attempt_that_the_candidate_may_have_ended_is_also_shown_as_0() -> None:
    assert means([("t", 0.5, True), ("t", 1.0, False)]) == Means(
        mean=0.75, measured=2, forgeable_mean=0.5, forgeable_measured=2
    )


def test_a_mean_of_many_is_exact() -> None:
    found = means([("t", 0.1, False)] * 10)
    assert (found.mean, found.measured) == (0.1, 10)


def test_tasks_weigh_the_same_however_many_samples_were_measured() -> None:
    one, four = [("one", 1.0, False)], [("four", 0.0, False)] * 4
    assert means([*one, *four]) == Means(mean=0.5, measured=5, forgeable_mean=0.5, forgeable_measured=5)
    lost = [("one", None, True), ("gone", None, True)]
    assert means([*one, *four, *lost]) == Means(mean=0.5, measured=5, forgeable_mean=0.5 / 3, forgeable_measured=7)
