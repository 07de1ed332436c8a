"""What a testcase of JUnit carries of a rollout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pytest_rollout.bundle import BundleRecord
from pytest_rollout.report import junit, properties
from pytest_rollout.report.properties import properties_of
from pytest_rollout.reward import Reward
from pytest_rollout.store.records import Earlier, Result, Source


def pairs(result: Result, bundle: BundleRecord | None = None, **more: Any) -> dict[str, str]:
    reward = more.pop("reward", Reward())
    found = properties_of(result, bundle, reward, **{"run": "R", "samples": 4, **more})
    assert len({name for name, _ in found}) == len(found)
    return dict(found)


def test_a_scored_rollout(make_result: Callable[..., Result], make_record: Callable[..., BundleRecord]) -> None:
    reward = Reward()
    reward.add("adds", 1)
    reward.add("small diff", 1 / 3, weight=2)
    reward.metric("seconds", 12.5)
    assert pairs(make_result(reward=0.5555555555555555), make_record(), reward=reward) == {
        "rollout.rollout_id": "3f9ac01d-test-add-x-5be1a09c44-s1",
        "rollout.run_id": "R",
        "rollout.task": "test_calc.py::test_add[x]",
        "rollout.sample": "1",
        "rollout.samples": "4",
        "rollout.attempts": "1",
        "rollout.agent": "good",
        "rollout.outcome": "passed",
        "rollout.reward": "0.5555555556",
        "rollout.checks_reward": "1",
        "rollout.termination": "completed",
        "rollout.trusted": "true",
        "rollout.seed": "8",
        "rollout.environment_revision": "sha256:11",
        "rollout.evaluator_revision": "sha256:22",
        "rollout.audit": "sound",
        "rollout.folder": "rollouts/test-add-x-5be1a09c44/s1/a1",
        "rollout.check.adds": "1",
        "rollout.check.small diff": "0.3333333333",
        "rollout.metric.seconds": "12.5",
    }


def test_what_is_not_known_is_left_out(make_result: Callable[..., Result]) -> None:
    result = make_result(
        outcome="infra",
        kind="spawn",
        forgeable=True,
        reward=None,
        checks_reward=None,
        termination=None,
        trusted=None,
        folder=None,
        evaluator_revision=None,
        audit=None,
    )
    found = pairs(result, samples=None)
    assert found == {
        "rollout.rollout_id": "3f9ac01d-test-add-x-5be1a09c44-s1",
        "rollout.run_id": "R",
        "rollout.task": "test_calc.py::test_add[x]",
        "rollout.sample": "1",
        "rollout.attempts": "1",
        "rollout.agent": "good",
        "rollout.outcome": "infra",
        "rollout.kind": "spawn",
        "rollout.forgeable": "true",
    }


def test_0_is_known(make_result: Callable[..., Result]) -> None:
    found = pairs(make_result(outcome="failed", reward=0.0, checks_reward=0.0, sample=0, trusted=False))
    assert (found["rollout.reward"], found["rollout.checks_reward"], found["rollout.sample"]) == ("0", "0", "0")
    assert found["rollout.trusted"] == "false"


def test_attempts_before_the_last_are_counted_with_their_kinds(make_result: Callable[..., Result]) -> None:
    """The number of the last one may be higher, where another session made some."""
    earlier = (Earlier(attempt=2, kind="stage"), Earlier(attempt=3, kind="provider", message="429"))
    found = pairs(make_result(attempt=5, earlier=earlier))
    assert (found["rollout.attempts"], found["rollout.earlier"]) == ("3", "stage, provider")


def test_a_verdict_that_code_of_the_candidates_had_a_part_in_is_told(make_result: Callable[..., Result]) -> None:
    found = pairs(make_result(in_process=True, audit="in-process"))
    assert (found["rollout.in_process"], found["rollout.audit"]) == ("true", "in-process")


def test_what_was_scored_again_is_named(make_result: Callable[..., Result]) -> None:
    result = make_result(source=Source(run="R0", rollout="old-x-s1", outcome="failed", reward=0.5))
    assert pairs(result)["rollout.source"] == "old-x-s1"


def test_a_reward_that_was_set_is_a_check(make_result: Callable[..., Result]) -> None:
    reward = Reward()
    reward.set(0.25)
    assert pairs(make_result(), reward=reward)["rollout.check.reward"] == "0.25"


def test_names_and_values_are_legal_in_xml(make_result: Callable[..., Result]) -> None:
    reward = Reward()
    reward.add("a\0\x1b", 1)
    reward.metric("b\ufffe", 1)
    found = pairs(make_result(agent="x\x07", task="t\ud800"), reward=reward)
    assert found["rollout.check.a\\x00\\x1b"] == "1"
    assert found["rollout.metric.b\\ufffe"] == "1"
    assert (found["rollout.agent"], found["rollout.task"]) == ("x\\x07", "t\\ud800")


def test_both_halves_of_the_report_mean_the_same_property() -> None:
    assert properties.ROLLOUT_ID == junit.ROLLOUT_PROPERTY
