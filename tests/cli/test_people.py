"""Scores of people on the command line, and what a run that scored another again says of it."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from pytest_rollout.store.folder import write_record
from pytest_rollout.store.records import Result, RunRecord, Source, SourceRun
from tests.cli.conftest import Tool

RUNS = ("2026-01-01T00-00-00Z-00000001", "2026-01-01T00-00-01Z-00000002")


def write_run(tool: Tool, name: str, *results: Result, source: str | None = None) -> None:
    run = tool.results.open_run(name)
    (run.results / "main.jsonl").write_bytes(b"".join(msgspec.json.encode(result) + b"\n" for result in results))
    scored = None if source is None else SourceRun(run=source, folder=str(tool.results.runs / source))
    record = RunRecord(run=name, started="", plugin_version="", options={}, pins={}, environment={}, source=scored)
    write_record(run.record, record)


def line(rollout: str, **changes: Any) -> Result:
    values: dict[str, Any] = {"task": "t", "sample": 0, "attempt": 1, "node": "n", "agent": "a", "outcome": "passed"}
    return Result(rollout=rollout, **{**values, "reward": 1.0, "evaluator_revision": "sha256:old", **changes})


def test_labels_stand_beside_rewards_and_hold_when_they_are_scored_again(empty: Tool) -> None:
    infra = line("00000001-b", outcome="infra", kind="vacuous", reward=None)
    write_run(empty, RUNS[0], line("00000001-a", outcome="failed", reward=0.25), infra)
    assert empty.said("label", "00000001-a", "--reward", "0.7", "--by", "Ada", "--reason", "almost") == [
        "00000001-a: 0.7 by Ada; computed: 0.25"
    ]
    empty.said("label", "00000001-a", "--reward", "1", "--by", "Bob  B.")
    assert empty.said("label", "00000001-a", "--reward", "0.75", "--by", "Ada", "--reason", "a\nb") == [
        "00000001-a: 0.75 by Ada, instead of 0.7; computed: 0.25"
    ]
    empty.said("label", "00000001-b", "--reward", "0", "--by", "Ada")
    labels = [json.loads(text) for text in (empty.results.runs / RUNS[0] / "labels.jsonl").read_text().splitlines()]
    assert [(label["rollout"], label["by"], label["reward"]) for label in labels] == [
        ("00000001-a", "Ada", 0.7),
        ("00000001-a", "Bob B.", 1.0),
        ("00000001-a", "Ada", 0.75),
        ("00000001-b", "Ada", 0.0),
    ]
    assert (labels[0]["computed"], labels[0]["evaluator_revision"], labels[0]["threshold"]) == (0.25, "sha256:old", 1.0)
    assert [text.split("  ")[-1] for text in empty.said("list", "last")] == ["labels: 1, 0.75", "labels: 0"]
    time = labels[2]["time"][:19]
    assert f"label        0.75 by Ada, {time}: a\\nb" in empty.said("show", "00000001-a")
    assert empty.said("labels")[-4:] == [
        "Ada: mean absolute difference 0.5; 1 of 1 the same verdict, Cohen's kappa not defined",
        "Bob B.: mean absolute difference 0.75; 0 of 1 the same verdict, Cohen's kappa 0",
        "all together: mean absolute difference 0.625; 1 of 2 the same verdict, Cohen's kappa 0",
        "1 label of rollouts that measured nothing, and so agree with nothing",
    ]

    source = Source(run=RUNS[0], rollout="00000001-a", outcome="failed", reward=0.25, evaluator_revision="sha256:old")
    write_run(empty, RUNS[1], line("00000002-a", evaluator_revision="sha256:new", source=source), source=RUNS[0])
    empty.said("label", "00000002-a", "--reward", "0.5", "--by", "Bob B.")
    shown = json.loads("\n".join(empty.said("labels", "last", "--json")))
    assert [(label["rollout"], label["by"], label["reward"]) for label in shown["labels"]] == [
        ("00000002-a", "Bob B.", 0.5),
        ("00000001-a", "Ada", 0.75),
    ]
    assert [each["mean_absolute_difference"] for each in shown["agreement"]] == [0.25, 0.5, 0.375]
    assert empty.said("list", "last") == ["passed          1  00000002-a  was 0.25  labels: 0.5, 0.75"]
    assert f"scored again 00000001-a of {RUNS[0]}: failed, reward 0.25 then" in empty.said("show", "00000002-a")
    assert empty.said("list")[1].endswith(
        f"; mean 1 of 1; {RUNS[0]} scored again: mean reward 0.25 → 1, 1 of 1 changed; "
        "other checks than before for 1 task"
    )
    again = json.loads(empty.said("list", "--json")[1])["scored_again"]
    total = again["total"]
    assert (again["run"], total["old_mean"], total["new_mean"], total["changed"]) == (RUNS[0], 0.25, 1.0, 1)
    assert [task["new_revisions"] for task in again["tasks"]] == [["sha256:new"]]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("1-a", "--reward", "2", "--by", "A"), "argument --reward: '2' is not a number from 0 to 1"),
        (("1-a", "--reward", "nan", "--by", "A"), "argument --reward: 'nan' is not a number from 0 to 1"),
        (("1-a", "--reward", "1"), "the following arguments are required: --by"),
        (("1-a", "--reward", "1", "--by", " "), "--by: the name of who gives the label is empty"),
        (("9-a", "--reward", "1", "--by", "A"), "no rollout begins with '9-a' in "),
    ],
)
def test_what_is_no_label_is_refused(empty: Tool, words: tuple[str, ...], message: str) -> None:
    write_run(empty, RUNS[0], line("1-a"))
    code, text, errors = empty("label", *words)
    assert (code, text) == (2, "")
    assert message in errors
    assert not (empty.results.runs / RUNS[0] / "labels.jsonl").exists()


def test_a_pass_for_a_person_is_one_at_the_tasks_threshold(tool: Tool) -> None:
    rollout = tool.of("test_fails").rollout
    tool.said("label", rollout, "--reward", "1", "--by", "A")
    (label,) = [json.loads(text) for text in (tool.run.path / "labels.jsonl").read_text().splitlines()]
    assert (label["threshold"], label["computed"]) == (1.0, 0.75)


def test_a_run_without_labels(empty: Tool) -> None:
    write_run(empty, RUNS[0], line("1-a"))
    assert empty.said("labels") == [f"0 labels of 0 of the 1 rollout in {RUNS[0]}"]
