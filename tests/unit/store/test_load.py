"""Reading runs again: the union of the journals, its order, and selectors with their words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytest_rollout.decisions.rows import load_rows
from pytest_rollout.errors import SelectorError
from pytest_rollout.store.folder import ResultsFolder, RunFolder, write_record
from pytest_rollout.store.journal import ResultsJournal
from pytest_rollout.store.load import LoadedRun, find_rollout, find_run, load_plan, load_results, sizes_of
from pytest_rollout.store.records import Plan, Planned, Result
from pytest_rollout.store.skipped import mark_skipped

LIST = "pytest-rollout list shows them."
LIST_LAST = "pytest-rollout list last shows those of the newest run."
FIRST = "Run pytest first, or name the folder with --dir."


class Runs:
    """A folder of results, written by hand."""

    def __init__(self, path: Path, make_result: Callable[..., Result]) -> None:
        self.results, self._make_result = ResultsFolder(path), make_result

    def result(self, rollout: str, **changes: Any) -> Result:
        return self._make_result(rollout, **changes)

    def run(self, name: str, rollouts: dict[str, list[str | Result]] | None = None, plan: str = "") -> RunFolder:
        """Open a run with these lines by worker; ``plan`` names its rollouts, in order."""
        run = self.results.open_run(name)
        for worker, lines in (rollouts or {}).items():
            found = [self.result(line) if isinstance(line, str) else line for line in lines]
            data = b"".join(msgspec.json.encode(result) + b"\n" for result in found)
            (run.results / f"{worker}.jsonl").write_bytes(data)
        if plan:
            planned = [Planned(node=name, rollout=name, task="t", sample=0, agent="good") for name in plan.split()]
            write_record(run.plan, Plan(rollouts=tuple(planned)))
        return run


@pytest.fixture
def runs(tmp_path: Path, make_result: Callable[..., Result]) -> Runs:
    return Runs(tmp_path, make_result)


def names(loaded: LoadedRun) -> list[str]:
    return [result.rollout for result in loaded.results]


def refusal(call: Callable[..., object], *args: object) -> str:
    with pytest.raises(SelectorError) as caught:
        call(*args)
    return str(caught.value)


# The union of the journals


def test_a_run_without_a_journal_is_empty(runs: Runs) -> None:
    assert load_results(runs.run("a")) == LoadedRun(results=())
    assert load_results(RunFolder(runs.results.runs / "missing")) == LoadedRun(results=())


def test_the_journals_of_all_workers_are_read(runs: Runs) -> None:
    run = runs.run("a", {"gw0": ["x", "y"], "gw1": ["z"]})
    assert sorted(names(load_results(run))) == ["x", "y", "z"]


def test_what_a_suite_skipped_is_not_missing(runs: Runs) -> None:
    run = runs.run("r", {"main": ["1-a"]}, plan="1-a 1-b 1-c")
    mark_skipped(run, {"1-a", "1-c"})
    loaded = load_results(run)
    assert (names(loaded), loaded.missing, loaded.skipped) == (["1-a"], ("1-b",), ("1-c",))
    assert load_rows(run).missing == {"t": 1}


def test_a_run_can_be_read_as_it_was(runs: Runs) -> None:
    run = runs.run("a", {"gw0": ["x"], "gw1": ["y"]})
    with open(run.results / "gw1.jsonl", "ab") as journal:
        journal.write(b'{"rollout": "half')
    sizes = sizes_of(run.results)
    assert sorted(sizes) == ["gw0.jsonl", "gw1.jsonl"]
    before = load_results(run)
    assert (sorted(names(before)), before.broken) == (["x", "y"], 1)
    for worker in ("gw0", "gw1", "gw2"):
        journal_of_worker = ResultsJournal(run.results / f"{worker}.jsonl")
        journal_of_worker.append(runs.result(f"later-{worker}"))
        journal_of_worker.close()
    now = load_results(run)
    assert (len(now.results), now.broken) == (5, 1)
    then = load_results(run, sizes)
    assert (sorted(names(then)), then.broken) == (["x", "y"], 0)


def test_results_come_in_the_order_of_the_plan_and_then_of_their_time(runs: Runs) -> None:
    late, early = runs.result("u2", time="2"), runs.result("u1", time="1")
    run = runs.run("a", {"gw0": ["p3", late, "p1"], "gw1": ["p2", early]}, plan="p1 p2 p3 p4 p5")
    loaded = load_results(run)
    assert names(loaded) == ["p1", "p2", "p3", "u1", "u2"]
    assert loaded.missing == ("p4", "p5")
    (run.plan).unlink()
    assert names(load_results(run))[0] == "u1"
    assert load_results(run).missing == ()


def test_half_a_line_at_the_end_is_left_out_and_counted(runs: Runs) -> None:
    run = runs.run("a", {"gw0": ["x", "y"], "gw1": ["z"]})
    journal = run.results / "gw0.jsonl"
    whole = journal.read_bytes()
    for length in (len(whole) - 2, len(whole) - 40):
        journal.write_bytes(whole[:length])
        loaded = load_results(run)
        assert (sorted(names(loaded)), loaded.broken) == (["x", "z"], 1)
    journal.write_bytes(whole[:-1])  # only the newline is missing: the line is whole
    assert (sorted(names(load_results(run))), load_results(run).broken) == (["x", "y", "z"], 0)


def test_lines_that_can_not_be_read_are_counted(runs: Runs) -> None:
    run = runs.run("a", {"gw0": ["x"]})
    with open(run.results / "gw0.jsonl", "ab") as file:
        file.write(b'\n   \n\xff\xfe\n{"rollout": 5}\n[]\n' + b"\0" * 100 + b"\n")
    loaded = load_results(run)
    assert (names(loaded), loaded.broken) == (["x"], 4)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([("infra", None), ("passed", 1.0)], ("passed", 1.0)),
        ([("failed", 0.5), ("passed", 1.0)], ("failed", 0.5)),
        ([("failed", 0.5), ("infra", None)], ("failed", 0.5)),
        ([("infra", None), ("infra", None)], ("infra", None)),
        ([("infra", None), ("failed", 0.0), ("passed", 1.0)], ("failed", 0.0)),
    ],
)
@pytest.mark.parametrize("workers", ["same", "two"])
def test_of_two_lines_of_a_rollout_the_first_measured_one_counts(
    runs: Runs, lines: list[tuple[str, float | None]], expected: tuple[str, float | None], workers: str
) -> None:
    results = [runs.result("x", outcome=outcome, reward=reward) for outcome, reward in lines]
    journals: dict[str, list[str | Result]] = (
        {"gw0": [*results]} if workers == "same" else {"gw0": [results[0]], "main": [*results[1:]]}
    )
    (found,) = load_results(runs.run("a", journals)).results
    assert (found.outcome, found.reward) == expected


def test_an_amending_line_adds_its_warnings_and_nothing_else(runs: Runs) -> None:
    first = runs.result("x", warnings=("one",), reward=0.5, outcome="failed")
    amends = runs.result("x", warnings=("two",), reward=1.0, amends=True, time="9")
    again = runs.result("x", warnings=("three",), reward=1.0, amends=True)
    (found,) = load_results(runs.run("a", {"gw0": [first, amends, again]})).results
    assert found == msgspec.structs.replace(first, warnings=("one", "two", "three"))


def test_an_amendment_holds_wherever_its_rollout_stands(runs: Runs) -> None:
    amends = runs.result("x", warnings=("late",), outcome="infra", reward=None, amends=True)
    measured = runs.result("x", warnings=("own",))
    (found,) = load_results(runs.run("a", {"gw0": [amends], "main": [measured]})).results
    assert found == msgspec.structs.replace(measured, warnings=("own", "late"))
    infra = runs.result("x", outcome="infra", reward=None)
    (found,) = load_results(runs.run("b", {"gw0": [infra, amends], "main": [measured]})).results
    assert found == msgspec.structs.replace(measured, warnings=("own", "late"))


def test_an_amendment_alone_tells_what_it_knows(runs: Runs) -> None:
    amends = runs.result("x", warnings=("late",), amends=True)
    (found,) = load_results(runs.run("a", {"gw0": [amends]})).results
    assert (found.rollout, found.reward, found.warnings) == ("x", 1.0, ("late",))


def test_a_plan_is_read_or_is_not_there(runs: Runs) -> None:
    run = runs.run("a", plan="x y")
    plan = load_plan(run)
    assert plan is not None
    assert [planned.rollout for planned in plan.rollouts] == ["x", "y"]
    for content in (b'{"rollouts": [', b'{"rollouts": 5}'):
        run.plan.write_bytes(content)
        assert load_plan(run) is None
    run.plan.unlink()
    assert load_plan(run) is None


# Selecting a run

OLD, NEW, OTHER = "2026-11-29T22-08-01Z-3f9ac01d", "2026-11-30T08-00-00Z-3fb00000", "2026-11-30T09-00-00Z-a0000000"


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("last", OTHER),
        (OLD, OLD),
        ("2026-11-29", OLD),
        ("3f9", OLD),
        ("3fb00000", NEW),
        ("2026-11-30T08", NEW),
        ("a", OTHER),
    ],
)
def test_a_run_is_selected(runs: Runs, selector: str, expected: str) -> None:
    for name in (OLD, NEW, OTHER):
        runs.run(name)
    assert find_run(runs.results, selector).name == expected


def test_the_full_name_of_a_run_wins_over_a_longer_one(runs: Runs) -> None:
    for name in ("a", "ab"):
        runs.run(name)
    assert find_run(runs.results, "a").name == "a"


def test_a_run_that_is_not_there_or_not_one(runs: Runs) -> None:
    assert refusal(find_run, runs.results) == f"there are no runs in {runs.results.path}\n{FIRST}"
    assert refusal(find_run, runs.results, "x") == f"there are no runs in {runs.results.path}\n{FIRST}"
    for name in (OLD, NEW, OTHER):
        runs.run(name)
    assert refusal(find_run, runs.results, "x") == f"no run begins with 'x'\n{LIST}"
    assert refusal(find_run, runs.results, "3f") == f"'3f' fits 2 runs: {OLD}, {NEW}"


def test_of_many_runs_that_fit_six_are_named(runs: Runs) -> None:
    for number in range(9):
        runs.run(f"r{number}")
    assert refusal(find_run, runs.results, "r") == "'r' fits 9 runs: r0, r1, r2, r3, r4, r5 and 3 more"
    for number in range(6):
        runs.run(f"s{number}")
    assert refusal(find_run, runs.results, "s") == "'s' fits 6 runs: s0, s1, s2, s3, s4, s5"
    runs.run("s6")
    assert refusal(find_run, runs.results, "s") == "'s' fits 7 runs: s0, s1, s2, s3, s4, s5 and 1 more"


# Selecting a rollout


@pytest.fixture
def filled(runs: Runs) -> Runs:
    old = [runs.result("3f9ac01d-test-a-1-s0", time="1"), runs.result("3f9ac01d-test-b-2-s0", time="3")]
    new = [runs.result("a0000000-test-a-1-s0", time="7"), runs.result("a0000000-test-a-1-s1", time="6")]
    runs.run(OLD, {"gw0": [*old, runs.result("3f9ac01d-test-c-3-s0", time="2")]})
    runs.run(OTHER, {"gw0": [*new]})
    return runs


@pytest.mark.parametrize(
    ("selector", "run", "rollout"),
    [
        ("last", OTHER, "a0000000-test-a-1-s0"),
        ("3f9ac01d-test-b-2-s0", OLD, "3f9ac01d-test-b-2-s0"),
        ("a0000000-test-a-1-s1", OTHER, "a0000000-test-a-1-s1"),
        ("3f9ac01d-test-c", OLD, "3f9ac01d-test-c-3-s0"),
        ("test-b", OLD, "3f9ac01d-test-b-2-s0"),
        ("test-a-1-s1", OTHER, "a0000000-test-a-1-s1"),
    ],
)
def test_a_rollout_is_selected(filled: Runs, selector: str, run: str, rollout: str) -> None:
    found, result = find_rollout(filled.results, selector)
    assert (found.name, result.rollout) == (run, rollout)


def test_a_rollout_that_is_not_there_or_not_one(filled: Runs) -> None:
    path = filled.results.path
    assert refusal(find_rollout, filled.results, "x") == f"no rollout begins with 'x' in {path}\n{LIST_LAST}"
    assert refusal(find_rollout, filled.results, "a") == (
        "'a' fits 2 rollouts: a0000000-test-a-1-s1, a0000000-test-a-1-s0"
    )
    # behind the digits, the newest run that has such rollouts is asked
    assert refusal(find_rollout, filled.results, "test-a") == (
        "'test-a' fits 2 rollouts: a0000000-test-a-1-s1, a0000000-test-a-1-s0"
    )


def test_a_prefix_that_fits_rollouts_of_two_runs_is_not_unique(filled: Runs) -> None:
    filled.run(NEW, {"main": ["3fb00000-test-a-1-s0"]})
    assert find_rollout(filled.results, "3fb")[1].rollout == "3fb00000-test-a-1-s0"
    assert refusal(find_rollout, filled.results, "3f") == (
        "'3f' fits 4 rollouts: 3fb00000-test-a-1-s0, 3f9ac01d-test-a-1-s0, 3f9ac01d-test-c-3-s0, 3f9ac01d-test-b-2-s0"
    )


@pytest.mark.parametrize("selector", ["test_sub[", "test_sub[1-s0]", "t.py::test_sub[1-s0]", "t.py::test_sub[1]"])
def test_a_rollout_is_selected_by_the_name_of_its_test(filled: Runs, selector: str) -> None:
    changes = {"node": "t.py::test_sub[1-s0]", "task": "t.py::test_sub[1]"}
    filled.run(NEW, {"main": [filled.result("3fb00000-test-sub-1-4-s0", **changes)]})
    assert find_rollout(filled.results, selector)[1].rollout == "3fb00000-test-sub-1-4-s0"
    with pytest.raises(SelectorError):
        find_rollout(filled.results, "t.py::test_su")


def test_the_full_id_wins_over_a_longer_one(runs: Runs) -> None:
    runs.run("r-1", {"main": ["1-t-s1", "1-t-s10"]})
    assert find_rollout(runs.results, "1-t-s1")[1].rollout == "1-t-s1"
    assert find_rollout(runs.results, "t-s10")[1].rollout == "1-t-s10"
    assert find_rollout(runs.results, "t-s1")[1].rollout == "1-t-s1"
    assert refusal(find_rollout, runs.results, "1-t-s") == "'1-t-s' fits 2 rollouts: 1-t-s1, 1-t-s10"


def test_the_last_rollout_is_of_the_newest_run_that_has_one(runs: Runs) -> None:
    assert refusal(find_rollout, runs.results, "last") == f"there are no rollouts in {runs.results.path}\n{FIRST}"
    runs.run("2026-a", {"main": ["x"]})
    runs.run("2026-b")
    found, result = find_rollout(runs.results)
    assert (found.name, result.rollout) == ("2026-a", "x")
