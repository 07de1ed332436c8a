"""Exact tests against scipy and statsmodels."""

from __future__ import annotations

import itertools
import random

import pytest
from scipy.stats import fisher_exact
from statsmodels.stats.multitest import multipletests

from pytest_rollout.decisions.exact import fisher, holm


def test_fisher_against_scipy() -> None:
    for old, new in ((4, 4), (1, 1), (3, 8), (12, 7)):
        for before, after in itertools.product(range(old + 1), range(new + 1)):
            known = fisher_exact([[before, old - before], [after, new - after]]).pvalue
            assert fisher(before, old, after, new) == pytest.approx(known)
    assert fisher(0, 0, 0, 0) == 1


def test_fisher_of_a_great_many_samples_is_quick() -> None:
    assert fisher(5_023, 10_000, 5_138, 10_000) == pytest.approx(fisher_exact([[5_023, 4_977], [5_138, 4_862]]).pvalue)


def test_holm_against_statsmodels() -> None:
    draw = random.Random(1)
    for size in (1, 2, 7, 40):
        values = [draw.random() ** 3 for _ in range(size)]
        known = multipletests(values, method="holm")[1]
        assert holm(values) == pytest.approx(list(known))
    assert holm([]) == []
