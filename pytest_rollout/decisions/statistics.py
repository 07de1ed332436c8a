"""The statistics of evaluation, as pure functions over numbers. Each names its source.

Rewards are grouped by task, because samples of one task are not independent of each other: a mean of a suite is the
mean of its tasks' means, and its error is that of independent tasks. What can't be computed (an error of one task,
pass@k of fewer than k samples) is None, never 0. Random choices take a seed.

Sources: Chen et al. 2021 (arXiv 2107.03374), Yao et al. 2024 (arXiv 2406.12045), Miller 2024 (arXiv 2411.00640),
Wilson 1927 (J. Am. Stat. Assoc. 22), Efron and Tibshirani 1993 (An Introduction to the Bootstrap).
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist, fmean

import msgspec

from pytest_rollout.outcome import SLACK

__all__ = [
    "Estimate",
    "Interval",
    "bootstrap",
    "clustered_error",
    "detectable",
    "detectable_of_tasks",
    "difference",
    "estimate",
    "pass_at_k",
    "pass_hat_k",
    "pooled_error",
    "sign_test",
    "student_quantile",
    "tasks_needed",
    "welch",
    "wilson",
    "wilson_needed",
]

_NORMAL = NormalDist()
_MOST_DRAWS = 5_000_000  # of one bootstrap, however many tasks
_FEWEST_RESAMPLES = 200
_NOISE = 1e-12  # of rounding, relative: values that differ by less are equal
_NEARLY_NORMAL = 10_000  # tasks, from which Student's quantiles are the normal ones


class Interval(msgspec.Struct, frozen=True):
    """A confidence interval, both ends included."""

    low: float
    high: float


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """A mean over ``count`` independent values, with its standard error and two-sided interval of ``confidence``.

    ``error`` and ``interval`` are None of fewer than two values.
    """

    mean: float
    count: int
    error: float | None
    interval: Interval | None
    confidence: float

    def upper(self, confidence: float) -> float | None:
        """The one-sided upper bound of this confidence, by Student's t; None where there is no error."""
        if self.error is None:
            return None
        return self.mean + student_quantile(confidence, self.count - 1) * self.error

    def lower(self, confidence: float) -> float | None:
        """The one-sided lower bound of this confidence, by Student's t; None where there is no error."""
        if self.error is None:
            return None
        return self.mean - student_quantile(confidence, self.count - 1) * self.error


def difference(new: float, old: float) -> float:
    """``new`` − ``old``, and 0 where that is what rounding leaves: a mean of three times 0.1 is not one of four."""
    return 0.0 if math.isclose(new, old, rel_tol=_NOISE, abs_tol=SLACK) else new - old


def estimate(values: Sequence[float], confidence: float = 0.95) -> Estimate | None:
    """The mean of independent values (means of tasks, differences of tasks) with Student's interval; None of none.

    The error is the sample standard deviation over √n: Miller's clustered error of the mean of task means, corrected
    by n/(n - 1) for few tasks.
    """
    if not values:
        return None
    count, mean = len(values), fmean(values)
    if count < 2:
        return Estimate(mean=mean, count=count, error=None, interval=None, confidence=confidence)
    if max(values) - min(values) <= _NOISE * max(map(abs, values)):
        error = 0.0  # also where the mean of equal values is not quite one of them
    else:
        error = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1) / count)
    reach = student_quantile((1 + confidence) / 2, count - 1) * error
    return Estimate(
        mean=mean, count=count, error=error, interval=Interval(mean - reach, mean + reach), confidence=confidence
    )


def clustered_error(groups: Sequence[Sequence[float]]) -> float | None:
    """The standard error of the pooled mean of samples in groups (Miller 2024, section 2.2); None of one group.

    √(Σ_group (Σ_i (s_i − s̄))²) / n, with n samples and s̄ their mean, without a correction for few groups.
    """
    groups = [group for group in groups if group]
    if len(groups) < 2:
        return None
    count = sum(map(len, groups))
    mean = math.fsum(value for group in groups for value in group) / count
    return math.sqrt(math.fsum(math.fsum(value - mean for value in group) ** 2 for group in groups)) / count


def pooled_error(groups: Sequence[Sequence[float]]) -> float | None:
    """The standard error within tasks alone: of the mean of task means, were the tasks fixed; None without a pair.

    √(Σ_task var_task/n_task)/T over the tasks with two samples or more, T how many they are.
    """
    parts = [_variance(group) / len(group) for group in groups if len(group) > 1]
    return math.sqrt(math.fsum(parts)) / len(parts) if parts else None


def _variance(values: Sequence[float]) -> float:
    mean = fmean(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)


def pass_at_k(samples: int, successes: int, k: int) -> float | None:
    """The chance that one of k samples succeeds: 1 − C(n−c, k)/C(n, k) (Chen 2021); None for n < k."""
    if samples < k or k < 1:
        return None
    all_ways = math.comb(samples, k)
    return (all_ways - math.comb(samples - successes, k)) / all_ways  # whole numbers: exact also near 0 and 1


def pass_hat_k(samples: int, successes: int, k: int) -> float | None:
    """The chance that all of k samples succeed, pass^k: C(c, k)/C(n, k) (τ-bench, Yao 2024); None for n < k."""
    if samples < k or k < 1:
        return None
    return math.comb(successes, k) / math.comb(samples, k)


def wilson(successes: int, samples: int, confidence: float = 0.95) -> Interval | None:
    """Wilson's score interval of a rate; None of no samples."""
    if samples < 1:
        return None
    z = _NORMAL.inv_cdf((1 + confidence) / 2)
    rate, square = successes / samples, z * z / samples
    centre = (rate + square / 2) / (1 + square)
    reach = z * math.sqrt(rate * (1 - rate) / samples + square / (4 * samples)) / (1 + square)
    low = 0.0 if successes == 0 else max(0.0, centre - reach)
    return Interval(low, 1.0 if successes == samples else min(1.0, centre + reach))


def wilson_needed(bound: float, confidence: float = 0.95) -> int:
    """How many samples, all successful, put the lower end of Wilson's interval at ``bound`` (below 1) or above it.

    n/(n + z²) ≥ bound.
    """
    z = _NORMAL.inv_cdf((1 + confidence) / 2)
    count = max(1, math.ceil(bound * z * z / (1 - bound)))
    while count / (count + z * z) < bound:
        count += 1
    return count


def bootstrap(
    values: Sequence[float], seed: int, *, confidence: float = 0.95, resamples: int = 2000
) -> Interval | None:
    """The percentile interval of the mean, by drawing the values (one a task) anew; None of fewer than two.

    Of many values fewer resamples are drawn, so that there are at most about 5 million draws, but never below 200.
    """
    count = len(values)
    if count < 2:
        return None
    rounds = max(_FEWEST_RESAMPLES, min(resamples, _MOST_DRAWS // count))
    draw = random.Random(seed)  # noqa: S311 - an interval that can be computed again
    means = sorted(math.fsum(draw.choices(values, k=count)) / count for _ in range(rounds))
    tail = (1 - confidence) / 2
    return Interval(_percentile(means, tail), _percentile(means, 1 - tail))


def _percentile(ordered: Sequence[float], share: float) -> float:
    """Linear between the two nearest, as numpy's default."""
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def sign_test(more: int, fewer: int) -> float | None:
    """The two-sided exact p-value of a sign test, which is McNemar's exact test of discordant pairs; None of none."""
    count = more + fewer
    if not count:
        return None
    ways: int = 1
    tail: int = 1
    for each in range(min(more, fewer)):  # C(n, i + 1) out of C(n, i): also quick for a great many pairs
        ways = ways * (count - each) // (each + 1)
        tail += ways
    return min(1.0, tail / (1 << (count - 1)))


def detectable(error: float, *, confidence: float = 0.95, power: float = 0.8, sides: int = 2) -> float:
    """The minimum detectable effect of a standard error: (z_{1−α/sides} + z_power)·error (Miller 2024, section 5)."""
    alpha = 1 - confidence
    return (_NORMAL.inv_cdf(1 - alpha / sides) + _NORMAL.inv_cdf(power)) * error


def tasks_needed(
    deviation: float, effect: float, *, confidence: float = 0.95, power: float = 0.8, sides: int = 2
) -> int | None:
    """How many tasks detect a mean difference of ``effect``, whose standard deviation over tasks is ``deviation``.

    The fewest for which :func:`detectable_of_tasks` is not above it: more than ((z_{1−α/sides} + z_power)·σ/δ)², which
    is the number for a great many. None for no effect.
    """
    if effect == 0:
        return None
    count = max(2, math.ceil((detectable(deviation, confidence=confidence, power=power, sides=sides) / effect) ** 2))
    while count < _NEARLY_NORMAL:
        reach = detectable_of_tasks(deviation / count**0.5, count, confidence=confidence, power=power, sides=sides)
        if reach is None or reach <= abs(effect):
            break
        count += 1
    return count


@lru_cache(maxsize=1000)
def student_quantile(share: float, freedom: int) -> float:
    """The quantile of Student's t with ``freedom`` degrees (1 or more) at ``share`` (0 to 1, both excluded).

    By bisection of its distribution function, a regularised incomplete beta function.
    """
    if share < 0.5:
        return -student_quantile(1 - share, freedom)
    if share == 0.5:
        return 0.0
    low, high = 0.0, 1.0
    while _student_upper(high, freedom) > 1 - share:
        low, high = high, 2 * high
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if _student_upper(middle, freedom) > 1 - share else (low, middle)
    return (low + high) / 2


def _student_upper(t: float, freedom: int) -> float:
    """The share above t (from 0 up): half of I_x(ν/2, 1/2) at x = ν/(ν + t²)."""
    return _beta(freedom / (freedom + t * t), freedom / 2, 0.5) / 2


def _beta(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function, by its continued fraction (DLMF 8.17.22)."""
    if x <= 0 or x >= 1:
        return min(1.0, max(0.0, x))
    if x > (a + 1) / (a + b + 2):
        return 1 - _beta(1 - x, b, a)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)) / a
    tiny, c, d, value = 1e-300, 1.0, 0.0, 1.0
    for step in range(400):
        half = step // 2
        if step == 0:
            part = 1.0
        elif step % 2 == 0:
            part = half * (b - half) * x / ((a + step - 1) * (a + step))
        else:
            part = -(a + half) * (a + b + half) * x / ((a + step - 1) * (a + step))
        d = 1 / (1 + part * d or tiny)
        c = 1 + part / c or tiny
        value *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return front * (value - 1)


def detectable_of_tasks(
    error: float, tasks: int, *, confidence: float = 0.95, power: float = 0.8, sides: int = 1
) -> float | None:
    """The effect that a t test over ``tasks`` paired differences finds with this power; None of one task.

    (t_{1−α/sides, T−1} + t_{power, T−1})·error: :func:`detectable` with Student's quantiles, because a suite's tasks
    are few.
    """
    if tasks < 2:
        return None
    return (student_quantile(1 - (1 - confidence) / sides, tasks - 1) + student_quantile(power, tasks - 1)) * error


def welch(first: Sequence[float], second: Sequence[float], confidence: float = 0.95) -> Estimate | None:
    """The difference of the means of two independent groups, ``second`` − ``first``, by Welch's t; None without both.

    Its error is None where a group has one value. ``count`` is the degrees of freedom (Welch–Satterthwaite, rounded
    down, at least 1) plus 1.
    """
    if not first or not second:
        return None
    mean = fmean(second) - fmean(first)
    if len(first) < 2 or len(second) < 2:
        count = len(first) + len(second)
        return Estimate(mean=mean, count=count, error=None, interval=None, confidence=confidence)
    parts = [_variance(group) / len(group) for group in (first, second)]
    whole = math.fsum(parts)
    under = parts[0] ** 2 / (len(first) - 1) + parts[1] ** 2 / (len(second) - 1)
    freedom = max(1, int(whole**2 / under)) if under > 0 else len(first) + len(second) - 2
    reach = student_quantile((1 + confidence) / 2, freedom) * math.sqrt(whole)
    interval = Interval(mean - reach, mean + reach)
    return Estimate(mean=mean, count=freedom + 1, error=math.sqrt(whole), interval=interval, confidence=confidence)
