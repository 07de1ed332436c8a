"""The command line of ``pytest-rollout``. The verbs and their arguments are those of the modules beside this one."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from pytest_rollout import __version__
from pytest_rollout.cli import compare, examine, export, look, measure, merge, people, report, retain
from pytest_rollout.cli.say import complain
from pytest_rollout.errors import RolloutError
from pytest_rollout.store.folder import ResultsFolder

__all__ = ["main", "make_parser"]

_USAGE = 2
_MODULES = (look, report, measure, compare, retain, merge, export, people, examine)


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

    for module in _MODULES:
        module.add_verbs(verbs)
    return parser


def _results(given: str | None) -> Path:
    """The folder of the results: as given, or the nearest ``.rollout``, here or above."""
    if given:
        return Path(given)
    here = Path.cwd()
    return next(
        (place / ".rollout" for place in (here, *here.parents) if (place / ".rollout").is_dir()), here / ".rollout"
    )
