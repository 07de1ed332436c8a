"""Exact tests of one task among many: Fisher's of passes and failures, and Holm's correction for their number.

Sources: Fisher 1922 (J. R. Stat. Soc. 85), Holm 1979 (Scand. J. Stat. 6).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

__all__ = ["fisher", "holm"]


@lru_cache(maxsize=4096)
def fisher(old_passed: int, old: int, new_passed: int, new: int) -> float:
    """The two-sided exact p-value that ``new_passed`` of ``new`` and ``old_passed`` of ``old`` have one rate.

    The sum over the tables with these margins that are not more likely than this one; 1 of no samples.
    """
    passed = old_passed + new_passed
    least, most = max(0, passed - new), min(old, passed)
    seen = math.comb(old, old_passed) * math.comb(new, new_passed)
    ways = math.comb(old, least) * math.comb(new, passed - least)
    found = ways if ways <= seen else 0
    for each in range(least, most):  # the next out of this one: also quick for thousands of samples
        ways = ways * ((old - each) * (passed - each)) // ((each + 1) * (new - passed + each + 1))
        found += ways if ways <= seen else 0
    return float(Fraction(found, math.comb(old + new, passed)))


def holm(values: Sequence[float]) -> list[float]:
    """p-values, each adjusted for all of them; the share of wrong findings of a family stays below the level."""
    order = sorted(range(len(values)), key=values.__getitem__)
    adjusted, highest = [0.0] * len(values), 0.0
    for place, number in enumerate(order):
        highest = max(highest, min(1.0, (len(values) - place) * values[number]))
        adjusted[number] = highest
    return adjusted
