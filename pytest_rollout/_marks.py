"""The marker's name, and which tests concern this plugin. Light: every pytest session loads it."""

from __future__ import annotations

from typing import Any

import pytest

__all__ = ["FIXTURES", "MARKER", "concerns_us", "definitions", "is_ours", "marks"]

MARKER = "rollout"
FIXTURES = ("bundle", "reward")
_PLUGIN = "pytest_rollout.plugin"


def marks(node: Any) -> list[tuple[tuple[Any, ...], Any]]:
    """The arguments of the marks of a node, the nearest first.

    Those of ``pytest.param(marks=…)`` are nearer than those of the function, which pytest names first.
    """
    of_params = [mark for mark in getattr(getattr(node, "callspec", None), "marks", ()) if mark.name == MARKER]
    others = [mark for mark in node.iter_markers(MARKER) if not any(mark is known for known in of_params)]
    return [(mark.args, mark.kwargs) for mark in (*of_params, *others)]


def definitions(item: pytest.Item, name: str) -> list[Any]:
    """The definitions of a fixture for this test, the winning one last; empty where pytest hides them."""
    info = getattr(item, "_fixtureinfo", None)
    return list(getattr(info, "name2fixturedefs", {}).get(name, ()))


def is_ours(item: pytest.Item, name: str) -> bool:
    """Whether the fixture of this name that the test gets is the plugin's."""
    found = definitions(item, name)
    return not found or getattr(found[-1].func, "__module__", None) == _PLUGIN


def concerns_us(item: pytest.Item) -> bool:
    """Whether a test has the marker, or asks for a fixture of the plugin's that needs it.

    A suite without the marker may have fixtures of these names that mean something else.
    """
    names = getattr(item, "fixturenames", ())
    return item.get_closest_marker(MARKER) is not None or any(
        name in names and is_ours(item, name) for name in FIXTURES
    )
