"""Scores of people: appended, read again, the last one of a person counts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_rollout.errors import ConfigError, RecordingError
from pytest_rollout.redaction.redactor import Redactor
from pytest_rollout.store.folder import RunFolder
from pytest_rollout.store.labels import Label, add_label, check_reward, counted, load_labels, person


def label(**changes: Any) -> Label:
    values = {"rollout": "r-a-s0", "reward": 0.5, "by": "Ada", "reason": "half", "time": "2026-11-29T22:08:04+00:00"}
    return Label(**{**values, **changes})


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path)


def test_labels_are_appended_and_the_last_of_a_person_counts(run: RunFolder) -> None:
    assert load_labels(run) == ((), 0)
    given = [label(), label(by="Bob", reward=0.0), label(rollout="r-b-s0"), label(reward=1.0, reason="looked again")]
    for each in given:
        assert add_label(run, each) == run.path / "labels.jsonl"
    assert load_labels(run) == (tuple(given), 0)
    assert counted(load_labels(run)[0]) == tuple(given[1:])


def test_a_line_that_was_cut_off_does_not_spoil_the_next_one(run: RunFolder) -> None:
    (run.path / "labels.jsonl").write_bytes(b'{"rollout": "r')
    add_label(run, label())
    assert load_labels(run) == ((label(),), 1)


def test_a_label_has_no_secrets(run: RunFolder) -> None:
    redactor = Redactor.of_process({"MY_TOKEN": "s3cr3t-value-of-it"}, exists=lambda _: False)
    add_label(run, label(reason="it printed s3cr3t-value-of-it"), redactor)
    (line,) = (run.path / "labels.jsonl").read_text().splitlines()
    assert json.loads(line)["reason"] == "it printed [redacted: MY_TOKEN]"


def test_a_run_that_is_gone_gets_no_label(run: RunFolder, tmp_path: Path) -> None:
    gone = RunFolder(tmp_path / "gone")
    with pytest.raises(RecordingError, match=r"^a label can't be written to .*: No such file or directory$"):
        add_label(gone, label())


@pytest.mark.parametrize("text", ["1.1", "-0.1", "nan", "inf", "", "a", "1e400", "0,5"])
def test_a_score_is_a_number_from_0_to_1(text: str) -> None:
    with pytest.raises(ValueError, match=r" is not a number from 0 to 1$") as raised:
        check_reward(text)
    assert repr(text) in str(raised.value)


def test_scores_that_are_none_too_many() -> None:
    assert [check_reward(text) for text in ("0", "1", "0.7", " .5", "1e-3", "-0")] == [0, 1, 0.7, 0.5, 0.001, 0]
    assert str(check_reward("-0")) == "0.0"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda run: person(" \n"), "--by: the name of who gives the label is empty"),
        (lambda run: person("x" * 201), "--by: the name has 201 characters; at most 200"),
        (lambda run: add_label(run, label(reason="x" * 10_001)), "--reason: it has 10001 characters; at most 10000"),
    ],
)
def test_names_and_reasons_have_a_length(run: RunFolder, call: Callable[[RunFolder], object], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        call(run)
    assert str(raised.value) == message
    assert person("  Ada \t Lovelace ") == "Ada Lovelace"
