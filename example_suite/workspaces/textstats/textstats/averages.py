"""Averages of a list of numbers."""


def mean(values):
    """The arithmetic mean."""
    return sum(values) / len(values)


def median(values):
    """The middle value, or the mean of the two middle values."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2 == 1:
        return float(ordered[middle])
    return (ordered[middle] + ordered[middle + 1]) / 2


def spread(values):
    """The largest value less the smallest."""
    return float(max(values) - min(values)) if values else 0.0
