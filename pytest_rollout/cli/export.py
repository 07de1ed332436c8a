"""The verb ``export``: one row a rollout, as JSON lines or Parquet."""

from __future__ import annotations

import argparse
import os
import secrets
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pytest_rollout.cli.arguments import A_RUN, Verbs
from pytest_rollout.cli.say import complain, json_of, plain_of
from pytest_rollout.exporting.parquet import write_parquet
from pytest_rollout.exporting.rows import Index, index_of, rows_of
from pytest_rollout.report.terminal import plural
from pytest_rollout.store.folder import ResultsFolder, RunFolder
from pytest_rollout.store.load import find_run

__all__ = ["add_verbs", "export"]


def add_verbs(verbs: Verbs[argparse.ArgumentParser]) -> None:
    """``export``."""
    verb = verbs.add_parser("export", help="write one row a rollout, for training and tables")
    verb.add_argument("run", nargs="*", default=["last"], help=f"{A_RUN}; or the folder of a run")
    verb.add_argument("--format", choices=("jsonl", "parquet"), default="jsonl", help="JSON lines (default) or Parquet")
    verb.add_argument("--output", type=Path, metavar="FILE", help="the file; JSON lines go to standard output without")
    verb.add_argument("--untrusted", action="store_true", help="also rollouts that were not isolated as tasks ask")
    verb.add_argument("--split", metavar="NAME", help="only tasks of this split")
    verb.set_defaults(action=export, mistake=verb.error)


def export(options: argparse.Namespace, results: ResultsFolder) -> int:
    """``export``."""
    if options.format == "parquet" and options.output is None:
        options.mistake("--format parquet needs --output FILE")
    runs = {run.path.resolve(): run for run in (_find(results, selector) for selector in options.run)}
    indexes = [index_of(run, untrusted=options.untrusted, split=options.split) for run in runs.values()]
    rows = (row for index in indexes for row in rows_of(index))
    if options.output is None:
        for row in rows:
            print(json_of(row))
    else:
        with _whole(options.output) as place:
            _write(rows, place, options.format)
    sys.stdout.flush()
    _tell(indexes, options.output)
    return 0


def _find(results: ResultsFolder, selector: str) -> RunFolder:
    place = Path(selector)
    return RunFolder(place.resolve()) if (place / "results").is_dir() else find_run(results, selector)


def _write(rows: Iterator[dict[str, Any]], place: Path, form: str) -> None:
    if form == "parquet":
        write_parquet((plain_of(row) for row in rows), place)
        return
    with open(place, "w", encoding="utf-8") as file:
        for row in rows:
            file.write(f"{json_of(row)}\n")


@contextmanager
def _whole(path: Path) -> Iterator[Path]:
    """A file beside ``path`` that takes its place when it is whole; a device or a pipe is written as it is."""
    if path.exists() and not path.is_file():
        yield path
        return
    made = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    try:
        yield made
        os.replace(made, path)
    finally:
        with suppress(FileNotFoundError):
            made.unlink()


def _tell(indexes: Sequence[Index], output: Path | None) -> None:
    count = sum(len(index.lines) for index in indexes)
    complain(f"{plural(count, 'row')} of {plural(len(indexes), 'run')}" + (f" in {output}" if output else ""))
    untrusted = sum(index.untrusted for index in indexes)
    if untrusted:
        complain(f"{plural(untrusted, 'untrusted rollout')} left out: --untrusted exports them too")
    missing = sum(index.missing for index in indexes)
    if missing:
        complain(f"{plural(missing, 'planned rollout')} without a result: no row, but counted in group_size")
    broken = sum(index.broken for index in indexes)
    if broken:
        complain(f"{plural(broken, 'line')} of results can't be read")
