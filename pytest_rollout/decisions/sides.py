"""One side of a comparison, by the word that names it: a run, ``last``, the folder of a run, or a baseline file."""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path

import msgspec

from pytest_rollout.decisions.baseline import read_baseline, rows_of
from pytest_rollout.decisions.rows import Rows, load_rows
from pytest_rollout.errors import ConfigError, SelectorError
from pytest_rollout.store.folder import ResultsFolder, RunFolder, read_record
from pytest_rollout.store.load import find_run
from pytest_rollout.store.records import GatesRecord

__all__ = ["load_finished", "load_side", "side_run"]


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


def load_finished(results: ResultsFolder, selector: str, folder: Path, *, but: Container[str] = ()) -> Rows:
    """What a later run is held against; a file, or the folder of a run, is looked for below ``folder`` first.

    ``last`` is the newest run of which every planned rollout has a result and whose own gates held, and none of
    ``but``: what failed a gate once would be what the next run is held against. Raises ConfigError and SelectorError,
    also where nothing was measured.
    """
    if selector == "last":
        return _last_finished(results, but)
    place = folder / selector
    rows = load_side(results, str(place) if place.exists() else selector)
    if all(row.reward is None for row in rows.rows):
        raise ConfigError(f"nothing was measured in {selector}")
    return rows


def _last_finished(results: ResultsFolder, but: Container[str]) -> Rows:
    for run in reversed(results.all_runs()):
        if run.name not in but and not run.in_progress() and _held(run):
            rows = load_rows(run)
            if not rows.missing and any(row.reward is not None for row in rows.rows):
                return rows
    raise SelectorError(
        f"there is no finished run in {results.path}",
        hint="Name a baseline file, or run once without this gate.",
    )


def _held(run: RunFolder) -> bool:
    """Whether the gates of the session that made a run held, as far as it had some."""
    try:
        return read_record(run.gates, GatesRecord).status == 0
    except (OSError, msgspec.MsgspecError):
        return True
