"""The verb ``merge``: the runs of shards become one run, and their JUnit files one file."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from pytest_rollout.cli.arguments import Verbs
from pytest_rollout.cli.say import complain, say
from pytest_rollout.errors import ConfigError
from pytest_rollout.merging.junit import merge_junit
from pytest_rollout.merging.merged import Merged, merge
from pytest_rollout.merging.pins import Difference, differing
from pytest_rollout.merging.shards import find_shards, read_shard
from pytest_rollout.merging.write import write
from pytest_rollout.report.inert import one_line
from pytest_rollout.report.terminal import plural
from pytest_rollout.store.folder import ResultsFolder

__all__ = ["add_verbs", "merge_runs"]

_INCOMPLETE = 1  # exit status: something is missing
_SHOWN = 5


def add_verbs(verbs: Verbs[argparse.ArgumentParser]) -> None:
    """``merge``."""
    verb = verbs.add_parser("merge", help="make one run out of the runs of shards")
    verb.add_argument("folder", nargs="+", type=Path, metavar="DIR", help="a folder of results, or one run of it")
    verb.add_argument("--into", required=True, type=Path, metavar="DIR", help="the folder of results for the new run")
    verb.add_argument(
        "--evidence",
        choices=("copy", "none"),
        default="copy",
        help="copy what rollouts left (default), or only results and labels",
    )
    verb.add_argument("--junit", nargs="+", type=Path, metavar="FILE", help="the new JUnit file, and those to merge")
    verb.add_argument("--allow-gaps", action="store_true", help="exit status 0 also where something is missing")
    verb.add_argument("--allow-pins", action="store_true", help="merge also runs of different agents, tasks, versions")
    verb.set_defaults(action=merge_runs, mistake=verb.error)


def merge_runs(options: argparse.Namespace, _: ResultsFolder) -> int:
    """``merge``: 1 where results are missing, unless that is allowed."""
    if options.junit is not None and len(options.junit) < 2:
        options.mistake("argument --junit: expected the new file and at least one to merge")
    shards = [read_shard(run, number) for number, run in enumerate(find_shards(options.folder))]
    merged = merge(shards)
    differences = differing(merged.counted, shards)
    if differences and not options.allow_pins:
        raise ConfigError(
            "the runs do not belong together:\n" + "\n".join(_of_differences(differences)),
            hint="Merge them all the same with --allow-pins.",
        )
    written = write(merged, shards, ResultsFolder(options.into), evidence=options.evidence == "copy")
    tasks = {line.task for line in merged.winners}
    runs = plural(len(merged.record.merged), "run")
    say(f"merged {runs}: {plural(len(merged.winners), 'rollout')} of {plural(len(tasks), 'task')}")
    sys.stdout.flush()
    for text in [*_of_differences(differences), *_of_duplicates(merged), *_of_gaps(merged)]:
        complain(text)
    if written.absent:
        complain(f"{plural(written.absent, 'rollout')} without their evidence: it is in none of the folders")
    _name(f"{plural(len(written.failed), 'rollout')} without their evidence, which can't be copied", written.failed)
    unread = options.junit is not None and _merge_junit(options.junit, merged)
    say(f"results: {written.path}")
    gaps = merged.gaps or bool(written.failed) or unread
    return _INCOMPLETE if gaps and not options.allow_gaps else 0


def _of_differences(differences: Sequence[Difference]) -> Iterable[str]:
    for each in differences[:_SHOWN]:
        values = ", ".join(f"{value!r} in {run}" for value, run in each.values[:_SHOWN])
        more = f" and {len(each.values) - _SHOWN} more" if len(each.values) > _SHOWN else ""
        yield one_line(f"{each.pin}{' of ' + each.of if each.of else ''} differs: {values}{more}")
    if len(differences) > _SHOWN:
        yield f"and {len(differences) - _SHOWN} more differences"


def _of_duplicates(merged: Merged) -> Iterable[str]:
    if merged.repeated:
        yield f"{plural(merged.repeated, 'line')} of results there more than once"
    if merged.duplicates:
        yield f"{plural(len(merged.duplicates), 'sample')} made by several runs:"
    for each in merged.duplicates[:_SHOWN]:
        yield one_line(f"  {each.task}, sample {each.sample}: {each.counted} counts, not {', '.join(each.others)}")
    if len(merged.duplicates) > _SHOWN:
        yield f"  and {len(merged.duplicates) - _SHOWN} more"


def _of_gaps(merged: Merged) -> Iterable[str]:
    if merged.broken:
        yield f"{plural(merged.broken, 'line')} of results can't be read"
    if merged.missing_shards:
        yield f"missing: {plural(len(merged.missing_shards), 'shard')}: {_some(merged.missing_shards)}"
    if merged.unplanned:
        yield f"missing: {plural(merged.unplanned, 'rollout')} of the whole, which no run planned"
    if merged.without_plan:
        yield f"missing: the plan of {plural(len(merged.without_plan), 'run')}: {_some(merged.without_plan)}"
    if merged.missing:
        yield f"missing: {plural(len(merged.missing), 'rollout')} without a result: {_some(merged.missing)}"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return one_line(", ".join(names[:_SHOWN]) + more)


def _name(title: str, pairs: Sequence[tuple[str, str]]) -> None:
    if pairs:
        complain(f"{title}:")
        for rollout, reason in pairs[:_SHOWN]:
            complain(f"  {rollout}: {reason}")


def _merge_junit(paths: Sequence[Path], merged: Merged) -> bool:
    """Merge JUnit files; returns whether any could not be read."""
    out, *files = paths
    counts = {line.rollout for line in merged.winners}
    found = merge_junit(files, out, {line.rollout for line in merged.others})
    say(f"JUnit: {plural(found.testcases, 'testcase')} in {out}")
    if found.left_out:
        complain(f"{plural(found.left_out, 'testcase')} left out: those of other rollouts count")
    for problem in found.problems:
        complain(problem)
    lacking = sorted(counts - found.rollouts)
    if lacking:
        complain(f"{plural(len(lacking), 'rollout')} without a testcase in the JUnit files: {_some(lacking)}")
    return bool(found.problems)
