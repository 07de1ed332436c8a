"""The verbs that look: list runs and rollouts, show one, run a command in a view of what it left."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from pytest_rollout.bundle import BundleRecord
from pytest_rollout.cli.arguments import A_ROLLOUT, A_RUN, STAGES, Verbs
from pytest_rollout.cli.people import label_line, labels_of
from pytest_rollout.cli.say import json_of, say
from pytest_rollout.decisions.rescored import compare_scores
from pytest_rollout.errors import RolloutError
from pytest_rollout.inspection import inspect
from pytest_rollout.report.inert import one_line
from pytest_rollout.report.rescored import short_change
from pytest_rollout.report.terminal import figure, means_of, plural, sections
from pytest_rollout.store.folder import ResultsFolder, RunFolder, read_record
from pytest_rollout.store.labels import Label
from pytest_rollout.store.load import LoadedRun, find_rollout, find_run, load_results
from pytest_rollout.store.records import Result, ScoreRecord

__all__ = ["add_verbs", "inspect_stage", "list_runs", "show"]

Record = TypeVar("Record", bound=msgspec.Struct)


def add_verbs(verbs: Verbs[argparse.ArgumentParser]) -> None:
    """``list``, ``show``, ``inspect``."""
    verb = verbs.add_parser("list", help="list the runs, or the rollouts of one run")
    verb.add_argument("run", nargs="?", help=A_RUN)
    verb.add_argument("--json", action="store_true", help="as JSON lines")
    verb.set_defaults(action=list_runs)

    verb = verbs.add_parser("show", help="show one rollout: outcome, checks, changes, output")
    verb.add_argument("rollout", nargs="?", default="last", help=A_ROLLOUT)
    verb.add_argument("--json", action="store_true", help="bundle and score as JSON")
    verb.set_defaults(action=show)

    verb = verbs.add_parser("inspect", help="run a command in a read-only view of what a rollout left")
    verb.add_argument("rollout", help=A_ROLLOUT)
    verb.add_argument("--stage-root", help=STAGES)
    verb.add_argument("command", nargs="*", metavar="-- CMD", help="the command, behind --")
    verb.set_defaults(action=inspect_stage, mistake=verb.error)


def list_runs(options: argparse.Namespace, results: ResultsFolder) -> int:
    """``list``."""
    if options.run is None:
        runs = results.all_runs() or [find_run(results)]
        known: dict[str, str] = {}
        for run in runs:
            loaded = load_results(run)
            changed = _changed_checks(loaded, known)
            say(_run_json(run, loaded, changed) if options.json else _run_line(run, loaded, changed))
        return 0
    run = find_run(results, options.run)
    loaded = load_results(run)
    labels = labels_of(run, loaded.results)
    for result in loaded.results:
        say(json_of(result) if options.json else _result_line(result, labels.get(result.rollout, ())))
    if not options.json:
        for missing in loaded.missing:
            say(f"{'no result':<9}  {'–':>6}  {missing}")
        if loaded.broken:
            say(f"{plural(loaded.broken, 'line')} of the journals could not be read")
    return 0


def _counts(loaded: LoadedRun) -> dict[str, object]:
    found = means_of(loaded.results)
    outcomes = [result.outcome for result in loaded.results]
    return {
        "rollouts": len(outcomes),
        **{outcome: outcomes.count(outcome) for outcome in ("passed", "failed", "infra")},
        "missing": len(loaded.missing),
        "agents": sorted({result.agent for result in loaded.results}),
        "mean_reward": found.mean,
        "measured": found.measured,
    }


def _changed_checks(loaded: LoadedRun, known: dict[str, str]) -> list[str]:
    """The tasks whose checks are not those that scored them before; ``known`` learns the revisions of this run."""
    found = {result.task: result.evaluator_revision for result in loaded.results if result.evaluator_revision}
    changed = sorted(task for task, revision in found.items() if known.get(task, revision) != revision)
    known.update(found)
    return changed


def _run_json(run: RunFolder, loaded: LoadedRun, changed: Sequence[str]) -> str:
    again = compare_scores(loaded.results)
    rescored = {} if again is None else {"scored_again": {"run": _source(loaded), **msgspec.to_builtins(again)}}
    return json_of({"run": run.name, **_counts(loaded), "changed_checks": changed, **rescored})


def _source(loaded: LoadedRun) -> str:
    """The run whose bundles these results score again."""
    return next(result.source.run for result in loaded.results if result.source is not None)


def _run_line(run: RunFolder, loaded: LoadedRun, changed: Sequence[str]) -> str:
    counts = _counts(loaded)
    agents = sorted({result.agent for result in loaded.results})
    named = one_line(agents[0])[:20] if len(agents) == 1 else f"{len(agents)} agents"
    line = f"{run.name}  {named}  {plural(len(loaded.results), 'rollout')}: {counts['passed']} passed, "
    line += f"{counts['failed']} failed, {counts['infra']} infra"
    if loaded.missing:
        line += f", {counts['missing']} without a result"
    mean = counts["mean_reward"]
    line += f"; mean {figure(mean if isinstance(mean, float) else None)} of {counts['measured']}"
    again = compare_scores(loaded.results)
    if again is not None:
        line += f"; {_source(loaded)} scored again: {short_change(again)}"
    return f"{line}; other checks than before for {plural(len(changed), 'task')}" if changed else line


def _result_line(result: Result, labels: Sequence[Label]) -> str:
    kind = f"  {result.kind}{' (forgeable)' if result.forgeable else ''}" if result.kind else ""
    before = f"  was {figure(result.source.reward)}" if result.source is not None else ""
    people = f"  labels: {', '.join(figure(label.reward) for label in labels)}" if labels else ""
    return f"{result.outcome:<9}  {figure(result.reward):>6}  {result.rollout}{kind}{before}{people}"


def show(options: argparse.Namespace, results: ResultsFolder) -> int:
    """``show``."""
    run, result = find_rollout(results, options.rollout)
    folder = run.path / result.folder if result.folder is not None else None
    bundle = _read(folder, "bundle.json", BundleRecord)
    score = _read(folder, "score.json", ScoreRecord)
    if options.json:
        labels = labels_of(run, (result,)).get(result.rollout, [])
        say(json_of({"result": result, "bundle": bundle, "score": score, "labels": labels}, indent=2))
        return 0
    say(f"rollout      {result.rollout}")
    say(f"task         {one_line(result.task)}, sample {result.sample}")
    say(f"agent        {one_line(result.agent)}")
    kind = f", kind {result.kind}{' (forgeable)' if result.forgeable else ''}" if result.kind else ""
    say(f"outcome      {result.outcome}{kind}, reward {figure(result.reward)}")
    if result.source is not None:
        then = result.source
        say(f"scored again {then.rollout} of {then.run}: {then.outcome}, reward {figure(then.reward)} then")
    for label in labels_of(run, (result,)).get(result.rollout, ()):
        say(f"label        {label_line(label)}")
    if result.message:
        say(f"because      {one_line(result.message.splitlines()[0])}")
    if bundle is not None:
        _show_bundle(bundle)
    if result.in_process:
        say("in-process   candidate code ran in the process of a verdict, and could have forged it")
    if folder is not None:
        say(f"folder       {folder}")
        for title, text in sections(folder, bundle, score.checks if score is not None else ()):
            say(f"\n{title}\n{text}")
    return 0


def _show_bundle(bundle: BundleRecord) -> None:
    say(f"termination  {bundle.termination}, exit code {bundle.exit_code}, {bundle.times.duration:.3f} s")
    trust = "trusted" if bundle.trusted else "untrusted: not isolated as its task asks"
    rung = f" rung {bundle.rung}" if bundle.rung is not None else ""
    say(f"executor     {bundle.pins.executor}{rung}, {trust}")
    say(f"environment  {bundle.pins.environment_revision}")
    say(f"checks       {bundle.pins.evaluator_revision or 'of an unknown revision'}")
    say(f"audit        {bundle.audit or 'none of these checks yet: pytest --rollout-audit'}")


def _read(folder: Path | None, name: str, kind: type[Record]) -> Record | None:
    try:
        return None if folder is None else read_record(folder / name, kind)
    except OSError:
        return None
    except msgspec.MsgspecError as error:
        raise RolloutError(f"{folder}/{name} can't be read: {error}") from None


def inspect_stage(options: argparse.Namespace, results: ResultsFolder) -> int:
    """``inspect``; returns the command's exit code."""
    if not options.command:
        options.mistake("the following arguments are required: -- CMD")
    run, result = find_rollout(results, options.rollout)
    if result.folder is None:
        raise RolloutError(f"{result.rollout} left nothing: {result.message}")
    root = Path(options.stage_root) if options.stage_root else None
    return inspect(run.path / result.folder, options.command, stage_root=root)
