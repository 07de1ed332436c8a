"""What the package has to do. It is laid over the clean tree for an evaluation; no agent sees it."""

import pytest
from textstats import mean, median, spread, summary, words


@pytest.mark.parametrize(
    ("values", "expected"),
    [([], 0), ([7], 7), ([1, 2, 6], 3), ([-4, 4], 0), ([0.5, 1.5, 2.5, 3.5], 2)],
)
def test_mean(values, expected):
    assert mean(values) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("values", "expected"),
    [([], 0), ([7], 7), ([9, 1, 4], 4), ([2, 1], 1.5), ([1, 2, 3, 10], 2.5), ([5, 5, 1, 9, 7, 2], 5)],
)
def test_median(values, expected):
    assert median(values) == pytest.approx(expected)


def test_spread():
    assert spread([3, 8, 5]) == 5
    assert spread([]) == 0


def test_words():
    assert words("Don't panic, 42 times!") == ["don't", "panic", "times"]


def test_summary():
    assert summary("To be or not to be") == {"words": 6, "distinct": 4, "mean_length": 2.17, "median_length": 2.0}


def test_summary_of_an_empty_text():
    assert summary("") == {"words": 0, "distinct": 0, "mean_length": 0.0, "median_length": 0.0}
