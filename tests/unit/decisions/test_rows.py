"""Rows are the same whatever the order and the repetition of journals, and say what is missing."""

from __future__ import annotations

import random
from itertools import permutations
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytest_rollout.bundle import Pins
from pytest_rollout.decisions.rows import Labels, by_task, load_rows, rewards_by_task
from pytest_rollout.store.folder import RunFolder, write_record
from pytest_rollout.store.records import Plan, Planned, Result
from pytest_rollout.store.union import counting
from tests.unit.decisions.conftest import rows


def result(rollout: str, **more: Any) -> Result:
    known = {"task": rollout[:1], "sample": int(rollout[1:]), "attempt": 1, "node": rollout, "agent": "a"}
    return Result(rollout=rollout, **{**known, "outcome": "passed", "reward": 1.0, **more})


INFRA = {"outcome": "infra", "kind": "stage", "reward": None}
# in the order in which they count
LINES = [
    result("t0", time="1"),
    result("t0", time="2"),
    result("t0", attempt=2, time="0"),
    result("t0", attempt=3, **INFRA, time="0"),
    result("t0", attempt=2, **INFRA, time="1"),
    result("t0", attempt=2, **INFRA, time="2"),
]


def test_the_line_that_counts_is_the_same_in_every_order_and_however_often_it_is_there() -> None:
    for few in permutations(range(len(LINES)), 3):
        one, two, three = (LINES[place] for place in few)
        first = counting(counting(one, two), three)
        assert first is LINES[min(few)]
        assert counting(one, counting(two, three)) is first
        assert counting(first, one) is first


def test_equal_lines_count_once() -> None:
    line = result("t0")
    assert counting(line, result("t0")) == line


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / "2026-11-29T22-08-01Z-3f9ac01d")
    folder.results.mkdir(parents=True)
    return folder


def write(run: RunFolder, journal: str, lines: list[Result], end: bytes = b"") -> None:
    text = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
    (run.results / f"{journal}.jsonl").write_bytes(text + end)


def test_shuffled_and_repeated_journals_have_the_same_rows(run: RunFolder) -> None:
    pins = Pins(
        task_digest="d", environment_revision="r", agent="a", seed=0, network="none", executor="x", plugin_version="0"
    )
    lines = [result(f"{task}{n}", pins=pins, tags=("x",), time=str(n)) for task in "ab" for n in range(3)]
    lines += LINES
    write(run, "main", lines)
    whole = load_rows(run)
    assert [each.rollout for each in whole.rows] == ["a0", "a1", "a2", "b0", "b1", "b2", "t0"]
    assert whole.rows[0].pins is whole.rows[1].pins is not None
    draw = random.Random(1)
    for turn in range(5):
        mixed = draw.sample([*lines, *lines[: turn + 2]], k=len(lines) + turn + 2)
        write(run, "main", mixed[:7])
        write(run, "gw0", mixed[7:])
        assert load_rows(run) == whole


def test_broken_lines_amendments_and_what_is_missing(run: RunFolder) -> None:
    write(run, "gw0", [result("a0"), result("a1", amends=True, warnings=("w",))], b'{"rollout": "a')
    planned = [
        Planned(node="n", rollout=f"{task}{n}", task=task, sample=n, agent="a", tags=(task,), split="s")
        for task, n in (("a", 0), ("a", 1), ("a", 2), ("b", 0))
    ]
    write_record(run.plan, Plan(rollouts=tuple(planned)))
    found = load_rows(run)
    assert [each.rollout for each in found.rows] == ["a0"]
    assert (found.broken, found.missing) == (1, {"a": 2, "b": 1})
    assert found.labels == {"a": Labels(("a",), "s"), "b": Labels(("b",), "s")}


def test_rows_and_rewards_by_task() -> None:
    found = rows({"b": [1, None], "a": [0.5], "c": [None]}).rows
    assert {task: len(each) for task, each in by_task(found).items()} == {"b": 2, "a": 1, "c": 1}
    assert rewards_by_task(found) == {"b": [1], "a": [0.5]}
