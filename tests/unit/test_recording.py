"""From a verdict to what is written of it: ``score.json`` and the line of results."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_rollout.bundle import BundleRecord
from pytest_rollout.outcome import Verdict
from pytest_rollout.recording import lost_result, result_of, score_of
from pytest_rollout.reward import Check, Reward
from pytest_rollout.store.folder import read_record, write_record
from pytest_rollout.store.records import Planned, Result, ScoreRecord
from pytest_rollout.task import Task

TASK = Task(id="test_x.py::test_x", threshold=0.5)
PASSED = Verdict(outcome="passed", reward=0.75, checks_reward=0.75)
FORGED = Verdict(
    outcome="infra", kind="spawn", forgeable=True, checks_reward=0.25, type="infra.spawn", message="no \udcff"
)


def test_the_score_of_a_pass(make_record: Callable[..., BundleRecord]) -> None:
    reward = Reward()
    reward.add("adds", 1.0, weight=3)
    reward.add("small", 0.0)
    reward.metric("seconds", 1.5)
    score = score_of(TASK, rollout="r", sample=2, verdict=PASSED, bundle=make_record(), reward=reward)
    assert score == ScoreRecord(
        task="test_x.py::test_x",
        rollout="r",
        sample=2,
        attempt=1,
        outcome="passed",
        kind=None,
        forgeable=False,
        reward=0.75,
        checks_reward=0.75,
        checks=(Check(name="adds", weight=3.0, value=1.0), Check(name="small", weight=1.0, value=0.0)),
        metrics={"seconds": 1.5},
        threshold=0.5,
        termination="exit_code",
        message="",
        bundle="bundle.json",
        evaluator_revision="sha256:22",
        in_process=False,
        audit="sound",
    )


def test_the_score_without_evidence(tmp_path: Path) -> None:
    score = score_of(TASK, rollout="r", sample=0, verdict=FORGED, bundle=None, reward=Reward())
    assert (score.outcome, score.kind, score.forgeable) == ("infra", "spawn", True)
    assert (score.reward, score.checks_reward) == (None, 0.25)
    assert (score.checks, score.metrics, score.termination, score.bundle) == ((), {}, None, None)
    assert (score.evaluator_revision, score.in_process, score.audit) == (None, False, None)
    assert score.message == "no \\udcff"
    write_record(tmp_path / "score.json", score)
    assert read_record(tmp_path / "score.json", ScoreRecord) == score


def test_a_reward_that_was_set_is_one_check() -> None:
    reward = Reward()
    reward.set(0.75, reason="half \udcff")
    score = score_of(TASK, rollout="r", sample=0, verdict=PASSED, bundle=None, reward=reward)
    assert score.checks == (Check(name="reward", weight=1.0, value=0.75, message="half \\udcff"),)


def test_the_line_of_a_pass(make_record: Callable[..., BundleRecord]) -> None:
    bundle = make_record()
    result = result_of(
        TASK,
        rollout="r",
        sample=2,
        node="n\udcff",
        agent="a\udcff",
        verdict=PASSED,
        bundle=bundle,
        folder="f",
        metrics={"m": 2.0},
    )
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00", result.time)
    assert result == Result(
        rollout="r",
        task="test_x.py::test_x",
        sample=2,
        attempt=1,
        node="n\\udcff",
        agent="a\\udcff",
        outcome="passed",
        reward=0.75,
        checks_reward=0.75,
        termination="exit_code",
        trusted=True,
        duration=1.5,
        folder="f",
        samples=1,
        pins=bundle.pins,
        usage=bundle.usage,
        truncated=bundle.truncated,
        rung=bundle.rung,
        metrics={"m": 2.0},
        evaluator_revision="sha256:22",
        in_process=False,
        audit="sound",
        time=result.time,
    )


def test_candidate_code_in_the_process_of_a_verdict_is_recorded(make_record: Callable[..., BundleRecord]) -> None:
    bundle = make_record()
    score = score_of(TASK, rollout="r", sample=0, verdict=PASSED, bundle=bundle, reward=Reward(), in_process=True)
    result = result_of(TASK, rollout="r", sample=0, node="n", agent="a", verdict=PASSED, bundle=bundle, in_process=True)
    assert (score.in_process, result.in_process) == (True, True)


def test_the_checks_of_a_score_are_those_that_are_held() -> None:
    reward = Reward()
    reward.add("adds", 1.0)
    reward.held = (Check(name="adds", weight=1.0, value=1.0), Check(name="small", weight=3.0, value=0.0))
    score = score_of(TASK, rollout="r", sample=0, verdict=PASSED, bundle=None, reward=reward)
    assert score.checks == reward.held


def test_the_line_without_evidence() -> None:
    result = result_of(TASK, rollout="r", sample=0, node="n", agent="a", verdict=FORGED)
    assert (result.outcome, result.kind, result.forgeable, result.type) == ("infra", "spawn", True, "infra.spawn")
    assert (result.reward, result.checks_reward, result.message) == (None, 0.25, "no \\udcff")
    assert (result.termination, result.trusted, result.duration, result.folder) == (None, None, None, None)


@pytest.mark.parametrize(("length", "kept"), [(3999, 3999), (4000, 4000), (4001, 4000), (10**6, 4000)])
def test_a_long_message_is_cut_in_the_line_only(length: int, kept: int) -> None:
    verdict = Verdict(outcome="failed", reward=0.0, type="assertion", message="m" * length)
    assert result_of(TASK, rollout="r", sample=0, node="n", agent="a", verdict=verdict).message == "m" * kept
    score = score_of(TASK, rollout="r", sample=0, verdict=verdict, bundle=None, reward=Reward())
    assert score.message == "m" * length


def test_a_lost_rollout() -> None:
    planned = Planned(node="n", rollout="r", task="t", sample=3, agent="a")
    result = lost_result(planned, "worker 'gw0' crashed \udcff" + "x" * 5000)
    assert len(result.message) == 4000
    assert result == Result(
        rollout="r",
        task="t",
        sample=3,
        attempt=1,
        node="n",
        agent="a",
        outcome="infra",
        kind="worker",
        type="infra.worker",
        message=result.message,
        time=result.time,
    )
    assert result.message.startswith("worker 'gw0' crashed \\udcffxxx")
