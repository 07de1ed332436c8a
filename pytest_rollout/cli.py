"""The console tool ``pytest-rollout``: list runs and rollouts, show one, look at what it left, examine the machine."""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TypeVar

import msgspec

from pytest_rollout import __version__
from pytest_rollout.bundle import BundleRecord
from pytest_rollout.doctor.examination import examine
from pytest_rollout.doctor.text import lines
from pytest_rollout.errors import RolloutError
from pytest_rollout.inspection import inspect
from pytest_rollout.outcome import means
from pytest_rollout.redaction.redactor import Redactor
from pytest_rollout.report.inert import inert_json, inert_text, one_line
from pytest_rollout.report.terminal import figure, plural, sections
from pytest_rollout.store.folder import ResultsFolder, RunFolder, read_record
from pytest_rollout.store.load import LoadedRun, find_rollout, find_run, load_results
from pytest_rollout.store.records import Result, ScoreRecord

__all__ = ["main"]

_USAGE = 2
Record = TypeVar("Record", bound=msgspec.Struct)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the console tool; returns its exit status (2 for a mistake, else 0 or what the verb says)."""
    words, command = _split(sys.argv[1:] if arguments is None else list(arguments))
    options = _parser().parse_args(words)
    options.command = [*getattr(options, "command", ()), *command]
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal may not know every character
    try:
        code: int = options.action(options, ResultsFolder(_results(options.dir)))
        sys.stdout.flush()
    except RolloutError as error:
        print(f"pytest-rollout: {inert_text(_redactor().text(str(error)))}", file=sys.stderr)
        return _USAGE
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more at its end
        return 0
    return code


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """Our own words, and the command behind ``--``: argparse would take another ``--`` out of it."""
    if "--" not in words or "inspect" not in words[: words.index("--")]:
        return words, []
    at = words.index("--")
    return words[:at], words[at + 1 :]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="pytest-rollout", description="Look at the results of pytest-rollout.")
    parser.add_argument("--version", action="version", version=f"pytest-rollout {__version__}")
    parser.add_argument("--dir", help="folder of the results (default: .rollout here, or in a folder above)")
    verbs = parser.add_subparsers(required=True, metavar="list | show | inspect | doctor")

    verb = verbs.add_parser("list", help="list the runs, or the rollouts of one run")
    verb.add_argument("run", nargs="?", help="a run: its name, a unique prefix, its digits, or 'last'")
    verb.add_argument("--json", action="store_true", help="as JSON lines")
    verb.set_defaults(action=_list)

    verb = verbs.add_parser("show", help="show one rollout: outcome, checks, changes, output")
    verb.add_argument("rollout", nargs="?", default="last", help="a rollout: its id, a unique prefix, or 'last'")
    verb.add_argument("--json", action="store_true", help="bundle and score as JSON")
    verb.set_defaults(action=_show)

    verb = verbs.add_parser("inspect", help="run a command in a read-only view of what a rollout left")
    verb.add_argument("rollout", help="a rollout: its id, a unique prefix, or 'last'")
    verb.add_argument("--stage-root", help="where stages lie, if the ini key rollout_stage_root was set")
    verb.add_argument("command", nargs="*", metavar="-- CMD", help="the command, behind --")
    verb.set_defaults(action=_inspect, mistake=verb.error)

    verb = verbs.add_parser("doctor", help="say how well this machine isolates agents, and what to do about it")
    verb.add_argument("--stage-root", help="where stages lie, if the ini key rollout_stage_root was set")
    verb.add_argument("--json", action="store_true", help="one JSON object")
    verb.set_defaults(action=_doctor)
    return parser


def _results(given: str | None) -> Path:
    """The folder of the results: as given, or the nearest ``.rollout``, here or above."""
    if given:
        return Path(given)
    here = Path.cwd()
    return next(
        (place / ".rollout" for place in (here, *here.parents) if (place / ".rollout").is_dir()), here / ".rollout"
    )


@cache
def _redactor() -> Redactor:
    return Redactor.of_process(os.environ, exists=os.path.exists)


def _say(text: str) -> None:
    """Print, without secrets: records have none of the session that made them, but this may be another one."""
    print(_redactor().text(text))


def _json(value: object, indent: int | None = None) -> str:
    return inert_json(json.dumps(_redactor().value(msgspec.to_builtins(value)), indent=indent))


def _list(options: argparse.Namespace, results: ResultsFolder) -> int:
    if options.run is None:
        runs = results.all_runs() or [find_run(results)]
        known: dict[str, str] = {}
        for run in runs:
            loaded = load_results(run)
            changed = _changed_checks(loaded, known)
            _say(_run_json(run, loaded, changed) if options.json else _run_line(run, loaded, changed))
        return 0
    run = find_run(results, options.run)
    loaded = load_results(run)
    for result in loaded.results:
        _say(_json(result) if options.json else _result_line(result))
    if not options.json:
        for missing in loaded.missing:
            _say(f"{'no result':<9}  {'–':>6}  {missing}")
        if loaded.broken:
            _say(f"{plural(loaded.broken, 'line')} of the journals could not be read")
    return 0


def _counts(loaded: LoadedRun) -> dict[str, object]:
    found = means([(result.reward, result.forgeable) for result in loaded.results])
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
    return _json({"run": run.name, **_counts(loaded), "changed_checks": changed})


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
    return f"{line}; other checks than before for {plural(len(changed), 'task')}" if changed else line


def _result_line(result: Result) -> str:
    kind = f"  {result.kind}{' (forgeable)' if result.forgeable else ''}" if result.kind else ""
    return f"{result.outcome:<9}  {figure(result.reward):>6}  {result.rollout}{kind}"


def _show(options: argparse.Namespace, results: ResultsFolder) -> int:
    run, result = find_rollout(results, options.rollout)
    folder = run.path / result.folder if result.folder is not None else None
    bundle = _read(folder, "bundle.json", BundleRecord)
    score = _read(folder, "score.json", ScoreRecord)
    if options.json:
        _say(_json({"result": result, "bundle": bundle, "score": score}, indent=2))
        return 0
    _say(f"rollout      {result.rollout}")
    _say(f"task         {one_line(result.task)}, sample {result.sample}")
    _say(f"agent        {one_line(result.agent)}")
    kind = f", kind {result.kind}{' (forgeable)' if result.forgeable else ''}" if result.kind else ""
    _say(f"outcome      {result.outcome}{kind}, reward {figure(result.reward)}")
    if result.message:
        _say(f"because      {one_line(result.message.splitlines()[0])}")
    if bundle is not None:
        _show_bundle(bundle)
    if result.in_process:
        _say("in-process   candidate code ran in the process of a verdict, and could have forged it")
    if folder is not None:
        _say(f"folder       {folder}")
        for title, text in sections(folder, bundle, score.checks if score is not None else ()):
            _say(f"\n{title}\n{text}")
    return 0


def _show_bundle(bundle: BundleRecord) -> None:
    _say(f"termination  {bundle.termination}, exit code {bundle.exit_code}, {bundle.times.duration:.3f} s")
    trust = "trusted" if bundle.trusted else "untrusted: not isolated as its task asks"
    rung = f" rung {bundle.rung}" if bundle.rung is not None else ""
    _say(f"executor     {bundle.pins.executor}{rung}, {trust}")
    _say(f"environment  {bundle.pins.environment_revision}")
    _say(f"checks       {bundle.pins.evaluator_revision or 'of an unknown revision'}")
    _say(f"audit        {bundle.audit or 'none of these checks yet: pytest --rollout-audit'}")


def _read(folder: Path | None, name: str, kind: type[Record]) -> Record | None:
    try:
        return None if folder is None else read_record(folder / name, kind)
    except OSError:
        return None
    except msgspec.MsgspecError as error:
        raise RolloutError(f"{folder}/{name} can't be read: {error}") from None


def _inspect(options: argparse.Namespace, results: ResultsFolder) -> int:
    if not options.command:
        options.mistake("the following arguments are required: -- CMD")
    run, result = find_rollout(results, options.rollout)
    if result.folder is None:
        raise RolloutError(f"{result.rollout} left nothing: {result.message}")
    root = Path(options.stage_root) if options.stage_root else None
    return inspect(run.path / result.folder, options.command, stage_root=root)


def _doctor(options: argparse.Namespace, _: ResultsFolder) -> int:
    """0 where ``--rollout-isolation=required`` runs a task without network here, else 1."""
    found = examine(Path(options.stage_root).absolute() if options.stage_root else None)
    if options.json:
        print(_json(found, 2))
    else:
        _say(inert_text("\n".join(lines(found))))
    return 0 if found.required_holds else 1


if __name__ == "__main__":
    sys.exit(main())
