"""The records beside the bundle: to JSON and back, and what a reader refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytest_rollout.bundle import SCHEMA_VERSION, BundleRecord
from pytest_rollout.reward import Check
from pytest_rollout.store.folder import read_record, write_record
from pytest_rollout.store.records import Plan, Planned, Result, RunRecord, ScoreRecord


@pytest.fixture
def records(make_record: Callable[..., BundleRecord], make_result: Callable[..., Result]) -> list[msgspec.Struct]:
    """One of each kind, with something in every field that could get lost."""
    return [
        make_record(),
        make_record(exit_code=None, signal=9, termination="wall_limit", truncated=True, rung=None, tree_dead=None),
        make_result(),
        make_result(outcome="infra", kind="worker", reward=None, folder=None, termination=None, trusted=None),
        make_result(in_process=True, audit=None, evaluator_revision=None),
        RunRecord(
            run="2026-11-29T22-08-01Z-3f9ac01d",
            started="2026-11-29T22:08:01+00:00",
            plugin_version="0.1.0",
            options={"arguments": ["evals"], "samples": None},
            pins={"model": "m"},
            environment={"python": "3.11.9"},
        ),
        Plan(
            rollouts=(Planned(node="t.py::test[s0]", rollout="r", task="t.py::test", sample=0, agent="good"),),
            multiplied={"t.py::TestA": 4},
        ),
        ScoreRecord(
            task="t.py::test",
            rollout="r",
            sample=0,
            attempt=1,
            outcome="failed",
            kind=None,
            forgeable=False,
            reward=0.0,
            checks_reward=0.5,
            checks=(Check(name="a", weight=1.0, value=0.5, message="größe"), Check(name="b", weight=2.0, value=0.5)),
            metrics={"seconds": 1.5},
            threshold=1.0,
            termination="signal",
            message="assert 1 == 2",
            bundle="bundle.json",
            evaluator_revision="sha256:22",
            in_process=True,
            audit="weak",
            warnings=("w",),
        ),
    ]


def test_every_record_comes_back_as_it_was(records: list[msgspec.Struct], tmp_path: Path) -> None:
    for number, record in enumerate(records):
        path = tmp_path / f"{number}.json"
        assert write_record(path, record) is True
        assert read_record(path, type(record)) == record


def test_every_record_says_its_schema_version(records: list[msgspec.Struct]) -> None:
    assert SCHEMA_VERSION == 1
    assert [msgspec.to_builtins(record)["schema_version"] for record in records] == [1] * len(records)


def test_records_are_frozen(records: list[msgspec.Struct]) -> None:
    for record in records:
        with pytest.raises(AttributeError):
            record.schema_version = 2  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"outcome": "great"}, "Invalid enum value 'great'"),
        ({"kind": "bad"}, "Invalid enum value 'bad'"),
        ({"termination": "bored"}, "Invalid enum value 'bored'"),
        ({"reward": "1"}, "Expected `float | null`, got `str`"),
        ({"sample": 1.5}, "Expected `int`, got `float`"),
        ({"rollout": None}, "Expected `str`, got `null`"),
    ],
)
def test_a_reader_refuses_what_the_words_do_not_know(
    make_result: Callable[..., Result], changes: dict[str, Any], what: str
) -> None:
    data = {**msgspec.to_builtins(make_result()), **changes}
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.json.decode(msgspec.json.encode(data), type=Result)
    assert str(caught.value) == f"{what} - at `$.{next(iter(changes))}`"


def test_a_reader_takes_a_later_field_and_misses_a_required_one(make_result: Callable[..., Result]) -> None:
    data = {**msgspec.to_builtins(make_result()), "later": [1]}
    assert msgspec.json.decode(msgspec.json.encode(data), type=Result) == make_result()
    del data["rollout"]
    with pytest.raises(msgspec.ValidationError, match="Object missing required field `rollout`"):
        msgspec.json.decode(msgspec.json.encode(data), type=Result)
