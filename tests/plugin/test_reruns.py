"""Plugins that run failed tests again, each by what it would be asked with; what they do to a rollout is refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pytest_rollout._reruns import refuse_reruns
from pytest_rollout.errors import ConfigError


class Config:
    """Options and ini keys of other plugins; a key that no plugin has raises, as pytest does."""

    def __init__(self, options: dict[str, object], keys: dict[str, str]) -> None:
        self._options, self._keys = options, keys

    def getoption(self, name: str, default: object) -> object:
        return self._options.get(name, default)

    def getini(self, name: str) -> str:
        if name not in self._keys:
            raise ValueError(f"unknown configuration value: {name!r}")
        return self._keys[name]


def item(
    options: dict[str, object] | None = None, keys: dict[str, str] | None = None, *, mark: bool = False, **more: Any
) -> Any:
    """A test, as far as it is looked at."""
    found = object() if mark else None
    values = {"function": object(), "cls": None, **more}
    return SimpleNamespace(
        config=Config(options or {}, keys or {}),
        get_closest_marker=lambda name: found if name == "flaky" else None,
        **values,
    )


DECORATED = SimpleNamespace(_flaky_max_runs=2)


@pytest.mark.parametrize(
    ("asking", "what"),
    [
        pytest.param(item({"reruns": 2}), "--reruns", id="rerunfailures"),
        pytest.param(item({"force_reruns": 1, "reruns": 0}), "--force-reruns", id="forced"),
        pytest.param(item({"reruns": None}, {"reruns": "2"}), "the ini key 'reruns'", id="ini"),
        pytest.param(item(mark=True), "the marker 'flaky'", id="marker"),
        pytest.param(item({"retries": 1}), "--retries", id="retry"),
        pytest.param(item({"retries": None}, {"retries": "1"}), "the ini key 'retries'", id="ini of retry"),
        pytest.param(item({"force_flaky": True}), "--force-flaky", id="flaky"),
        pytest.param(item(function=DECORATED), "the decorator 'flaky'", id="function"),
        pytest.param(item(cls=DECORATED), "the decorator 'flaky'", id="class"),
    ],
)
def test_what_is_refused(asking: Any, what: str) -> None:
    with pytest.raises(ConfigError) as caught:
        refuse_reruns(asking)
    assert caught.value.message == (
        f"a rollout is not run again by another plugin, as {what} asks: "
        "a second try at a model's failure inflates its reward"
    )


@pytest.mark.parametrize(
    "asking",
    [
        item(),
        item({"reruns": 0}, {"reruns": "2"}),
        item({"reruns": None, "only_rerun": ["x"]}, {"reruns": ""}),
        item({"retries": None}, {"retries": "0"}),
        item({"force_flaky": False}),
    ],
)
def test_what_runs_nothing_again(asking: Any) -> None:
    refuse_reruns(asking)
