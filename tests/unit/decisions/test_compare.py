"""The figures of a comparison, against scipy and statsmodels."""

from __future__ import annotations

import random
from statistics import fmean
from typing import Any

import pytest
from scipy.stats import binomtest, nct, t, ttest_rel
from statsmodels.stats.contingency_tables import mcnemar

from pytest_rollout.decisions.compare import Comparison, Figure, compare
from pytest_rollout.decisions.pairs import pair
from pytest_rollout.decisions.rows import Row, Rows, RowUsage
from tests.unit.decisions.pairmaking import row, side

approx: Any = pytest.approx


def drawn(seed: int, tasks: int, samples: int, rate: float, *, binary: bool = True) -> dict[str, list[float | None]]:
    draw = random.Random(seed)

    def value() -> float:
        return float(draw.random() < rate) if binary else draw.random()

    return {f"t{number:03}": [value() for _ in range(samples)] for number in range(tasks)}


def figure(found: Comparison, name: str) -> Figure:
    return next(each for each in found.figures if each.name == name)


def test_the_difference_is_the_paired_one_of_task_means() -> None:
    old, new = drawn(1, 30, 3, 0, binary=False), drawn(2, 30, 5, 0, binary=False)
    found = compare(pair(side(old), side(new, name="b")))
    means = [[fmean(value for value in values if value is not None) for values in each.values()] for each in (old, new)]
    known = ttest_rel(means[1], means[0])
    low, high = known.confidence_interval(0.95)
    reward = found.reward
    assert (reward.old, reward.new) == (approx(fmean(means[0])), approx(fmean(means[1])))
    assert reward.difference is not None and reward.difference.interval is not None
    assert reward.difference.mean == approx(fmean(means[1]) - fmean(means[0]))
    assert (reward.difference.interval.low, reward.difference.interval.high) == (
        approx(low),
        approx(high),
    )
    assert found.detectable is not None and found.needed is not None
    effect = found.detectable / (reward.difference.error or 0)
    assert nct.sf(t.ppf(0.975, 29), 29, effect) == approx(0.8, abs=2e-3), "of the paired t test"
    again = compare(pair(side(old), side(new, name="b")))
    assert again == found
    assert compare(pair(side(old), side(new, name="b")), seed=1).reward.bootstrap != reward.bootstrap


@pytest.mark.parametrize("count", [3, 6, 20])
def test_what_is_detectable_minds_that_tasks_are_few(count: int) -> None:
    old = {f"t{number}": [0.5] for number in range(count)}
    new = {f"t{number}": [0.5 + number / 40] for number in range(count)}
    found = compare(pair(side(old), side(new)))
    assert found.detectable is not None and found.reward.difference is not None
    effect = found.detectable / (found.reward.difference.error or 0)
    assert nct.sf(t.ppf(0.975, count - 1), count - 1, effect) == approx(0.8, abs=0.04)


def test_rounding_is_no_change_and_no_spread_no_knowledge() -> None:
    old, new = ({f"t{number}": [0.1] * samples for number in range(3)} for samples in (4, 3))
    found = compare(pair(side(old), side({**new, "t1": [0.3 - 0.2] * 3})))
    assert {task.difference for task in found.tasks} == {0}
    assert (found.detectable, found.needed) == (None, None)


def test_the_sign_test_is_mcnemars_with_one_sample() -> None:
    old, new = drawn(3, 60, 1, 0.4), drawn(4, 60, 1, 0.6)
    found = compare(pair(side(old), side(new))).sign
    both = [(before[0], after[0]) for before, after in zip(old.values(), new.values(), strict=True)]
    table = [[both.count((a, b)) for b in (1.0, 0.0)] for a in (1.0, 0.0)]
    assert (found.higher, found.lower) == (table[1][0], table[0][1])
    assert found.same == table[0][0] + table[1][1]
    assert found.p == approx(mcnemar(table, exact=True).pvalue)
    assert found.p == approx(binomtest(found.higher, found.higher + found.lower).pvalue)


def test_the_sign_test_of_several_samples_counts_a_task_once() -> None:
    old = {"a": [0.0, 0.0, 0.0], "b": [1.0, 1.0, 1.0], "c": [1.0, 0.0]}
    new = {"a": [1.0, 1.0, 0.0], "b": [1.0, 1.0, 0.0], "c": [0.0, 1.0, 1.0, 0.0]}
    found = compare(pair(side(old), side(new)))
    assert (found.sign.higher, found.sign.lower, found.sign.same, found.sign.p) == (1, 1, 1, 1.0)
    assert [(task.task, task.samples, task.passed) for task in found.tasks] == [
        ("b", (3, 3), (3, 2)),
        ("c", (2, 4), (1, 2)),
        ("a", (3, 3), (0, 2)),
    ]
    assert [failure.rollout for failure in found.gained] == ["r-b-2"]
    assert [failure.rollout for failure in found.mended] == ["r-a-0", "r-a-1", "r-a-2"]
    same = compare(pair(side(old), side(old)))
    assert (same.sign.p, same.needed, same.gained, same.mended) == (None, None, (), ())
    assert same.reward.difference is not None and same.reward.difference.error == 0


def test_what_is_unknown_on_a_side_is_not_compared() -> None:
    def used(name: str, task: str, wall: float | None, cost: float | None = None) -> Row:
        return row(task, 1, usage=RowUsage(wall=wall, cost=cost))

    old = Rows(name="a", rows=(used("a", "t", 2.0), used("a", "u", 4.0, 0.5), row("v", 1), row("w", None)))
    new = Rows(name="b", rows=(used("b", "t", 3.0), used("b", "u", None, 0.25), used("b", "v", 9.0), row("w", 1)))
    found = compare(pair(old, new))
    wall = figure(found, "wall")
    assert (wall.old, wall.new, wall.tasks, wall.unit) == (2.0, 3.0, 1, "s")
    assert wall.difference is not None and wall.difference.interval is None
    assert (figure(found, "cost").old, figure(found, "cost").new) == (0.5, 0.25)
    tokens = figure(found, "tokens")
    assert (tokens.old, tokens.new, tokens.difference, tokens.tasks) == (None, None, None, 0)
    infra = figure(found, "unmeasured")
    assert (infra.old, infra.new, infra.tasks) == (0.25, 0, 4)
    assert found.unmeasured == (("w",), ())
    assert [task.task for task in found.tasks] == ["t", "u", "v"]


def test_the_digits_that_a_baseline_file_leaves_out_are_no_difference() -> None:
    old, new = (side({"a": [1.0], "b": [1.0]}, usage=RowUsage(wall=wall)) for wall in (0.0431724, 0.04317243))
    found = figure(compare(pair(old, new)), "wall").difference
    assert found is not None and found.mean == 0


def test_one_of_many_tasks_is_a_finding_only_after_correction() -> None:
    good, bad = [1.0] * 8, [0.0] * 8
    old = {f"t{number}": good for number in range(20)}
    found = compare(pair(side(old), side({**old, "t3": bad})))
    assert found.tasks[0].task == "t3"
    assert (found.single, found.by_chance) == (1, approx(1.0))
    assert found.tasks[0].adjusted == approx(20 * found.tasks[0].p)
    found = compare(pair(side(old), side({**old, "t3": [1.0] * 3 + [0.0] * 5})))
    assert found.tasks[0].p < 0.05 < found.tasks[0].adjusted


def test_nothing_in_common_is_no_figure() -> None:
    found = compare(pair(side({"a": [1.0]}), side({"b": [1.0]})))
    assert (found.reward.difference, found.reward.old, found.detectable, found.tasks) == (None, None, None, ())


def test_differences_without_spread_do_not_say_what_could_be_detected() -> None:
    old = {"a": [1.0], "b": [0.5], "c": [1.0]}
    assert compare(pair(side(old), side(old, name="b"))).detectable is None
    high: dict[str, list[float | None]] = {name: [1.0] for name in "abcdef"}
    low: dict[str, list[float | None]] = {name: [1.0, 1.0, 0.0] for name in "abcdef"}
    found = compare(pair(side(high), side(low, name="b")))
    assert (found.detectable, found.needed) == (None, None)
