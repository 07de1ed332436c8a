"""Every statistic against scipy, statsmodels, or a worked example that was published."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from itertools import combinations
from statistics import fmean, stdev

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.power import tt_solve_power
from statsmodels.stats.proportion import proportion_confint

from pytest_rollout.decisions.statistics import (
    Estimate,
    Interval,
    bootstrap,
    clustered_error,
    detectable,
    detectable_of_tasks,
    difference,
    estimate,
    pass_at_k,
    pass_hat_k,
    pooled_error,
    sign_test,
    student_quantile,
    tasks_needed,
    welch,
    wilson,
    wilson_needed,
)

DRAW = random.Random(7)
SETS = [[round(DRAW.random(), 3) for _ in range(size)] for size in (2, 3, 7, 40)]
GROUPS = [[float(DRAW.random() < 0.6) for _ in range(DRAW.randint(1, 5))] for _ in range(9)]


def close(found: Interval | None, low: float, high: float) -> bool:
    return found is not None and [found.low, found.high] == pytest.approx([low, high])


# -- Student


@pytest.mark.parametrize("freedom", [1, 2, 3, 5, 10, 30, 100, 1000, 100_000])
@pytest.mark.parametrize("share", [0.6, 0.8, 0.95, 0.975, 0.995, 0.9999, 0.05, 0.5])
def test_the_quantiles_of_student(share: float, freedom: int) -> None:
    assert student_quantile(share, freedom) == pytest.approx(stats.t.ppf(share, freedom), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("values", SETS, ids=len)
def test_the_interval_of_a_mean(values: list[float]) -> None:
    found = estimate(values, 0.9)
    assert found is not None and found.error == pytest.approx(stats.sem(values))
    assert close(found.interval, *stats.t.interval(0.9, len(values) - 1, loc=np.mean(values), scale=stats.sem(values)))
    one_sided = stats.ttest_1samp(values, 0).confidence_interval
    assert one_sided(0.9).high == pytest.approx(found.upper(0.95))
    assert one_sided(0.9).low == pytest.approx(found.lower(0.95))


def test_what_few_values_do_not_say() -> None:
    assert estimate([]) is None
    one = estimate([0.25])
    assert one == Estimate(mean=0.25, count=1, error=None, interval=None, confidence=0.95)
    assert (one.upper(0.95), one.lower(0.95)) == (None, None)
    equal = estimate([0.1] * 10)
    assert equal is not None and (equal.mean, equal.error, equal.interval) == (0.1, 0.0, Interval(0.1, 0.1))


@pytest.mark.parametrize(("first", "second"), list(combinations(SETS, 2)), ids=lambda values: len(values))
def test_welch(first: list[float], second: list[float]) -> None:
    """The degrees of freedom are rounded down, so the interval is never too narrow; the error is the same."""
    found = welch(first, second)
    theirs = stats.ttest_ind(second, first, equal_var=False)
    assert found is not None and found.error is not None and found.interval is not None
    assert found.mean / found.error == pytest.approx(theirs.statistic)
    assert found.count - 1 == max(1, int(theirs.df))
    exact = theirs.confidence_interval(0.95)
    assert found.interval.high - found.interval.low >= (exact.high - exact.low) * (1 - 1e-9)
    reach = stats.t.ppf(0.975, found.count - 1) * found.error
    assert close(found.interval, found.mean - reach, found.mean + reach)


def test_welch_without_a_spread() -> None:
    assert welch([], [1.0]) is None
    alone = welch([0.5, 1.0], [1.0])
    assert alone is not None and (alone.mean, alone.error, alone.interval) == (0.25, None, None)
    equal = welch([0.5, 0.5], [1.0, 1.0])
    assert equal is not None and (equal.error, equal.interval) == (0.0, Interval(0.5, 0.5))


# -- clusters


def test_the_clustered_error_is_that_of_least_squares_on_a_constant() -> None:
    """The sandwich of Liang and Zeger without a correction, as Miller 2024, section 2.2, writes it."""
    from statsmodels.regression.linear_model import OLS

    values = np.array([value for group in GROUPS for value in group])
    names = np.array([number for number, group in enumerate(GROUPS) for _ in group])
    fitted = OLS(values, np.ones_like(values)).fit(
        cov_type="cluster", cov_kwds={"groups": names, "use_correction": False}
    )
    assert clustered_error(GROUPS) == pytest.approx(fitted.bse[0])


def test_the_clustered_error_of_equal_groups_is_that_of_their_means_without_its_correction() -> None:
    groups = [[DRAW.random() for _ in range(4)] for _ in range(6)]
    error = clustered_error(groups)
    found = estimate([fmean(group) for group in groups])
    assert error is not None and found is not None
    assert found.error == pytest.approx(error * math.sqrt(6 / 5))


def test_errors_that_are_not_known() -> None:
    assert clustered_error([]) is None
    assert clustered_error([[0.5, 1.0], []]) is None
    assert clustered_error([[0.5], [0.5]]) == 0.0
    assert pooled_error([[0.5], [1.0]]) is None
    assert pooled_error([[0.0, 1.0], [0.25], [0.0, 0.5, 1.0]]) == pytest.approx(math.sqrt(0.5 / 2 + 0.25 / 3) / 2)


# -- pass@k


@pytest.mark.parametrize(("samples", "successes"), [(1, 0), (1, 1), (4, 2), (5, 1), (6, 6), (7, 0), (7, 3)])
def test_pass_at_k_by_counting_every_choice(samples: int, successes: int) -> None:
    outcomes = [True] * successes + [False] * (samples - successes)
    for k in range(1, samples + 1):
        choices = list(combinations(outcomes, k))
        assert pass_at_k(samples, successes, k) == float(Fraction(sum(map(any, choices)), len(choices)))
        assert pass_hat_k(samples, successes, k) == float(Fraction(sum(map(all, choices)), len(choices)))


def chen(n: int, c: int, k: int) -> float:
    """The function that Chen et al. 2021 print (figure 3)."""
    if n - c < k:
        return 1.0
    return float(1.0 - np.prod(1.0 - k / np.arange(n - c + 1, n + 1)))


@pytest.mark.parametrize(("samples", "successes", "k"), [(200, 13, 100), (200, 1, 1), (100, 60, 10), (3, 3, 3)])
def test_pass_at_k_as_chen_prints_it(samples: int, successes: int, k: int) -> None:
    assert pass_at_k(samples, successes, k) == pytest.approx(chen(samples, successes, k), rel=1e-9)


def test_passes_of_too_few_samples_are_not_known() -> None:
    for figure in (pass_at_k, pass_hat_k):
        assert figure(3, 3, 4) is None
        assert figure(0, 0, 1) is None
        assert figure(3, 2, 0) is None


def test_passes_of_a_great_many_samples_are_exact() -> None:
    assert pass_at_k(10_000, 1, 1) == 1e-4
    assert pass_at_k(10_000, 1, 5_000) == 0.5
    assert pass_at_k(10_000, 9_999, 5_000) == 1.0
    assert pass_hat_k(10_000, 9_999, 5_000) == 0.5
    assert pass_hat_k(10_000, 5_000, 5_000) == 0.0  # below the least number that a float holds
    whole = Fraction(math.comb(10_000, 100) - math.comb(9_000, 100), math.comb(10_000, 100))
    assert pass_at_k(10_000, 1_000, 100) == float(whole)


# -- rates


@pytest.mark.parametrize(("successes", "samples"), [(0, 1), (1, 1), (0, 10), (10, 10), (3, 10), (81, 263), (15, 148)])
@pytest.mark.parametrize("confidence", [0.9, 0.95])
def test_wilson(successes: int, samples: int, confidence: float) -> None:
    low, high = proportion_confint(successes, samples, 1 - confidence, "wilson")
    assert close(wilson(successes, samples, confidence), low, high)


def test_wilson_as_newcombe_prints_it() -> None:
    """Newcombe 1998 (Statistics in Medicine 17), table I, method 3."""
    table = {
        (81, 263): (0.2553, 0.3662),
        (15, 148): (0.0624, 0.1605),
        (0, 20): (0.0, 0.1611),
        (1, 29): (0.0061, 0.1718),
    }
    for (successes, samples), ends in table.items():
        found = wilson(successes, samples)
        assert found is not None and (round(found.low, 4), round(found.high, 4)) == ends
    assert wilson(0, 0) is None


@pytest.mark.parametrize("bound", [0.0, 0.5, 0.8, 0.9, 0.99])
def test_how_many_successes_wilson_needs(bound: float) -> None:
    count = wilson_needed(bound)
    found = wilson(count, count)
    assert found is not None and found.low >= bound
    fewer = wilson(count - 1, count - 1)
    assert fewer is None or fewer.low < bound


# -- drawing anew


def test_the_bootstrap_as_scipy_draws_it() -> None:
    values = SETS[-1]
    theirs = stats.bootstrap(
        (values,), np.mean, n_resamples=20_000, method="percentile", random_state=np.random.default_rng(1)
    ).confidence_interval
    found = bootstrap(values, 1, resamples=20_000)
    assert found is not None
    assert [found.low, found.high] == pytest.approx([theirs.low, theirs.high], abs=0.005)


def test_the_bootstrap_is_its_seed() -> None:
    assert bootstrap(SETS[2], 3) == bootstrap(SETS[2], 3) != bootstrap(SETS[2], 4)
    assert bootstrap([0.5], 1) is None
    assert bootstrap([0.5] * 5, 1) == Interval(0.5, 0.5)


def test_percentiles_are_those_of_numpy() -> None:
    draw = random.Random(5)
    values = [0.0, 0.25, 1.0]
    means = [math.fsum(draw.choices(values, k=3)) / 3 for _ in range(200)]
    low, high = np.percentile(means, [5, 95])
    assert close(bootstrap(values, 5, confidence=0.9, resamples=200), low, high)


# -- tests of a difference


@pytest.mark.parametrize(("more", "fewer"), [(1, 0), (5, 0), (3, 3), (7, 2), (0, 12), (60, 40), (501, 499)])
def test_the_sign_test(more: int, fewer: int) -> None:
    found = sign_test(more, fewer)
    assert found == pytest.approx(stats.binomtest(more, more + fewer).pvalue)
    assert found == pytest.approx(mcnemar([[0, more], [fewer, 0]], exact=True).pvalue)


def test_equal_values_have_no_spread() -> None:
    """The mean of three times 0.7 is not quite 0.7."""
    found = estimate([0.7] * 3)
    assert found is not None
    assert (found.error, found.interval) == (0, Interval(found.mean, found.mean))
    assert difference(fmean([0.1] * 3), fmean([0.1] * 4)) == difference(0.1 + 0.2, 0.3) == 0
    assert difference(1, 0.5) == 0.5


def test_a_sign_test_of_nothing_and_of_a_great_many() -> None:
    assert sign_test(0, 0) is None
    assert sign_test(20_300, 19_700) == pytest.approx(stats.binomtest(20_300, 40_000).pvalue)


@pytest.mark.parametrize("sides", [1, 2])
def test_the_detectable_effect(sides: int) -> None:
    """Miller 2024, section 5: 2.8 standard errors, two-sided."""
    assert detectable(1.0, sides=sides) == pytest.approx(stats.norm.ppf(1 - 0.05 / sides) + stats.norm.ppf(0.8))
    assert round(detectable(1.0), 2) == 2.8


@pytest.mark.parametrize(("deviation", "effect"), [(0.5, 0.1), (0.3, 0.02), (0.5, 0.5), (0.1, 0.6)])
def test_how_many_tasks_are_needed(deviation: float, effect: float) -> None:
    count = tasks_needed(deviation, effect)
    assert count is not None
    exact = tt_solve_power(effect_size=effect / deviation, alpha=0.05, power=0.8, alternative="two-sided")
    assert exact <= count <= exact + 2
    assert tasks_needed(deviation, -effect) == count
    assert tasks_needed(deviation, 0) is None


@pytest.mark.parametrize("tasks", [5, 12, 50, 400])
def test_the_detectable_effect_of_few_tasks_is_that_of_the_noncentral_t(tasks: int) -> None:
    """Student's quantiles come within some hundredths of the exact effect."""
    exact = tt_solve_power(nobs=tasks, alpha=0.05, power=0.8, alternative="larger")  # in deviations of 1
    error = 1 / math.sqrt(tasks)
    found = detectable_of_tasks(error, tasks)
    assert found == pytest.approx(exact, rel=0.02 if tasks > 10 else 0.05)
    assert detectable_of_tasks(error, 1) is None


def test_the_spread_of_a_sample() -> None:
    values = SETS[2]
    assert pooled_error([values]) == pytest.approx(stdev(values) / math.sqrt(len(values)))
