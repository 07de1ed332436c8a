"""The verb ``stats`` over the records of a real run."""

from __future__ import annotations

import json

from pytest_rollout.decisions.baseline import baseline_of
from pytest_rollout.decisions.rows import load_rows
from pytest_rollout.store.folder import write_record
from tests.cli.conftest import Tool


def test_the_figures_of_a_run(tool: Tool) -> None:
    lines = tool.said("stats", "--k", "2,1")
    assert lines[0].split() == ["run", tool.run.name]
    assert lines[1:4] == [
        "rollouts       3 measured of 4 planned, 1 infra",
        "tasks          3, 2 measured",
        "mean reward    0.875 (95 %: -0.7133 to 2.4633)",
    ]
    assert [line for line in lines if line.startswith("pass@")] == [
        "pass@1, ^1     0.5, 0.5 over 2 tasks of 3",
        "pass@2, ^2     1, 1 over 1 task of 3",
    ]
    assert "infra rate     0.25: 1 spawn" in lines
    assert tool.said("stats", "last", "--by", "task")[-4].split() == [
        "measured",
        "mean",
        "success",
        "95",
        "%",
        *("pass@1", "^1", "pass@2", "^2"),
        "task",
    ]
    assert tool.said("stats", "--by", "split")[-1].endswith("  (none)")


def test_as_json(tool: Tool) -> None:
    found = json.loads("\n".join(tool.said("stats", "--json", "--by", "task", "--seed", "3")))
    assert (found["run"], found["broken"], sorted(found["by"])) == (
        tool.run.name,
        0,
        sorted({row.task for row in load_rows(tool.run).rows}),
    )
    figures = found["figures"]
    assert (figures["mean_reward"], figures["infra_rate"], figures["kinds"]) == (0.875, 0.25, {"spawn": 1})
    assert [each["k"] for each in figures["passes"]] == [1, 2]
    (spawn,) = [task for name, task in found["by"].items() if "spawn" in name]
    assert (spawn["mean"], spawn["interval"], spawn["planned"]) == (None, None, 1)


def test_of_a_baseline_file(tool: Tool) -> None:
    place = tool.results.path / "base.json"
    write_record(place, baseline_of(load_rows(tool.run)))
    of_file, of_run = tool.said("stats", str(place)), tool.said("stats", "last")
    assert of_file == [line.replace("1 spawn", "1 unknown") for line in of_run]  # a file has no kinds


def test_what_is_refused(tool: Tool) -> None:
    assert tool.refused("stats", "--tag", "x") == f"no task of {tool.run.name} has the tag 'x'"
    assert "'0' is not a list of numbers of samples from 1, such as 1,4" in tool("stats", "--k", "0")[2]
    assert tool.refused("stats", "nothing").startswith("no run begins with 'nothing'")
