"""What agents are shown must not hold anything private: the suite, hidden files, results, other stages."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pytest_rollout.agents.config import AgentConfig
from pytest_rollout.agents.paths import is_below
from pytest_rollout.agents.protocol import Agent
from pytest_rollout.errors import ConfigError
from pytest_rollout.executors.bwrap import FIXED_BINDS

__all__ = ["check_private"]


def check_private(private: Iterable[tuple[Path, str]], agents: Iterable[AgentConfig | Agent]) -> None:
    """Raise ConfigError, with the remedy, where one of these agents could read a private path (and what it is)."""
    private = list(private)
    shown = dict.fromkeys(FIXED_BINDS, "the sandbox shows it to every agent")
    for agent in agents:
        for bind in getattr(agent, "binds", ()):
            shown.setdefault(bind.source, f"agent {getattr(agent, 'name', '?')!r} names it in 'paths'")
    for folder, why in shown.items():
        for path, what in private:
            if is_below(path, folder):
                raise ConfigError(
                    f"{what} ({path}) lies under {folder}, which an agent could read: {why}",
                    hint="Move it elsewhere, or bind a narrower folder.",
                )
