"""Small statistics of a text."""

from textstats.averages import mean, median, spread
from textstats.report import summary
from textstats.words import words

__all__ = ["mean", "median", "spread", "summary", "words"]
