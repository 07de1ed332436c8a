"""Checks and the reward: what counts, what fails a check, and what is the suite's mistake."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_rollout.errors import CheckerError, EvidenceError, InfraError
from pytest_rollout.reward import Check, Reward

UNIT = st.floats(min_value=0, max_value=1)
WEIGHTS = st.floats(min_value=0, exclude_min=True, max_value=1e308)


class Failed(BaseException):
    """What pytest.fail raises is not an Exception either."""


def mistake(reward: Reward, call: Callable[[], object]) -> str:
    """The text of the CheckerError that ``call`` raises; the reward remembers it, and nothing was recorded."""
    before = (list(reward.checks), dict(reward.metrics), reward.direct)
    with pytest.raises(CheckerError) as caught:
        call()
    assert reward.problem is caught.value
    assert (reward.checks, reward.metrics, reward.direct) == before
    return str(caught.value)


def enter(checking: Any) -> None:
    with checking:
        pass


# Checks


def test_a_check_is_1_when_it_ends_and_0_when_an_assertion_fails_in_it() -> None:
    reward = Reward()
    with reward.check("good"):
        pass
    with reward.check("bad", weight=3):
        assert len("one") == 2, "one is not two"
    assert reward.checks[0] == Check(name="good", weight=1.0, value=1.0)
    assert (reward.checks[1].name, reward.checks[1].weight, reward.checks[1].value) == ("bad", 3.0, 0.0)
    assert (reward.checks[1].message or "").startswith("one is not two")
    assert reward.value == 0.25
    assert reward.problem is None


def test_several_failing_checks_show_together() -> None:
    reward = Reward()
    for number in range(3):
        with reward.check(f"check {number}"):
            raise AssertionError(f"reason {number}")
    assert [(check.name, check.value, check.message) for check in reward.all_checks] == [
        (f"check {number}", 0.0, f"reason {number}") for number in range(3)
    ]
    assert reward.value == 0.0


def test_what_stands_behind_a_failed_assertion_is_not_run() -> None:
    reward, ran = Reward(), []
    with reward.check("a"):
        ran.append("before")
        raise AssertionError
    ran.append("behind the check")
    assert ran == ["before", "behind the check"]


def test_evidence_that_is_missing_fails_the_check() -> None:
    reward = Reward()
    with reward.check("a"):
        raise EvidenceError("there is no such file")
    assert reward.checks == [Check(name="a", weight=1.0, value=0.0, message="there is no such file")]


def test_the_types_that_are_passed_in_fail_a_check_too() -> None:
    reward = Reward(failures=(Failed,), render=lambda error: f"<{type(error).__name__}: {error}\udcff>")
    with reward.check("a"):
        raise Failed("no")
    assert reward.checks == [Check(name="a", weight=1.0, value=0.0, message="<Failed: no\\udcff>")]
    plain = Reward()
    with pytest.raises(Failed), plain.check("a"):
        raise Failed("no")
    assert plain.checks == []


@pytest.mark.parametrize("error", [KeyError("x"), OSError(2, "no"), InfraError("broken"), KeyboardInterrupt()])
def test_any_other_error_goes_on_and_records_nothing(error: BaseException) -> None:
    reward = Reward()
    with pytest.raises(type(error)) as caught, reward.check("a"):
        raise error
    assert caught.value is error
    assert (reward.checks, reward.value, reward.recorded) == ([], None, False)


def test_catch_names_further_types_that_mean_0() -> None:
    reward = Reward()
    with reward.check("tuple", catch=(KeyError, ZeroDivisionError)):
        raise KeyError("x")
    with reward.check("one", catch=ValueError):
        int("x")
    with pytest.raises(IndexError), reward.check("other", catch=(KeyError,)):
        [][0]
    assert [(check.name, check.value) for check in reward.checks] == [("tuple", 0.0), ("one", 0.0)]
    with reward.check("an assertion stays a failure", catch=(KeyError,)):
        raise AssertionError


@pytest.mark.parametrize(
    ("catch", "shown"), [([KeyError], "[<class 'KeyError'>]"), (("KeyError",), "('KeyError',)"), (int, "<class 'int'>")]
)
def test_a_catch_that_names_no_exception_is_the_suites_mistake(catch: Any, shown: str) -> None:
    reward = Reward()
    assert mistake(reward, lambda: reward.check("a", catch=catch)) == (
        f"reward.check('a'): catch={shown} is not a tuple of exception types"
    )


def test_what_is_let_through_ends_the_test_whatever_the_check_catches() -> None:
    reward = Reward(failures=(Failed,), through=(Failed, InfraError))
    with pytest.raises(Failed), reward.check("a", catch=(Failed,)):
        raise Failed
    with pytest.raises(InfraError), reward.check("b", catch=(Exception,)):
        raise InfraError("broken")
    assert reward.checks == []
    with reward.check("c", catch=(Exception,)):
        raise KeyError
    assert [check.name for check in reward.checks] == ["c"]


def test_a_mistake_inside_a_check_is_never_caught() -> None:
    reward = Reward(failures=(Exception,))
    with pytest.raises(CheckerError) as caught, reward.check("outer", catch=(Exception,)):
        reward.add("inner", 2)
    assert str(caught.value) == "reward.add('inner'): 2 is not a number in [0, 1]"
    assert reward.problem is caught.value
    assert reward.checks == []


def test_a_mistake_that_the_suite_swallowed_is_remembered() -> None:
    reward = Reward()
    with pytest.raises(CheckerError):
        reward.add("a", 2)
    reward.add("b", 1)
    assert str(reward.problem) == "reward.add('a'): 2 is not a number in [0, 1]"


# Nested checks


def test_nested_checks_are_judged_apart() -> None:
    reward = Reward()
    with reward.check("outer"):
        with reward.check("inner"):
            raise AssertionError("inner only")
        with reward.check("second"):
            pass
    assert [(check.name, check.value) for check in reward.checks] == [("inner", 0.0), ("second", 1.0), ("outer", 1.0)]
    with reward.check("outer 2"):
        with reward.check("inner 2"):
            pass
        raise AssertionError("outer only")
    assert [(check.name, check.value) for check in reward.checks[3:]] == [("inner 2", 1.0), ("outer 2", 0.0)]


def test_a_nested_check_of_the_same_name_is_a_mistake() -> None:
    reward = Reward()
    with pytest.raises(CheckerError) as caught, reward.check("a"), reward.check("a"):
        pass
    assert str(caught.value) == "reward.check('a'): there is a check of this name already"
    assert reward.checks == []


# Names


def test_a_name_is_used_once() -> None:
    reward = Reward()
    enter(reward.check("a"))
    assert mistake(reward, lambda: reward.check("a")) == "reward.check('a'): there is a check of this name already"
    assert mistake(reward, lambda: reward.add("a", 1)) == "reward.add('a'): there is a check of this name already"
    reward.metric("a", 3)
    assert mistake(reward, lambda: reward.metric("a", 3)) == (
        "reward.metric('a'): there is a metric of this name already"
    )
    reward.add("A", 1)
    assert [check.name for check in reward.checks] == ["a", "A"]


def test_one_check_is_not_entered_twice() -> None:
    reward = Reward()
    first, second = reward.check("a"), reward.check("a")
    enter(first)
    assert mistake(reward, lambda: enter(first)) == "reward.check('a'): there is a check of this name already"
    assert mistake(reward, lambda: enter(second)) == "reward.check('a'): there is a check of this name already"


@pytest.mark.parametrize("name", ["", "  ", 5, None, b"a"])
def test_a_name_is_a_text(name: Any) -> None:
    reward = Reward()
    for method in ("check", "add", "metric"):
        arguments = () if method == "check" else (1,)
        assert mistake(reward, lambda m=method, a=arguments: getattr(reward, m)(name, *a)) == (  # type: ignore[misc]
            f"reward.{method}({name!r}): a name is a text that is not empty"
        )


def test_names_can_be_encoded_and_stay_unique() -> None:
    reward = Reward()
    reward.add("\udcff", 1)
    assert reward.checks[0].name == "\\udcff"
    assert mistake(reward, lambda: reward.add("\\udcff", 1)) == (
        "reward.add('\\\\udcff'): there is a check of this name already"
    )


# Numbers

NOT_WEIGHTS: list[Any] = [0, -1, 0.0, math.nan, math.inf, -math.inf, True, False, "1", None, 10**400, 1j, Decimal(1)]
NOT_VALUES: list[Any] = [-0.1, 1.1, 2, math.nan, math.inf, "1", None, 10**400, 1j, Decimal("0.5"), 1 + 1e-9]


@pytest.mark.parametrize("weight", NOT_WEIGHTS, ids=lambda value: repr(value)[:20])
def test_a_weight_is_a_finite_number_above_0(weight: Any) -> None:
    reward = Reward()
    for method, arguments in (("check", ()), ("add", (1,))):
        call = lambda m=method, a=arguments: getattr(reward, m)("a", *a, weight=weight)  # noqa: E731
        assert mistake(reward, call) == f"reward.{method}('a'): weight {weight!r} is not a finite number above 0"


@pytest.mark.parametrize("value", NOT_VALUES, ids=lambda value: repr(value)[:20])
def test_a_value_is_a_number_from_0_to_1(value: Any) -> None:
    reward = Reward()
    assert mistake(reward, lambda: reward.add("a", value)) == f"reward.add('a'): {value!r} is not a number in [0, 1]"
    assert mistake(reward, lambda: reward.set(value)) == f"reward.set('reward'): {value!r} is not a number in [0, 1]"


class NumpyLike:
    """What numpy.float32 is: no float, and registered as a real number."""

    def __init__(self, number: float) -> None:
        self.number = number

    def __float__(self) -> float:
        return self.number


numbers.Real.register(NumpyLike)


def test_any_real_number_is_taken_and_becomes_a_plain_float() -> None:
    reward = Reward()
    given: Any = NumpyLike(0.5)
    reward.add("numpy", given, weight=given)
    reward.add("fraction", Fraction(1, 4), weight=Fraction(1, 2))  # type: ignore[arg-type]
    reward.add("bool", True)
    reward.metric("m", given)
    assert [(check.value, check.weight) for check in reward.checks] == [(0.5, 0.5), (0.25, 0.5), (1.0, 1.0)]
    assert reward.metrics == {"m": 0.5}
    plain = [*(number for check in reward.checks for number in (check.value, check.weight)), *reward.metrics.values()]
    assert {type(number) for number in plain} == {float}
    bad: Any = NumpyLike(math.nan)
    assert "is not a number in [0, 1]" in mistake(reward, lambda: reward.add("nan", bad))


# The reward


def test_nothing_recorded_is_no_reward() -> None:
    reward = Reward()
    assert (reward.value, reward.all_checks, reward.recorded) == (None, (), False)
    reward.metric("seconds", 3)
    assert (reward.value, reward.recorded) == (None, False)


def test_the_reward_is_the_weighted_mean() -> None:
    reward = Reward()
    reward.add("a", 1, weight=3)
    reward.add("b", 0.5)
    reward.add("c", 0, weight=0.5)
    assert reward.value == pytest.approx(3.5 / 4.5, rel=1e-15)
    assert reward.recorded


@given(st.lists(st.tuples(UNIT, WEIGHTS), min_size=1, max_size=20))
def test_a_mean_lies_between_the_lowest_and_the_highest(pairs: list[tuple[float, float]]) -> None:
    reward = Reward()
    for number, (value, weight) in enumerate(pairs):
        reward.add(str(number), value, weight)
    mean = reward.value
    assert mean is not None
    assert 0 <= mean <= 1
    values = [value for value, _ in pairs]
    assert min(values) - 1e-12 <= mean <= max(values) + 1e-12


@given(st.lists(WEIGHTS, min_size=1, max_size=20))
def test_all_checks_at_1_are_exactly_1(weights: list[float]) -> None:
    reward = Reward()
    for number, weight in enumerate(weights):
        reward.add(str(number), 1, weight)
    assert reward.value == 1.0


# set


def test_what_a_control_run_holds_is_what_counts() -> None:
    reward = Reward()
    reward.add("a", 1.0)
    reward.add("extra", 1.0)
    assert reward.value == 1.0
    reward.held = (
        Check(name="a", weight=1.0, value=1.0),
        Check(name="b", weight=3.0, value=0.0),
        Check(name="extra", weight=0.0, value=1.0),
    )
    assert reward.all_checks == reward.held
    assert reward.value == 0.25
    assert [check.name for check in reward.checks] == ["a", "extra"]


def test_a_reward_that_was_set_is_not_held() -> None:
    reward = Reward()
    reward.set(0.5)
    reward.held = (Check(name="a", weight=1.0, value=0.0),)
    assert reward.value == 0.5
    assert reward.all_checks == (reward.direct,)


def test_set_is_the_reward() -> None:
    reward = Reward()
    reward.set(0.25, reason="a quarter\udcff")
    assert reward.value == 0.25
    assert reward.all_checks == (Check(name="reward", weight=1.0, value=0.25, message="a quarter\\udcff"),)
    assert reward.recorded
    again = Reward()
    again.set(1)
    assert again.all_checks[0].message is None


def test_set_stands_alone() -> None:
    beside = "reward.set(): the reward was set before, or checks are recorded beside it"
    reward = Reward()
    reward.set(1)
    assert mistake(reward, lambda: reward.set(1)) == beside
    assert (
        mistake(reward, lambda: reward.add("a", 1)) == "reward.add('a'): the reward was set with reward.set() already"
    )
    assert mistake(reward, lambda: reward.check("a")) == (
        "reward.check('a'): the reward was set with reward.set() already"
    )
    other = Reward()
    other.add("a", 1)
    assert mistake(other, lambda: other.set(1)) == beside
    third = Reward()
    with pytest.raises(CheckerError) as caught, third.check("open"):
        third.set(1)
    assert str(caught.value) == beside


def test_a_check_that_was_made_before_set_is_not_entered_after_it() -> None:
    reward = Reward()
    checking = reward.check("a")
    reward.set(1)
    assert mistake(reward, lambda: enter(checking)) == (
        "reward.check('a'): the reward was set with reward.set() already"
    )


def test_metrics_go_beside_set_and_checks() -> None:
    reward = Reward()
    reward.metric("seconds", 12.5)
    reward.set(1)
    reward.metric("distance", -3)
    assert reward.metrics == {"seconds": 12.5, "distance": -3.0}
    assert reward.value == 1.0


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, "1", None, 10**400, Decimal(1)], ids=repr)
def test_a_metric_is_a_finite_number(number: Any) -> None:
    reward = Reward()
    assert mistake(reward, lambda: reward.metric("m", number)) == (
        f"reward.metric('m'): {number!r} is not a finite number"
    )
