"""End pytest's session where rollouts in a row meet the same failure of infrastructure.

Without workers the session is told. With them its controller is, which sends no more tests, and the workers find a
file in the run's folder, because they have tests in their queues.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from pytest_rollout.breaker import Breaker
from pytest_rollout.report.inert import one_line
from pytest_rollout.run import Run

__all__ = ["Breaking"]


class Breaking:
    """In the process that talks to the user. ``message`` says why the session ends, once it does."""

    def __init__(self, config: pytest.Config, run: Run) -> None:
        self._config, self._run = config, run
        self._breaker = Breaker(run.settings.max_infra)
        self.message = ""

    def end(self) -> None:
        """The session ends: what is reported from now on was not run."""
        self._breaker = Breaker(0)

    def note(self, found: Mapping[str, Any], node: str) -> None:
        """Look at what a report says of its rollout."""
        if self.message:
            return
        names = (node, str(found.get("rollout", "")))
        why = self._breaker.note(found["kind"] if found["outcome"] == "infra" else None, found["message"], names)
        if not why:
            return
        self.message = one_line(self._run.redactor.text(why))
        self._run.folder.stop(self.message)
        controller: Any = self._config.pluginmanager.get_plugin("dsession")
        session: Any = self._config.pluginmanager.get_plugin("session")
        if controller is not None:
            controller.shouldstop = controller.shouldstop or self.message
        elif session is not None:
            session.shouldfail = session.shouldfail or self.message
