"""Redact what pytest shows of a session with rollouts: reports, warnings, and what becomes of them in files.

Registered once there are rollouts, in every process and behind the other plugins of ours, so that its hooks
come first: a report of a worker is redacted there, where the values are known, and once more where it is shown.
"""

from __future__ import annotations

import warnings
from dataclasses import is_dataclass
from dataclasses import replace as dataclasses_replace

import pytest

from pytest_rollout.plain import clean
from pytest_rollout.redaction.redactor import Redactor
from pytest_rollout.report.inert import mapped

__all__ = ["Redaction"]


class Redaction:
    """The hooks. ``redactor`` is that of this process's run."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        redactor = self._redactor
        report.longrepr = mapped(report.longrepr, redactor.text)
        report.sections = [(title, redactor.text(text)) for title, text in report.sections]
        report.user_properties = [self._property(name, value) for name, value in report.user_properties]
        for name in ("rollout", "rollout_audit", "wasxfail"):
            if hasattr(report, name):
                setattr(report, name, redactor.value(getattr(report, name)))
        context = getattr(report, "context", None)
        if is_dataclass(context) and not isinstance(context, type):  # that of a subtest
            told = {name: clean(getattr(context, name)) for name in ("msg", "kwargs") if hasattr(context, name)}
            redacted = redactor.value(told)
            if redacted is not told:
                report.context = dataclasses_replace(context, **redacted)  # type: ignore[attr-defined]

    def _property(self, name: str, value: object) -> tuple[str, object]:
        plain = clean(value)
        redacted = self._redactor.value(plain)
        return self._redactor.text(str(name)), value if redacted is plain else redacted

    @pytest.hookimpl(tryfirst=True)
    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        report.longrepr = mapped(report.longrepr, self._redactor.text)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Properties of the whole suite, just before JUnit is written."""
        for plugin in session.config.pluginmanager.get_plugins():
            properties = getattr(plugin, "global_properties", None)
            if isinstance(properties, list):
                properties[:] = self._redactor.value(properties)

    @pytest.hookimpl(tryfirst=True)
    def pytest_warning_recorded(self, warning_message: warnings.WarningMessage) -> None:
        text = str(warning_message.message)
        redacted = self._redactor.text(text)
        if redacted != text:
            warning_message.message = UserWarning(redacted)
