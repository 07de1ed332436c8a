"""Make text inert that a candidate may have written: no terminal and no CI system obeys it.

Control characters are escaped; ``\\r`` too, because the runners of CI systems take it for the end of a
line. Commands of GitHub begin a line with ``::`` (blanks may precede it); those of GitHub, Azure and
TeamCity with ``##[``, ``##vso[`` and ``##teamcity[`` work anywhere in a line.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from pytest_rollout.plain import printable

__all__ = ["inert_json", "inert_repr", "inert_text", "mapped", "one_line"]

_AT_THE_START = re.compile(r"^(?=[^\S\n]*::)", re.MULTILINE)
_ANYWHERE = re.compile(r"##(?=\w*\[)")


def inert_text(text: str) -> str:
    """``text`` with the same lines, and none that is obeyed."""
    return _AT_THE_START.sub("| ", _ANYWHERE.sub("# #", printable(text)))


def one_line(text: str) -> str:
    """``text`` on one line, inert."""
    return inert_text(text.replace("\n", "\\n"))


def inert_json(text: str) -> str:
    """JSON of ASCII that means the same, and holds no command that is obeyed inside of a line."""
    return text.replace("##", "#\\u0023")


def inert_repr(value: Any) -> Any:
    """How pytest represents a failure, made inert."""
    return mapped(value, inert_text)


def mapped(value: Any, change: Callable[[str], str]) -> Any:
    """How pytest represents a failure (a text, a tuple, or its objects, changed in place), every text changed."""
    if type(value) is str:
        return change(value)
    if type(value) is tuple:
        return tuple(mapped(item, change) for item in value)
    if type(value) is list:
        value[:] = [mapped(item, change) for item in value]
    elif type(value).__module__.startswith("_pytest."):
        for name, item in vars(value).items():
            setattr(value, name, mapped(item, change))
    return value
