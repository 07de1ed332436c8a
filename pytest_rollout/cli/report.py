"""The verb ``report``: the JUnit report of a run, out of its records."""

from __future__ import annotations

import argparse
from pathlib import Path

from pytest_rollout.cli.arguments import A_RUN, Verbs
from pytest_rollout.cli.say import redacted, say
from pytest_rollout.report.inert import one_line
from pytest_rollout.report.rebuilt import write_report
from pytest_rollout.report.terminal import plural
from pytest_rollout.store.folder import ResultsFolder
from pytest_rollout.store.load import find_run

__all__ = ["add_verbs", "write_junit"]

_WORDS = {"passed": "passed", "failure": "failed", "error": "not measured", "skipped": "skipped"}


def add_verbs(verbs: Verbs[argparse.ArgumentParser]) -> None:
    """``report``."""
    verb = verbs.add_parser("report", help="write the JUnit report of a run, also of one that was killed")
    verb.add_argument("run", nargs="?", default="last", help=A_RUN)
    verb.add_argument("--junit", required=True, metavar="FILE", help="the file to write")
    verb.set_defaults(action=write_junit)


def write_junit(options: argparse.Namespace, results: ResultsFolder) -> int:
    """``report --junit``."""
    run = find_run(results, options.run)
    counts = write_report(run, Path(options.junit), redacted)
    told = ", ".join(f"{counts[tag]} {word}" for tag, word in _WORDS.items() if counts[tag])
    say(one_line(f"{options.junit}: {plural(counts.total(), 'rollout')} of {run.name}: {told}"))
    return 0
