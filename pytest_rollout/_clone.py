"""A second life of a test's item, for a trial: what happens in it reaches nobody's report.

The copy shares the test's function and fixtures, and none of what a run changes. Its phases are those of
pytest's runner; the hooks that make and log reports are answered here, so that neither a plugin nor a
conftest takes a trial for a result.
"""

from __future__ import annotations

import copy
import types
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, Literal

import pytest

__all__ = ["clone_of", "through_phases"]

Judged = Callable[[pytest.CallInfo[Any], pytest.TestReport], None]

_JUDGE = "_rollout_judge_of_trial"
_THROUGH = (pytest.exit.Exception, KeyboardInterrupt)


class _Hooks:
    """The hooks of an item, without those through which a result of a trial would be told."""

    def __init__(self, hooks: Any, item: pytest.Item) -> None:
        self._hooks, self._item = hooks, item

    def __getattr__(self, name: str) -> Any:
        return getattr(self._hooks, name)

    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[Any]) -> pytest.TestReport:
        """A report for the judge alone; subtests ask for theirs here too."""
        report = pytest.TestReport.from_item_and_call(item, call)
        vars(self._item)[_JUDGE](call, report)
        return report

    @staticmethod
    def pytest_runtest_logreport(**_: Any) -> None:
        """Nothing that is seen in a trial is a result."""

    @staticmethod
    def pytest_exception_interact(**_: Any) -> None:
        """Nobody looks into what a trial raised."""


@cache
def _hushed(kind: type[pytest.Item]) -> type[pytest.Item]:
    """A class of items that tell nobody."""
    get: Any = kind.ihook.fget  # type: ignore[attr-defined]
    made: type[pytest.Item] = types.new_class(
        kind.__name__, (kind,), {}, lambda names: names.update(ihook=property(lambda item: _Hooks(get(item), item)))
    )
    return made


def clone_of(item: pytest.Item, judge: Judged) -> Any:
    """The same test with nothing of a run in it; ``judge`` is given each report of its phases."""
    clone: Any = copy.copy(item)
    clone.__class__ = _hushed(type(item))
    vars(clone)[_JUDGE] = judge
    clone.stash = pytest.Stash()
    clone.user_properties, clone._report_sections = [], []
    clone.own_markers = list(item.own_markers)
    clone.extra_keyword_matches = set(item.extra_keyword_matches)
    clone.keywords = copy.copy(item.keywords)
    clone.keywords.node = clone
    clone.keywords._markers = dict(clone.keywords._markers)
    callspec = getattr(item, "callspec", None)
    if callspec is not None:
        clone.callspec = replace(callspec, params=dict(callspec.params))
    if getattr(item, "cls", None) is not None:  # an instance of its own
        clone.__dict__.pop("_obj", None)
        clone.__dict__.pop("_instance", None)
    clone._initrequest()
    return clone


def through_phases(clone: Any, nextitem: pytest.Item) -> None:
    """Set the clone up, call it where that went well, and tear down what ``nextitem`` does not share."""
    try:
        if _phase(clone, "setup"):
            _phase(clone, "call")
    finally:
        _phase(clone, "teardown", nextitem=nextitem)
        clone._request = False  # as pytest lets go of a test that has run
        clone.funcargs = None


def _phase(clone: Any, when: Literal["setup", "call", "teardown"], **more: Any) -> bool:
    """One phase as pytest's runner makes it; returns whether it passed."""
    hook = getattr(clone.ihook, f"pytest_runtest_{when}")
    call = pytest.CallInfo.from_call(lambda: hook(item=clone, **more), when=when, reraise=_THROUGH)
    return bool(clone.ihook.pytest_runtest_makereport(item=clone, call=call).passed)
