"""The verb ``test``: hidden tests under pytest, in one process with the candidate's code or through a proxy."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from typing import Any

from pytest_rollout.evaluation.guest.modules import STAGE, see_candidate_behind_the_library, trust_no_more_bytecode
from pytest_rollout.evaluation.guest.proxy import Channel, Finder, Misuse
from pytest_rollout.evaluation.guest.values import Message, answer_with, written

__all__ = ["begin", "test"]


class Recorder:
    """A plugin of pytest's that keeps what each test came to, from the exceptions, not from reports."""

    def __init__(self) -> None:
        self.tests: dict[str, str] = {}
        self.messages: dict[str, str] = {}
        self.broken: list[list[str]] = []
        self.mistakes: list[str] = []  # what no candidate has a part in, where its code is elsewhere

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.broken.append([report.nodeid, str(report.longrepr)[-2000:]])

    def pytest_exception_interact(self, call: Any) -> None:
        error = call.excinfo.value
        for each in (error, error.__cause__):  # pytest tells of a failed import by an error of its own
            if type(each) is ModuleNotFoundError and each.name:
                self.mistakes.append(f"the hidden tests import {each.name!r}, which is not there for them")
            elif isinstance(each, Misuse):
                self.mistakes.append(str(each))
            elif type(each).__name__ == "FixtureLookupError":
                self.mistakes.append(f"the hidden tests ask for the fixture {each.argname!r}, which is not there")

    def pytest_runtest_makereport(self, item: Any, call: Any) -> None:
        before = self.tests.get(item.nodeid)
        error = None if call.excinfo is None else call.excinfo.value
        if error is None:
            if call.when == "call" and before is None:
                self.tests[item.nodeid] = "passed"
            return
        skipped = type(error).__name__ == "Skipped" and before != "failed"
        self.tests[item.nodeid] = "skipped" if skipped else "failed"
        self.messages[item.nodeid] = f"{type(error).__name__}: {error}"[:2000]


def plugins_of(files: Sequence[str]) -> list[Any]:
    """The evaluator's own conftest files, as plugins: pytest itself is told to look at none."""
    loaded = []
    for number, path in enumerate(files):
        place, name = os.path.join(STAGE, path), f"hidden_conftest_{number}"
        loader = importlib.machinery.SourceFileLoader(name, place)
        module = importlib.util.module_from_spec(importlib.machinery.ModuleSpec(name, loader, origin=place))
        sys.modules[name] = module
        loader.exec_module(module)
        loaded.append(module)
    return loaded


def framework() -> Any:
    """pytest with its own plugins, all imported while their bytecode may still be read.

    Only this process knows pytest by name: the module that starts it is part of the core, which does not.
    """
    for name in getattr(importlib.import_module("_pytest.config"), "default_plugins", ()):
        importlib.import_module(f"_pytest.{name}")
    return importlib.import_module("pytest")


def begin(spec: Message) -> None:
    """The verb ``begin``: only see that Python starts here and, for ``paths`` of packages, that pytest is there."""
    if spec["paths"] is not None:
        sys.path += spec["paths"]
        framework()


def test(spec: Message) -> None:
    """Run the hidden tests and answer with what each came to; then end, before anything runs at exit."""
    sys.path += [path for path in spec["paths"] if path not in sys.path]
    pytest = framework()
    trust_no_more_bytecode()
    if spec["proxy"]:
        loaded = [name for name in spec["proxy"] if name.partition(".")[0] in sys.modules]
        if loaded:  # a test would get the module that is there
            answer_with(spec["report"], written({"loaded": loaded[0]}))
            os._exit(0)
        channel = Channel(spec["socket"])
        sys.meta_path.insert(0, Finder(spec["proxy"], channel))
        sys.path.insert(0, STAGE)  # the tree holds the evaluator's files only
    else:
        see_candidate_behind_the_library()
    recorder = Recorder()
    code = pytest.main(
        [
            *("-c", os.devnull, "--rootdir", STAGE, "--confcutdir", STAGE, "--noconftest"),
            *("--import-mode=importlib", "-p", "no:cacheprovider", "-q", "--color=no", "--tb=short", "--"),
            *spec["files"],
        ],
        plugins=[recorder, *plugins_of(spec["conftests"])],
    )
    sys.stdout.flush()
    if spec["proxy"] and recorder.mistakes:
        answer_with(spec["report"], written({"mistake": recorder.mistakes[0], "told": channel.told}))
        os._exit(0)
    report = {"exit": int(code), "tests": recorder.tests, "messages": recorder.messages, "broken": recorder.broken}
    answer_with(spec["report"], written(report))
    os._exit(0)
