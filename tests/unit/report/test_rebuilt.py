"""The JUnit report out of records: runs made by hand, whole, cut short, torn."""

from __future__ import annotations

import stat
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from filelock import FileLock
from lxml import etree

from pytest_rollout.bundle import Pins
from pytest_rollout.errors import ConfigError
from pytest_rollout.report.rebuilt import write_report
from pytest_rollout.report.xmlbounds import TEXT_LIMIT
from pytest_rollout.reward import Check
from pytest_rollout.store.folder import RunFolder, write_record
from pytest_rollout.store.records import Plan, Planned, Result, RunRecord, ScoreRecord

PINS = Pins(
    task_digest="sha256:7a", environment_revision="sha256:e", agent="a", seed=3, network="none", executor="sandbox",
    plugin_version="0",
)  # fmt: skip


def planned(number: int, node: str | None = None) -> Planned:
    return Planned(node=node or f"evals/test_a.py::test_{number}", rollout=f"r{number}", task="t", sample=0, agent="a")


def result(number: int, **changes: Any) -> Result:
    values: dict[str, Any] = {"outcome": "passed", "reward": 1.0, "duration": 1.5, **changes}
    return Result(rollout=f"r{number}", task="t", sample=0, attempt=1, node="old::node", agent="a", **values)


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / "2026-11-29T22-08-01Z-3f9ac01d")
    folder.results.mkdir(parents=True)
    return folder


def fill(run: RunFolder, plan: list[Planned] | None, *results: Result, torn: str = "") -> None:
    if plan is not None:
        write_record(run.plan, Plan(rollouts=tuple(plan)))
    lines = "".join(f"{msgspec.json.encode(each).decode()}\n" for each in results)
    (run.results / "gw0.jsonl").write_text(lines + torn)


def written(run: RunFolder) -> Any:
    write_report(run, run.path / "r.xml")
    return etree.parse(run.path / "r.xml", etree.XMLParser(recover=False, huge_tree=False)).getroot()


def told(root: Any) -> dict[str, tuple[str, str, str]]:
    """(verdict, type, message) by name."""
    found = {}
    for case in root.iter("testcase"):
        verdicts = [child for child in case if child.tag in ("failure", "error", "skipped")]
        (tag, kind, message) = (
            (verdicts[0].tag, verdicts[0].get("type"), verdicts[0].get("message")) if verdicts else ("passed", "", "")
        )
        found[case.get("name")] = (tag, kind, message)
    return found


def test_each_planned_rollout_is_a_testcase_with_its_verdict(run: RunFolder) -> None:
    fill(
        run,
        [planned(number) for number in range(1, 7)],
        result(1),
        result(2, outcome="failed", reward=0.0, type="reward", message="0.5 is below 1\nmore"),
        result(3, outcome="infra", reward=None, kind="stage", type="infra.stage", message="no space"),
        result(4, outcome="failed", reward=0.0, type="assertion", message="m", xfail="known"),
        result(5, xfail="[XPASS(strict)] known"),
        result(6, xfail="not strict"),
    )
    write_record(
        run.record,
        RunRecord(
            run=run.name,
            started="2026-11-29T22:08:01+00:00",
            plugin_version="0",
            options={},
            pins={},
            environment={},
        ),
    )
    root = written(run)
    assert told(root) == {
        "test_1": ("passed", "", ""),
        "test_2": ("failure", "reward", "0.5 is below 1"),
        "test_3": ("error", "infra.stage", "no space"),
        "test_4": ("skipped", "pytest.xfail", "known"),
        "test_5": ("failure", "pytest", "[XPASS(strict)] known"),
        "test_6": ("passed", "", ""),
    }
    (suite,) = root
    assert dict(suite.attrib) == {
        "name": "pytest",
        "errors": "1",
        "failures": "2",
        "skipped": "1",
        "tests": "6",
        "time": "9.000",
        "timestamp": "2026-11-29T22:08:01+00:00",
    }
    assert {(case.get("classname"), case.get("time")) for case in suite} == {("evals.test_a", "1.500")}
    assert suite[1].findtext("failure") == "0.5 is below 1\nmore"


@pytest.mark.parametrize("cut", [True, False])
def test_a_rollout_without_a_result_is_an_error_where_the_session_was_killed(run: RunFolder, cut: bool) -> None:
    fill(run, [planned(1), planned(2)], result(1), torn='{"rollout": "r2", "ta')
    if cut:
        (run.path / "lock").touch()
    expected = {
        True: ("error", "infra.missing", "planned, and its session was ended before there was a result"),
        False: ("skipped", "rollout.not_run", "planned, and not run"),
    }
    root = written(run)
    assert told(root) == {"test_1": ("passed", "", ""), "test_2": expected[cut]}
    missing = root[0][1]
    assert {item.get("name"): item.get("value") for item in missing.iter("property")} == {
        "rollout.rollout_id": "r2",
        "rollout.run_id": run.name,
        "rollout.task": "t",
        "rollout.sample": "0",
        "rollout.agent": "a",
    }


def test_a_merged_run_does_not_know_whether_a_session_was_killed(run: RunFolder) -> None:
    fill(run, [planned(1), planned(2)], result(1))
    run.record.write_text(
        '{"run": "r", "started": "", "plugin_version": "1", "options": {}, "pins": {}, "environment": {},'
        ' "merged": [{}]}'
    )
    assert told(written(run))["test_2"][:2] == ("error", "infra.missing")


def test_what_a_run_in_progress_has_not_begun_is_no_error(run: RunFolder) -> None:
    fill(run, [planned(1)])
    with FileLock(run.path / "lock"):
        assert told(written(run))["test_1"][0] == "skipped"


def test_properties_come_from_the_line_and_the_score(run: RunFolder) -> None:
    fill(run, [planned(1)], result(1, folder="a1", pins=PINS, metrics={"lines": 2.0}, samples=4, tags=("x", "y")))
    score = ScoreRecord(
        task="t",
        rollout="r1",
        sample=0,
        attempt=1,
        outcome="passed",
        kind=None,
        forgeable=False,
        reward=1.0,
        checks_reward=1.0,
        checks=(Check(name="adds", weight=1, value=1 / 3),),
        metrics={},
        threshold=1,
        termination="completed",
        message="",
        bundle=None,
    )
    (run.path / "a1").mkdir()
    write_record(run.path / "a1" / "score.json", score)
    assert {item.get("name"): item.get("value") for item in written(run).iter("property")} == {
        "rollout.rollout_id": "r1",
        "rollout.run_id": run.name,
        "rollout.task": "t",
        "rollout.sample": "0",
        "rollout.samples": "4",
        "rollout.attempts": "1",
        "rollout.agent": "a",
        "rollout.tags": "x, y",
        "rollout.outcome": "passed",
        "rollout.reward": "1",
        "rollout.seed": "3",
        "rollout.environment_revision": "sha256:e",
        "rollout.folder": "a1",
        "rollout.check.adds": "0.3333333333",
        "rollout.metric.lines": "2",
    }


@pytest.mark.parametrize(
    ("node", "address"),
    [
        ("test_a.py::test_b", ("test_a", "test_b")),
        ("evals/sub/test_a.py::TestC::test_b[x::y/z.py-s1]", ("evals.sub.test_a.TestC", "test_b[x::y/z.py-s1]")),
    ],
)
def test_testcases_are_named_as_pytest_names_them(run: RunFolder, node: str, address: tuple[str, str]) -> None:
    fill(run, [planned(1, node)], result(1))
    (case,) = written(run).iter("testcase")
    assert (case.get("classname"), case.get("name")) == address


def test_the_file_is_strict_xml_bounded_inert_and_the_same_each_time(run: RunFolder) -> None:
    long = "\x1b[31m\x00 ]]> [[ATTACHMENT|/etc/passwd]]\n" + "x" * (2 * TEXT_LIMIT)
    fill(run, None, result(1, outcome="failed", reward=0.0, type="assertion", message=long), result(2))
    root = written(run)
    failure = root[0][0].find("failure")
    assert len(failure.text) <= TEXT_LIMIT
    assert "[[ATTACHMENT|" not in failure.text
    assert failure.get("message").startswith("\\x1b[31m\\x00 ]]> [[ATTACHMENT |")
    first = (run.path / "r.xml").read_bytes()
    assert write_report(run, run.path / "r.xml") == Counter(passed=1, failure=1)
    assert (run.path / "r.xml").read_bytes() == first
    assert [path.name for path in run.path.glob(".rollout-junit-*")] == []


def test_texts_are_redacted(run: RunFolder) -> None:
    fill(run, None, result(1, outcome="failed", reward=0.0, type="assertion", message="key s3cret"))
    write_report(run, run.path / "r.xml", lambda text: text.replace("s3cret", "[gone]"))
    text = (run.path / "r.xml").read_text()
    assert ("s3cret" in text, text.count("key [gone]")) == (False, 2)


def test_what_is_refused(run: RunFolder) -> None:
    with pytest.raises(ConfigError) as refused:
        write_report(run, run.path / "r.xml")
    assert str(refused.value) == f"the run {run.name} has neither a plan nor results"
    fill(run, None, result(1))
    for place, why in (
        (run.path, "it is not a regular file"),
        (run.path / "no" / "r.xml", "No such file or directory"),
    ):
        with pytest.raises(ConfigError) as refused:
            write_report(run, place)
        assert str(refused.value) == f"the JUnit report {place} can't be written: {why}"


def test_a_file_that_is_replaced_keeps_its_mode(run: RunFolder) -> None:
    fill(run, None, result(1))
    (run.path / "r.xml").touch()
    (run.path / "r.xml").chmod(0o640)
    write_report(run, run.path / "r.xml")
    assert stat.S_IMODE((run.path / "r.xml").stat().st_mode) == 0o640
