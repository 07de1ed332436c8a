"""Gates: how they are written, what they hold against, what they imply, and the exit status that they make."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from scipy import stats

from pytest_rollout.decisions.gates import Gate, Judged, judge, parse_gate, status_of
from pytest_rollout.decisions.regression import regression
from pytest_rollout.decisions.rows import RowEarlier, Rows, RowUsage
from pytest_rollout.errors import ConfigError
from tests.unit.decisions.conftest import PINS, row, rows


def gate(text: str) -> Gate:
    return parse_gate(text, "--rollout-gate")


def judged(run: Rows, *texts: str, base: Rows | None = None, untrusted: bool = False) -> list[Judged]:
    bases = {"last": base} if base is not None else {}
    return judge([gate(text) for text in texts], run, bases, untrusted=untrusted)


def verdicts(*arguments: Any, **more: Any) -> list[str]:
    return [each.verdict for each in judged(*arguments, **more)]


# -- writing them


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("mean_reward >= 0.8", {"figure": "mean_reward", "operator": ">=", "bound": 0.8}),
        ("  infra_rate<=.05 ", {"figure": "infra_rate", "operator": "<=", "bound": 0.05, "text": "infra_rate<=.05"}),
        ("pass@1 > 0", {"figure": "pass@", "operator": ">", "bound": 0.0, "k": 1}),
        ("pass^16 < 1", {"figure": "pass^", "operator": "<", "bound": 1.0, "k": 16}),
        ("cost <= 12.5", {"figure": "cost", "operator": "<=", "bound": 12.5}),
        ("wall < 3600", {"figure": "wall", "operator": "<", "bound": 3600.0}),
        ("regression(last) < 0.02", {"figure": "regression", "operator": "<", "bound": 0.02, "base": "last"}),
        (
            "regression( a (1)/b.json ) <= 0",
            {"figure": "regression", "operator": "<=", "bound": 0.0, "base": "a (1)/b.json"},
        ),
        (
            "success_rate >= 1 for tag:slow ones",
            {"figure": "success_rate", "operator": ">=", "bound": 1.0, "tag": "slow ones"},
        ),
        (
            "measured > 0.5  for split:held-out",
            {"figure": "measured", "operator": ">", "bound": 0.5, "split": "held-out"},
        ),
    ],
)
def test_a_gate_as_it_is_written(text: str, fields: dict[str, Any]) -> None:
    assert gate(text) == Gate(**{"text": " ".join(text.split()), **fields})


VALID = "mean_reward, success_rate, pass@K, pass^K, infra_rate, measured, regression(RUN), cost, wall"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("mean_rewrd >= 0.8", f"unknown figure 'mean_rewrd'; valid: {VALID}. Did you mean 'mean_reward'?"),
        ("nothing >= 0.8", f"unknown figure 'nothing'; valid: {VALID}."),
        ("pass@ >= 0.8", "pass@ needs a number of samples from 1: pass@4"),
        ("pass^0 >= 0.8", "pass^0 needs a number of samples from 1: pass^4"),
        ("mean_reward == 0.8", "'==' can't be asked of mean_reward; valid: >=, >, <=, <"),
        ("mean_reward => 0.8", "'=>' can't be asked of mean_reward; valid: >=, >, <=, <"),
        ("regression(last) >= 0.1", "'>=' can't be asked of regression; valid: <, <="),
        ("regression < 0.1", "regression needs a run or a file: regression(last)"),
        ("regression() < 0.1", "regression needs a run or a file: regression(last)"),
        ("measured(last) < 0.1", "measured takes nothing in parentheses"),
        ("mean_reward >= 80", "the bound '80' is not a number from 0 to 1"),
        ("mean_reward >= nan", "the bound 'nan' is not a number from 0 to 1"),
        ("regression(last) < -0.1", "the bound '-0.1' is not a number from 0 to 1"),
        ("mean_reward >= 0_1", "the bound '0_1' is not a number from 0 to 1"),
        ("mean_reward >= ٠.٥", "the bound '٠.٥' is not a number from 0 to 1"),
        ("cost <= inf", "the bound 'inf' is not a number from 0"),
    ],
)
def test_a_gate_that_is_wrong(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        gate(text)
    assert str(caught.value) == f"--rollout-gate: {text!r}: {said}"


@pytest.mark.parametrize(
    "text", ["", "mean_reward", "mean_reward >=", "0.8 <= mean_reward", "measured > 0.5 for agent:x"]
)
def test_what_is_no_gate(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        gate(text)
    hint = "Gates are written like 'mean_reward >= 0.8' or 'pass@1 > 0.5 for tag:smoke'."
    assert str(caught.value) == f"--rollout-gate: {text!r} is not a gate\n{hint}"


# -- judging

GOOD = rows({"a": [1, 1, 1, 0], "b": [1, 1, 0.5, 1]}, tags=("x",))  # 0.8125; success 0.75


@pytest.mark.parametrize(
    ("text", "verdict", "line"),
    [
        ("mean_reward >= 0.8125", "holds", "0.8125; 8 measured of 8"),
        ("mean_reward > 0.8125", "does not hold", "0.8125; 8 measured of 8"),
        ("mean_reward <= 0.8125", "holds", "0.8125; 8 measured of 8"),
        ("mean_reward < 0.8125", "does not hold", "0.8125; 8 measured of 8"),
        ("success_rate >= 0.8", "does not hold", "0.75; 8 measured of 8"),
        ("pass@4 >= 1", "holds", "1; 2 of 2 tasks"),
        ("pass^2 > 0.5", "does not hold", "0.5; 2 of 2 tasks"),
        ("pass^5 > 0.5", "undecided", "no task has 5 measured samples"),
        ("infra_rate <= 0", "holds", "0; 0 of 8"),
        ("measured >= 1", "holds", "1; 8 of 8"),
        ("mean_reward >= 0.5 for tag:y", "undecided", "no rollout was selected for tag:y"),
        ("mean_reward >= 0.5 for tag:x", "holds", "0.8125; 8 measured of 8"),
    ],
)
def test_the_verdict_of_a_gate(text: str, verdict: str, line: str) -> None:
    first = judged(GOOD, text)[0]
    assert first.verdict == verdict
    assert first.line() == f"gate {text}: {verdict}; {line}"


def test_a_figure_is_not_rounded_to_a_bound_from_which_it_differs() -> None:
    run = rows({"a": [0.79996], "b": [0.79998]})
    assert judged(run, "mean_reward >= 0.8")[0].line() == (
        "gate mean_reward >= 0.8: does not hold; 0.79997; 2 measured of 2"
    )


def test_only_a_floor_of_what_is_measured_replaces_the_implied_one() -> None:
    run = rows({"a": [1] * 8 + [None] * 2})
    assert verdicts(run, "mean_reward >= 1", "measured <= 1") == ["holds", "holds", "does not hold"]
    assert verdicts(run, "mean_reward >= 1", "measured > 0.7") == ["holds", "holds"]


def test_every_gate_implies_that_nearly_all_was_measured() -> None:
    run = rows({"a": [1] * 18 + [None]}, missing={"a": 1})  # 18 of 20
    first, implied = judged(run, "mean_reward >= 0.8")
    assert (first.verdict, implied.verdict) == ("holds", "does not hold")
    assert implied.line() == "gate measured >= 0.95 (implied): does not hold; 0.9; 18 of 20, 1 infra, 1 missing"
    assert status_of([first, implied]) == 76
    assert verdicts(run, "mean_reward >= 0.8", "measured >= 0.9") == ["holds", "holds"]
    assert verdicts(run, "measured >= 0.9") == ["holds"]
    assert verdicts(run, "cost >= 0") == ["holds", "does not hold"]
    assert verdicts(rows({"a": [1] * 19 + [None]}), "mean_reward >= 0.8") == ["holds", "holds"]


def test_a_bound_of_infra_is_a_bound_of_what_is_measured() -> None:
    run = rows({"a": [1] * 18 + [None]}, missing={"a": 1})
    found = judged(run, "infra_rate <= 0.1", "mean_reward >= 0.8")
    assert [each.gate.text for each in found] == ["infra_rate <= 0.1", "mean_reward >= 0.8", "measured >= 0.9"]
    assert {each.verdict for each in found} == {"holds"}
    assert [each.gate.bound for each in judged(run, "infra_rate <= 0.01")] == [0.01, 0.95]
    assert [each.gate.bound for each in judged(run, "infra_rate >= 0.01")] == [0.01, 0.95]


def test_what_is_implied_is_about_the_same_part() -> None:
    run = Rows(name="r", rows=(*rows({"a": [1]}, tags=("x",)).rows, *rows({"b": [None]}, split="s").rows))
    found = judged(run, "mean_reward >= 1 for tag:x", "measured >= 0.5")
    assert [each.line().partition(":")[0] for each in found[2:]] == ["gate measured >= 0.95 for tag"]
    assert {each.verdict for each in found} == {"holds"}
    assert verdicts(run, "mean_reward >= 1 for split:s") == ["undecided", "undecided"]


@pytest.mark.parametrize(
    "text", ["mean_reward >= 0", "infra_rate <= 1", "measured >= 0", "cost <= 1", "regression(last) < 1"]
)
def test_where_nothing_was_measured_no_gate_holds(text: str) -> None:
    for run in (rows({"a": [None, None]}), rows({}, missing={"a": 2}), rows({})):
        found = judged(run, text, base=GOOD)
        assert {each.verdict for each in found} == {"undecided"}
        assert status_of(found) == 75


def test_untrusted_results_are_not_measured_unless_asked_for() -> None:
    run = rows({"a": [1, 1]}, trusted=False)
    (first, _) = judged(run, "mean_reward >= 0.8")
    assert first.line() == (
        "gate mean_reward >= 0.8: undecided; nothing was measured: "
        "2 untrusted results count only with --rollout-gate-untrusted"
    )
    assert verdicts(run, "mean_reward >= 0.8", untrusted=True) == ["holds", "holds"]
    some = Rows(name="r", rows=(*run.rows, row("a", 2, 1)))
    assert judged(some, "mean_reward >= 0.8")[1].line().endswith("does not hold; 0.3333; 1 of 3, 2 untrusted")


def test_a_gate_that_only_forgeable_infra_makes_hold_does_not() -> None:
    made = [row("a", n, 1) for n in range(38)] + [row("a", 38 + n, None, forgeable=True) for n in range(2)]
    run = Rows(name="r", rows=tuple(made))
    first, implied = judged(run, "mean_reward >= 0.96")
    assert first.line() == (
        "gate mean_reward >= 0.96: does not hold; 1; with forgeable infra as 0: 0.95; 38 measured of 40; "
        "it holds only without what the candidate may have brought about"
    )
    assert implied.verdict == "holds"
    shown = judged(run, "mean_reward >= 0.9")[0]
    assert (shown.verdict, shown.value, shown.forgeable) == ("holds", 1, 0.95)
    assert judged(run, "pass^1 >= 0.96")[0].verdict == "does not hold"
    assert judged(run, "success_rate < 0.9")[0].verdict == "does not hold"
    assert judged(rows({"a": [1] * 38 + [None] * 2}), "mean_reward >= 0.96")[0].verdict == "holds"


def test_statuses() -> None:
    found = {each.verdict: each for each in judged(GOOD, "pass^5 > 0", "mean_reward > 0.9", "mean_reward > 0.5")}
    holds, broken, undecided = found["holds"], found["does not hold"], found["undecided"]
    assert status_of([holds, holds]) == status_of([]) == 0
    assert status_of([holds, undecided]) == 75
    assert status_of([undecided, broken, holds]) == 76


# -- amounts


def used(cost: float | None, **more: Any) -> Any:
    return row("a", 0, 1, usage=RowUsage(wall=2.0, cost=cost), **more)


@pytest.mark.parametrize(
    ("costs", "text", "verdict", "said"),
    [
        ([1.0, 2.0], "cost <= 3", "holds", "3 USD; 2 attempts"),
        ([1.0, 2.5], "cost <= 3", "does not hold", "3.5 USD; 2 attempts"),
        ([None, None], "cost <= 3", "undecided", "2 attempts, of 2 it is not known"),
        ([1.0, None], "cost <= 3", "undecided", "1 USD; 2 attempts, of 1 it is not known"),
        ([4.0, None], "cost <= 3", "does not hold", "4 USD; 2 attempts, of 1 it is not known"),
        ([4.0, None], "cost > 3", "holds", "4 USD; 2 attempts, of 1 it is not known"),
        ([1.0, None], "cost > 3", "undecided", "1 USD; 2 attempts, of 1 it is not known"),
        ([1.0, None], "wall <= 4", "holds", "4 s; 2 attempts"),
    ],
)
def test_amounts(costs: list[float | None], text: str, verdict: str, said: str) -> None:
    run = Rows(name="r", rows=tuple(replace(used(cost), rollout=f"{n}") for n, cost in enumerate(costs)))
    assert judged(run, text)[0].line() == f"gate {text}: {verdict}; {said}"


def test_an_amount_is_of_every_attempt() -> None:
    earlier = (RowEarlier(kind="stage"), RowEarlier(kind="provider", usage=RowUsage(cost=0.5)))
    run = Rows(name="r", rows=(used(1.0, earlier=earlier), row("b", 0, None)))
    assert judged(run, "cost <= 1.5", "measured >= 0")[0].line() == "gate cost <= 1.5: holds; 1.5 USD; 2 attempts"
    assert verdicts(rows({"a": [1]}), "cost <= 1.5") == ["undecided", "holds"]


# -- regressions

BASE = rows({"a": [1, 1], "b": [0.5, 1], "c": [1, 0], "d": [1, 1]}, name="base")


def test_a_regression_is_of_the_means_of_common_tasks() -> None:
    new = rows({"a": [1, 0], "b": [0.5], "c": [0, 0], "d": [1, 0.5]})
    found = regression(new, BASE)
    differences = [-0.5, -0.25, -0.5, -0.25]
    assert found.difference is not None and found.difference.mean == pytest.approx(-0.375)
    paired = stats.ttest_rel([0.5, 0.5, 0, 0.75], [1, 0.75, 0.5, 1])
    assert found.upper == pytest.approx(paired.confidence_interval(0.9).high)
    assert found.upper == pytest.approx(-0.375 + stats.t.ppf(0.95, 3) * stats.sem(differences))
    first = judged(new, "regression(last) < 0.02", base=BASE)[0]
    assert first.line() == (
        "gate regression(last) < 0.02: does not hold; -0.3750, at most -0.2052 (95 %), on the mean of 4 common tasks"
    )
    assert verdicts(new, "regression(last) < 0.21", base=BASE)[0] == "holds"
    assert verdicts(BASE, "regression(last) < 0", base=new)[0] == "holds"
    assert verdicts(BASE, "regression(last) < 0", base=BASE)[0] == "holds"


def test_a_drop_that_may_be_chance_is_none() -> None:
    """The mean fell by 0.125; a gate on that number alone would have raised an alarm."""
    new = rows({"a": [1, 1], "b": [0.5, 1], "c": [0, 0], "d": [1, 1]})
    assert verdicts(new, "regression(last) < 0.02", base=BASE)[0] == "holds"


@pytest.mark.parametrize(
    "changed",
    [
        {"pins": replace(PINS, task_digest="other")},
        {"pins": replace(PINS, environment_revision="other")},
        {"pins": None},
        {"evaluator_revision": "other"},
        {"evaluator_revision": None},
    ],
)
def test_a_task_that_changed_is_left_out_and_counted(changed: dict[str, Any]) -> None:
    made = [each if each.task != "a" else replace(each, **changed) for each in BASE.rows if each.task != "d"]
    found = regression(Rows(name="new", rows=(*made, row("e", 0, 1))), BASE)
    assert (found.common, found.changed, found.only_new, found.only_base) == (("b", "c"), ("a",), ("e",), ("d",))
    line = judged(Rows(name="new", rows=tuple(made)), "regression(last) < 0.02", base=BASE)[0].line()
    assert line == (
        "gate regression(last) < 0.02: undecided; +0.0000, at most +0.0000 (95 %), on the mean of 2 common tasks, "
        "1 left out because the task, its environment or its checks changed, 1 only there; of the 4 tasks of "
        "base 5% may lack here"
    )


def test_tasks_that_are_gone_do_not_make_a_gate_hold() -> None:
    base = rows({f"t{number}": [1, 0] for number in range(40)}, name="base")
    new = Rows(name="new", rows=base.rows[4:])
    assert verdicts(new, "regression(last) < 0.02", base=base)[0] == "holds"
    assert verdicts(Rows(name="new", rows=base.rows[6:]), "regression(last) < 0.02", base=base)[0] == "undecided"
    worse = rows({f"t{number}": [0, 0] for number in range(20)})
    assert verdicts(worse, "regression(last) < 0.02", base=base)[0] == "does not hold"


def test_tasks_that_lost_a_sample_do_not_make_pass_at_k_hold() -> None:
    """A task without k samples is left out, and it may be a hard one."""
    easy, hard = {f"t{number}": [1.0, 1.0] for number in range(8)}, {"h": [0.0, None]}
    assert verdicts(rows({**easy, **hard}), "pass@2 >= 0.9", "measured >= 0.9") == ["undecided", "holds"]
    found = judged(rows({**easy, **hard}), "pass@2 >= 0.9", "measured >= 0.9")[0].line()
    assert found == (
        "gate pass@2 >= 0.9: undecided; 1; 8 of 9 tasks; of the 9 tasks with so many samples 1 lost some, and 5% may"
    )
    assert verdicts(rows({**easy, "h": [0.0]}), "pass@2 >= 0.9") == ["holds", "holds"]  # it never had two
    assert verdicts(rows({"a": [0.0, 0.0], "h": [0.0, None]}), "pass@2 >= 0.9", "measured >= 0") == [
        "does not hold",
        "holds",
    ]


def test_with_less_than_two_common_tasks_it_is_undecided() -> None:
    found = judged(rows({"a": [1], "x": [1]}), "regression(last) < 0.02", base=BASE)
    assert found[0].line() == (
        "gate regression(last) < 0.02: undecided; 1 common task, 1 not in base, 3 only there: at least 2 are needed"
    )
    assert status_of(found) == 75


def test_forgeable_infra_is_looked_at_as_0_on_both_sides() -> None:
    lost: dict[str, Any] = {"forgeable": True, "pins": None, "evaluator_revision": None}
    made = [row(task, n, 1) for task in "abd" for n in range(2)] + [row(task, 2, None, **lost) for task in "abd"]
    made += [row(task, 3, None, **lost) for task in "abd"]
    new = Rows(name="new", rows=tuple(made))
    first = judged(new, "regression(last) < 0.1", "measured >= 0", base=BASE)[0]
    reach = stats.t.ppf(0.95, 2) * stats.sem([0, 0.25, 0])
    assert [first.value, first.forgeable] == pytest.approx([-0.25 / 3 - reach, 1.25 / 3 - reach])
    assert first.verdict == "does not hold"
    assert "; with forgeable infra as 0: a drop of 0.1733; " in first.line()
    assert verdicts(new, "regression(last) < 0.1", "measured >= 0", base=new)[0] == "holds"


def test_a_part_is_compared_with_the_same_tasks_and_that_part_of_the_other_run() -> None:
    new = Rows(name="n", rows=(*rows({"a": [0, 0], "b": [0]}, tags=("x",)).rows, *rows({"c": [1]}).rows))
    base = Rows(name="base", rows=(*BASE.rows, *rows({"e": [1]}, tags=("x",)).rows))
    found = judged(new, "regression(last) < 0.02 for tag:x", base=base)[0]
    assert "on the mean of 2 common tasks, 1 only there" in found.line()
