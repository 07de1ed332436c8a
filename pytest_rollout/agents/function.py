"""Callable agents: a function of the suite that drives a stage, for agents that are a library.

The function is the harness's own code and runs in this process; what it runs with ``stage.run`` is
the candidate's and runs in the sandbox.
"""

from __future__ import annotations

from collections.abc import Callable

from pytest_rollout.agents.protocol import AgentInfo, LiveStage
from pytest_rollout.bundle import Ended
from pytest_rollout.errors import AgentFailure
from pytest_rollout.plain import clean_text

__all__ = ["FunctionAgent"]


class FunctionAgent:
    """Calls ``function(stage)``. ``AgentFailure`` means that the agent failed (exit code 1)."""

    infra_exit_codes: tuple[int, ...] = ()

    def __init__(self, function: Callable[[LiveStage], object]) -> None:
        self._function = function
        name = getattr(function, "__qualname__", type(function).__qualname__)
        self.info = AgentInfo(name=f"{getattr(function, '__module__', '?')}:{name}")

    def run(self, stage: LiveStage) -> Ended:
        try:
            self._function(stage)
        except AgentFailure as failure:
            return stage.finished(failure=clean_text(str(failure)))
        return stage.finished()
