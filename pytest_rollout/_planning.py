"""From a collection to a plan: every rollout that was selected, and what is wrong with any of them, told at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from pytest_rollout._items import Prepare, RolloutItem, plan_item, secrets_in_names
from pytest_rollout._marks import concerns_us
from pytest_rollout.errors import ConfigError, InfraError
from pytest_rollout.run import Run

__all__ = ["PlannedItem", "Problems", "plan_items", "told", "usage_error"]

_MAX_PROBLEMS = 10

PlannedItem = tuple[pytest.Item, RolloutItem]
Problems = dict[str, list[str]]  # what is wrong, and the tests where it was met


def plan_items(items: Iterable[pytest.Item], run: Run, prepare: Prepare, problems: Problems) -> list[PlannedItem]:
    """The rollouts among the tests; what is wrong with one goes to ``problems``."""
    planned: list[PlannedItem] = []
    seen: dict[tuple[str, int], str] = {}
    for item in items:
        if not concerns_us(item):
            continue
        try:
            rollout = plan_item(item, run, prepare)
            key = (rollout.task.id, rollout.sample)
            if key in seen:
                raise ConfigError(f"the task id {rollout.task.id!r} is that of {seen[key]} too")
        except (ConfigError, InfraError) as error:
            problems.setdefault(str(error), []).append(item.nodeid)
            continue
        seen[key] = item.nodeid
        planned.append((item, rollout))
    for item, rollout in planned:
        for problem in secrets_in_names(item, rollout, run):
            problems.setdefault(problem, []).append(item.nodeid)
    return planned


def told(problems: Problems) -> str:
    """All of it in one message; it may hold secrets."""
    shown = [_line(problem, nodes) for problem, nodes in list(problems.items())[:_MAX_PROBLEMS]]
    left = len(problems) - len(shown)
    if left:
        shown.append(f"… and {left} more problem{'' if left == 1 else 's'}")
    return "\n".join(f"rollout: {problem}" for problem in shown)


def usage_error(config: pytest.Config, message: str) -> None:
    """End the session with one message: here as a usage error, from a worker as a failed collection report."""
    if not hasattr(config, "workerinput"):
        raise pytest.UsageError(message)
    report = pytest.CollectReport(nodeid="", outcome="failed", longrepr=message, result=[])
    report.rollout_usage = message  # type: ignore[attr-defined]
    config.hook.pytest_collectreport(report=report)


def _line(problem: str, nodes: Sequence[str]) -> str:
    """A problem with the first test where it was met, and how many more there are."""
    if not nodes:
        return problem
    more = "" if len(nodes) == 1 else f" (and {len(nodes) - 1} more test{'' if len(nodes) == 2 else 's'})"
    return f"{nodes[0]}{more}: {problem}"
