"""Run a suite of rollouts as a user would, and read all that it left.

What is told (reports, words, counts, exit statuses, results) is looked at without workers and with two: it travels
between processes. What one process decides is looked at there alone (``ALIKE`` and ``cases`` of ``support.py``):
a session with workers costs three.
"""

from __future__ import annotations

import re
import tempfile
import textwrap
from collections import Counter
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from junitparser import JUnitXml
from lxml import etree

from pytest_rollout.bundle import BundleRecord
from pytest_rollout.stage.removal import remove_tree
from pytest_rollout.store.folder import ResultsFolder, RunFolder, read_record
from pytest_rollout.store.load import LoadedRun, load_plan, load_results
from pytest_rollout.store.records import Plan, Result, ScoreRecord

FILE = "test_suite.py"
VERDICTS = ("failure", "error", "skipped")
_OF_OUTCOME = {"passed": "passed", "failed": "failure", "infra": "error"}
_SCRUBBED = (
    "PYTHONDONTWRITEBYTECODE",
    "CI",
    "BUILD_NUMBER",
    "FORCE_COLOR",
    "NO_COLOR",
    "PY_COLORS",
    "PYTEST_XDIST_WORKER",
    "GITHUB_ACTIONS",
)


@dataclass(frozen=True)
class Case:
    """One testcase of JUnit; ``verdict`` is the name of its verdict's element, or ``passed``."""

    name: str
    classname: str
    verdict: str
    type: str
    message: str
    text: str
    properties: dict[str, str]
    attributes: dict[str, str]


@dataclass(frozen=True)
class Ran:
    """What one session left. Nodes are named without the file ``test_suite.py``."""

    status: int
    text: str
    errors: str
    counts: dict[str, int]
    root: Path
    run: RunFolder | None
    plan: Plan | None
    loaded: LoadedRun
    cases: list[Case] = field(default_factory=list)

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @property
    def results(self) -> dict[str, Result]:
        """The results of the journals by node."""
        return {short(result.node): result for result in self.loaded.results}

    @property
    def verdicts(self) -> dict[str, tuple[Any, ...]]:
        """(outcome, kind, reward) of each node; a forgeable kind has a ``?`` behind it."""
        return {
            node: (r.outcome, f"{r.kind}?" if r.forgeable else r.kind, r.reward) for node, r in self.results.items()
        }

    @property
    def types(self) -> dict[str, tuple[str, str]]:
        """(verdict, type) of each node in JUnit."""
        return {node: (self.case(node).verdict, self.case(node).type) for node in self.results}

    def case(self, node: str) -> Case:
        """The one testcase of a rollout."""
        rollout = self.results[node].rollout
        (found,) = [case for case in self.cases if case.properties.get("rollout.rollout_id") == rollout]
        return found

    def attempt(self, node: str) -> Path:
        """The folder of a rollout's attempt."""
        folder = self.results[node].folder
        assert self.run is not None and folder is not None
        return self.run.path / folder

    def score(self, node: str) -> ScoreRecord:
        """``score.json`` of a rollout."""
        return read_record(self.attempt(node) / "score.json", ScoreRecord)

    def bundle(self, node: str) -> BundleRecord:
        """``bundle.json`` of a rollout."""
        return read_record(self.attempt(node) / "bundle.json", BundleRecord)

    def block(self) -> list[str]:
        """The lines of the closing block, without its title."""
        starts = [number for number, line in enumerate(self.lines) if re.fullmatch(r"=+ rollouts =+", line)]
        assert len(starts) == 1, self.text
        end = next(n for n, line in enumerate(self.lines) if n > starts[0] and line.startswith("results: "))
        return self.lines[starts[0] + 1 : end + 1]

    def section(self, title: str) -> str:
        """The part of the output between one separator with this title and the next one of its kind."""
        match = re.search(rf"^([=_])[=_]* {re.escape(title)} [=_]+\n(.*?)(?=^=+ |^__+ )", self.text, re.M | re.S)
        assert match is not None, f"no section {title!r} in\n{self.text}"
        return match[2]


def short(node: str) -> str:
    """A node id without the file that the helper writes."""
    return node.removeprefix(f"{FILE}::")


class Suite:
    """A suite in a folder of its own, run with ``workers`` (``-n0`` or ``-n2``)."""

    def __init__(self, pytester: pytest.Pytester, workers: str, stage_root: Path) -> None:
        self._pytester, self.workers, self.stage_root = pytester, workers, stage_root
        self.root = pytester.path
        self.ini()

    def ini(self, *lines: str) -> None:
        """Write the ini file, with these lines in it."""
        text = "\n".join(["[pytest]", f"rollout_stage_root = {self.stage_root}", *lines])
        (self.root / "pytest.ini").write_text(f"{text}\n", encoding="utf-8")

    def write(self, files: Mapping[str, str]) -> None:
        """Write files of the suite."""
        for name, text in files.items():
            place = self.root / name
            place.parent.mkdir(parents=True, exist_ok=True)
            data = textwrap.dedent(text).encode()
            if not place.exists() or place.read_bytes() != data:  # a file that is as it was keeps its time
                place.write_bytes(data)

    def run(self, source: str | None = None, *args: str, checked: bool = True, conftest: str | None = None) -> Ran:
        """Write ``test_suite.py`` and run pytest with a JUnit report; the whole is checked for consistency."""
        if source is not None:
            self.write({FILE: source})
        if conftest is not None:
            self.write({"conftest.py": conftest})
        (self.root / "report.xml").unlink(missing_ok=True)
        known = {run.name for run in ResultsFolder(self.root / ".rollout").all_runs()}
        plugins = ("-p", "xdist", "-p", "rollout", "-p", "no:cacheprovider")
        done = self._pytester.runpytest_subprocess(*plugins, self.workers, "--junitxml=report.xml", *args, timeout=300)
        ran = self.left(done.stdout.str(), done.stderr.str(), status=int(done.ret), known=known)
        if checked:
            check_whole(ran)
        return ran

    def left(self, text: str, errors: str = "", *, status: int = 0, known: Container[str] = ()) -> Ran:
        """What a session that printed this has left, in a run that is not among the known ones."""
        runs = [run for run in ResultsFolder(self.root / ".rollout").all_runs() if run.name not in known]
        assert len(runs) <= 1, "one session is one run"
        run = runs[0] if runs else None
        assert "INTERNALERROR" not in text + errors, text
        lines = text.splitlines()
        return Ran(
            status=status,
            text=text,
            errors=errors,
            counts=pytest.RunResult.parse_summary_nouns(lines) if _has_summary(lines) else {},
            root=self.root,
            run=run,
            plan=load_plan(run) if run else None,
            loaded=load_results(run) if run else LoadedRun(results=()),
            cases=read_junit(self.root / "report.xml"),
        )


def _has_summary(lines: list[str]) -> bool:
    return any(re.search(r"\bin [\d.:]+s\b", line) for line in lines)


def read_junit(path: Path) -> list[Case]:
    """The testcases of a report, read by a strict parser and by junitparser."""
    if not path.exists():
        return []
    root = etree.parse(path, etree.XMLParser(recover=False, huge_tree=False)).getroot()
    for suite in root.iter("testsuite"):
        testcases = list(suite.iter("testcase"))
        counts = {"tests": len(testcases), **dict.fromkeys(("failures", "errors", "skipped"), 0)}
        for case in testcases:
            verdicts = [child.tag for child in case if child.tag in VERDICTS]
            assert len(verdicts) <= 1, f"{case.get('name')} has {verdicts}"
            for tag in verdicts:
                counts[{"failure": "failures", "error": "errors", "skipped": "skipped"}[tag]] += 1
        assert {name: int(suite.get(name, "-1")) for name in counts} == counts
    assert sum(len(list(suite)) for suite in JUnitXml.fromfile(str(path))) == len(list(root.iter("testcase")))
    return [_case(element) for element in root.iter("testcase")]


def _case(element: Any) -> Case:
    verdict = next((child for child in element if child.tag in VERDICTS), None)
    properties = [(item.get("name"), item.get("value")) for item in element.iter("property")]
    ours = [name for name, _ in properties if name.startswith("rollout.")]
    assert len(ours) == len(set(ours)), f"a property twice: {ours}"
    return Case(
        name=element.get("name"),
        classname=element.get("classname"),
        verdict="passed" if verdict is None else verdict.tag,
        type="" if verdict is None else verdict.get("type", ""),
        message="" if verdict is None else verdict.get("message", ""),
        text="" if verdict is None else verdict.text or "",
        properties=dict(properties),
        attributes=dict(element.attrib),
    )


def check_whole(ran: Ran) -> None:
    """What holds for every session: the journal, JUnit, the terminal and the exit status agree."""
    results = ran.loaded.results
    assert "Traceback" not in ran.errors, ran.errors
    assert ran.loaded.broken == 0
    reported = {case.properties["rollout.rollout_id"] for case in ran.cases if "rollout.rollout_id" in case.properties}
    assert reported == {result.rollout for result in results}
    for node, result in ran.results.items():
        case = ran.case(node)
        assert case.properties.get("rollout.outcome") == result.outcome
        assert case.properties.get("rollout.reward") == (None if result.reward is None else f"{result.reward:.10g}")
        assert (result.reward is None) == (result.outcome == "infra")
        if case.verdict != "skipped" and case.type != "pytest":  # marks of xfail
            assert case.verdict == _OF_OUTCOME[result.outcome], (node, case)
            assert case.type == result.type
    if results:
        count = Counter(result.outcome for result in results)
        line = f"{count['passed']} passed, {count['failed']} failed, {count['infra']} infra"
        assert line in ran.block()[0]
        assert (ran.status == 75) == (count["infra"] > 0), ran.text


@pytest.fixture
def stage_root() -> Iterator[Path]:
    """A stage root that a test shares with nobody, where the uid of root's agents can reach it."""
    root = Path(tempfile.mkdtemp(prefix="rollout-tests-", dir="/var/tmp"))
    yield root
    assert remove_tree(str(root)) is None


@pytest.fixture(params=["-n0", "-n2"])
def workers(request: pytest.FixtureRequest) -> str:
    """Without workers, and with two."""
    return str(request.param)


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, workers: str, stage_root: Path) -> Suite:
    """A suite to be run, once without workers and once with two."""
    for name in _SCRUBBED:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    return Suite(pytester, workers, stage_root)
