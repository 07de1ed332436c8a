"""What planned rollouts will cost and take, from what those of the same task and agent did before.

What is not known is not guessed: a rollout whose task was never run with its agent, or whose cost nobody recorded, is
left out, and counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec

from pytest_rollout.decisions.rows import Row, RowUsage, load_rows
from pytest_rollout.store.folder import ResultsFolder
from pytest_rollout.store.records import Planned

__all__ = ["Forecast", "forecast", "history_of"]

_RUNS = 20


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over the planned rollouts that are known: ``seconds`` of agents, ``cost`` in US dollars; None of none.

    ``timed`` and ``priced`` say how many of ``planned`` those are.
    """

    planned: int
    seconds: float | None = None
    timed: int = 0
    cost: float | None = None
    priced: int = 0


def forecast(planned: Sequence[Planned], history: Iterable[Row]) -> Forecast:
    """The means of each (task, agent), added up over what is planned; attempts before the last count."""
    walls: dict[tuple[str, str], list[float]] = {}
    costs: dict[tuple[str, str], list[float]] = {}
    for row in history:
        usages = [row.usage, *(each.usage for each in row.earlier)]
        for found, name in ((walls, "wall"), (costs, "cost")):
            value = _total(usages, name)
            if value is not None:
                found.setdefault((row.task, row.agent), []).append(value)
    keys = [(each.task, each.agent) for each in planned]
    timed = [math.fsum(walls[key]) / len(walls[key]) for key in keys if key in walls]
    priced = [math.fsum(costs[key]) / len(costs[key]) for key in keys if key in costs]
    return Forecast(
        planned=len(planned),
        seconds=math.fsum(timed) if timed else None,
        timed=len(timed),
        cost=math.fsum(priced) if priced else None,
        priced=len(priced),
    )


def _total(usages: Sequence[RowUsage | None], name: str) -> float | None:
    """What the attempts of a rollout used; the last one has to be known."""
    values = [getattr(usage, name) if usage is not None else None for usage in usages]
    return None if values[0] is None else math.fsum(value for value in values if value is not None)


def history_of(results: ResultsFolder, without: str) -> Iterable[Row]:
    """The rows of the newest runs in a folder of results, ``without`` the one that is being made."""
    runs = [run for run in results.all_runs() if run.name != without]
    for run in runs[-_RUNS:]:
        yield from load_rows(run).rows
