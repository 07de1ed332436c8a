"""The pins of an attempt: what must be equal for two results to be comparable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_rollout.agents.protocol import AgentInfo
from pytest_rollout.bundle import Pins
from pytest_rollout.executors.protocol import ExecutorInfo
from pytest_rollout.plain import clean, clean_text
from pytest_rollout.task import Task

__all__ = ["pins_of"]

_SAMPLING = ("temperature", "top_p", "top_k", "max_tokens", "stop", "presence_penalty", "frequency_penalty")
_POLICY = ("policy", "policy_revision")


def pins_of(
    task: Task,
    seed: int,
    agent: AgentInfo,
    executor: ExecutorInfo,
    *,
    pins: Mapping[str, Any],
    environment: str | None,
    evaluator: str | None,
    plugin_version: str,
) -> Pins:
    """The pins of an attempt that is made of these; ``pins`` are the session's, which win over the agent's."""
    extra = clean({**agent.pins, **pins})
    model = extra.pop("model", None)
    policies = [extra.pop(name) for name in _POLICY if name in extra]
    sampling = {name: extra.pop(name) for name in _SAMPLING if name in extra}
    return Pins(
        task_digest=task.digest(),
        environment_revision=environment,
        environment_commit=task.workspace.commit if task.workspace is not None else None,
        evaluator_revision=evaluator,
        agent=clean_text(agent.name),
        agent_digest=agent.digest,
        agent_version=agent.version,
        policy_revision=None if not policies else str(policies[0]),
        model=None if model is None else str(model),
        sampling=sampling or None,
        extra=extra,
        seed=seed,
        limits=task.limits.of_agent(),
        network=task.network,
        executor=executor.name,
        executor_path=executor.path,
        executor_version=executor.version,
        executor_digest=executor.digest,
        plugin_version=plugin_version,
    )
