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
        "mean reward    0.875 (95 %: 0.0000 to 1.0000)",
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


def test_gates_over_a_run(tool: Tool) -> None:
    """Their lines are those of a session, and so is the exit status."""
    place = tool.results.path / "gated.json"
    write_record(place, baseline_of(load_rows(tool.run)))
    status, text, _ = tool("gate", "infra_rate < 0.3", "mean_reward >= 0.8", f"regression({place}) < 0.1")
    assert (status, text.splitlines()) == (
        76,
        [
            "gate infra_rate < 0.3: holds; 0.25; 1 of 4",
            "gate mean_reward >= 0.8: does not hold; 0.875; with forgeable infra as 0: 0.5833; 3 measured of 4; "
            "it holds only without what the candidate may have brought about",
            f"gate regression({place}) < 0.1: holds; +0.0000, at most +0.0000 (95 %), on the mean of 2 common tasks",
            "gate measured >= 0.7 (implied): holds; 0.75; 3 of 4, 1 infra",
        ],
    )
    assert tool("gate", "infra_rate < 0.3", "--json", "--run", str(place))[0] == 0
    assert tool.refused("gate", "regression(last) < 0.1") == (
        f"there is no finished run in {tool.results.path}\nName a baseline file, or run once without this gate."
    )
    assert tool.refused("gate", "reward > 1").startswith("gate: 'reward > 1': unknown figure 'reward'; valid: ")
