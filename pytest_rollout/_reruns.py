"""Plugins that run a failed test again are refused for rollouts: a second try at a model's failure inflates its reward.

pytest-rerunfailures, pytest-retry and flaky are known, each by its options, its ini keys and its marks.
"""

from __future__ import annotations

from typing import Any

import pytest

from pytest_rollout.errors import ConfigError

__all__ = ["refuse_reruns"]

_OPTIONS = ("reruns", "force_reruns", "retries", "force_flaky")
_KEYS = ("reruns", "retries")
_ATTRIBUTE = "_flaky_max_runs"  # what the decorator of flaky leaves


def refuse_reruns(item: pytest.Item) -> None:
    """Raise ConfigError that says what would run this test again."""
    found = _asked(item)
    if found is not None:
        raise ConfigError(
            f"a rollout is not run again by another plugin, as {found} asks: "
            "a second try at a model's failure inflates its reward",
            hint="Leave that out. --rollout-retries tries infrastructure again; samples=N makes independent samples.",
        )


def _asked(item: pytest.Item) -> str | None:
    config = item.config
    for name in _OPTIONS:
        if config.getoption(name, None):
            return f"--{name.replace('_', '-')}"
    for key in _KEYS:
        if config.getoption(key, None) is None and _number(config, key):  # an option of 0 overrules the key
            return f"the ini key {key!r}"
    if item.get_closest_marker("flaky") is not None:
        return "the marker 'flaky'"
    function: Any = getattr(item, "function", None)
    if getattr(function, _ATTRIBUTE, None) or getattr(getattr(item, "cls", None), _ATTRIBUTE, None):
        return "the decorator 'flaky'"
    return None


def _number(config: pytest.Config, key: str) -> int:
    """A number of the ini file; 0 where no plugin has this key."""
    try:
        return int(config.getini(key))
    except (KeyError, ValueError, TypeError):
        return 0
