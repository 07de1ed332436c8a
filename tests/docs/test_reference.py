"""The reference names everything that a user can name, and nothing that does not exist.

Each table of the reference is compared with the code, name by name, in both directions.
"""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, get_args

import pytest

import pytest_rollout
from pytest_rollout import bundle, control, diff, evaluated, evidence, knobs, limits, marker, outcome, plugin, task
from pytest_rollout._reporting import UNMEASURED
from pytest_rollout._signals import ENDING
from pytest_rollout.agents import config
from pytest_rollout.agents.command import FIELDS
from pytest_rollout.agents.protocol import Episode, LiveStage
from pytest_rollout.cli import tool
from pytest_rollout.decisions import baseline, gates
from pytest_rollout.evaluated import Exec
from pytest_rollout.exporting.columns import COLUMNS
from pytest_rollout.report.properties import properties_of
from pytest_rollout.reward import Check, Reward
from pytest_rollout.settings import CONTROLS, EXECUTORS, GITHUBS, ISOLATIONS, KEEPS
from pytest_rollout.shard import OfShard
from pytest_rollout.store import facts, heldout, labels, records

PACKAGE = Path(pytest_rollout.__file__).parent
REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
_NAME = re.compile(r"`([^`]+)`")


def rows(page: str, heading: str) -> list[list[str]]:
    """The cells of the tables between a heading and the next one, without head lines."""
    lines = iter(page.splitlines())
    assert heading in page.splitlines(), f"no heading {heading!r}"
    for line in lines:
        if line == heading:
            break
    found = []
    for line in lines:
        if re.match("#+ ", line):
            break
        if line.startswith("| `"):
            found.append([cell.strip() for cell in line.strip("|").split(" | ")])
    return found


def names(page: str, heading: str, column: int = 0) -> list[str]:
    """The first name in code of each row; a name ends at a blank or an equals sign of an option's value."""
    found = [_NAME.search(row[column]) for row in rows(page, heading)]
    return [match[1].split(" ")[0] for match in found if match is not None]


def public(thing: object) -> set[str]:
    """The attributes of a class or an object that have no underscore."""
    return {name for name in dir(thing) if not name.startswith("_")}


def fields(struct: Any) -> set[str]:
    """The fields of a record."""
    return set(struct.__struct_fields__)


def fixtures() -> set[str]:
    """The fixtures that the plugin defines."""
    kind = type(plugin.bundle)
    return {name for name, value in vars(plugin).items() if isinstance(value, kind) and not name.startswith("_")}


def properties() -> set[str]:
    """The JUnit properties of a result in which everything is known."""
    result = records.Result(
        rollout="r",
        task="t",
        sample=0,
        attempt=1,
        node="n",
        agent="a",
        outcome="infra",
        kind="spawn",
        forgeable=True,
        reward=1.0,
        checks_reward=1.0,
        termination="completed",
        trusted=True,
        folder="f",
        earlier=(records.Earlier(attempt=1, kind="stage"),),
        tags=("a", "b"),
        split="held-out",
        evaluator_revision="e",
        in_process=True,
        audit="sound",
        source=records.Source(run="run", rollout="r", outcome="passed"),
    )
    reward = Reward()
    reward.add("NAME", 1)
    reward.metric("NAME", 1)
    return {name for name, _ in properties_of(result, _bundle(), reward, run="run", samples=1)}


def _bundle() -> Any:
    pins = bundle.Pins(
        task_digest="d",
        environment_revision="r",
        agent="a",
        seed=0,
        network="none",
        executor="sandbox",
        plugin_version="0",
    )
    return type("Bundle", (), {"pins": pins})()


class _Executor:
    def prompt_file(self, stage: Any) -> str:
        return "prompt"


def live_stage() -> LiveStage:
    """A stage that nothing runs in."""
    nothing: Any = None
    executor: Any = _Executor()
    episode = Episode(rollout="r", task=task.Task(id="t"), sample=0, attempt=1, seed=0)
    return LiveStage(
        executor=executor,
        stage=nothing,
        episode=episode,
        stdout=nothing,
        stderr=nothing,
        cancel=nothing,
        journal=nothing,
    )


def source(pattern: str) -> set[str]:
    """What the first group of a pattern finds in the sources of the package."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py")))
    return set(re.findall(pattern, text))


def environment() -> set[str]:
    """The variables that an agent finds: of every command, and of the executors."""
    marks = source(r'MARK = "(ROLLOUT_\w+)"')
    assert marks
    return {*live_stage().environment("/bin"), *source(r'"(HOME|TMPDIR)": '), *marks}


def finding_codes() -> set[str]:
    """Codes as they are written, and those made of the name of a bound."""
    bounds = {f"changes.{what}" for what in source(r'Bound\("(\w+)"')}
    assert len(bounds) == 3
    return source(r'Finding\(\s*code="([\w.]+)"') | bounds


def types() -> set[str]:
    """The types of verdicts in JUnit; the part that varies in capitals."""
    text = (PACKAGE / "outcome.py").read_text(encoding="utf-8")
    plain = set(re.findall(r'type="(\w+)" if', text))
    varied = {f"{name}.{name.upper()}" for name in re.findall(r'f"(termination)\.', text)}
    varied |= {f"{name}.KIND" for name in re.findall(r'f"(infra)\.', text)}
    return (
        plain | varied | set(re.findall(r'type="(\w+)",', text)) | source(r'outcome, kind, message = "failed", "(\w+)"')
    )


def verbs() -> dict[str, argparse.ArgumentParser]:
    """The verbs of the console tool and their parsers."""
    (action,) = [each for each in tool.make_parser()._actions if isinstance(each, argparse._SubParsersAction)]
    return dict(action.choices)


def arguments(parser: argparse.ArgumentParser) -> set[str]:
    """The options of a parser, the long ones, and its positional arguments."""
    return {(each.option_strings or [each.dest])[-1] for each in parser._actions if each.dest != "help"}


def verb_arguments(verb: str) -> set[str]:
    """The arguments of a verb."""
    return arguments(verbs()[verb])


def tool_options() -> set[str]:
    """The options before a verb."""
    parser = tool.make_parser()
    return {each.option_strings[-1] for each in parser._actions if each.option_strings}


def exit_statuses() -> set[str]:
    """pytest's own (6 is newer than the oldest pytest that is supported) and ours."""
    ours = {str(UNMEASURED), str(gates.BROKEN), *(str(128 + number) for number in ENDING)}
    return {str(int(code)) for code in pytest.ExitCode} | {"6"} | ours


def ini_keys() -> set[str]:
    return {f"rollout_{knob.name}" for knob in knobs.KNOBS if knob.ini}


def of_one_session() -> set[str]:
    return {knob.option or "" for knob in knobs.KNOBS if knob.one_session}


def flags() -> set[str]:
    return {knob.option or "" for knob in knobs.KNOBS if knob.flag}


def refused() -> set[str]:
    return {*marker.LATER, 'network="gateway"'}


def evaluation_words() -> set[str]:
    """The arguments of the evaluations of a bundle, but for what a function of the candidate's is called with."""
    methods = [getattr(evidence.Bundle, name) for name in ("run_tests", "run", "evaluate")]
    return {name for method in methods for name in inspect.signature(method).parameters} - {"self"}


def settings() -> set[str]:
    return {knob.name for knob in knobs.KNOBS} | set(marker.ARGUMENTS)


_VERBS = ("gate", "diff", "apply", "drop", "prune", "label", "labels", "merge", "export", "report")
CASES: list[tuple[str, str, Callable[[], set[str]]]] = [
    ("settings", "## Options and ini keys", ini_keys),
    ("settings", "## Flags", flags),
    ("settings", "## Options of one session", of_one_session),
    ("settings", "## Precedence", settings),
    ("gates", "## Figures", lambda: set(gates.FIGURES)),
    ("marker", "## Arguments", lambda: set(marker.ARGUMENTS)),
    ("marker", "## Limits", lambda: set(limits._LIMITS)),
    ("marker", "## Refused", refused),
    ("fixtures", "## Fixtures", fixtures),
    ("fixtures", "## bundle", lambda: public(evidence.Bundle) | {"folder"}),
    ("fixtures", "## Evaluations", evaluation_words),
    ("fixtures", "## TestRun", lambda: public(evaluated.TestRun)),
    ("fixtures", "## Exec", lambda: public(evaluated.Exec)),
    ("fixtures", "## bundle.diff", lambda: public(diff.Diff) | {"files"}),
    ("fixtures", "## bundle.diff.files", lambda: fields(diff.FileDiff)),
    ("fixtures", "## reward", lambda: public(Reward())),
    ("agents", "## rollout.toml", lambda: set(config._KEYS)),
    ("agents", "## Fields", lambda: {f"{{{name}}}" for name in FIELDS}),
    ("agents", "## Environment", environment),
    ("agents", "## Callable agents", lambda: public(live_stage()) | fields(Exec)),
    ("outcomes", "## Outcomes", lambda: set(get_args(outcome.Outcome))),
    ("outcomes", "## Kinds", lambda: set(get_args(outcome.InfraKind))),
    ("outcomes", "## Terminations", lambda: set(get_args(bundle.Termination))),
    ("outcomes", "## Exit statuses", exit_statuses),
    ("outcomes", "## JUnit properties", properties),
    ("outcomes", "## JUnit types", types),
    ("console-tool", "## Options", tool_options),
    ("console-tool", "## Verbs", lambda: set(verbs())),
    ("console-tool", "## list", lambda: arguments(verbs()["list"])),
    ("console-tool", "## show", lambda: arguments(verbs()["show"])),
    ("console-tool", "## inspect", lambda: arguments(verbs()["inspect"])),
    *[("console-tool", f"## {verb}", partial(verb_arguments, verb)) for verb in ("compare", "baseline")],
    ("console-tool", "## doctor", lambda: arguments(verbs()["doctor"])),
    *[("console-tool", f"## {verb}", partial(verb_arguments, verb)) for verb in _VERBS],
    ("export", "## Columns", lambda: {column.name for column in COLUMNS}),
    ("files-on-disk", "## bundle.json", lambda: fields(bundle.BundleRecord)),
    ("files-on-disk", "## Identity", lambda: fields(bundle.Identity)),
    ("files-on-disk", "## Pins", lambda: fields(bundle.Pins)),
    ("files-on-disk", "## Times", lambda: fields(bundle.Times)),
    ("files-on-disk", "## Usage", lambda: fields(bundle.Usage)),
    ("files-on-disk", "## Control", lambda: fields(bundle.Control)),
    ("files-on-disk", "## Change", lambda: fields(bundle.Change)),
    ("files-on-disk", "## Before", lambda: fields(bundle.Before)),
    ("files-on-disk", "## Captured", lambda: fields(bundle.Captured)),
    ("files-on-disk", "## Finding", lambda: fields(bundle.Finding)),
    ("files-on-disk", "## Finding codes", finding_codes),
    ("files-on-disk", "## score.json", lambda: fields(records.ScoreRecord)),
    ("files-on-disk", "## Check", lambda: fields(Check)),
    ("files-on-disk", "## results/WORKER.jsonl", lambda: fields(records.Result)),
    ("files-on-disk", "## Earlier", lambda: fields(records.Earlier)),
    ("files-on-disk", "## Source", lambda: fields(records.Source)),
    ("files-on-disk", "## labels.jsonl", lambda: fields(labels.Label)),
    ("files-on-disk", "## run.json", lambda: fields(records.RunRecord)),
    ("files-on-disk", "## SourceRun", lambda: fields(records.SourceRun)),
    ("files-on-disk", "## Resumed", lambda: fields(records.Resumed)),
    ("files-on-disk", "## OfShard", lambda: fields(OfShard)),
    ("files-on-disk", "## gates.json", lambda: fields(records.GatesRecord)),
    ("files-on-disk", "## plan.json", lambda: fields(records.Plan)),
    ("files-on-disk", "## Planned", lambda: fields(records.Planned)),
    ("files-on-disk", "## journal.jsonl", lambda: source(r'(?:journal\.event|_journal)\("(\w+)"')),
    ("files-on-disk", "## controls/DIGEST.json", lambda: fields(control.Control)),
    ("files-on-disk", "## Facts", lambda: fields(control.Facts)),
    ("files-on-disk", "## audits/latest.json", lambda: fields(facts.AuditRecord)),
    ("files-on-disk", "## TaskAudit", lambda: fields(facts.TaskAudit)),
    ("files-on-disk", "## Trial", lambda: fields(facts.Trial)),
    ("files-on-disk", "## held-out.jsonl", lambda: fields(heldout.Look)),
    ("files-on-disk", "## A baseline file", lambda: fields(baseline.Baseline)),
    ("files-on-disk", "## BaselinePins", lambda: fields(baseline.BaselinePins)),
    ("files-on-disk", "## BaselineTask", lambda: fields(baseline.BaselineTask)),
    ("python-api", "## Names", lambda: set(pytest_rollout.__all__)),
    ("python-api", "## Task", lambda: public(task.Task)),
    ("python-api", "## Limits", lambda: public(limits.Limits)),
]
_IDS = [f"{page}{heading[2:]}" for page, heading, _ in CASES]


def differences(page: str, heading: str, expected: set[str]) -> tuple[set[str], set[str]]:
    """Names that a table lacks, and names that it has too many (twice counts too)."""
    found = names(page, heading)
    return expected - set(found), {name for name in found if name not in expected or found.count(name) > 1}


def read(page: str) -> str:
    return (REFERENCE / f"{page}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("page", "heading", "expected"), CASES, ids=_IDS)
def test_reference(page: str, heading: str, expected: Callable[[], set[str]]) -> None:
    assert expected(), "nothing was found in the code"
    assert differences(read(page), heading, expected()) == (set(), set())


@pytest.mark.parametrize(("page", "heading", "expected"), CASES, ids=_IDS)
def test_a_row_that_is_missing_or_wrong_is_noticed(page: str, heading: str, expected: Callable[[], set[str]]) -> None:
    for name, without, misspelt in _mutations(read(page), heading):
        assert differences(without, heading, expected()) == ({name}, set())
        assert differences(misspelt, heading, expected()) == ({name}, {f"{name}x"})


def _mutations(page: str, heading: str) -> Iterator[tuple[str, str, str]]:
    """Each name of a table, the page without its row, and the page with it misspelt."""
    start = page.index(f"\n{heading}\n")
    for name in names(page, heading):
        match = re.compile(rf"^\| `{re.escape(name)}(?=[` ]).*\n", re.MULTILINE).search(page, start)
        assert match is not None
        misspelt = match[0].replace(name, f"{name}x", 1)
        yield (
            name,
            page.replace(match[0], "", 1) if page.count(match[0]) == 1 else _cut(page, match),
            (page[: match.start()] + misspelt + page[match.end() :]),
        )


def _cut(page: str, match: re.Match[str]) -> str:
    return page[: match.start()] + page[match.end() :]


def test_options_stand_beside_their_ini_keys() -> None:
    found = {
        row[0].strip("`"): row[1].strip("`").split(" ") for row in rows(read("settings"), "## Options and ini keys")
    }
    kept = [knob for knob in knobs.KNOBS if knob.ini]
    shown = {f"rollout_{knob.name}": [knob.option, knob.metavar] if knob.option else ["–"] for knob in kept}
    assert found == shown


def test_the_precedence_names_each_source_that_exists() -> None:
    """A setting has a rank for the command line, the marker and the ini file exactly where it can be said there."""
    options = {knob.name for knob in knobs.KNOBS if knob.option}
    keys = {knob.name for knob in knobs.KNOBS if knob.ini}
    for cells in rows(read("settings"), "## Precedence"):
        name = cells[0].strip("`")
        sources = (name in options, name in marker.ARGUMENTS, name in keys)
        ranks = [cell.split(",")[0] for cell in cells[1:4]]
        order = iter("123")
        assert ranks == [next(order) if there else "–" for there in sources], name


@pytest.mark.parametrize(
    "values",
    [EXECUTORS, ISOLATIONS, KEEPS, CONTROLS, GITHUBS],
    ids=["executor", "isolation", "keep", "controls", "github"],
)
def test_the_values_of_settings_are_named(values: tuple[str, ...]) -> None:
    text = "\n".join(" ".join(row) for row in rows(read("settings"), "## Options and ini keys"))
    assert [value for value in values if f"`{value}`" not in text] == []


def test_terminations_say_which_are_truncated() -> None:
    cells = rows(read("outcomes"), "## Terminations")
    assert {row[0].strip("`") for row in cells if row[-1].strip("| ") == "yes"} == bundle.TRUNCATED


def test_columns_of_an_export_are_in_their_order_with_their_types() -> None:
    cells = rows(read("export"), "## Columns")
    assert [(row[0].strip("`"), row[1]) for row in cells] == [(column.name, column.kind) for column in COLUMNS]
