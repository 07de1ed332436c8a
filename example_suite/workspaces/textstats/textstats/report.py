"""A summary of a text."""

from textstats.averages import mean, median
from textstats.words import words


def summary(text):
    """Counts and lengths of the words of a text, rounded to two places."""
    found = words(text)
    lengths = [len(word) for word in found]
    return {
        "words": len(found),
        "distinct": len(set(found)),
        "mean_length": round(mean(lengths), 2),
        "median_length": round(median(lengths), 2),
    }
