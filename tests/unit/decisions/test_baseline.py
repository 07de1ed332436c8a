"""The baseline file, and the words that name a side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytest_rollout.decisions.baseline import baseline_of, read_baseline, rows_of, text_of
from pytest_rollout.decisions.rows import Labels, Rows, RowUsage, canonical, load_rows
from pytest_rollout.decisions.sides import load_finished, load_side
from pytest_rollout.errors import ConfigError, SelectorError
from pytest_rollout.store.folder import ResultsFolder, write_record
from pytest_rollout.store.records import GatesRecord, Plan, Planned
from tests.unit.decisions.pairmaking import PINS, row, side

PIN = {"model": "m", "sampling": canonical({"top_p": 1}), "extra": canonical({"k": [1, "ü"]})}
LABELS = {"b": Labels(("x",)), "e": Labels(("y",), "held-out")}
LONG = "sha256:" + "0123456789" * 6


def rows() -> Rows:
    usage = RowUsage(wall=1.5, peak_memory=1024)
    made = side(
        {"b": [1.0, 0.25, None], "a": [0.0]}, pins={**PIN, "environment_revision": LONG}, usage=usage, tags=("x",)
    )
    odd = row("c", 1.0, split="held-out", trusted=False, evaluator_revision=f"{LONG[:17]}ff")
    forgeable = row("d", None, forgeable=True)
    return msgspec.structs.replace(made, rows=(*made.rows, odd, forgeable), missing={"b": 1, "e": 2}, labels=LABELS)


def kept(found: Rows) -> list[dict[str, Any]]:
    """What a baseline keeps of rows: neither their ids nor their evidence, and of unmeasured ones only that."""
    dropped = {"rollout", "folder", "termination", "message", "kind"}
    made = []
    for each in sorted(found.rows, key=lambda each: (each.task, each.sample)):
        values = {name: getattr(each, name) for name in each.__struct_fields__ if name not in dropped}
        made.append(values if each.reward is not None else {**values, "evaluator_revision": None, "pins": None})
    return made


def write(path: Path, data: object) -> Path:
    path.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
    return path


def test_a_baseline_reads_back_to_the_same_rows(tmp_path: Path) -> None:
    text = text_of(baseline_of(rows()))
    found = read_baseline(write(tmp_path / "b.json", text))
    again = rows_of(found)
    assert kept(again) == kept(rows())
    assert (again.name, again.missing, again.labels) == (rows().name, {"b": 1, "e": 2}, LABELS)
    assert text_of(found) == text
    assert text_of(baseline_of(again)) == text
    by_sample = sorted(rows().rows, key=lambda each: (each.sample, each.task))
    assert text_of(baseline_of(msgspec.structs.replace(rows(), rows=tuple(by_sample)))) == text


def test_a_task_is_one_line_and_the_file_is_small() -> None:
    lines = text_of(baseline_of(rows())).splitlines()
    tasks = [line for line in lines if '"rewards"' in line]
    assert [line.strip()[:3] for line in tasks] == ['"a"', '"b"', '"c"', '"d"', '"e"']
    assert tasks[1] == (
        '  "b": {"rewards":[1.0,0.25,null],"passed":[0],"missing":1,"pins":0,"digest":"t","environment":"01234567890",'
        '"checks":"checks","tags":["x"],"usage":{"wall":1.5,"peak_memory":1024.0}},'
    )
    many = side(
        {f"evals/test_suite.py::test_task[{n}]": [1.0] * 4 for n in range(1000)}, pins={"environment_revision": LONG}
    )
    assert len(text_of(baseline_of(many))) < 200_000


def test_usage_is_the_mean_of_what_is_known_to_six_digits() -> None:
    made = [row("a", 1.0, sample=n, usage=RowUsage(wall=wall)) for n, wall in enumerate((1.0, 2.0, 2.0000015, None))]
    found = baseline_of(Rows(name="r", rows=tuple(made))).tasks["a"].usage
    assert found == {"wall": 1.66667}


def test_a_task_of_two_minds_is_refused() -> None:
    other = row("a", 1.0, sample=1, pins=msgspec.structs.replace(PINS, model="n"))
    with pytest.raises(ConfigError, match="the samples of a were not made under the same pins"):
        baseline_of(Rows(name="r", rows=(row("a", 1.0), other)))
    with pytest.raises(ConfigError, match="r has no rollouts, so it can't be a baseline"):
        baseline_of(Rows(name="r", rows=()))


def test_revisions_that_begin_alike_have_longer_names() -> None:
    revisions = ["sha256:" + "a" * 12 + end for end in "01"]
    made = [row(task, 1.0, evaluator_revision=each) for task, each in zip("ab", revisions, strict=True)]
    found = baseline_of(Rows(name="r", rows=tuple(made)))
    assert found.revisions == {"a" * 12 + "0": revisions[0], "a" * 12 + "1": revisions[1], "e": "e"}
    assert found.tasks["b"].checks == "a" * 12 + "1"


GOOD: dict[str, Any] = {"schema_version": 1, "run": "r", "pins": [], "revisions": {}, "tasks": {}}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("{", "is not a baseline: Input data was truncated"),
        ([], "is not a baseline: Expected `object`, got `array`"),
        ({"rewards": 1}, "is not a baseline: Object missing required field `schema_version`"),
        ({**GOOD, "schema_version": 2}, "is of schema version 2; this pytest-rollout reads 1"),
        ({**GOOD, "more": 1}, "Object contains unknown field `more`"),
        ({**GOOD, "tasks": {"t": {"rewards": [2]}}}, "Expected `float` <= 1.0"),
        ({**GOOD, "tasks": {"t": {"rewards": [1], "x": 1}}}, "Object contains unknown field `x` - at `$.tasks[...]`"),
        ({**GOOD, "tasks": {"t": {"rewards": [1], "pins": 0}}}, "in the task t pins is 0, and there are 0"),
        (
            {**GOOD, "tasks": {"t": {"rewards": [1], "checks": "c"}}},
            "in the task t is the revision 'c', which the file",
        ),
        (
            {**GOOD, "tasks": {"t": {"rewards": [1], "passed": [1]}}},
            "passed names the sample 1, which is not among the 1",
        ),
        (
            {**GOOD, "tasks": {"t": {"rewards": [None], "passed": [0]}}},
            "passed names the sample 0, which has no reward",
        ),
        ({**GOOD, "tasks": {"t": {"rewards": [1], "usage": {"x": 1}}}}, "usage has the unknown field 'x'"),
    ],
)
def test_a_file_that_is_none_is_refused(data: object, message: str, tmp_path: Path) -> None:
    place = write(tmp_path / "b.json", data)
    with pytest.raises(ConfigError) as caught:
        read_baseline(place)
    assert str(place) in caught.value.message
    assert message in caught.value.message


def test_a_file_that_is_no_text_or_not_there_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "b.json"
    place.write_bytes(b'{"run": "\xff"}')
    with pytest.raises(ConfigError, match="is not a baseline"):
        read_baseline(place)
    with pytest.raises(ConfigError, match=r"none.json can't be read: No such file"):
        read_baseline(tmp_path / "none.json")


# Sides


def test_a_side_is_a_run_its_folder_or_a_file(tmp_path: Path) -> None:
    results = ResultsFolder(tmp_path / "results")
    names = ["2026-01-01T00-00-00Z-0000000a", "2026-01-02T00-00-00Z-0000000b"]
    runs = [results.open_run(name) for name in names]
    line = '{"rollout": "r", "task": "t", "sample": 0, "outcome": "passed", "reward": 1.0, "pins": {"extra": {}}}\n'
    (runs[0].results / "main.jsonl").write_text(line)
    assert load_side(results, "last").name == names[1]
    assert load_side(results, "last", but={names[1]}).name == names[0]
    assert load_side(results, "0000000a") == load_side(results, str(runs[0].path)) == load_rows(runs[0])
    file = write(tmp_path / "b.json", text_of(baseline_of(load_rows(runs[0]))))
    assert [each.reward for each in load_side(results, str(file)).rows] == [1.0]
    with pytest.raises(SelectorError, match="there is no earlier run"):
        load_side(results, "last", but=names)
    with pytest.raises(SelectorError, match="no run begins with 'nothing'"):
        load_side(results, "nothing")


def test_rows_hold_once_what_they_share(tmp_path: Path) -> None:
    run = ResultsFolder(tmp_path).open_run("2026-01-01T00-00-00Z-0000000a")
    line = (
        '{"rollout": "%s", "task": "a task", "sample": 0, "outcome": "passed", "evaluator_revision": "an evaluator", '
    )
    line += '"pins": {"model": "m", "sampling": {"b": 1, "a": 2}, "extra": {"k": 1}, "unknown": 1}}\n'
    (run.results / "main.jsonl").write_text(line % "a" + line % "b")
    found = load_rows(run)
    first, second = found.rows
    assert first.pins is second.pins
    assert first.task is second.task and first.evaluator_revision is second.evaluator_revision
    assert first.pins is not None
    assert (first.pins.sampling, first.pins.extra) == ('{"a":2,"b":1}', '{"k":1}')
    assert found.folder == str(run.path)


def test_what_is_missing_keeps_its_labels(tmp_path: Path) -> None:
    run = ResultsFolder(tmp_path).open_run("2026-01-01T00-00-00Z-0000000a")
    (run.results / "main.jsonl").write_text('{"rollout": "a", "task": "t", "sample": 0, "outcome": "infra"}\n{"roll')
    planned = [
        Planned(node=each, rollout=each, task=f"t{each}", sample=0, agent="a", tags=("x",), split="held-out")
        for each in "abb"
    ]
    write_record(run.plan, Plan(rollouts=tuple(planned)))
    found = load_rows(run)
    assert (found.missing, found.labels, found.broken) == ({"tb": 2}, {"tb": Labels(("x",), "held-out")}, 1)


def test_a_run_whose_gates_did_not_hold_is_not_what_a_later_one_is_held_against(tmp_path: Path) -> None:
    """Else the run after a drop would be held against the drop."""
    results = ResultsFolder(tmp_path)
    for name, status in (("r1", None), ("r2", 0), ("r3", 76), ("r4", 75)):
        run = results.open_run(name)
        (run.results / "main.jsonl").write_bytes(msgspec.json.encode(row("a", 1.0, pins=None)) + b"\n")
        if status is not None:
            write_record(run.gates, GatesRecord(status=status, lines=()))
    assert load_finished(results, "last", tmp_path).name == "r2"
    assert load_finished(results, "last", tmp_path, but={"r2"}).name == "r1"
    assert load_finished(results, "r3", tmp_path).name == "r3"
