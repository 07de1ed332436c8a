"""What else a session's end does with its results: judge a gate, tell a CI system.

:class:`pytest_rollout._reporting.Reporting` has one of each kind that was asked for, and asks them in order.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Protocol

import pytest

from pytest_rollout._github import GitHub, on_github
from pytest_rollout._heldout import HeldOut
from pytest_rollout._rescoring import Rescored
from pytest_rollout.run import Run
from pytest_rollout.store.load import LoadedRun

__all__ = ["GATES", "Ending", "endings_of"]

GATES = "rollout-gates"  # the plugin of :class:`pytest_rollout._gates.Gates`


class Ending(Protocol):
    """One of them."""

    def end(self, loaded: LoadedRun, status: int) -> tuple[int, Sequence[str]]:
        """The session's exit status, changed or not, and lines for the closing block.

        ``status`` is what the endings before this one made of pytest's. The lines may hold secrets, and are redacted.
        """


def endings_of(config: pytest.Config, run: Run) -> list[Ending]:
    """Those that the settings of a run ask for."""
    found: list[Ending] = [HeldOut(run)] if run.stored is None else [Rescored(run.stored.name)]
    gates = config.pluginmanager.get_plugin(GATES)
    if gates is not None:
        found.append(gates.of_run(run))
    if on_github(os.environ, run.settings.github):
        return [GitHub(config, run, found, os.environ)]
    return found
