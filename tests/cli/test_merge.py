"""The console tool's ``merge`` and ``export``, over a real run."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import pyarrow.parquet
import pytest
from lxml import etree

from pytest_rollout.bundle import Pins
from pytest_rollout.identity import task_folder
from pytest_rollout.store.load import load_results
from tests.cli.conftest import OUTCOMES, Tool
from tests.cli.test_cli import line, write_run

OTHER = "2026-01-01T00-00-00Z-0000000b"


@pytest.fixture
def other(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Tool:
    """A second folder of results, made by hand: a result, and a planned rollout without one."""
    tool = Tool(tmp_path / "other", capfd)
    write_run(tool, OTHER, line("b-t"), plan="b-t", broken='{"rollo')
    return tool


def test_a_merged_real_run_is_a_run_like_any_other(tool: Tool, other: Tool, stages: str, tmp_path: Path) -> None:
    status, text, errors = tool("merge", str(tool.results.path), str(other.results.path), "--into", str(tmp_path / "m"))
    merged = Tool(tmp_path / "m", tool._capfd)
    assert text.splitlines() == ["merged 2 runs: 5 rollouts of 4 tasks", f"results: {merged.run.path}"]
    assert (status, errors) == (1, "pytest-rollout: 1 line of results can't be read\n")
    name = merged.run.name
    assert merged.said("list") == [f"{name}  4 agents  5 rollouts: 3 passed, 1 failed, 1 infra; mean 0.9167 of 4"]
    for before in load_results(tool.run).results:
        shown = merged.said("show", before.rollout)
        same = [each for each in tool.said("show", before.rollout) if not each.startswith("folder ")]
        assert [each for each in shown if not each.startswith("folder ")] == same
    passed = tool.of("test_passes").rollout
    words = ("diff", passed, "--stage-root", stages)
    assert merged.said(*words) == tool.said(*words)
    rows = [json.loads(each) for each in merged("export")[1].splitlines()]
    assert sorted(row["outcome"] for row in rows) == sorted([*OUTCOMES, "passed"])
    assert {row["run"] for row in rows} == {name}


def test_gaps_are_an_exit_status_unless_they_are_allowed(other: Tool, tmp_path: Path) -> None:
    words = ["merge", str(other.results.path), "--into", str(tmp_path / "m")]
    assert other(*words)[0] == 1
    status, text, errors = other(*words, "--allow-gaps", "--evidence=none")
    assert (status, text.splitlines()[0], errors) == (
        0,
        "merged 1 run: 1 rollout of 1 task",
        "pytest-rollout: 1 line of results can't be read\n",
    )


def test_duplicates_and_what_is_missing_are_named(empty: Tool, tmp_path: Path) -> None:
    write_run(empty, OTHER, line("a-t"), plan="a-t")
    later = line("b-t", reward=0.5, outcome="failed", time="2")
    run = write_run(empty, OTHER.replace("b", "c"), later)
    status, text, errors = empty("merge", str(empty.results.path), "--into", str(tmp_path / "m"))
    assert (status, text.splitlines()[0]) == (1, "merged 2 runs: 1 rollout of 1 task")
    assert errors.splitlines() == [
        "pytest-rollout: 1 sample made by several runs:",
        "pytest-rollout:   t, sample 0: a-t counts, not b-t",
        f"pytest-rollout: missing: the plan of 1 run: {run.name}",
    ]


def test_runs_that_do_not_belong_together_are_refused(empty: Tool, tmp_path: Path) -> None:
    pins = [
        Pins(task_digest="t", agent="a", model=model, seed=0, network="none", executor="local", plugin_version="1")
        for model in ("m1", "m2")
    ]
    write_run(empty, OTHER, line("a-t", pins=pins[0]), plan="a-t")
    write_run(empty, OTHER.replace("b", "c"), line("b-u", task="u", pins=pins[1]), plan="b-u")
    words = ["merge", str(empty.results.path), "--into", str(tmp_path / "m")]
    difference = f"model of agent a differs: 'm1' in {OTHER}, 'm2' in {OTHER.replace('b', 'c')}"
    assert empty.refused(*words) == (
        f"the runs do not belong together:\n{difference}\nMerge them all the same with --allow-pins."
    )
    assert not (tmp_path / "m").exists()
    status, _, errors = empty(*words, "--allow-pins", "--allow-gaps")
    assert (status, errors.splitlines()[0]) == (0, f"pytest-rollout: {difference}")


def test_junit_files_are_merged_beside(empty: Tool, tmp_path: Path) -> None:
    write_run(empty, OTHER, line("a-t"), line("a-u", task="u"), plan="a-t")
    write_run(empty, OTHER.replace("b", "c"), line("b-t", time="2"), plan="b-t")
    files = []
    for rollout in ("a-t", "b-t"):
        case = f'<testcase name="{rollout}"><properties><property name="rollout.rollout_id" value="{rollout}"/>'
        files.append(tmp_path / f"{rollout}.xml")
        files[-1].write_text(f"<testsuites><testsuite>{case}</properties></testcase></testsuite></testsuites>")
    out = tmp_path / "out.xml"
    words = ["merge", str(empty.results.path), "--into", str(tmp_path / "m"), "--junit", str(out)]
    status, text, errors = empty(*words, *map(str, files))
    assert (status, text.splitlines()[1]) == (0, f"JUnit: 1 testcase in {out}")
    assert errors.splitlines()[-2:] == [
        "pytest-rollout: 1 testcase left out: those of other rollouts count",
        "pytest-rollout: 1 rollout without a testcase in the JUnit files: a-u",
    ]
    assert [case.get("name") for case in etree.parse(out).getroot().iter("testcase")] == ["a-t"]
    status, _, errors = empty(*words)
    assert (status, errors.splitlines()[-1]) == (
        2,
        "pytest-rollout merge: error: argument --junit: expected the new file and at least one to merge",
    )


def test_export_to_standard_output_and_to_files(tool: Tool, tmp_path: Path) -> None:
    status, text, errors = tool("export")
    rows = [json.loads(each) for each in text.splitlines()]
    assert (status, errors) == (0, "pytest-rollout: 4 rows of 1 run\n")
    assert [(row["outcome"], row["reward"]) for row in rows] == [
        ("failed", 0.75),
        ("passed", 1.0),
        ("passed", 1.0),
        ("infra", None),
    ]
    assert [row["group_size"] for row in rows] == [1, 2, 2, 1]
    assert all((tool.run.path / row["path_bundle"]).is_file() for row in rows)
    place = tmp_path / "rows"
    assert tool("export", tool.run.name, str(tool.run.path), "--output", str(place))[:2] == (0, "")
    assert place.read_text() == text
    assert tool("export", "--format", "parquet", "--output", str(place))[0] == 0
    assert pyarrow.parquet.read_table(place)["reward"].to_pylist() == [0.75, 1.0, 1.0, None]
    assert [each.name for each in tmp_path.glob(".rows*")] == []


def test_what_is_left_out_of_an_export_is_said(empty: Tool) -> None:
    write_run(empty, OTHER, line("a-t", trusted=False), line("a-u", split="s"), plan="a-t a-u a-v", broken="{")
    _, text, errors = empty("export")
    assert [json.loads(each)["rollout"] for each in text.splitlines()] == ["a-u"]
    assert errors.splitlines() == [
        "pytest-rollout: 1 row of 1 run",
        "pytest-rollout: 1 untrusted rollout left out: --untrusted exports them too",
        "pytest-rollout: 1 planned rollout without a result: no row, but counted in group_size",
        "pytest-rollout: 1 line of results can't be read",
    ]
    assert len(empty("export", "--untrusted")[1].splitlines()) == 2
    assert len(empty("export", "--untrusted", "--split", "s")[1].splitlines()) == 1


def test_exports_that_are_refused(empty: Tool) -> None:
    write_run(empty, OTHER, line("a-t"))
    status, _, errors = empty("export", "--format", "parquet")
    assert (status, errors.splitlines()[-1]) == (
        2,
        "pytest-rollout export: error: --format parquet needs --output FILE",
    )
    assert empty.refused("export", "nope").startswith("no run begins with 'nope'")


@pytest.mark.parametrize("name", ["rollouts", "rollouts/TASK/s0", "labels.jsonl", "results/x.jsonl", "run.json"])
def test_nothing_of_this_machine_comes_in_by_a_link_in_a_shard(empty: Tool, tmp_path: Path, name: str) -> None:
    """A shard may be an artifact of somebody else's job."""
    private = tmp_path / "private"
    below = private / task_folder("t") / "s0" if name == "rollouts" else private
    (below / "a1").mkdir(parents=True)
    (below / "a1" / "id_rsa").write_text("private")
    (private / "one").write_text('{"run":"private"}')
    run = write_run(empty, OTHER, line("a-t"), plan="a-t").path
    place = run / name.replace("TASK", task_folder("t"))
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    place.symlink_to(private if name.startswith("rollouts") else private / "one")
    empty("merge", str(empty.results.path), "--into", str(tmp_path / "m"))
    found = [path for path in (tmp_path / "m").rglob("*") if path.is_file() and b"private" in path.read_bytes()]
    assert found == []


@pytest.mark.parametrize("name", ["run.json", "plan.json", "results/x.jsonl", "labels.jsonl", "duplicates.jsonl"])
def test_a_fifo_in_a_shard_is_refused(empty: Tool, tmp_path: Path, name: str) -> None:
    run = write_run(empty, OTHER, line("a-t"), plan="a-t").path
    (run / name).unlink(missing_ok=True)
    os.mkfifo(run / name)
    said = empty.refused("merge", str(empty.results.path), "--into", str(tmp_path / "m"))
    assert "is no plain file" in said


def test_a_link_in_evidence_is_not_copied(empty: Tool, tmp_path: Path) -> None:
    run = write_run(empty, OTHER, line("a-t"), plan="a-t").path
    attempt = run / "rollouts" / task_folder("t") / "s0" / "a1"
    attempt.mkdir(parents=True)
    (attempt / "stdout").symlink_to("/etc/passwd")
    (attempt / "stderr").write_text("said")
    assert empty("merge", str(empty.results.path), "--into", str(tmp_path / "m"))[0] == 0
    assert [path.name for path in (tmp_path / "m").rglob("std*")] == ["stderr"]


def test_a_run_that_is_a_link_is_refused(empty: Tool, tmp_path: Path) -> None:
    run = write_run(empty, OTHER, line("a-t"), plan="a-t").path
    (tmp_path / "shard" / "runs").mkdir(parents=True)
    (tmp_path / "shard" / "runs" / OTHER).symlink_to(run)
    assert "is a link" in empty.refused("merge", str(tmp_path / "shard"), "--into", str(tmp_path / "m"))


@pytest.mark.parametrize(
    "said",
    [
        {"run": OTHER, "redacted": 1},
        {"run": OTHER, "not_redacted": ["a"]},
        {"run": OTHER, "shard": {"index": 1, "count": 2, "all_rollouts": "x"}},
        {"run": OTHER, "shard": {"index": 1, "count": 10**9, "tests": 1, "all_tests": 1, "all_rollouts": 10**9}},
        {"run": OTHER, "merged": [{"run": 7}]},
    ],
)
def test_a_record_of_odd_types_is_as_none(empty: Tool, tmp_path: Path, said: dict[str, object]) -> None:
    run = write_run(empty, OTHER, line("a-t"), plan="a-t").path
    (run / "run.json").write_text(json.dumps(said))
    assert empty("merge", str(empty.results.path), "--into", str(tmp_path / "m"))[0] == 0


@pytest.mark.parametrize("name", ["run.json", "plan.json", "results/x.jsonl", "labels.jsonl"])
def test_what_is_nested_without_end_is_as_none(empty: Tool, tmp_path: Path, name: str) -> None:
    run = write_run(empty, OTHER, line("a-t"), plan="a-t").path
    (run / name).write_text('{"x":' + "[" * 100_000)
    status, text, _ = empty("merge", str(empty.results.path), "--into", str(tmp_path / "m"))
    assert status == (name in ("plan.json", "results/x.jsonl"))
    assert text.splitlines()[0] == "merged 1 run: 1 rollout of 1 task"


@pytest.mark.parametrize("change", [{"reward": 7.0}, {"attempt": -1}, {"sample": -1}, {"node": None}])
def test_a_line_that_no_run_writes_is_broken_and_displaces_none(
    empty: Tool, tmp_path: Path, change: dict[str, object]
) -> None:
    forged = json.loads(msgspec.json.encode(line("c-t"))) | change
    run = write_run(empty, OTHER, line("a-t", reward=0.5, outcome="failed"), plan="a-t").path
    (run / "results" / "x.jsonl").write_text(json.dumps(forged) + "\n")
    status, text, errors = empty("merge", str(empty.results.path), "--into", str(tmp_path / "m"))
    assert (status, text.splitlines()[0]) == (1, "merged 1 run: 1 rollout of 1 task")
    assert errors == "pytest-rollout: 1 line of results can't be read\n"
