"""The verbs of people's scores: give one to a rollout, and see how far they agree with the computed ones."""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec

from pytest_rollout.cli.arguments import A_ROLLOUT, A_RUN, Verbs
from pytest_rollout.cli.say import json_of, redactor, say
from pytest_rollout.decisions.agreement import Agreement, Pair, agreements
from pytest_rollout.report.inert import one_line
from pytest_rollout.report.terminal import figure, plural
from pytest_rollout.store.folder import ResultsFolder, RunFolder, read_record
from pytest_rollout.store.journal import utc_now
from pytest_rollout.store.labels import Label, add_label, check_reward, counted, load_labels, person
from pytest_rollout.store.load import find_rollout, find_run, load_results
from pytest_rollout.store.records import Result, RunRecord, ScoreRecord

__all__ = ["add_verbs", "label_line", "label_rollout", "labels_of", "list_labels"]


def add_verbs(verbs: Verbs[argparse.ArgumentParser]) -> None:
    """``label``, ``labels``."""
    verb = verbs.add_parser("label", help="add a person's score to a rollout, beside the computed one")
    verb.add_argument("rollout", help=A_ROLLOUT)
    verb.add_argument("--reward", required=True, type=_reward, metavar="NUMBER", help="the score, from 0 to 1")
    verb.add_argument("--by", required=True, metavar="NAME", help="who gives it; a later one replaces it")
    verb.add_argument("--reason", default="", metavar="TEXT", help="why")
    verb.set_defaults(action=label_rollout)

    verb = verbs.add_parser(
        "labels", help="list people's scores of a run, and how far they agree with the computed ones"
    )
    verb.add_argument("run", nargs="?", default="last", help=A_RUN)
    verb.add_argument("--json", action="store_true", help="one JSON object")
    verb.set_defaults(action=list_labels)


def _reward(text: str) -> float:
    try:
        return check_reward(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def label_rollout(options: argparse.Namespace, results: ResultsFolder) -> int:
    """``label``."""
    name = person(options.by)
    run, result = find_rollout(results, options.rollout)
    label = Label(
        rollout=result.rollout,
        reward=options.reward,
        by=name,
        reason=options.reason.strip(),
        time=utc_now(),
        computed=result.reward,
        evaluator_revision=result.evaluator_revision,
        threshold=_threshold(run, result),
    )
    earlier = [old for old in counted(load_labels(run)[0]) if (old.rollout, old.by) == (label.rollout, label.by)]
    add_label(run, label, redactor())
    instead = f", instead of {figure(earlier[0].reward)}" if earlier else ""
    say(f"{result.rollout}: {figure(label.reward)} by {one_line(name)}{instead}; computed: {figure(result.reward)}")
    return 0


def _threshold(run: RunFolder, result: Result) -> float:
    """What a pass is for the rollout's task; 1 where nothing says so."""
    try:
        found = read_record(run.path / (result.folder or "-") / "score.json", ScoreRecord).threshold
    except (OSError, msgspec.MsgspecError):
        return 1.0
    return 1.0 if found is None else found


def labels_of(run: RunFolder, results: tuple[Result, ...]) -> dict[str, list[Label]]:
    """The labels that count, by the rollout of this run; of a run that scores another again, those of that one too.

    A person scores what an agent left, which is the same there.
    """
    found: dict[str, dict[str, Label]] = {}
    for place, ids in (*_before(run, results), (run, {result.rollout: result.rollout for result in results})):
        for label in counted(load_labels(place)[0]):
            if label.rollout in ids:
                found.setdefault(ids[label.rollout], {})[label.by] = label
    return {rollout: list(by_name.values()) for rollout, by_name in found.items()}


def _before(run: RunFolder, results: tuple[Result, ...]) -> list[tuple[RunFolder, dict[str, str]]]:
    """The run that this one scores again, and its rollouts' ids with those of here."""
    try:
        source = read_record(run.record, RunRecord).source
    except (OSError, msgspec.MsgspecError):
        return []
    ids = {result.source.rollout: result.rollout for result in results if result.source is not None}
    return [] if source is None else [(RunFolder(Path(source.folder)), ids)]


def label_line(label: Label) -> str:
    """One label on one line."""
    why = f": {label.reason}" if label.reason else ""
    return one_line(f"{figure(label.reward)} by {label.by}, {label.time[:19]}{why}")


def list_labels(options: argparse.Namespace, results: ResultsFolder) -> int:
    """``labels``."""
    run = find_run(results, options.run)
    loaded = load_results(run).results
    labels, (_, broken) = labels_of(run, loaded), load_labels(run)
    pairs = [
        Pair(by=label.by, computed=result.reward, human=label.reward, threshold=label.threshold)
        for result in loaded
        for label in labels.get(result.rollout, ())
        if result.reward is not None
    ]
    found = agreements(pairs) if pairs else []
    if options.json:
        shown = [label for result in loaded for label in labels.get(result.rollout, ())]
        say(json_of({"run": run.name, "labels": shown, "agreement": found, "broken": broken}))
        return 0
    for result in loaded:
        for label in labels.get(result.rollout, ()):
            say(f"{figure(result.reward):>6}  {label_line(label)}  {result.rollout}")
    number = sum(map(len, labels.values()))
    say(f"{plural(number, 'label')} of {len(labels)} of the {plural(len(loaded), 'rollout')} in {run.name}")
    for line in found:
        say(_agreement_line(line))
    if number > len(pairs):
        say(f"{plural(number - len(pairs), 'label')} of rollouts that measured nothing, and so agree with nothing")
    if broken:
        say(f"{plural(broken, 'line')} of labels.jsonl could not be read")
    return 0


def _agreement_line(found: Agreement) -> str:
    kappa = "not defined" if found.kappa is None else f"{found.kappa:.3g}"
    return one_line(
        f"{'all together' if found.by is None else found.by}: mean absolute difference "
        f"{figure(found.mean_absolute_difference)}; {found.equal_verdicts} of {found.labels} the same verdict, "
        f"Cohen's kappa {kappa}"
    )
