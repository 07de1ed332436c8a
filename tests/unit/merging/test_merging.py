"""Runs of shards become one run: what counts, what is missing, and that order and repetition do not matter."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_rollout.errors import ConfigError
from pytest_rollout.merging.merged import Duplicate, Merged, merge
from pytest_rollout.merging.pins import Difference, differing
from pytest_rollout.merging.shards import find_shards, read_shard
from pytest_rollout.merging.write import write
from pytest_rollout.store.folder import ResultsFolder, RunFolder, read_record
from pytest_rollout.store.load import load_plan, load_results
from pytest_rollout.store.records import Result, RunRecord
from tests.unit.merging.conftest import PINS, Maker, contents, stdout_of


def merged_of(places: Sequence[Path]) -> Merged:
    return merge([read_shard(run, number) for number, run in enumerate(find_shards(places))])


def write_merged(places: Sequence[Path], into: Path, *, evidence: bool = True) -> RunFolder:
    """Merge runs into a folder of results; every file can be copied."""
    shards = [read_shard(run, number) for number, run in enumerate(find_shards(places))]
    written = write(merge(shards), shards, ResultsFolder(into), evidence=evidence)
    assert written.failed == ()
    return RunFolder(written.path)


def test_two_shards_are_one_run(maker: Maker) -> None:
    places = [
        maker.run("1", [maker.line("1", "x::b"), maker.line("1", "x::a", 1)], evidence=True),
        maker.run("2", [maker.line("2", "x::a", reward=0.5, outcome="failed")], evidence=True),
    ]
    run = write_merged(places, maker.folder / "all")
    loaded = load_results(run)
    assert [(result.task, result.sample, result.reward) for result in loaded.results] == [
        ("x::a", 0, 0.5),
        ("x::a", 1, 1.0),
        ("x::b", 0, 1.0),
    ]
    assert (loaded.missing, loaded.broken) == ((), 0)
    assert run.name.startswith("2026-11-03T00-00-00Z-")
    assert [stdout_of(run, "x::a", sample) for sample in (0, 1)] == [result.rollout for result in loaded.results[:2]]
    record = read_record(run.record, RunRecord)
    assert (record.run, record.started, record.options, record.environment) == (
        run.name,
        "2026-11-01T00:00:02+00:00",
        {"agent": "a"},
        {"python": "3"},
    )
    assert [leaf["run"] for leaf in record.merged] == [maker.name("1"), maker.name("2")]
    latest = ResultsFolder(maker.folder / "all").latest()
    assert latest is not None and latest.name == run.name


def test_lines_are_copied_byte_for_byte(maker: Maker) -> None:
    places = [maker.run(digits, [maker.line(digits, digits, message="é\u2028")]) for digits in "12"]
    lines = [next(place.glob("runs/*/results/main.jsonl")).read_bytes() for place in places]
    run = write_merged(places, maker.folder / "all")
    assert (run.results / "merged.jsonl").read_bytes() == b"".join(lines)


def test_what_two_shards_made_counts_once_and_the_other_is_kept_beside(maker: Maker) -> None:
    infra: dict[str, Any] = {"outcome": "infra", "kind": "stage", "reward": None}
    places = [
        maker.run("1", [maker.line("1", "t", **infra), maker.line("1", "u")], evidence=True),
        maker.run("2", [maker.line("2", "t", outcome="failed", reward=0.0)], evidence=True),
    ]
    found = merged_of(places)
    one, two = (maker.line(digits, "t").rollout for digits in "12")
    assert found.duplicates == (Duplicate(task="t", sample=0, counted=two, others=(one,)),)
    assert (found.repeated, found.gaps) == (0, False)
    run = write_merged(places, maker.folder / "all")
    assert [result.rollout for result in load_results(run).results] == [two, maker.line("1", "u").rollout]
    assert json.loads((run.path / "duplicates.jsonl").read_text())["rollout"] == one
    assert stdout_of(run, "t") == two


def test_the_very_same_line_is_no_duplicate(maker: Maker) -> None:
    lines = [maker.line("1", "t")]
    places = [maker.run("1", lines, place="a"), maker.run("1", lines, place="b")]
    found = merged_of([*places, *places])
    assert (found.duplicates, found.repeated, len(found.counted), len(found.record.merged)) == ((), 1, 1, 1)


def test_lines_of_one_rollout_stay_together_with_their_warnings(maker: Maker) -> None:
    first = maker.line("1", "t", outcome="infra", kind="worker", reward=None)
    second = maker.line("1", "t", attempt=2)
    warning = maker.line("1", "t", amends=True, warnings=("odd",))
    run = write_merged(
        [maker.run("1", [first, warning]), maker.run("1", [second], place="later")], maker.folder / "all"
    )
    (result,) = load_results(run).results
    assert (result.attempt, result.reward, result.warnings) == (2, 1.0, ("odd",))
    assert len((run.results / "merged.jsonl").read_bytes().splitlines()) == 3
    assert not (run.path / "duplicates.jsonl").exists()


def test_gaps_are_named(maker: Maker) -> None:
    places = [
        maker.run("1", [maker.line("1", "t")], planned=[("u", 0), ("v", 0)], torn='{"rollout": "1-', shard=(1, 4, 9)),
        maker.run("2", [maker.line("2", "v")], shard=(3, 4, 9)),
    ]
    found = merged_of(places)
    assert found.missing == (maker.line("1", "u").rollout,)
    assert (found.missing_shards, found.unplanned, found.broken, found.gaps) == (("2/4", "4/4"), 6, 1, True)
    run = write_merged(places, maker.folder / "all")
    assert load_results(run).missing == found.missing
    again = merged_of([maker.folder / "all"])
    assert (again.missing, again.missing_shards) == (found.missing, found.missing_shards)


def test_a_shard_without_a_rollout_makes_no_run_and_is_not_missing(maker: Maker) -> None:
    places = [maker.run(str(index), [maker.line(str(index), str(index))], shard=(index, 3, 2)) for index in (1, 3)]
    found = merged_of(places)
    assert (found.missing_shards, found.unplanned, found.gaps) == ((), 0, False)
    assert merged_of(places[:1]).missing_shards == ("2/3", "3/3")


def test_a_run_without_plan_or_record_is_merged_and_named(maker: Maker) -> None:
    place = maker.run("1", [maker.line("1", "t")])
    run = find_shards([place])[0]
    run.plan.unlink()
    run.record.write_text("[")
    found = merged_of([place])
    assert (found.without_plan, found.gaps) == ((run.name,), True)
    assert found.record.merged == ({"run": run.name},)
    assert [planned.task for planned in found.plan.rollouts] == ["t"]


def test_a_run_that_scored_another_again_is_no_shard(maker: Maker) -> None:
    """Where the old score was infra the new one would count, else the old one: two measures in one run."""
    run = find_shards([maker.run("1", [maker.line("1", "t")])])[0]
    record = json.loads(run.record.read_bytes())
    run.record.write_text(json.dumps({**record, "source": {"run": "x", "folder": "/x"}}))
    with pytest.raises(ConfigError, match=f"^{run.name} scored another run again"):
        read_shard(run, 0)


def test_pins_that_differ_are_named(maker: Maker) -> None:
    def pins(**changes: Any) -> Any:
        return msgspec.structs.replace(PINS, **changes)

    places = [
        maker.run(
            "1", [maker.line("1", "t", pins=pins(model="m1"), rung=1), maker.line("1", "u", pins=pins(agent="b"))]
        ),
        maker.run("2", [maker.line("2", "v", pins=pins(model="m2", task_digest="v", plugin_version="2"))]),
        maker.run("3", [maker.line("3", "t", 1, pins=pins(task_digest="other"), rung=4), maker.line("3", "w", rung=1)]),
    ]
    shards = [read_shard(run, number) for number, run in enumerate(find_shards(places))]
    one, two, three = map(maker.name, "123")
    assert differing(merge(shards).counted, shards) == [
        Difference(pin="model", of="agent a", values=(("m1", one), ("m2", two))),
        Difference(pin="plugin_version", of="", values=(("1", one), ("2", two))),
        Difference(pin="rung", of="", values=(("1", one), ("4", three))),
        Difference(pin="task_digest", of="task t", values=(("other", three), ("t", one))),
    ]
    assert differing(merge(shards[:1]).counted, shards) == []


def test_another_agent_is_named_by_the_task_and_by_the_session(maker: Maker) -> None:
    other = msgspec.structs.replace(PINS, agent="b")
    places = [
        maker.run("1", [maker.line("1", "t"), maker.line("1", "u")]),
        maker.run("2", [maker.line("2", "t", 1, pins=other), maker.line("2", "v", pins=other)], agent="b"),
    ]
    shards = [read_shard(run, number) for number, run in enumerate(find_shards(places))]
    values = (("a", maker.name("1")), ("b", maker.name("2")))
    assert differing(merge(shards).counted, shards) == [
        Difference(pin="agent", of="", values=values),
        Difference(pin="agent", of="task t", values=values),
    ]


def test_a_merged_run_that_is_there_gets_what_it_lacks(maker: Maker) -> None:
    place = maker.run("1", [maker.line("1", "t")], evidence=True)
    run = write_merged([place], maker.folder / "all", evidence=False)
    assert not (run.path / "rollouts").exists()
    before = contents(run)
    maker.labels("1", {"rollout": "r", "by": "ann", "reward": 1, "time": "2"}, {"rollout": "r", "time": "1"})
    assert write_merged([place], maker.folder / "all").path == run.path
    after = contents(run)
    assert stdout_of(run, "t") == maker.line("1", "t").rollout
    assert [json.loads(line)["time"] for line in after["labels.jsonl"].splitlines()] == ["1", "2"]
    assert {name: after[name] for name in before} == before
    assert contents(write_merged([place, place], maker.folder / "all")) == after


def test_what_is_there_and_is_something_else_is_refused(maker: Maker) -> None:
    place = maker.run("1", [maker.line("1", "t")])
    run = write_merged([place], maker.folder / "all")
    run.record.write_text("{}")
    with pytest.raises(ConfigError, match=r"is there already, and is not this merged run\nRemove it first\."):
        write_merged([place], maker.folder / "all")


def test_where_runs_are_looked_for(maker: Maker, tmp_path: Path) -> None:
    maker.run("1", [maker.line("1", "t")], place="artifact/.rollout")
    place = tmp_path / "artifact"
    run = find_shards([place])[0]
    assert [find_shards([each])[0].path for each in (place / ".rollout", run.path)] == [run.path, run.path]
    (tmp_path / "none").mkdir()
    with pytest.raises(ConfigError, match=f"^there are no runs in {tmp_path}/none\nName a folder of results"):
        find_shards([place, tmp_path / "none"])
    run.hold()
    try:
        with pytest.raises(ConfigError, match=r"is still in progress\nMerge it when it has ended\.$"):
            find_shards([place])
    finally:
        run.release()


def test_evidence_that_cannot_be_found_is_counted(maker: Maker) -> None:
    places = [maker.run("1", [maker.line("1", "t", folder="rollouts/t/s0/a1"), maker.line("1", "u")])]
    shards = [read_shard(run, number) for number, run in enumerate(find_shards(places))]
    written = write(merge(shards), shards, ResultsFolder(maker.folder / "all"), evidence=True)
    assert (written.absent, written.failed) == (1, ())


def test_evidence_that_cannot_be_copied_is_named_and_leaves_nothing(
    maker: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def copy_tree(source: str, target: str, *, links: bool) -> None:
        Path(target).mkdir()
        raise OSError("no space")

    monkeypatch.setattr("pytest_rollout.merging.write.copy_tree", copy_tree)
    shards = [read_shard(find_shards([maker.run("1", [maker.line("1", "t")], evidence=True)])[0], 0)]
    written = write(merge(shards), shards, ResultsFolder(maker.folder / "all"), evidence=True)
    assert written.failed == ((maker.line("1", "t").rollout, "no space"),)
    assert list(written.path.glob("rollouts/*/*")) == []
    assert len(load_results(RunFolder(written.path)).results) == 1


def test_a_merge_that_fails_leaves_nothing(maker: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    def rename(source: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    place = maker.run("1", [maker.line("1", "t")])
    monkeypatch.setattr("os.rename", rename)
    with pytest.raises(ConfigError, match=r"can't be written: No space left on device$"):
        write_merged([place], maker.folder / "all")
    assert list((maker.folder / "all").rglob("*.json*")) == []


# Order, repetition and nesting change nothing


_TIMES = st.sampled_from(["2026-11-01T00:00:00+00:00", "2026-11-01T00:00:01+00:00"])


@st.composite
def _lines(draw: st.DrawFn, digits: str) -> list[Result]:
    """Lines of one run: measured and infra ones, of few tasks and times, so that many are equal or nearly so."""
    maker, found = Maker(Path()), []
    for _ in range(draw(st.integers(0, 4))):
        reward = draw(st.sampled_from([None, 0.0, 1.0]))
        outcome: Any = "infra" if reward is None else "passed" if reward else "failed"
        found.append(
            maker.line(
                digits,
                draw(st.sampled_from("tu")),
                draw(st.integers(0, 1)),
                attempt=draw(st.integers(1, 2)),
                reward=reward,
                outcome=outcome,
                kind="stage" if reward is None else None,
                time=draw(_TIMES),
                amends=draw(st.sampled_from([False, False, False, True])),
                message=draw(st.sampled_from(["", "a"])),
            )
        )
    return found


@st.composite
def _runs(draw: st.DrawFn) -> list[dict[str, Any]]:
    return [
        {
            "digits": digits,
            "lines": draw(_lines(digits)),
            "planned": draw(st.lists(st.tuples(st.sampled_from("tuv"), st.integers(0, 1)), max_size=2)),
            "torn": draw(st.sampled_from(["", '{"rollout": "'])),
            "shard": draw(st.sampled_from([None, (int(digits), 4, 8)])),
            "evidence": True,
        }
        for digits in draw(st.lists(st.sampled_from("1234"), min_size=1, max_size=4, unique=True))
    ]


@settings(max_examples=15)
@given(runs=_runs(), data=st.data())
def test_order_repetition_and_nesting_give_the_same_bytes(runs: list[dict[str, Any]], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        maker = Maker(Path(folder))
        places = [maker.run(**run) for run in runs]
        maker.labels(runs[0]["digits"], {"rollout": "r", "time": "1"})
        plain = write_merged(places, maker.folder / "plain")
        whole = contents(plain)
        counted = {(result.task, result.sample): result for result in load_results(plain).results}
        again = data.draw(st.lists(st.sampled_from(places), max_size=4)) + data.draw(st.permutations(places))
        assert contents(write_merged(again, maker.folder / "again")) == whole
        cut = data.draw(st.integers(0, len(places)))
        parts = [part for part in (places[:cut], places[cut:]) if part]
        nested = [write_merged(part, maker.folder / f"part{number}").path for number, part in enumerate(parts)]
        assert contents(write_merged(data.draw(st.permutations(nested)), maker.folder / "nested")) == whole
        assert contents(write_merged([plain.path, *places], maker.folder / "over")) == whole
        lines = [line for run in runs for line in run["lines"] if not line.amends]
        for identity in {(line.task, line.sample) for line in lines}:
            measured = [line for line in lines if (line.task, line.sample) == identity and line.reward is not None]
            assert (counted[identity].reward is not None) is bool(measured)
        plan = load_plan(plain)
        assert plan is not None
        planned = {(each.task, each.sample) for each in plan.rollouts}
        assert planned == {pair for run in runs for pair in run["planned"]} | {
            (line.task, line.sample) for run in runs for line in run["lines"]
        }
