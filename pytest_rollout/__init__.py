"""pytest-rollout: an evaluation task is a test.

The names below are the whole public API; each is imported when it is first used, because pytest
imports this package in every session, also where there is no rollout in it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_rollout.agents.protocol import LiveStage
    from pytest_rollout.errors import (
        AgentFailure,
        AuthenticationError,
        CandidateError,
        CheckerError,
        ConfigError,
        EvaluatorError,
        EvidenceError,
        InfraError,
        ProviderError,
        RolloutError,
    )
    from pytest_rollout.evidence import Bundle
    from pytest_rollout.limits import Limits
    from pytest_rollout.reward import Reward
    from pytest_rollout.task import Archive, Git, Task

__all__ = [
    "AgentFailure",
    "Archive",
    "AuthenticationError",
    "Bundle",
    "CandidateError",
    "CheckerError",
    "ConfigError",
    "EvaluatorError",
    "EvidenceError",
    "Git",
    "InfraError",
    "Limits",
    "LiveStage",
    "ProviderError",
    "Reward",
    "RolloutError",
    "Task",
    "__version__",
]
__version__ = "0.1.0"

_HOME = {
    "AgentFailure": "errors",
    "Archive": "task",
    "AuthenticationError": "errors",
    "Bundle": "evidence",
    "CandidateError": "errors",
    "CheckerError": "errors",
    "ConfigError": "errors",
    "EvaluatorError": "errors",
    "EvidenceError": "errors",
    "Git": "task",
    "InfraError": "errors",
    "Limits": "limits",
    "LiveStage": "agents.protocol",
    "ProviderError": "errors",
    "Reward": "reward",
    "RolloutError": "errors",
    "Task": "task",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
