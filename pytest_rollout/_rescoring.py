"""Rescoring in a pytest session: which tests have a stored rollout, and what its end says of old and new."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from pytest_rollout._items import RolloutItem
from pytest_rollout.decisions.rescored import compare_scores
from pytest_rollout.errors import ConfigError
from pytest_rollout.report.rescored import rescored_lines
from pytest_rollout.rescoring.stored import StoredRun
from pytest_rollout.store.load import LoadedRun

__all__ = ["Rescored", "select_stored"]

Planned = list[tuple[pytest.Item, RolloutItem]]


def select_stored(session: pytest.Session, stored: StoredRun | None, planned: Planned) -> tuple[Planned, Sequence[str]]:
    """Give each test its stored rollout, and deselect those that have none; also what to tell of that.

    Raises ConfigError where none is left. Nothing happens where agents run.
    """
    if stored is None:
        return planned, ()
    kept: Planned = []
    without: list[pytest.Item] = []
    for item, rollout in planned:
        found = stored.rollouts.get((rollout.task.id, rollout.sample))
        if found is None:
            without.append(item)
        else:
            kept.append((item, replace(rollout, stored=found, agent_name=found.result.agent)))
    if not kept:
        raise ConfigError(f"--rollout-rescore: no test that is selected has a rollout in {stored.name}")
    if without:
        gone = set(without)
        session.items[:] = [item for item in session.items if item not in gone]
        session.config.hook.pytest_deselected(items=without)
    scored = [(rollout.task.id, rollout.sample) for _, rollout in kept]
    return kept, stored.notes(scored, [item.nodeid for item in without])


class Rescored:
    """The end of such a session: old against new."""

    def __init__(self, name: str) -> None:
        self._name = name

    def end(self, loaded: LoadedRun, status: int) -> tuple[int, Sequence[str]]:
        """The status as it is, and the lines."""
        return status, rescored_lines(self._name, compare_scores(loaded.results))
