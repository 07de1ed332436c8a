"""Going on with a run: what is made again, what may join it, and the attempts that there were."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytest_rollout.bundle import Pins, Usage
from pytest_rollout.decisions.resume import (
    LOST,
    Before,
    Candidate,
    Change,
    changes,
    earlier_of,
    join,
    pairs_of,
    read_before,
    refusal,
)
from pytest_rollout.errors import ConfigError
from pytest_rollout.settings import COMPARED
from pytest_rollout.shard import OfShard
from pytest_rollout.store.folder import RunFolder, read_record, write_record
from pytest_rollout.store.records import Earlier, Plan, Planned, Result, Resumed, RunRecord
from pytest_rollout.store.resumed import go_on

PINS = Pins(
    task_digest="sha256:task",
    environment_revision="sha256:env",
    evaluator_revision="sha256:eval",
    agent="good",
    agent_digest="sha256:agent",
    agent_version="1.0",
    policy_revision="p1",
    model="m",
    sampling={"temperature": 0.5},
    extra={"team": "x"},
    seed=10,
    network="none",
    executor="sandbox",
    executor_version="0.11",
    executor_digest="sha256:bwrap",
    plugin_version="1",
)


def planned(task: str, sample: int = 0, agent: str = "good", node: str = "") -> Planned:
    return Planned(
        node=node or f"{task}[s{sample}]", rollout=f"{task}-s{sample}", task=task, sample=sample, agent=agent
    )


def result(task: str, sample: int = 0, **changed: Any) -> Result:
    values: dict[str, Any] = {"reward": 1.0, "outcome": "passed", "agent": "good", "rung": 1, "attempt": 1, **changed}
    pins = msgspec.structs.replace(PINS, seed=10 + sample)
    return Result(rollout=f"{task}-s{sample}", task=task, sample=sample, node="n", **{"pins": pins, **values})


def infra(task: str, sample: int = 0, **changed: Any) -> Result:
    return result(task, sample, **{"reward": None, "outcome": "infra", "kind": "stage", "pins": None, **changed})


def before(plan: list[Planned], *results: Result, shard: OfShard | None = None) -> Before:
    found = {each.rollout: each for each in results}
    return Before(plan=Plan(rollouts=tuple(plan), shard=shard), results=found, sizes={})


def candidate(task: str, sample: int = 0, agent: str = "good", **changed: Any) -> Candidate:
    pins: dict[str, Any] = {**msgspec.to_builtins(PINS), "seed": 10 + sample, "rung": 1, **changed}
    return Candidate(planned=planned(task, sample, agent), pins=pins)


def found(old: Before, *candidates: Candidate) -> list[Change]:
    return changes(old, Plan(rollouts=tuple(each.planned for each in candidates)), candidates)


# What is made again


def test_only_a_measured_rollout_is_not_made_again() -> None:
    old = before([], result("a"), result("b", outcome="failed", reward=0.0), infra("c", kind="evaluator"))
    assert [old.is_measured(f"{task}-s0") for task in "abcd"] == [True, True, False, False]


def test_the_plans_are_joined_by_rollout() -> None:
    old = before([planned("a", node="old"), planned("b"), planned("gone")])
    joined = join(old, Plan(rollouts=(planned("a", 1), planned("a", node="new"), planned("b")), notes=("n",)), "run")
    assert [(each.rollout, each.node) for each in joined.rollouts] == [
        ("a-s0", "new"),
        ("b-s0", "b[s0]"),
        ("gone-s0", "gone[s0]"),
        ("a-s1", "a[s1]"),
    ]
    assert joined.notes == ("n",)
    again = join(Before(plan=joined, results={}, sizes={}), Plan(rollouts=(planned("a", node="new"),)), "run")
    assert again == joined


def test_another_suite_is_refused() -> None:
    with pytest.raises(ConfigError) as refused:
        join(before([planned("a"), planned("b")]), Plan(rollouts=(planned("c"),)), "RUN")
    assert str(refused.value) == (
        "--rollout-resume: the run RUN is of another suite: none of its 2 rollouts is among the 1 that were collected"
    )


# Pins


def test_nothing_changed() -> None:
    old = before([planned("a"), planned("a", 1), planned("b")], result("a"), infra("a", 1))
    assert found(old, candidate("a"), candidate("a", 1), candidate("b")) == []


OTHER: dict[str, Any] = {
    "plugin_version": "2",
    "executor": "local",
    "executor_version": None,
    "executor_digest": "sha256:other",
    "rung": 3,
    "agent": "better",
    "agent_digest": "sha256:other",
    "agent_version": "1.1",
    "policy_revision": None,
    "model": "n",
    "sampling": {"temperature": 1.0},
    "extra": {},
    "task_digest": "sha256:other",
    "seed": 11,
    "environment_revision": "sha256:other",
    "evaluator_revision": "sha256:other",
}


@pytest.mark.parametrize("name", [name for name in COMPARED if name != "shard"])
def test_each_pin_is_compared(name: str) -> None:
    old = before([planned("a"), planned("a", 1)], result("a"))
    more = {"seed": 12} if name == "seed" else {name: OTHER[name]}  # the seed of sample 1 is one more
    for now in (candidate("a", **{name: OTHER[name]}), candidate("a", 1, **more)):
        (change,) = found(old, now)
        assert (change.name, change.tasks) == (name, ("a",))
        assert change.old != change.new


def test_a_rollout_of_another_task_is_compared_in_agent_and_machine_alone() -> None:
    old = before([planned("a"), planned("b"), planned("c", agent="else")], result("a"))
    own = {name: OTHER[name] for name in ("task_digest", "seed", "environment_revision", "evaluator_revision")}
    assert found(old, candidate("b", **own)) == []
    assert [change.name for change in found(old, candidate("b", model="n", rung=2))] == ["rung", "model"]
    assert [change.name for change in found(old, candidate("c", agent="else", model="n", rung=2))] == ["rung"]


def test_two_commands_that_begin_alike_are_two_agents() -> None:
    old = before([planned("a"), planned("b")], result("a"))
    command = Candidate(planned=planned("b"), pins=candidate("b", agent_digest="sha256:other").pins, named=False)
    assert found(old, command) == []
    same = Candidate(planned=planned("b"), pins=candidate("b", agent_version="1.1").pins, named=False)
    assert [change.name for change in found(old, same)] == ["agent_version"]


def test_what_is_not_sure_yet_is_not_compared() -> None:
    old = before([planned("a", agent="(fixture)")], result("a"))
    assert found(old, Candidate(planned=planned("a", agent="(fixture)"), pins={"network": "host"})) == []


def test_the_plans_show_other_agents_and_another_shard() -> None:
    old = before([planned("a"), planned("b")], shard=OfShard(index=1, count=2, tests=2, all_tests=3, all_rollouts=3))
    now = Plan(rollouts=(planned("a", agent="better"), planned("b", agent="(fixture)")))
    assert changes(old, now, ()) == [Change("agent", "good", "better", ("a",)), Change("shard", "1/2", "none", ("",))]


def test_a_refusal_names_the_first_changes_and_how_they_are_allowed() -> None:
    old = before([planned("a"), planned("b")], result("a"), result("b"))
    now = [candidate(task, agent_version="1.1", task_digest="sha256:0123456789abcdef") for task in "ab"]
    listed = found(old, *now)
    assert str(refusal(listed, (), "RUN")) == (
        "--rollout-resume: what the run RUN measured is not comparable with what would be made now: "
        "agent_version: 1.0 → 1.1; task_digest of a and 1 more: sha256:task… → sha256:0123456789ab…\n"
        "Start a new run, or allow it: --rollout-resume-changed=agent_version --rollout-resume-changed=task_digest."
    )
    assert "1.0" not in str(refusal(listed, ["agent_version"], "RUN"))
    assert refusal(listed, ["task_digest", "agent_version"], "RUN") is None
    assert refusal(listed, ["all"], "RUN") is None
    assert pairs_of(listed) == {
        "agent_version": [("1.0", "1.1")],
        "task_digest": [("sha256:task…", "sha256:0123456789ab…")],
    }
    many = found(before([planned("a")], result("a")), candidate("a", **OTHER))
    assert "; and 11 more\n" in str(refusal(many, (), "RUN"))


# Attempts


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / "2026-11-29T22-08-01Z-3f9ac01d")
    folder.results.mkdir(parents=True)
    return folder


def begin(run: RunFolder, number: int, *, acted: bool, usage: Usage | None = None) -> str:
    folder = run.new_attempt("a", 0, number)
    (folder / "journal.jsonl").write_bytes(b'{"event":"started"}\n' if acted else b'{"event":"prov')
    return run.relative(folder)


def test_a_rollout_that_nobody_began_has_no_earlier_attempts(run: RunFolder) -> None:
    assert earlier_of(run, "a", 0, None) == ()


def test_an_infra_result_becomes_an_earlier_attempt_behind_its_own(run: RunFolder) -> None:
    first = Earlier(attempt=1, kind="stage", message="full")
    begin(run, 1, acted=False)
    folder = begin(run, 2, acted=True)
    old = infra("a", attempt=2, earlier=(first,), kind="evaluator", forgeable=True, message="m", folder=folder)
    own = Earlier(attempt=2, kind="evaluator", forgeable=True, message="m", folder=folder)
    assert earlier_of(run, "a", 0, old) == (first, own)


@pytest.mark.parametrize("acted", [True, False])
def test_an_attempt_that_was_begun_and_never_judged_is_one_that_was_lost(run: RunFolder, acted: bool) -> None:
    begin(run, 1, acted=False)
    folder = begin(run, 2, acted=acted)
    lost = Earlier(attempt=2, kind="worker", forgeable=acted, message=LOST, folder=folder)
    assert earlier_of(run, "a", 0, infra("a", message="x")) == (Earlier(attempt=1, kind="stage", message="x"), lost)


def test_what_is_known_of_a_lost_attempt_stays(run: RunFolder) -> None:
    begin(run, 1, acted=True)
    told = Earlier(attempt=1, kind="worker", message="worker gw0 crashed")
    assert earlier_of(run, "a", 0, None, (told,)) == (told,)


# Records


def test_a_run_without_a_plan_is_refused(run: RunFolder) -> None:
    with pytest.raises(ConfigError) as refused:
        read_before(run)
    assert str(refused.value) == (
        f"--rollout-resume: the run {run.name} has no plan: it was ended before anything was made\nStart a new run."
    )


def test_a_run_is_read_as_it_was_when_the_session_began(run: RunFolder) -> None:
    write_record(run.plan, Plan(rollouts=(planned("a"), planned("b"))))
    line: Callable[[Result], bytes] = lambda each: msgspec.json.encode(each) + b"\n"  # noqa: E731
    (run.results / "gw0.jsonl").write_bytes(line(result("a")) + line(infra("b")))
    then = read_before(run)
    with open(run.results / "gw0.jsonl", "ab") as journal:
        journal.write(line(result("b", attempt=2)))
    assert read_before(run, then.sizes) == then
    assert [then.is_measured("b-s0"), read_before(run).is_measured("b-s0")] == [False, True]


def test_a_run_says_that_it_was_resumed(run: RunFolder) -> None:
    record = RunRecord(run=run.name, started="t", plugin_version="1", options={}, pins={}, environment={})
    first, second = (Resumed(time=str(number), plugin_version="2", rollouts=1, measured=2) for number in range(2))
    with pytest.raises(ConfigError, match=r"^--rollout-resume: .*run\.json can't be read: "):
        go_on(run, Plan(rollouts=()), first)
    write_record(run.record, record)
    for resumed in (first, second):
        go_on(run, Plan(rollouts=(planned("a"),)), resumed)
    assert read_record(run.record, RunRecord) == msgspec.structs.replace(record, resumed=(first, second))
    assert read_record(run.plan, Plan).rollouts == (planned("a"),)
