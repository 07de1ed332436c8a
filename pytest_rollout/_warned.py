"""Warnings that quote a candidate, made inert before pytest shows them or xdist carries them."""

from __future__ import annotations

import warnings
from collections.abc import Container

import pytest

from pytest_rollout.report.inert import inert_text

__all__ = ["Warned"]


class Warned:
    """Registered in every process that runs rollouts, with the nodes of its rollouts.

    A warning without a node may be one of theirs: pytest tells of a thread that died at the end of a session.
    """

    def __init__(self, nodes: Container[str]) -> None:
        self._nodes = nodes

    @pytest.hookimpl(tryfirst=True)
    def pytest_warning_recorded(self, warning_message: warnings.WarningMessage, nodeid: str) -> None:
        """Replace a text that would be obeyed, or that xdist can't carry: its worker would end, and lose its tests."""
        if nodeid and nodeid not in self._nodes:
            return
        try:
            said = str(warning_message.message)
        except Exception:  # noqa: BLE001  the code of a suite's own class
            return
        shown = inert_text(said)
        if shown != said:
            warning_message.message = UserWarning(shown)  # its category stays
