"""The verbs that retain or discard: diff, apply, drop and prune."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from pytest_rollout.bundle import Change
from pytest_rollout.cli.arguments import A_ROLLOUT, STAGES, Verbs, as_, number_of_runs
from pytest_rollout.cli.say import complain, json_of, redacted, say
from pytest_rollout.errors import SelectorError
from pytest_rollout.limits import parse_duration, parse_size
from pytest_rollout.report.inert import inert_text, one_line
from pytest_rollout.report.terminal import plural
from pytest_rollout.retained.difference import PathDifference, differences
from pytest_rollout.retained.drop import drop_stage
from pytest_rollout.retained.left import Left
from pytest_rollout.retained.prune import Rules, prune
from pytest_rollout.retained.taking import Conflict, take
from pytest_rollout.stage.root import default_root
from pytest_rollout.store.folder import ResultsFolder
from pytest_rollout.store.load import find_rollout

__all__ = ["add_verbs", "apply", "diff", "drop", "prune_all"]

_INCOMPLETE = 1  # exit status: not all could be shown, or nothing could be written
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


def add_verbs(verbs: Verbs[argparse.ArgumentParser]) -> None:
    """``diff``, ``apply``, ``drop``, ``prune``."""
    paths = {"action": "append", "default": [], "metavar": "GLOB"}

    verb = verbs.add_parser("diff", help="show what a rollout changed, as a difference against its baseline")
    verb.add_argument("rollout", nargs="?", default="last", help=A_ROLLOUT)
    verb.add_argument("--path", **paths, help="only what fits, and what is below it; may be given again")  # type: ignore[arg-type]
    verb.add_argument("--stat", action="store_true", help="only counts of lines")
    verb.add_argument("--json", action="store_true", help="counts of lines as JSON lines")
    verb.add_argument("--raw", action="store_true", help="bytes for git apply, as a pipe gets them")
    verb.add_argument("--stage-root", help=STAGES)
    verb.set_defaults(action=diff)

    verb = verbs.add_parser("apply", help="write what a rollout changed into a folder, all or nothing")
    verb.add_argument("rollout", help=A_ROLLOUT)
    verb.add_argument("--to", required=True, metavar="DIR", help="the folder")
    verb.add_argument("--path", **paths, help="only what fits, and what is below it; may be given again")  # type: ignore[arg-type]
    verb.add_argument("--links", action="store_true", help="also links that point out of the folder")
    verb.add_argument("--dry-run", action="store_true", help="only tell what would be written")
    verb.add_argument("--stage-root", help=STAGES)
    verb.set_defaults(action=apply)

    verb = verbs.add_parser("drop", help="remove the kept stages of rollouts; their results stay")
    verb.add_argument("rollout", nargs="+", help=A_ROLLOUT)
    verb.set_defaults(action=drop)

    verb = verbs.add_parser("prune", help="remove old runs, and prepared trees that nobody uses")
    verb.add_argument("--dry-run", action="store_true", help="only tell what would go")
    verb.add_argument(
        "--keep-runs", type=number_of_runs, default=50, metavar="N", help="how many runs stay (default: 50)"
    )
    verb.add_argument(
        "--older-than",
        type=as_(parse_duration),
        default="720h",
        metavar="TIME",
        help="prepared trees that were not used for so long go: 30d, 12h (default: 30d)",
    )
    verb.add_argument(
        "--max-size",
        type=as_(parse_size),
        default="20GiB",
        metavar="SIZE",
        help="and, the longest unused first, where all of them take more (default: 20GiB)",
    )
    verb.add_argument("--stage-root", help=STAGES)
    verb.set_defaults(action=prune_all)


def diff(options: argparse.Namespace, results: ResultsFolder) -> int:
    """``diff``; returns 1 where something of the selection can't be shown."""
    left = _left(results, options.rollout, options.stage_root)
    raw = options.raw or not sys.stdout.isatty()
    found = differences(left, left.selected(options.path), binary=raw)
    incomplete, left_out = False, 0
    for one in found:
        incomplete = incomplete or one.missing is not None
        if options.json:
            say(json_of(_counts(one)))
        elif options.stat:
            say(_stat_line(one))
        else:
            left_out += one.note is not None and one.note.endswith("left out")
            _print_patch(one, raw=raw)
    sys.stdout.flush()
    if left_out:
        complain(f"{plural(left_out, 'path')} of a repository's own data left out")
    if incomplete and not (options.json or options.stat):
        complain("the difference is not whole")
    return _INCOMPLETE if incomplete else 0


def _print_patch(one: PathDifference, *, raw: bool) -> None:
    if one.patch is not None:
        if raw:
            sys.stdout.flush()
            sys.stdout.buffer.write(one.patch.data)
        else:
            say(inert_text(redacted(one.patch.data.decode("utf-8", "replace"))), end="")
    sys.stdout.flush()
    if one.missing is not None:
        complain(f"{one.change.path} can't be shown: {one.missing}")
    elif one.note is not None and not one.note.endswith("left out"):
        complain(f"{one.change.path} {one.note}")


def _counts(one: PathDifference) -> dict[str, object]:
    patch = one.patch
    return {
        "path": one.change.path,
        "kind": one.change.kind,
        "type": one.change.type,
        "added": patch.added if patch is not None else None,
        "removed": patch.removed if patch is not None else None,
        "missing": one.missing,
        "note": one.note,
    }


def _stat_line(one: PathDifference) -> str:
    patch = one.patch
    if one.missing is not None or one.note is not None:
        said = one.missing or one.note or ""
    elif patch is None:
        said = "a folder"
    else:
        said = "not text" if patch.added is None else f"+{patch.added} -{patch.removed}"
    return f"{_named(one.change)}  {one_line(said)}"


def _named(change: Change) -> str:
    return f"{change.kind:<9} {change.type:<8} {one_line(change.path)}"


def apply(options: argparse.Namespace, results: ResultsFolder) -> int:
    """``apply``; returns 1 where conflicts kept everything from being written."""
    left, folder = _left(results, options.rollout, options.stage_root), Path(options.to)
    taken = take(left, folder, patterns=options.path, links=options.links, dry_run=options.dry_run)
    if taken.conflicts:
        complain(f"nothing was written to {folder}: {plural(len(taken.conflicts), 'conflict')}")
        _say_each(taken.conflicts)
        return _INCOMPLETE
    for change in taken.made:
        say(_named(change))
    if taken.already:
        say(f"{plural(len(taken.already), 'path')} there already")
    sys.stdout.flush()
    if taken.left_out:
        complain(f"{plural(len(taken.left_out), 'path')} left out")
        _say_each(taken.left_out)
    if options.dry_run:
        complain("nothing was written: --dry-run")
    return 0


def _say_each(conflicts: Iterable[Conflict]) -> None:
    for conflict in conflicts:
        print(redacted(f"  {one_line(conflict.path)}: {one_line(conflict.reason)}"), file=sys.stderr)


def drop(options: argparse.Namespace, results: ResultsFolder) -> int:
    """``drop``: every rollout is found before the first stage goes."""
    found = [(selector, _attempt(results, selector)) for selector in options.rollout]
    for selector, attempt in dict(found).items():
        freed = drop_stage(attempt)
        say(f"{one_line(selector)}: " + ("no stage was kept" if freed is None else f"{_size(freed)} freed"))
    return 0


def prune_all(options: argparse.Namespace, results: ResultsFolder) -> int:
    """``prune``; returns 1 where something could not be removed."""
    stages = Path(options.stage_root) if options.stage_root else default_root()
    rules = Rules(runs=options.keep_runs, unused=options.older_than, size=options.max_size)
    freed, failed = 0, False
    try:
        for gone in prune(results, stages, rules, dry_run=options.dry_run):
            if gone.problem is not None:
                failed = True
                complain(f"{gone.path} was not removed: {gone.problem}")
                continue
            freed += gone.size
            say(f"{gone.what:<24} {_size(gone.size):>10}  {one_line(gone.path)}")
    except OSError as error:
        raise SelectorError(f"{stages} can't be pruned: {error}") from None
    say(f"{_size(freed)} {'would be freed' if options.dry_run else 'freed'}")
    return _INCOMPLETE if failed else 0


def _size(size: int) -> str:
    """A size for people: ``3.2 MiB``."""
    value, unit = float(size), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{size} bytes" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"


def _attempt(results: ResultsFolder, selector: str) -> Path:
    run, result = find_rollout(results, selector)
    if result.folder is None:
        raise SelectorError(f"{result.rollout} left nothing: {result.message}")
    return run.path / result.folder


def _left(results: ResultsFolder, selector: str, stage_root: str | None) -> Left:
    return Left(_attempt(results, selector), Path(stage_root) if stage_root else None)
