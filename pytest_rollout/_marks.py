"""The marker's name, and which tests concern this plugin. Light: every pytest session loads it."""

from __future__ import annotations

from typing import Any

import pytest

__all__ = ["MARKER", "concerns_us", "marks"]

MARKER = "rollout"


def marks(node: Any) -> list[tuple[tuple[Any, ...], Any]]:
    """The arguments of the marks of a node, the nearest first."""
    return [(mark.args, mark.kwargs) for mark in node.iter_markers(MARKER)]


def concerns_us(item: pytest.Item) -> bool:
    """Whether a test has the marker, or asks for a fixture that needs it."""
    names = getattr(item, "fixturenames", ())
    return item.get_closest_marker(MARKER) is not None or "bundle" in names or "reward" in names
