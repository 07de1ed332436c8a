"""A rehearsal of a test: its three phases in a forked process that nobody hears.

It sees all that the test itself would see now, and whatever it changes is gone with it: state of modules, data that can
be read once, fixtures of wider scope. What it sets up it tears down; files that are not in ``tmp_path`` stay.
"""

from __future__ import annotations

import copy
import os
import shutil
import types
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any, Literal

import pytest

__all__ = ["rehearse"]

Judged = Callable[[pytest.CallInfo[Any], pytest.TestReport], None]

_JUDGE = "_rollout_judge_of_trial"
_THROUGH = (pytest.exit.Exception, KeyboardInterrupt)


def rehearse(item: pytest.Item, judge: Judged) -> None:
    """Set the test up, call it where that went well, tear it down; ``judge`` is given each report. In a child only."""
    _be_alone(item.config)
    vars(item)[_JUDGE] = judge
    item.__class__ = _hushed(type(item))
    _leave_alone(item)
    stack: dict[Any, Any] = item.session._setupstate.stack
    before = {node: len(finalizers) for node, (finalizers, _) in stack.items()}
    with warnings.catch_warnings(record=True):  # the test itself will warn; what is an error stays one
        try:
            if _phase(item, "setup"):
                _phase(item, "call")
        finally:
            _phase(item, "teardown", nextitem=copy.copy(item))  # a sibling: what both share is not torn down
            _tear_down_since(stack, before)
            if _PLACE in vars(item.config):
                shutil.rmtree(vars(item.config)[_PLACE], ignore_errors=True)


def _phase(item: pytest.Item, when: Literal["setup", "call", "teardown"], **more: Any) -> bool:
    """One phase as pytest's runner makes it; returns whether it passed."""
    hook = getattr(item.ihook, f"pytest_runtest_{when}")
    call = pytest.CallInfo.from_call(lambda: hook(item=item, **more), when=when, reraise=_THROUGH)
    return bool(item.ihook.pytest_runtest_makereport(item=item, call=call).passed)


def _leave_alone(item: Any) -> None:
    """Let no fixture that is set up by now be put away here, as another parameter of it would: it is the parent's."""
    for definitions in item._fixtureinfo.name2fixturedefs.values():
        for definition in definitions:
            if definition.cached_result is not None:
                definition._finalizers.clear()


def _tear_down_since(stack: dict[Any, Any], before: dict[Any, int]) -> None:
    """Run the finalizers of wider scopes that were added here; older ones are the parent's to run."""
    for node in reversed(list(stack)):
        finalizers = stack[node][0]
        while len(finalizers) > before.get(node, 0):
            with suppress(Exception):
                finalizers.pop()()


# Nobody hears


class _Hooks:
    """The hooks of an item, without those through which a result would be told."""

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
        """Nothing that is seen here is a result."""

    @staticmethod
    def pytest_exception_interact(**_: Any) -> None:
        """Nobody looks into what is raised here."""


@cache
def _hushed(kind: type[pytest.Item]) -> type[pytest.Item]:
    """A class of items that tell nobody."""
    get: Any = kind.ihook.fget  # type: ignore[attr-defined]
    made: type[pytest.Item] = types.new_class(
        kind.__name__, (kind,), {}, lambda names: names.update(ihook=property(lambda item: _Hooks(get(item), item)))
    )
    return made


_PLACE = "_rollout_place_of_rehearsal"


def _be_alone(config: pytest.Config) -> None:
    """Cut this process off: from the terminal, from xdist's controller, from the temporary folders of the session."""
    null = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(null, stream)
    capture: Any = config.pluginmanager.get_plugin("capturemanager")
    if capture is not None and capture._global_capturing is not None:
        vars(config)["_rollout_capture_of_parent"] = capture._global_capturing  # or it would be closed, and warn
        capture._global_capturing = None
        capture.start_global_capturing()
        capture.suspend_global_capture()
    for plugin in config.pluginmanager.get_plugins():
        if hasattr(plugin, "sendevent") and hasattr(plugin, "channel"):
            config.pluginmanager.unregister(plugin)
    handler = getattr(config.pluginmanager.get_plugin("logging-plugin"), "log_file_handler", None)
    if handler is not None:
        vars(config)["_rollout_log_of_parent"] = handler.setStream(open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - until this process ends
    factory = getattr(config, "_tmp_path_factory", None)
    if factory is not None:
        factory._basetemp = vars(config)[_PLACE] = factory.mktemp("rollout-trial")
