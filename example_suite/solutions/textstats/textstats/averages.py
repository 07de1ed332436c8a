"""Averages of a list of numbers."""


def mean(values):
    """The arithmetic mean."""
    return sum(values) / len(values) if values else 0.0


def median(values):
    """The middle value, or the mean of the two middle values."""
    if not values:
        return 0.0
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2 == 1:
        return float(ordered[middle])
    return (ordered[middle - 1] + ordered[middle]) / 2


def spread(values):
    """The largest value less the smallest."""
    return float(max(values) - min(values)) if values else 0.0
