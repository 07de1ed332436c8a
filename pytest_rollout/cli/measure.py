"""The verbs ``stats``, the figures of a run or of a baseline file, and ``gate``, what they have to reach."""

from __future__ import annotations

import argparse
from pathlib import Path

from pytest_rollout.cli.arguments import A_SIDE, Verbs
from pytest_rollout.cli.say import json_of, say
from pytest_rollout.decisions.figures import figures_of, task_figures
from pytest_rollout.decisions.gates import judge, parse_gate, status_of
from pytest_rollout.decisions.selection import groups_of, selected
from pytest_rollout.decisions.sides import load_finished, load_side
from pytest_rollout.errors import SelectorError
from pytest_rollout.plain import nearest
from pytest_rollout.report.figures import figure_lines, group_table, task_table
from pytest_rollout.report.inert import one_line
from pytest_rollout.report.terminal import plural
from pytest_rollout.store.folder import ResultsFolder

__all__ = ["add_verbs", "gate", "stats"]

_MOST = 1_000_000


def add_verbs(verbs: Verbs[argparse.ArgumentParser]) -> None:
    """``stats``, ``gate``."""
    verb = verbs.add_parser("stats", help="figures of a run: mean reward, pass@k, intervals, what was not measured")
    verb.add_argument("run", nargs="?", default="last", help=A_SIDE)
    verb.add_argument("--k", type=_numbers, metavar="K,…", help="pass@k and pass^k for these k (default: 1, and all)")
    verb.add_argument("--tag", help="only the tasks with this tag")
    verb.add_argument("--split", help="only the tasks of this split")
    verb.add_argument("--by", choices=("task", "tag", "split"), help="a line for each of these too")
    verb.add_argument("--untrusted", action="store_true", help="count results of agents that were not isolated")
    verb.add_argument("--seed", type=int, default=0, help="of the interval that draws tasks anew (default: 0)")
    verb.add_argument("--json", action="store_true", help="one JSON object")
    verb.set_defaults(action=stats)

    verb = verbs.add_parser("gate", help="judge a run by gates, as pytest --rollout-gate does at its end")
    verb.add_argument("gate", nargs="+", metavar="EXPR", help="what the run has to reach: 'mean_reward >= 0.8'")
    verb.add_argument("--run", default="last", help=A_SIDE)
    verb.add_argument("--untrusted", action="store_true", help="count results of agents that were not isolated")
    verb.add_argument("--json", action="store_true", help="one JSON object a gate")
    verb.set_defaults(action=gate)


def _numbers(text: str) -> list[int]:
    """Numbers of samples, with commas between them."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() and 1 <= int(word) <= _MOST for word in words):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers of samples from 1, such as 1,4")
    return sorted({int(word) for word in words})


def stats(options: argparse.Namespace, results: ResultsFolder) -> int:
    """``stats``."""
    rows = load_side(results, options.run)
    part = selected(rows, tag=options.tag, split=options.split)
    for what, names, asked in (
        ("tag", {tag for row in rows.rows for tag in row.tags}, options.tag),
        ("split", {row.split for row in rows.rows if row.split is not None}, options.split),
    ):
        if asked is not None and not part.rows and not part.missing and asked not in names:
            raise SelectorError(
                f"no task of {rows.name} has the {what} {asked!r}{'.' if names else ''}{nearest(asked, names)}"
            )
    tasks = task_figures(part, untrusted=options.untrusted)
    most = max((task.measured for task in tasks), default=1)
    ks = options.k or sorted({1, most} if most > 1 else {1})
    found = figures_of(part, ks=ks, untrusted=options.untrusted, seed=options.seed)
    groups = {
        name: figures_of(group, ks=ks, untrusted=options.untrusted, seed=options.seed)
        for name, group in (groups_of(part, options.by) if options.by in ("tag", "split") else {}).items()
    }
    if options.json:
        by: object = groups or None
        if options.by == "task":
            by = {task.task: task for task in tasks}
        say(json_of({"run": rows.name, "figures": found, "by": by, "broken": rows.broken}, indent=2))
        return 0
    lines = figure_lines(rows.name, found)
    if options.by == "task":
        lines += ["", *task_table(tasks, ks)]
    elif groups:
        lines += ["", *group_table(groups, options.by)]
    if rows.broken:
        lines.append(f"{plural(rows.broken, 'line')} of the journals could not be read")
    say("\n".join(lines))
    return 0


def gate(options: argparse.Namespace, results: ResultsFolder) -> int:
    """``gate``: 0 where all hold, 76 where one does not, else 75 where one is undecided."""
    gates = [parse_gate(text, "gate") for text in options.gate]
    rows = load_side(results, options.run)
    bases = {each.base: load_finished(results, each.base, Path(), but={rows.name}) for each in gates if each.base}
    judged = judge(gates, rows, bases, untrusted=options.untrusted)
    for each in judged:
        say(json_of(each) if options.json else one_line(each.line()))
    return status_of(judged)
