"""The JUnit report of a run out of its records: what a session would have written, also where it was killed.

One testcase a planned rollout, in the order of the plan, named and grouped as pytest does (``xunit2``), with the
verdict and the properties of a live report. What pytest alone knows is not in it: tests that are no rollouts,
tracebacks, captured output. ``time`` is how long the agent ran. A planned rollout without a result is an error where
its session was ended from outside, or is not known, and else skipped: the session left it out and said so.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator
from pathlib import Path
from typing import IO, NamedTuple

import msgspec

from pytest_rollout.errors import ConfigError
from pytest_rollout.plain import xml_text
from pytest_rollout.report.properties import ROLLOUT_ID, recorded_properties
from pytest_rollout.report.terminal import check_lines
from pytest_rollout.report.xmlbounds import bound
from pytest_rollout.reward import Check
from pytest_rollout.store.folder import RunFolder, read_record
from pytest_rollout.store.load import load_plan, load_results, runs_merged
from pytest_rollout.store.records import Plan, Planned, Result, RunRecord

__all__ = ["CUT", "MISSING", "NOT_RUN", "Recorded", "recorded", "cases_of", "verdict_of", "write_report"]

MISSING = "infra.missing"  # the type of a rollout without a result, in a run that was cut short
NOT_RUN = "rollout.not_run"
_SKIPPED = "pytest.skip"  # as pytest types it
CUT = "planned, and its session was ended before there was a result"
_LEFT_OUT = "planned, and not run"
_MESSAGE = 500
_STRICT = "[XPASS(strict)]"
_COUNTS = {"errors": "error", "failures": "failure", "skipped": "skipped"}


class Recorded(NamedTuple):
    """A planned rollout, or one that is in no plan, and its result, if it has one."""

    node: str
    planned: Planned | None
    result: Result | None


class _Verdict(NamedTuple):
    tag: str
    type: str
    message: str


class _Scored(msgspec.Struct):
    """The part of ``score.json`` that no line of results has."""

    checks: tuple[Check, ...] = ()


def recorded(plan: Plan | None, results: Iterable[Result]) -> list[Recorded]:
    """What there is of each rollout, in the order of the plan; what is in no plan comes last."""
    known = {result.rollout: result for result in results}
    rollouts = plan.rollouts if plan is not None else ()
    found = [Recorded(planned.node, planned, known.pop(planned.rollout, None)) for planned in rollouts]
    return [*found, *(Recorded(result.node, None, result) for result in known.values())]


def verdict_of(result: Result | None, *, cut: bool, skipped: bool = False) -> _Verdict | None:
    """The verdict's element, type and message; None for a pass.

    ``cut`` says how a missing result is to be read, ``skipped`` that the suite left it out.
    """
    if result is None and skipped:
        return _Verdict("skipped", _SKIPPED, "the suite skips it")
    if result is None:
        return _Verdict("error", MISSING, CUT) if cut else _Verdict("skipped", NOT_RUN, _LEFT_OUT)
    message = result.message.split("\n")[0][:_MESSAGE]
    strict = (result.xfail or "").startswith(_STRICT)
    if result.outcome == "infra":
        return _Verdict("error", result.type, message)
    if result.outcome == "passed":
        return _Verdict("failure", "pytest", str(result.xfail).split("\n")[0]) if strict else None
    if result.xfail is not None:
        return _Verdict("skipped", "pytest.xfail", result.xfail)
    return _Verdict("failure", result.type, message)


def cases_of(
    run: RunFolder,
    rollouts: Iterable[Recorded],
    *,
    cut: bool,
    but: Container[str] = (),
    redact: Callable[[str], str] = str,
) -> Iterator[ET.Element]:
    """A testcase of each rollout that is not ``but``; ``redact`` takes secrets out of texts."""
    for rollout in rollouts:
        one = rollout.planned or rollout.result
        if one is not None and one.rollout not in but:
            yield _testcase(run, rollout, one, cut, redact)


def _testcase(
    run: RunFolder, rollout: Recorded, one: Planned | Result, cut: bool, redact: Callable[[str], str]
) -> ET.Element:
    result = rollout.result
    classname, name = _address(rollout.node)
    duration = result.duration if result is not None else None
    case = ET.Element("testcase", classname=xml_text(classname), name=xml_text(name), time=f"{duration or 0:.3f}")
    checks = _checks(run, result)
    pairs = _of_plan(one, run.name) if result is None else recorded_properties(result, checks, run=run.name)
    block = ET.SubElement(case, "properties")
    for key, value in dict(pairs).items():
        ET.SubElement(block, "property", name=key, value=value)
    verdict = verdict_of(result, cut=cut, skipped=rollout.planned is not None and rollout.planned.skipped)
    if verdict is not None:
        words = {"type": xml_text(verdict.type), "message": xml_text(redact(verdict.message))}
        element = ET.SubElement(case, verdict.tag, words)
        if result is not None and verdict.tag != "skipped":
            element.text = xml_text(redact("\n".join([result.message, *check_lines(checks)])))
    bound(case)
    return case


def _of_plan(one: Planned | Result, run: str) -> list[tuple[str, str]]:
    """The properties of a rollout of which nothing but its plan is known."""
    values = {
        ROLLOUT_ID: one.rollout,
        "rollout.run_id": run,
        "rollout.task": one.task,
        "rollout.sample": str(one.sample),
        "rollout.agent": one.agent,
        "rollout.tags": ", ".join(one.tags),
        "rollout.split": one.split or "",
    }
    return [(name, xml_text(value)) for name, value in values.items() if value]


def _checks(run: RunFolder, result: Result | None) -> tuple[Check, ...]:
    if result is None or result.folder is None:
        return ()
    try:
        return read_record(run.path / result.folder / "score.json", _Scored).checks
    except (OSError, msgspec.MsgspecError):
        return ()


def _address(node: str) -> tuple[str, str]:
    """The class name and the name that pytest gives the testcase of a node id."""
    path, bracket, parameters = node.partition("[")
    names = path.split("::")
    names[0] = re.sub(r"\.py$", "", names[0].replace("/", "."))
    names[-1] += bracket + parameters
    return ".".join(names[:-1]), names[-1]


# The whole file


def write_report(run: RunFolder, path: Path, redact: Callable[[str], str] = str) -> Counter[str]:
    """Write the report of a run, whole or not at all; returns how many testcases have which verdict.

    The same records give the same bytes. Raises ConfigError where the run has no records, or the file can't be
    written.
    """
    plan, loaded = load_plan(run), load_results(run)
    cut = run.was_cut() or runs_merged(run) > 0  # a merged run does not know which of its sessions was
    rollouts = recorded(plan, loaded.results)
    if not rollouts:
        raise ConfigError(f"the run {run.name} has neither a plan nor results")
    verdicts = (verdict_of(each.result, cut=cut) for each in rollouts)
    counts = Counter("passed" if verdict is None else verdict.tag for verdict in verdicts)
    suite = {"name": "pytest", **{name: str(counts[tag]) for name, tag in _COUNTS.items()}}
    suite |= {"tests": str(len(rollouts)), "time": f"{_seconds(rollouts):.3f}", **_started(run)}
    try:
        with _replacing(path) as file:
            opened = ET.tostring(ET.Element("testsuite", suite), encoding="unicode", short_empty_elements=False)
            file.write('<?xml version="1.0" encoding="utf-8"?>\n<testsuites name="pytest tests">')
            file.write(opened.removesuffix("</testsuite>"))
            for case in cases_of(run, rollouts, cut=cut, redact=redact):
                file.write(ET.tostring(case, encoding="unicode"))
            file.write("</testsuite></testsuites>\n")
    except OSError as error:
        raise ConfigError(f"the JUnit report {path} can't be written: {error.strerror or error}") from None
    return counts


def _seconds(rollouts: Iterable[Recorded]) -> float:
    return sum(each.result.duration or 0.0 for each in rollouts if each.result is not None)


def _started(run: RunFolder) -> dict[str, str]:
    try:
        return {"timestamp": read_record(run.record, RunRecord).started}
    except (OSError, msgspec.MsgspecError):
        return {}


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[IO[str]]:
    """A file that takes the place of ``path`` when all is in it. Raises OSError."""
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        raise OSError(None, "it is not a regular file")
    descriptor, name = tempfile.mkstemp(prefix=".rollout-junit-", dir=target.parent)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, target.stat().st_mode & 0o7777 if target.exists() else 0o666 & ~umask)
        os.replace(name, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
