"""The verbs that hold runs against each other: compare two, and write the baseline that a later one is held against."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from pytest_rollout.cli.arguments import A_RUN, Verbs
from pytest_rollout.cli.say import complain, json_of, redacted, say
from pytest_rollout.decisions.baseline import baseline_of, text_of
from pytest_rollout.decisions.compare import Comparison, compare
from pytest_rollout.decisions.pairs import pair
from pytest_rollout.decisions.promote import Promotion, Rule, promote
from pytest_rollout.decisions.rows import Rows, load_rows
from pytest_rollout.decisions.sides import load_side, side_run
from pytest_rollout.errors import ConfigError
from pytest_rollout.report.comparison import comparison_markdown, comparison_text
from pytest_rollout.report.promotion import promotion_lines
from pytest_rollout.report.terminal import plural
from pytest_rollout.store.folder import ResultsFolder
from pytest_rollout.store.heldout import HELD_OUT, Looks, looks

__all__ = ["add_verbs", "compare_sides", "write_baseline"]

A_SIDE = "a run (its name, a unique prefix, its digits, 'last'), the folder of a run, or a baseline file"
_NOTHING = 1
_STATUS = {"promote": 0, "reject": 1, "undecided": 3, "refused": 4}


def add_verbs(verbs: Verbs[argparse.ArgumentParser]) -> None:
    """``compare``, ``baseline``."""
    verb = verbs.add_parser("compare", help="compare two runs, or a run with a baseline file")
    verb.add_argument("a", metavar="A", help=f"the old side: {A_SIDE}")
    verb.add_argument("b", metavar="B", help="the new side, said the same way")
    verb.add_argument("--format", choices=("text", "markdown", "json"), default="text", help="how to say it")
    verb.add_argument("--tag", action="append", default=[], help="only tasks with this tag; may be given again")
    verb.add_argument("--split", help="only tasks of this split")
    verb.add_argument("--untrusted", action="store_true", help="also rollouts whose agents were not isolated as asked")
    verb.add_argument("--seed", type=int, default=0, help="of the bootstrap (default: 0)")
    verb.add_argument("--limit", type=_count, default=10, metavar="N", help="how many of each list (default: 10)")
    verb.add_argument("--all", action="store_true", help="the lists as a whole")
    verb.add_argument(
        "--promote", action="store_true", help='apply the rule of promotion to tasks with split="held-out"'
    )
    verb.add_argument("--margin", type=_number(-1, 1), metavar="X", help="with --promote: B − A has to be above it (0)")
    verb.add_argument("--confidence", type=_number(0.5, 1), default=0.95, metavar="X", help="of bounds (default: 0.95)")
    verb.add_argument("--power", type=_number(0, 1), default=0.8, metavar="X", help="of what is detectable (0.8)")
    verb.set_defaults(action=compare_sides)

    verb = verbs.add_parser("baseline", help="write a run's results as a file that can be committed")
    verb.add_argument("run", nargs="?", default="last", help=A_RUN)
    verb.add_argument("--output", metavar="FILE", help="where to (default: standard output)")
    verb.set_defaults(action=write_baseline)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of lines: at least 1")
    return int(text)


def _number(low: float, high: float) -> Callable[[str], float]:
    def convert(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not low < value < high:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number between {low} and {high}")
        return value

    return convert


def compare_sides(options: argparse.Namespace, results: ResultsFolder) -> int:
    """``compare``: 0, or 1 where no task could be compared; with ``--promote`` the number of the answer."""
    if options.margin is not None and not options.promote:
        raise ConfigError("--margin belongs to --promote, which is not given")
    if options.promote and (options.tag or options.split not in (None, HELD_OUT)):
        raise ConfigError(f'--promote looks at all tasks with split="{HELD_OUT}", and no choice of them')
    if options.promote and options.untrusted:
        raise ConfigError("--promote never takes untrusted results", hint="Leave --untrusted out.")
    sides = load_side(results, options.a), load_side(results, options.b)
    promotion, seen = None, Looks(looks=())
    if options.promote:
        seen = looks(results)
        rule = Rule(margin=options.margin or 0.0, confidence=options.confidence, power=options.power)
        promotion = promote(pair(*sides, split=HELD_OUT, untrusted=True), rule)
    split = HELD_OUT if promotion is not None and promotion.answer != "refused" else options.split
    pairing = pair(*sides, tags=options.tag, split=split, untrusted=options.untrusted)
    if pairing.empty:
        asked = [*(f"the tag {tag!r}" for tag in options.tag), *([f"the split {split!r}"] if split else [])]
        raise ConfigError(f"no task of {options.a} or {options.b} has {' and '.join(asked) or 'a result'}")
    found = compare(pairing, seed=options.seed, confidence=options.confidence, power=options.power)
    if options.format == "json":
        say(json_of(_plain(found, promotion, seen), 2))
    else:
        _say(options, found, sides, promotion_lines(promotion, seen, sides[0].name) if promotion is not None else [])
    if promotion is not None:
        return _STATUS[promotion.answer]
    return 0 if found.tasks else _NOTHING


def _plain(found: Comparison, promotion: Promotion | None, seen: Looks) -> dict[str, Any]:
    made: dict[str, Any] = msgspec.to_builtins(found)
    if promotion is not None:
        made["promotion"] = msgspec.to_builtins(promotion)
        made["held_out"] = msgspec.to_builtins(seen)
    return made


def _say(options: argparse.Namespace, found: Comparison, sides: tuple[Rows, Rows], promotion: list[str]) -> None:
    limit = None if options.all else options.limit
    links = _link(sides[0]), _link(sides[1])
    if options.format == "markdown":
        say(comparison_markdown(found, limit=limit, links=links, promotion=promotion), end="")
        return
    for line in comparison_text(found, limit=limit, links=links):
        say(line)
    if promotion:
        say("\n" + "\n".join(promotion))


def _link(side: Rows) -> Callable[[str], str] | None:
    """Paths of the folders of a side's rollouts, from here; None where it is a file."""
    folder = side.folder
    return None if folder is None else lambda place: os.path.relpath(os.path.join(folder, place))


def write_baseline(options: argparse.Namespace, results: ResultsFolder) -> int:
    """``baseline``."""
    rows = load_rows(side_run(results, options.run))
    text = redacted(text_of(baseline_of(rows)))
    if options.output is None:
        sys.stdout.write(text)
        return 0
    place = Path(options.output)
    try:
        made = place.with_name(f".{place.name}-{os.getpid()}")
        made.write_text(text, encoding="utf-8")
        os.replace(made, place)
    except OSError as error:
        raise ConfigError(f"the baseline {place} can't be written: {error.strerror}") from None
    measured = sum(row.reward is not None for row in rows.rows)
    tasks = len({row.task for row in rows.rows})
    say(f"{place}: {plural(tasks, 'task')}, {measured} of {plural(len(rows.rows), 'rollout')} measured")
    untrusted = sum(row.trusted is False for row in rows.rows)
    if untrusted:
        complain(f"{plural(untrusted, 'rollout')} are untrusted: gates and comparisons leave them out")
    return 0
