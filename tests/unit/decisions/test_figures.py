"""The figures of a run, with what was not measured, and the parts of a run."""

from __future__ import annotations

import math
from statistics import fmean

import pytest
from msgspec.structs import replace
from scipy import stats

from pytest_rollout.decisions.figures import PassK, figures_of, forged, task_figures
from pytest_rollout.decisions.rows import Labels, RowEarlier, Rows
from pytest_rollout.decisions.selection import NONE, groups_of, selected
from pytest_rollout.decisions.statistics import pass_at_k, pass_hat_k, wilson
from pytest_rollout.report.figures import figure_lines
from tests.unit.decisions.conftest import row, rows

MIXED = rows({"a": [1, 0, 1, 1], "b": [0.5], "c": [None, None], "d": [0, 1]}, missing={"b": 3, "e": 1})


def test_counts_add_up() -> None:
    found = figures_of(MIXED)
    assert (found.tasks, found.tasks_measured) == (5, 3)
    assert (found.planned, found.measured, found.infra, found.missing, found.untrusted) == (13, 7, 2, 4, 0)
    assert (found.passed, found.kinds, found.measured_share, found.infra_rate) == (4, {"stage": 2}, 7 / 13, 2 / 9)
    assert (found.one_sample_tasks, found.most_samples) == (1, 4)


def test_the_mean_is_that_of_task_means_and_its_error_theirs() -> None:
    found, means = figures_of(MIXED), [0.75, 0.5, 0.5]
    assert [found.mean_reward, found.pooled_mean] == pytest.approx([fmean(means), 4.5 / 7])
    assert found.error == pytest.approx(stats.sem(means))
    assert found.interval is not None and found.bootstrap_interval is not None
    assert (found.interval.high - found.interval.low) / 2 == pytest.approx(stats.t.ppf(0.975, 2) * stats.sem(means))
    assert found.success_rate == pytest.approx((0.75 + 0 + 0.5) / 3)
    assert figures_of(MIXED, seed=None).bootstrap_interval is None


def test_what_was_not_measured_bounds_the_mean_and_is_never_0() -> None:
    found = figures_of(MIXED)
    assert found.lowest == pytest.approx(fmean([0.75, 0.5 / 4, 0, 0.5, 0]))
    assert found.highest == pytest.approx(fmean([0.75, 3.5 / 4, 1, 0.5, 1]))
    assert found.forgeable_mean == found.mean_reward
    nothing = figures_of(rows({"a": [None]}), ks=(1,))
    assert (nothing.mean_reward, nothing.success_rate, nothing.error, nothing.interval) == (None, None, None, None)
    assert (nothing.lowest, nothing.highest, nothing.infra_rate, nothing.measured_share) == (0, 1, 1, 0)
    assert nothing.passes == (PassK(k=1, at=None, hat=None, tasks=0),)
    empty = figures_of(rows({}))
    assert (empty.mean_reward, empty.lowest, empty.infra_rate, empty.measured_share) == (None, None, None, None)


def test_forgeable_infra_as_0() -> None:
    run = Rows(name="r", rows=(row("a", 0, 1), row("a", 1, None, forgeable=True), row("b", 0, None, forgeable=True)))
    found = figures_of(run)
    assert (found.mean_reward, found.forgeable_mean, found.forgeable) == (1, 0.25, 2)
    assert figures_of(forged(run)).mean_reward == 0.25
    assert figures_of(forged(run)).infra == 0


def test_untrusted_results_are_counted_apart_unless_asked_for() -> None:
    run = Rows(name="r", rows=(row("a", 0, 1, trusted=False), row("a", 1, 0), row("b", 0, 1, trusted=None)))
    found = figures_of(run)
    assert (found.measured, found.untrusted, found.mean_reward, found.lowest) == (2, 1, 0.5, 0.5)
    asked = figures_of(run, untrusted=True)
    assert (asked.measured, asked.untrusted, asked.mean_reward) == (3, 0, 0.75)


def test_passes_are_of_the_tasks_with_enough_samples() -> None:
    found = figures_of(MIXED, ks=(1, 2, 4, 5))
    known = {2: [(4, 3), (2, 1)], 4: [(4, 3)]}
    assert [(each.k, each.tasks) for each in found.passes] == [(1, 3), (2, 2), (4, 1), (5, 0)]
    for each in found.passes[1:3]:
        assert each.at == pytest.approx(fmean(pass_at_k(n, c, each.k) or 0 for n, c in known[each.k]))
        assert each.hat == pytest.approx(fmean(pass_hat_k(n, c, each.k) or 0 for n, c in known[each.k]))
    assert found.passes[0].at == found.passes[0].hat == found.success_rate
    assert (found.passes[3].at, found.passes[3].hat) == (None, None)


def test_the_figures_of_tasks() -> None:
    tasks = {each.task: each for each in task_figures(MIXED)}
    assert sorted(tasks) == ["a", "b", "c", "d", "e"]
    assert (tasks["a"].mean, tasks["a"].interval) == (0.75, wilson(3, 4))
    assert tasks["a"].deviation == pytest.approx(0.5)
    assert (tasks["b"].planned, tasks["b"].measured, tasks["b"].missing, tasks["b"].deviation) == (4, 1, 3, None)
    assert (tasks["c"].mean, tasks["c"].success, tasks["c"].interval, tasks["c"].infra) == (None, None, None, 2)
    assert (tasks["e"].planned, tasks["e"].mean) == (1, None)


def test_the_detectable_drop_is_of_the_spread_within_tasks() -> None:
    """√2 · √(Σ s²/n)/T, times Student's quantiles of 5 % and 80 %."""
    found = figures_of(rows({"a": [0, 1], "b": [0, 0, 1, 1], "c": [1, 1], "d": [1]})).detectable
    usual = (0.5 + 1 / 3 + 0) / 3
    error = math.sqrt(2) * math.sqrt(0.5 / 2 + (1 / 3) / 4 + 0 + usual) / 4
    assert found is not None and found.paired
    assert found.effect == pytest.approx((stats.t.ppf(0.95, 3) + stats.t.ppf(0.8, 3)) * error)


def test_with_one_sample_a_task_the_detectable_drop_is_at_most() -> None:
    run = rows({"a": [0], "b": [1], "c": [1], "d": [0, 1]})
    found = figures_of(run).detectable
    assert found is not None and not found.paired
    error = math.sqrt(2) * stats.sem([0, 1, 1, 0.5])
    assert found.effect == pytest.approx((stats.t.ppf(0.95, 3) + stats.t.ppf(0.8, 3)) * error)
    assert figures_of(rows({"a": [0, 1]})).detectable is None
    assert figures_of(rows({"a": [1, 1], "b": [1, 1]})).detectable is None


RETRIED = {"attempt": 2, "earlier": (RowEarlier(kind="stage"),)}


def test_retried_rollouts_beside_first_tries_within_tasks() -> None:
    made = [row(task, 0, 1, **RETRIED) for task in "abc"] + [
        row(task, 1, reward) for task, reward in zip("abc", (1, 0, 0.5), strict=True)
    ]
    found = figures_of(Rows(name="r", rows=(*made, row("d", 0, 0)))).retried
    assert found is not None and found.difference is not None
    assert (found.count, found.first_tries, found.within) == (3, 4, True)
    assert found.difference.mean == pytest.approx(0.5)
    assert found.difference.error == pytest.approx(stats.sem([0, 1, 0.5]))


def test_retried_rollouts_between_tasks_and_alone() -> None:
    made = [row("a", 0, 1, **RETRIED), row("b", 0, 0, **RETRIED), row("c", 0, 1), row("d", 0, 1)]
    found = figures_of(Rows(name="r", rows=tuple(made))).retried
    assert found is not None and found.difference is not None
    assert (found.within, found.difference.mean) == (False, -0.5)
    alone = figures_of(Rows(name="r", rows=tuple(made[:2]))).retried
    assert alone is not None and (alone.count, alone.first_tries, alone.difference) == (2, 0, None)
    assert figures_of(MIXED).retried is None


def test_the_order_of_rows_is_no_matter() -> None:
    assert figures_of(replace(MIXED, rows=MIXED.rows[::-1]), ks=(1, 2)) == figures_of(MIXED, ks=(1, 2))


# -- parts

PARTS = Rows(
    name="r",
    rows=(row("a", 0, 1, tags=("x", "y")), row("b", 0, 0, tags=("y",), split="held-out"), row("c", 0, 1)),
    missing={"a": 1, "d": 2, "e": 1},
    labels={"d": Labels(("x",), "held-out")},
)


@pytest.mark.parametrize(
    ("asked", "tasks", "missing"),
    [
        ({}, "abc", {"a": 1, "d": 2, "e": 1}),
        ({"tag": "x"}, "a", {"a": 1, "d": 2}),
        ({"tag": "y"}, "ab", {"a": 1}),
        ({"split": "held-out"}, "b", {"d": 2}),
        ({"tag": "x", "split": "held-out"}, "", {"d": 2}),
        ({"tag": "z"}, "", {}),
    ],
)
def test_a_part_of_a_run(asked: dict[str, str], tasks: str, missing: dict[str, int]) -> None:
    found = selected(PARTS, **asked)
    assert ("".join(each.task for each in found.rows), found.missing) == (tasks, missing)


def test_the_parts_of_a_run() -> None:
    def shown(parts: dict[str, Rows]) -> dict[str, str]:
        return {
            name: "".join(sorted({each.task for each in part.rows} | set(part.missing))) for name, part in parts.items()
        }

    assert shown(groups_of(PARTS, "tag")) == {"x": "ad", "y": "ab", NONE: "ce"}
    assert shown(groups_of(PARTS, "split")) == {"held-out": "bd", NONE: "ace"}
    assert shown(groups_of(selected(PARTS, split="held-out"), "split")) == {"held-out": "bd"}


def test_what_was_measured_after_an_attempt_that_may_be_forged_is_also_shown_as_0() -> None:
    """An agent may end an attempt that goes badly, where somebody has it tried again."""
    again = row("a", 0, 1, earlier=(RowEarlier(kind="agent", forgeable=True),))
    found = figures_of(
        Rows(name="r", rows=(again, row("a", 1, 1), row("b", 0, 1, earlier=(RowEarlier(kind="stage"),))))
    )
    assert (found.mean_reward, found.forgeable_mean, found.forgeable) == (1, 0.75, 0)
    assert "forgeable as 0 0.75 with what came after forgeable infra as 0" in figure_lines("r", found)
