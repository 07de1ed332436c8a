"""The no-op: does nothing in a stage. Checks that pay for it are too weak."""

from __future__ import annotations

from pytest_rollout.agents.protocol import AgentInfo, LiveStage
from pytest_rollout.bundle import Ended

__all__ = ["NoopAgent"]


class NoopAgent:
    """Leaves the baseline as it is and counts as completed."""

    info = AgentInfo(name="noop")
    infra_exit_codes: tuple[int, ...] = ()

    def run(self, stage: LiveStage) -> Ended:
        return stage.finished()
