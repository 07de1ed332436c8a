"""What planned rollouts will cost, from earlier ones of the same task and agent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_rollout.bundle import Usage
from pytest_rollout.decisions.forecast import Forecast, forecast, history_of
from pytest_rollout.decisions.rows import Row, RowEarlier, RowUsage
from pytest_rollout.store.folder import ResultsFolder
from pytest_rollout.store.journal import ResultsJournal
from pytest_rollout.store.records import Planned, Result


def planned(task: str, sample: int = 0, agent: str = "a") -> Planned:
    return Planned(node=task, rollout=f"{task}-{sample}", task=task, sample=sample, agent=agent)


def row(task: str, usage: RowUsage | None, agent: str = "a", earlier: tuple[RowEarlier, ...] = ()) -> Row:
    return Row(rollout="r", task=task, sample=0, agent=agent, outcome="infra", usage=usage, earlier=earlier)


def test_nothing_is_known_of_nothing() -> None:
    assert forecast([planned("t")], []) == Forecast(planned=1)
    others = [row("t", RowUsage(wall=1.0, cost=1.0), agent="b"), row("u", RowUsage(wall=1.0)), row("t", None)]
    assert forecast([planned("t")], others) == Forecast(planned=1)


def test_means_are_added_up_over_what_is_planned() -> None:
    again = RowEarlier(kind="agent", usage=RowUsage(wall=2.0))
    history = [
        row("t", RowUsage(wall=10.0, cost=1.0)),
        row("t", RowUsage(wall=20.0)),
        row("u", RowUsage(wall=5.0), earlier=(RowEarlier(kind="stage"), again)),
    ]
    found = forecast([planned("t", 0), planned("t", 1), planned("u"), planned("new")], history)
    assert found == Forecast(planned=4, seconds=37.0, timed=3, cost=2.0, priced=2)


@pytest.mark.parametrize("without", [True, False])
def test_earlier_runs_of_the_folder(tmp_path: Path, make_result: Callable[..., Result], *, without: bool) -> None:
    results = ResultsFolder(tmp_path)
    name = "2026-11-29T22-08-01Z-3f9ac01d"
    journal = ResultsJournal(results.open_run(name).results / "main.jsonl")
    journal.append(make_result(usage=Usage(wall=3.0, cost=0.5)))
    journal.close()
    rows = list(history_of(results, name if without else "another"))
    assert [(each.agent, each.usage) for each in rows] == ([] if without else [("good", RowUsage(wall=3.0, cost=0.5))])
