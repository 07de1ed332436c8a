"""One side of a comparison, by the word that names it: a run, ``last``, the folder of a run, or a baseline file."""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path

from pytest_rollout.decisions.baseline import read_baseline, rows_of
from pytest_rollout.decisions.rows import Rows, load_rows
from pytest_rollout.errors import SelectorError
from pytest_rollout.store.folder import ResultsFolder, RunFolder
from pytest_rollout.store.load import find_run

__all__ = ["load_side", "side_run"]


def load_side(results: ResultsFolder, selector: str, *, but: Container[str] = ()) -> Rows:
    """The rows that a selector means; ``but`` names runs that ``last`` is not. Raises ConfigError, SelectorError."""
    place = Path(selector)
    if place.is_file():
        return rows_of(read_baseline(place))
    return load_rows(side_run(results, selector, but=but))


def side_run(results: ResultsFolder, selector: str, *, but: Container[str] = ()) -> RunFolder:
    """The run that a selector means, which is no file; raises SelectorError."""
    place = Path(selector)
    if (place / "results").is_dir():
        return RunFolder(place.resolve())
    if selector == "last" and but:
        runs = [run for run in results.all_runs() if run.name not in but]
        if not runs:
            raise SelectorError(f"there is no earlier run in {results.path}")
        return runs[-1]
    return find_run(results, selector)
