"""The stored run: which one is meant, which samples it has, and what a user is told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from pytest_rollout.errors import ConfigError
from pytest_rollout.rescoring.stored import StoredRun, find_stored, load_stored
from pytest_rollout.store.folder import ResultsFolder, RunFolder, write_record
from pytest_rollout.store.records import Plan, Planned, Result

Make = Callable[..., Result]
RUNS = ("2026-01-01T00-00-00Z-00000001", "2026-01-01T00-00-01Z-00000002")


@pytest.fixture
def results(tmp_path: Path) -> ResultsFolder:
    return ResultsFolder(tmp_path / ".rollout")


def write(results: ResultsFolder, name: str, *found: Result, planned: int = 0) -> RunFolder:
    run = results.open_run(name)
    (run.results / "main.jsonl").write_bytes(b"".join(msgspec.json.encode(result) + b"\n" for result in found))
    plan = [Planned(node=f"n{n}", rollout=f"lost-{n}", task="t", sample=n, agent="a") for n in range(planned)]
    write_record(run.plan, Plan(rollouts=tuple(plan)))
    return run


def test_a_run_is_named_as_everywhere_or_by_its_folder(results: ResultsFolder, tmp_path: Path) -> None:
    first, last = (write(results, name).path for name in RUNS)
    for selector, expected in (
        ("last", last),
        (RUNS[0], first),
        ("00000001", first),
        (str(first), first),
        (f".rollout/runs/{RUNS[0]}", first),
    ):
        assert find_stored(results, selector, tmp_path) == expected
    with pytest.raises(ConfigError) as raised:
        find_stored(results, "7", tmp_path)
    assert str(raised.value) == "--rollout-rescore: no run begins with '7'\npytest-rollout list shows them."
    held = RunFolder(last)
    held.hold()
    try:
        with pytest.raises(ConfigError, match=f"^--rollout-rescore: the run {RUNS[1]} is still in progress$"):
            find_stored(results, "last", tmp_path)
    finally:
        held.release()


def test_a_run_may_be_left_where_older_ones_are_removed(results: ResultsFolder) -> None:
    names = [*RUNS, "2026-01-01T00-00-02Z-00000003"]
    for name in names:
        write(results, name)
    assert results.prune(1, but=(names[0],)) == [names[1]]
    assert [run.name for run in results.all_runs()] == [names[0], names[2]]


def test_the_samples_of_a_test(results: ResultsFolder, make_result: Make) -> None:
    def result(node: str, sample: int, task: str, samples: int | None) -> Result:
        return make_result(f"{task}-{sample}", node=node, sample=sample, task=task, samples=samples)

    stored = load_stored(
        write(
            results,
            RUNS[0],
            *(result(f"x.py::test_a[p-s{n}]", n, "x.py::test_a[p]", 4) for n in (0, 2)),
            result("x.py::test_ab", 0, "x.py::test_ab", None),
            result("x.py::test_old_name[s1]", 1, "named", None),
        ).path
    )
    assert stored.samples_of("x.py::test_a", None) == ([0, 2], 4)
    assert stored.samples_of("x.py::test_ab", None) == ([0], 1)
    assert stored.samples_of("x.py::test_new_name", "named") == ([1], 2)
    assert stored.samples_of("x.py::test_new", None) == ([0], 1)


def test_what_is_left_out_is_told(results: ResultsFolder, make_result: Make) -> None:
    found = [make_result(f"r{n}", task="t", sample=n) for n in range(8)]
    stored = load_stored(write(results, RUNS[0], *found, planned=2).path)
    assert stored.notes([("t", 0)], ["x.py::test_new", "x.py::test_newer"]) == (
        f"left out, because {RUNS[0]} has no rollout of them: x.py::test_new, x.py::test_newer",
        "not scored again, because no selected test is theirs: r1, r2, r3, r4, r5 and 2 more",
        f"{RUNS[0]} was cut short: it has no result of 2 planned rollouts",
    )
    assert StoredRun(name="R", rollouts=stored.rollouts).notes([("t", n) for n in range(8)], []) == ()


def test_a_bundle_is_one_of_the_run(results: ResultsFolder, make_result: Make, tmp_path: Path) -> None:
    run = write(
        results,
        RUNS[0],
        make_result("a", sample=0, folder="rollouts/t/s0/a1"),
        make_result("b", sample=1, folder="rollouts/t/s1/a1"),
        make_result("c", sample=2, folder="../../../elsewhere"),
        make_result("d", sample=3, folder=None, outcome="infra", kind="worker", reward=None, message="it died"),
    )
    for place in (run.path / "rollouts/t/s0/a1", tmp_path / "elsewhere"):
        place.mkdir(parents=True)
        (place / "bundle.json").write_text("{}")
    stored = [found for _, found in sorted(load_stored(run.path).rollouts.items())]
    assert [found.folder for found in stored] == [run.path / "rollouts/t/s0/a1", None, None, None]
    assert [found.unscored for found in stored] == [
        "",
        f"its bundle is not in {RUNS[0]} any more",
        f"its bundle is not in {RUNS[0]} any more",
        f"it measured nothing in {RUNS[0]}: it died",
    ]
    assert (stored[0].source.run, stored[0].source.rollout, stored[0].source.reward) == (RUNS[0], "a", 1.0)
