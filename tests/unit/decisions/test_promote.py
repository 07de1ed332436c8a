"""The rule of promotion."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, variance
from typing import Any

import msgspec
import pytest
from scipy.stats import ttest_rel

from pytest_rollout.decisions.pairs import pair
from pytest_rollout.decisions.promote import Promotion, Rule, promote
from pytest_rollout.decisions.rows import Rows
from tests.unit.decisions.pairmaking import row, side

approx: Any = pytest.approx
Tasks = dict[str, list[float | None]]


def held(tasks: Tasks, name: str = "new", **changes: Any) -> Rows:
    return side(tasks, name=name, split="held-out", **changes)


def answer(old: Tasks | Rows, new: Tasks | Rows, **rule: float) -> Promotion:
    sides = [each if isinstance(each, Rows) else held(each, name) for each, name in ((old, "old"), (new, "new"))]
    return promote(pair(*sides, split="held-out", untrusted=True), Rule(**rule))


def tasks(*rewards: float | Sequence[float | None]) -> Tasks:
    return {f"t{n}": [each] if isinstance(each, int | float) else list(each) for n, each in enumerate(rewards)}


def test_promote_and_reject() -> None:
    low, high = tasks(0, 0.1, 0, 0.2, 0, 0), tasks(1, 0.9, 1, 0.7, 1, 1)
    found = answer(low, high)
    assert (found.answer, found.tasks, found.samples) == ("promote", None, None)
    known = ttest_rel([each[0] for each in high.values()], [each[0] for each in low.values()])
    bounds = known.confidence_interval(0.9)
    assert (found.low, found.high) == (approx(bounds.low), approx(bounds.high))
    assert answer(high, low).answer == "reject"
    assert answer(low, high, margin=0.9).answer == "undecided"
    assert answer(high, low, margin=-0.5).answer == "reject"
    assert answer(low, low).answer == "undecided"
    assert answer(low, low, margin=-0.5).answer == "promote"


def test_too_few_tasks_decide_nothing() -> None:
    assert [Rule(confidence=each).fewest for each in (0.9, 0.95, 0.99)] == [4, 5, 7]
    assert answer(tasks(0, 0, 0, 0, 0), tasks(1, 1, 1, 1, 1)).answer == "promote"
    found = answer(tasks(0, 0, 0, 0), tasks(1, 1, 1, 1))
    assert (found.answer, found.reasons) == (
        "undecided",
        ("4 held-out tasks decide nothing at 0.95: 5 are the fewest",),
    )
    assert answer(tasks(0), tasks(1)).answer == "undecided"


def test_rounding_decides_nothing() -> None:
    """Neither a mean of three times 0.1, which is not one of four, nor the sum of 0.1 and 0.2."""
    fourfold, threefold = tasks(*[[0.1] * 4] * 5), tasks(*[[0.1] * 3] * 5)
    level, above = tasks(*[0.3] * 5), tasks(*[0.1 + 0.2] * 5)
    for old, new in ((fourfold, threefold), (threefold, fourfold), (level, above), (above, level)):
        found = answer(old, new)
        assert (found.answer, found.low, found.high, found.tasks) == ("undecided", 0, 0, None)


@pytest.mark.parametrize("count", [5, 20, 100, 130])
def test_a_rare_failure_that_no_task_shows_is_not_ruled_out(count: int) -> None:
    """Where 2 % of rollouts fail, 100 tasks all pass in 13 % of runs: that shows no "not worse by 0.02"."""
    perfect = tasks(*[1.0] * count)
    found = answer(perfect, perfect, margin=-0.02)
    assert (found.answer, found.low, found.tasks) == ("undecided", 0, 140)
    assert answer(perfect, tasks(*[1.0] * (count - 1), 0.98), margin=-0.02).answer == "undecided"
    none = tasks(*[0.0] * count)
    assert answer(none, none, margin=0.02).answer == "undecided"
    assert answer(tasks(*[0.99] * count), perfect).answer == "undecided"


def test_enough_tasks_rule_a_rare_failure_out() -> None:
    perfect, none = tasks(*[1.0] * 140), tasks(*[0.0] * 140)
    assert answer(perfect, perfect, margin=-0.02).answer == "promote"
    assert answer(none, none, margin=0.02).answer == "reject"
    better = answer(tasks(0.5, 0.6, 0.5, 0.4, 0.5, 0.5), tasks(0.9, 0.9, 0.8, 0.9, 0.9, 0.9), margin=-0.3)
    assert better.answer == "promote", "what is better by any margin is not worse by one"


def test_where_the_answer_hangs_on_infra_no_number_of_tasks_is_named() -> None:
    old = tasks(*[[0.97 - n / 100, *[1.0] * 39] for n in range(5)])
    found = answer(old, held(tasks(*[[None, None, *[1.0] * 38]] * 5), forgeable=True))
    assert (found.answer, found.tasks, found.samples) == ("undecided", None, None)


def test_undecided_says_what_would_decide() -> None:
    """Differences of tasks that come from samples alone shrink with samples; those between tasks don't."""
    old, new = [[0.4, 0.6]] * 6, [[1.0, 1.0], [0.0, 0.0], [1.0, 1.0], [1.0, 0.9], [1.0, 0.0], [0.0, 0.0]]
    found = answer(tasks(*old), tasks(*new))
    assert found.answer == "undecided" and found.difference is not None and found.spread is not None
    whole = variance([0.5, -0.5, 0.5, 0.45, 0, -0.5])
    within = fmean(variance(a) / 2 + variance(b) / 2 for a, b in zip(old, new, strict=True))
    assert within < whole
    assert found.spread.within == approx(within)
    assert found.spread.between == approx(whole - within)
    assert found.tasks is not None and found.tasks > 100
    assert found.samples is None, "the spread between tasks alone is too much for six of them"
    level = answer(tasks(*[[0.0, 1.0]] * 6), tasks(*[[1.0, 0.5]] * 4, *[[0.0, 0.5]] * 2))
    assert level.spread is not None and level.spread.between == 0, "samples differ more than tasks"
    assert level.answer == "undecided" and level.samples is not None and level.samples > 2
    steady = answer(tasks(*[[0.5, 0.5]] * 6), tasks(*[[each, each] for each in (1.0, 0.0, 1.0, 0.9, 0.5, 0.4)]))
    assert steady.spread is not None and (steady.spread.within, steady.samples) == (0, None)
    assert steady.tasks is not None and steady.tasks > 6
    alone = answer(tasks(*[0.5] * 6), tasks(1.0, 0.0, 1.0, 0.9, 0.5, 0.4))
    assert (alone.spread, alone.samples) == (None, None)
    assert alone.tasks == steady.tasks


def test_infra_that_b_could_have_brought_about_does_not_help_it() -> None:
    good = [1.0] * 39
    old = tasks(*[[0.97 - n / 100, *good] for n in range(5)])
    new = tasks(*[[*good, 1.0]] * 5)
    assert answer(old, new).answer == "promote"
    hidden = held(tasks(*[[None, None, *good[1:]]] * 5), forgeable=True)
    found = answer(old, hidden)
    assert (found.answer, found.reasons) == (
        "undecided",
        ("the answer hangs on infrastructure failures that B could have brought about itself",),
    )
    assert found.guarded is not None and found.guarded.mean < 0
    ours = msgspec.structs.replace(hidden, rows=tuple(msgspec.structs.replace(r, forgeable=False) for r in hidden.rows))
    assert answer(old, ours).answer == "promote"


FIVE = tasks(*[0.5] * 5)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (side(FIVE), side(FIVE), 'there is no task with split="held-out" in both sides'),
        (
            held(FIVE, "a"),
            held(FIVE, evaluator_revision="z"),
            "t0: other checks, t1: other checks, t2: other checks and 2",
        ),
        (held(FIVE, "a"), held({**FIVE, "x": [1.0]}), "tasks that only B has: x"),
        (held({**FIVE, "x": [1.0]}, "a"), held(FIVE), "tasks that only A has: x"),
        (held(FIVE, "a"), side(FIVE, name="b"), "tasks that are held out on one side only: t0, t1, t2 and 2 more"),
        (held(FIVE, "a"), held(FIVE, missing={"t0": 1}), "B measured 5 of 6 rollouts, and 95% is the least"),
        (
            held(tasks([None], *[1.0] * 5), "a"),
            held(tasks(*[1.0] * 6)),
            "A measured 5 of 6 rollouts, and 95% is the least",
        ),
        (
            held(FIVE, "a", trusted=False),
            held(FIVE),
            "A has 5 untrusted rollouts: their agents were not isolated as asked",
        ),
        (held(FIVE, "a"), held(FIVE, "a"), "A and B are the same run"),
    ],
)
def test_no_answer_without_the_evidence(old: Rows, new: Rows, reason: str) -> None:
    found = answer(old, new)
    assert (found.answer, found.difference) == ("refused", None)
    assert any(reason in each for each in found.reasons), found.reasons


def test_only_the_held_out_tasks_count() -> None:
    train = [row(f"train{n}", 0.0) for n in range(20)]
    old, new = held(tasks(*[0.0] * 5), "a"), held(tasks(*[1.0] * 5))
    more = [msgspec.structs.replace(each, rows=(*each.rows, *train)) for each in (old, new)]
    found = answer(*more)
    assert found.answer == "promote" and found.difference is not None and found.difference.count == 5
