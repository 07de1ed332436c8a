"""The command line of ``pytest-rollout``: its verbs and their arguments."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from pytest_rollout import __version__
from pytest_rollout.cli import examine, look, retain
from pytest_rollout.cli.say import complain
from pytest_rollout.errors import RolloutError
from pytest_rollout.limits import parse_duration, parse_size
from pytest_rollout.store.folder import ResultsFolder

__all__ = ["main", "make_parser"]

_USAGE = 2
_ROLLOUT = "a rollout: its id, a unique prefix, or 'last'"
_STAGES = "where stages lie, if the ini key rollout_stage_root was set"
Value = TypeVar("Value")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the console tool; returns its exit status (2 for a mistake, else 0 or what the verb says)."""
    _open_closed()
    words, command = _split(sys.argv[1:] if arguments is None else list(arguments))
    options = make_parser().parse_args(words)
    options.command = [*getattr(options, "command", ()), *command]
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal may not know every character
    try:
        code: int = options.action(options, ResultsFolder(_results(options.dir)))
        sys.stdout.flush()
    except RolloutError as error:
        complain(str(error), lines=True)
        return _USAGE
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more at its end
        if isinstance(error, BrokenPipeError):
            return 0
        complain(str(error))
        return _USAGE
    return code


def _open_closed() -> None:
    """Put nothing where a standard stream was closed: no file of ours may come to be one."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - it stays open


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """Our own words, and the command behind ``--``: argparse would take another ``--`` out of it."""
    if "--" not in words or "inspect" not in words[: words.index("--")]:
        return words, []
    at = words.index("--")
    return words[:at], words[at + 1 :]


def make_parser() -> argparse.ArgumentParser:
    """The parser of the tool, with a subparser for each verb."""
    parser = argparse.ArgumentParser(prog="pytest-rollout", description="Look at the results of pytest-rollout.")
    parser.add_argument("--version", action="version", version=f"pytest-rollout {__version__}")
    parser.add_argument("--dir", help="folder of the results (default: .rollout here, or in a folder above)")
    verbs = parser.add_subparsers(required=True, metavar="VERB")

    verb = verbs.add_parser("list", help="list the runs, or the rollouts of one run")
    verb.add_argument("run", nargs="?", help="a run: its name, a unique prefix, its digits, or 'last'")
    verb.add_argument("--json", action="store_true", help="as JSON lines")
    verb.set_defaults(action=look.list_runs)

    verb = verbs.add_parser("show", help="show one rollout: outcome, checks, changes, output")
    verb.add_argument("rollout", nargs="?", default="last", help=_ROLLOUT)
    verb.add_argument("--json", action="store_true", help="bundle and score as JSON")
    verb.set_defaults(action=look.show)

    verb = verbs.add_parser("inspect", help="run a command in a read-only view of what a rollout left")
    verb.add_argument("rollout", help=_ROLLOUT)
    verb.add_argument("--stage-root", help=_STAGES)
    verb.add_argument("command", nargs="*", metavar="-- CMD", help="the command, behind --")
    verb.set_defaults(action=look.inspect_stage, mistake=verb.error)

    _add_retaining(verbs)

    verb = verbs.add_parser("doctor", help="say how well this machine isolates agents, and what to do about it")
    verb.add_argument("--stage-root", help=_STAGES)
    verb.add_argument("--json", action="store_true", help="one JSON object")
    verb.set_defaults(action=examine.doctor)
    return parser


def _add_retaining(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    paths = {"action": "append", "default": [], "metavar": "GLOB"}

    verb = verbs.add_parser("diff", help="show what a rollout changed, as a difference against its baseline")
    verb.add_argument("rollout", nargs="?", default="last", help=_ROLLOUT)
    verb.add_argument("--path", **paths, help="only what fits, and what is below it; may be given again")  # type: ignore[arg-type]
    verb.add_argument("--stat", action="store_true", help="only counts of lines")
    verb.add_argument("--json", action="store_true", help="counts of lines as JSON lines")
    verb.add_argument("--raw", action="store_true", help="bytes for git apply, as a pipe gets them")
    verb.add_argument("--stage-root", help=_STAGES)
    verb.set_defaults(action=retain.diff)

    verb = verbs.add_parser("apply", help="write what a rollout changed into a folder, all or nothing")
    verb.add_argument("rollout", help=_ROLLOUT)
    verb.add_argument("--to", required=True, metavar="DIR", help="the folder")
    verb.add_argument("--path", **paths, help="only what fits, and what is below it; may be given again")  # type: ignore[arg-type]
    verb.add_argument("--links", action="store_true", help="also links that point out of the folder")
    verb.add_argument("--dry-run", action="store_true", help="only tell what would be written")
    verb.add_argument("--stage-root", help=_STAGES)
    verb.set_defaults(action=retain.apply)

    verb = verbs.add_parser("drop", help="remove the kept stages of rollouts; their results stay")
    verb.add_argument("rollout", nargs="+", help=_ROLLOUT)
    verb.set_defaults(action=retain.drop)

    verb = verbs.add_parser("prune", help="remove old runs, and prepared trees that nobody uses")
    verb.add_argument("--dry-run", action="store_true", help="only tell what would go")
    verb.add_argument("--keep-runs", type=_runs, default=50, metavar="N", help="how many runs stay (default: 50)")
    verb.add_argument(
        "--older-than",
        type=_as(parse_duration),
        default="720h",
        metavar="TIME",
        help="prepared trees that were not used for so long go: 30d, 12h (default: 30d)",
    )
    verb.add_argument(
        "--max-size",
        type=_as(parse_size),
        default="20GiB",
        metavar="SIZE",
        help="and, the longest unused first, where all of them take more (default: 20GiB)",
    )
    verb.add_argument("--stage-root", help=_STAGES)
    verb.set_defaults(action=retain.prune_all)


def _as(parse: Callable[[object], Value]) -> Callable[[str], Value]:
    """An argument as a limit of a task is written; days too."""

    def convert(text: str) -> Value:
        days = text[:-1] if text[-1:] == "d" else ""
        try:
            return parse(f"{int(days) * 24}h" if days.isdecimal() else text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert


def _runs(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of runs: at least 1")
    return int(text)


def _results(given: str | None) -> Path:
    """The folder of the results: as given, or the nearest ``.rollout``, here or above."""
    if given:
        return Path(given)
    here = Path.cwd()
    return next(
        (place / ".rollout" for place in (here, *here.parents) if (place / ".rollout").is_dir()), here / ".rollout"
    )
