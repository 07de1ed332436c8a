"""The JUnit report: handmade files, and files that a real pytest wrote."""

from __future__ import annotations

import os
import random
import stat
import subprocess
import sys
import textwrap
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Literal
from xml.sax.saxutils import escape, quoteattr

import pytest
from _pytest.junitxml import bin_xml_escape
from hypothesis import given
from hypothesis import strategies as st
from junitparser import JUnitXml, xunit2
from lxml import etree

from pytest_rollout.report.junit import ROLLOUT_PROPERTY, CaseVerdict, rewrite
from pytest_rollout.report.xmlbounds import TEXT_LIMIT

Outcome = Literal["passed", "failed", "infra"]
ID = '<property name="rollout.rollout_id" value="r1" />'
OWN = f"<properties>{ID}</properties>"


def verdict(outcome: Outcome, *properties: tuple[str, str], message: str = "why") -> CaseVerdict:
    kind = {"passed": "", "failed": "reward", "infra": "infra.stage"}[outcome]
    return CaseVerdict(rollout="r1", outcome=outcome, type=kind, message=message, properties=properties)


@pytest.fixture
def report(tmp_path: Path) -> Callable[..., Path]:
    def write(*testcases: str, root: str = 'name="pytest tests"') -> Path:
        path = tmp_path / "report.xml"
        suite = '<testsuite name="pytest" errors="7" failures="7" skipped="7" tests="7" time="0.1" hostname="vm">'
        text = f"<testsuites {root}>{suite}{''.join(testcases)}</testsuite></testsuites>"
        path.write_text(f'<?xml version="1.0" encoding="utf-8"?>{text}', "utf-8", "surrogatepass")
        return path

    return write


def case(*children: str, name: str = "test_a", attributes: str = 'time="0.001"') -> str:
    return f'<testcase classname="t" name="{name}" {attributes}>{"".join(children)}</testcase>'


def suite_of(path: Path) -> ET.Element:
    """The first suite, after every strict reader has taken the file."""
    etree.parse(str(path), etree.XMLParser(recover=False, huge_tree=False))
    suite = ET.parse(path).getroot().find("testsuite")
    assert suite is not None
    return suite


def only_case(path: Path) -> ET.Element:
    (testcase,) = suite_of(path).findall("testcase")
    return testcase


def shape(element: ET.Element) -> list[tuple[str, dict[str, str], str | None]]:
    return [(child.tag, dict(child.attrib), child.text) for child in element if child.tag != "properties"]


def properties_of(element: ET.Element) -> list[tuple[str | None, str | None]]:
    return [(item.get("name"), item.get("value")) for item in element.iterfind("properties/property")]


def counts(element: ET.Element) -> dict[str, str]:
    return {
        name: element.get(name, "") for name in ("tests", "failures", "errors", "skipped") if name in element.attrib
    }


# The verdict


@pytest.mark.parametrize(
    ("outcome", "found", "expected"),
    [
        ("passed", "", []),
        ("failed", "", [("failure", {"type": "reward", "message": "why"}, None)]),
        ("infra", "", [("error", {"type": "infra.stage", "message": "why"}, None)]),
        (
            "failed",
            '<failure message="m">one</failure>',
            [("failure", {"type": "reward", "message": "why"}, "one")],
        ),
        (
            "failed",
            '<error message="m">two</error><failure message="n">one</failure>',
            [("failure", {"type": "reward", "message": "why"}, "two\none")],
        ),
        (
            "infra",
            '<failure message="m">one</failure>',
            [("error", {"type": "infra.stage", "message": "why"}, "one")],
        ),
        (
            "infra",
            '<skipped type="pytest.xfail" message="known" />',
            [("error", {"type": "infra.stage", "message": "why"}, "known")],
        ),
        (
            "failed",
            '<skipped type="pytest.skip" message="m">t.py:1: m</skipped>',
            [("failure", {"type": "reward", "message": "why"}, "t.py:1: m")],
        ),
        (
            "failed",
            '<skipped type="pytest.xfail" message="known" /><skipped type="pytest.xfail" message="known" />',
            [("skipped", {"type": "pytest.xfail", "message": "known"}, None)],
        ),
    ],
)
def test_a_rollout_has_the_one_verdict_of_its_outcome(
    report: Callable[..., Path], outcome: Outcome, found: str, expected: list[object]
) -> None:
    path = report(case(OWN, found))
    assert rewrite(path, {"r1": verdict(outcome)}) == []
    assert shape(only_case(path)) == expected


def test_a_failed_teardown_of_a_passed_rollout_moves_to_stderr(report: Callable[..., Path]) -> None:
    error = '<error message="failed on teardown with &quot;Boom&quot;">trace\nback</error>'
    path = report(case(OWN, error, "<system-out>out</system-out><system-err>err</system-err>"))
    assert rewrite(path, {"r1": verdict("passed")}) == []
    heading = "------------------- error reported by pytest, rollout passed -------------------"
    moved = f'err\n{heading}\nfailed on teardown with "Boom"\ntrace\nback\n'
    assert shape(only_case(path)) == [("system-out", {}, "out"), ("system-err", {}, moved)]
    assert counts(suite_of(path)) == {"tests": "1", "failures": "0", "errors": "0", "skipped": "0"}


def test_a_message_that_the_text_holds_is_not_repeated(report: Callable[..., Path]) -> None:
    path = report(case(OWN, '<skipped type="pytest.skip" message="late">t.py:1: late</skipped>'))
    assert rewrite(path, {"r1": verdict("passed")}) == []
    heading = "------------------ skipped reported by pytest, rollout passed ------------------"
    assert shape(only_case(path)) == [("system-err", {}, f"{heading}\nt.py:1: late\n")]


def test_an_xfail_stays_and_its_failed_teardown_moves_to_stderr(report: Callable[..., Path]) -> None:
    xfail = '<skipped type="pytest.xfail" message="known" />'
    path = report(case(OWN, xfail, '<error message="failed on teardown">trace</error>'))
    assert rewrite(path, {"r1": verdict("failed")}) == []
    heading = "------------------- error reported by pytest, rollout failed -------------------"
    assert shape(only_case(path)) == [
        ("skipped", {"type": "pytest.xfail", "message": "known"}, None),
        ("system-err", {}, f"{heading}\nfailed on teardown\ntrace\n"),
    ]


def test_tests_without_a_rollout_keep_what_pytest_said(report: Callable[..., Path]) -> None:
    other = [
        case('<failure message="m">one</failure><failure message="n">two</failure>', name="test_subtests"),
        case('<skipped type="pytest.skip" message="m">t</skipped>', name="test_skipped"),
        case('<system-err>e</system-err><error message="m">t</error>', name="test_error"),
        case(
            "<properties><property name='rollout.rollout_id' value='r9' /></properties><failure>x</failure>", name="b"
        ),
    ]
    path = report(*other, case(OWN))
    before = [ET.tostring(ET.fromstring(text)) for text in other]
    assert rewrite(path, {"r1": verdict("passed")}) == []
    assert [ET.tostring(element) for element in suite_of(path)[:-1]] == before


# Properties


def test_properties_are_set_and_come_first(report: Callable[..., Path]) -> None:
    twice = '<property name="rollout.reward" value="0" /><property name="k" value="1" />'
    again = '<property name="rollout.reward" value="x" /><property name="k" value="1" />'
    path = report(case("<system-out>o</system-out>", f"<properties>{twice}{ID}{again}</properties>", "<failure />"))
    pairs = (("rollout.reward", "0.5"), ("dd_tags[a\x00]", "\ud800\x1b"), ("k", "2"), ("k", "3"))
    assert rewrite(path, {"r1": verdict("failed", *pairs)}) == []
    testcase = only_case(path)
    assert [child.tag for child in testcase] == ["properties", "failure", "system-out"]
    assert properties_of(testcase) == [
        ("k", "3"),
        (ROLLOUT_PROPERTY, "r1"),
        ("rollout.reward", "0.5"),
        ("dd_tags[a\\x00]", "\\ud800\\x1b"),
    ]


def test_a_later_property_can_not_claim_another_rollout(report: Callable[..., Path]) -> None:
    forged = '<property name="rollout.rollout_id" value="r2" />'
    path = report(case(f"<properties>{ID}{forged}</properties>"), case(OWN.replace("r1", "r2"), name="test_b"))
    assert rewrite(path, {"r1": verdict("infra"), "r2": verdict("passed")}) == []
    assert [(c.get("name"), [x[0] for x in shape(c)], properties_of(c)) for c in suite_of(path)] == [
        ("test_a", ["error"], [(ROLLOUT_PROPERTY, "r1")]),
        ("test_b", [], [(ROLLOUT_PROPERTY, "r2")]),
    ]


def test_properties_that_are_missing_are_made(report: Callable[..., Path]) -> None:
    path = report(case("<failure>x</failure>", ID))
    assert rewrite(path, {"r1": verdict("failed")}) == []
    assert [child.tag for child in only_case(path)] == ["properties", "property", "failure"]


# Folding


def test_duplicates_of_a_rollout_are_folded_into_the_first(report: Callable[..., Path]) -> None:
    one = '<property name="rollout.sample" value="0" /><property name="mine" value="1" />'
    two = one.replace("0", "1") + '<property name="mine" value="2" />'
    path = report(
        case(
            f"<properties>{ID}{one}</properties>",
            "<failure message='m'>call</failure>",
            "<system-out>a\n\n</system-out>",
        ),
        case("<failure>other</failure>", name="test_b"),
        case(
            f"<properties>{ID}{two}</properties>",
            "<error message='n'>teardown</error><system-out>a\nb\n</system-out><system-err>e</system-err>",
            attributes='line="3" time="0.020"',
        ),
    )
    assert rewrite(path, {"r1": verdict("failed")}) == []
    suite = suite_of(path)
    assert [element.get("name") for element in suite] == ["test_a", "test_b"]
    assert suite[0].attrib == {"classname": "t", "name": "test_a", "line": "3", "time": "0.021"}
    assert [child.tag for child in suite[0]] == ["properties", "failure", "system-out", "system-err"]
    assert shape(suite[0]) == [
        ("failure", {"type": "reward", "message": "why"}, "call\nteardown"),
        ("system-out", {}, "a\nb\n"),
        ("system-err", {}, "e"),
    ]
    assert properties_of(suite[0]) == [("mine", "1"), (ROLLOUT_PROPERTY, "r1"), ("rollout.sample", "1"), ("mine", "2")]
    assert counts(suite) == {"tests": "2", "failures": "2", "errors": "0", "skipped": "0"}


def test_outputs_that_only_look_alike_are_both_kept(report: Callable[..., Path]) -> None:
    path = report(case(OWN, "<system-out>ab\n</system-out>"), case(OWN, "<system-out>abc\n</system-out>"))
    assert rewrite(path, {"r1": verdict("passed")}) == []
    assert shape(only_case(path)) == [("system-out", {}, "ab\n\nabc\n")]


def test_the_last_value_wins_also_when_it_is_an_earlier_one_again(report: Callable[..., Path]) -> None:
    values = [f'<properties>{ID}<property name="rollout.n" value="{value}" /></properties>' for value in "121"]
    path = report(*(case(value) for value in values))
    assert rewrite(path, {"r1": verdict("passed")}) == []
    assert properties_of(only_case(path)) == [(ROLLOUT_PROPERTY, "r1"), ("rollout.n", "1")]


@pytest.mark.parametrize("crash_first", [True, False])
def test_the_testcase_of_a_crash_is_folded_by_its_name(report: Callable[..., Path], crash_first: bool) -> None:
    both = [case("<error message='worker gw0 crashed'>crash</error>"), case(OWN)]
    path = report(*(both if crash_first else reversed(both)))
    assert rewrite(path, {"r1": verdict("infra")}) == []
    testcase = only_case(path)
    assert shape(testcase) == [("error", {"type": "infra.stage", "message": "why"}, "crash")]
    assert properties_of(testcase) == [(ROLLOUT_PROPERTY, "r1")]


def test_a_name_that_two_rollouts_share_folds_nothing(report: Callable[..., Path]) -> None:
    path = report(case(OWN), case(OWN.replace("r1", "r2")), case("<error>crash</error>"))
    assert rewrite(path, {"r1": verdict("passed"), "r2": verdict("passed")}) == []
    assert [shape(element) for element in suite_of(path)] == [[], [], [("error", {}, "crash")]]


def test_without_a_rollout_only_a_failure_and_its_teardown_are_folded(report: Callable[..., Path]) -> None:
    failed = "<failure message='m'>call</failure>"
    teardown = "<error message='failed on teardown with \"x\"'>down</error>"
    path = report(
        case(failed, name="a"),
        case(teardown, name="a"),
        case(teardown, name="a"),
        case(failed, name="again"),
        case(failed, name="again"),
        case(name="again"),
        case(teardown, name="alone"),
        case(OWN.replace("r1", "r9") + failed, name="unknown"),
        case(OWN.replace("r1", "r9") + "<error message='n'>two</error>", name="unknown"),
        case(OWN.replace("r1", "r8") + "<skipped message='m'>one</skipped>", name="mixed"),
        case(OWN.replace("r1", "r8") + "<error message='n' />", name="mixed"),
        case(OWN),
    )
    assert rewrite(path, {"r1": verdict("passed")}) == []
    assert [(element.get("name"), shape(element)) for element in suite_of(path)] == [
        ("a", [("failure", {"message": "m"}, "call\ndown")]),
        ("a", [("error", {"message": 'failed on teardown with "x"'}, "down")]),
        ("again", [("failure", {"message": "m"}, "call")]),
        ("again", [("failure", {"message": "m"}, "call")]),
        ("again", []),
        ("alone", [("error", {"message": 'failed on teardown with "x"'}, "down")]),
        ("unknown", [("failure", {"message": "m"}, "call\ntwo")]),
        ("mixed", [("error", {"message": "n"}, "one\nn")]),
        ("test_a", []),
    ]


# The file


def test_nameless_testcases_are_dropped_and_suites_recounted(report: Callable[..., Path]) -> None:
    nameless = '<testcase time="0.2" /><testcase name="" time="0.1"><failure>x</failure></testcase>'
    skipped = case("<skipped />", name="test_b")
    path = report(nameless, case(OWN), skipped, root='name="pytest tests" tests="9" errors="9" time="1"')
    assert rewrite(path, {"r1": verdict("infra")}) == []
    assert counts(suite_of(path)) == {"tests": "2", "failures": "0", "errors": "1", "skipped": "1"}
    root = ET.parse(path).getroot()
    assert root.attrib == {"name": "pytest tests", "tests": "2", "errors": "1", "time": "1"}


def test_a_nameless_rollout_is_named_by_its_id(report: Callable[..., Path]) -> None:
    path = report(case(OWN, "<failure>x</failure>", name=""))
    assert rewrite(path, {"r1": verdict("failed")}) == []
    assert only_case(path).get("name") == "r1"


def test_each_suite_is_counted_alone(tmp_path: Path) -> None:
    path = tmp_path / "merged.xml"
    path.write_text(
        f"<all><testsuite>{case(OWN)}</testsuite><testsuite>{case('<failure />', name='b')}</testsuite></all>"
    )
    assert rewrite(path, {"r1": verdict("infra")}) == []
    first, second = ET.parse(path).getroot()
    assert counts(first) == {"tests": "1", "failures": "0", "errors": "1", "skipped": "0"}
    assert counts(second) == {"tests": "1", "failures": "1", "errors": "0", "skipped": "0"}
    assert ET.parse(path).getroot().attrib == {}


def test_text_can_not_attach_files(report: Callable[..., Path]) -> None:
    command = "[[ATTACHMENT|/etc/passwd]]"
    text = f"a\n{command}\n  {command} \nsay {command} twice {command}\n[[ATTACHMENT] "
    outputs = f"<system-out>{text}</system-out><system-err>{command}</system-err>"
    own = f'<properties>{ID}<property name="{command}" value="{command}"/></properties>'
    path = report(case(own, f"<failure>{text}</failure>", outputs), case(outputs, name="test_b"))
    assert rewrite(path, {"r1": verdict("failed", message=f"say {command}")}) == []
    broken = "[[ATTACHMENT |/etc/passwd]]"
    assert suite_of(path).find("testcase/failure").get("message") == f"say {broken}"  # type: ignore[union-attr]
    assert properties_of(suite_of(path)[0])[1] == (f"| {broken}", f"| {broken}")
    expected = f"a\n| {broken}\n|   {broken} \nsay {broken} twice {broken}\n[[ATTACHMENT] "
    for testcase in suite_of(path):
        assert testcase.findtext("system-out") == expected
        assert testcase.findtext("system-err") == f"| {broken}"
    assert suite_of(path).findtext("testcase/failure") == expected
    assert "[[ATTACHMENT|" not in path.read_text("utf-8")


def test_long_texts_are_cut_in_the_middle(report: Callable[..., Path]) -> None:
    long, fits = "a" * (11 * TEXT_LIMIT) + "b" * 1000, "&amp;" * TEXT_LIMIT
    path = report(case(OWN, f"<failure>{long}</failure><system-out>{fits}</system-out>"))
    assert rewrite(path, {"r1": verdict("failed", ("rollout.x", long), message=long)}) == []
    testcase = only_case(path)
    half = TEXT_LIMIT // 2 - 50
    cut = len(long) - 2 * half
    expected = "a" * half + f"\n[... {cut} characters were cut here ...] " + "a" * (half - 1000) + "b" * 1000
    assert len(expected) <= TEXT_LIMIT
    assert testcase.findtext("failure") == expected
    assert testcase.find("failure").get("message") == expected  # type: ignore[union-attr]
    assert properties_of(testcase)[1] == ("rollout.x", expected)
    assert testcase.findtext("system-out") == "&" * TEXT_LIMIT


def test_a_cut_does_not_make_a_command(report: Callable[..., Path]) -> None:
    command = "[[ATTACHMENT|x]]"
    path = report(case(OWN, f"<system-out>{(command + ' ') * (2 * TEXT_LIMIT // 17)}</system-out>"))
    assert rewrite(path, {"r1": verdict("passed")}) == []
    assert "[[ATTACHMENT|" not in path.read_text("utf-8")
    assert " characters were cut here ...] " in path.read_text("utf-8")


TEXTS = st.one_of(
    st.text(st.sampled_from("[]|<>&\"'\0\x1b\x85\ufffe\ud800\U0001f600 \n") | st.characters()),
    st.just("[[ATTACHMENT|x]]"),
)


@given(name=TEXTS, text=TEXTS, message=TEXTS, value=TEXTS)
def test_any_text_gives_a_file_that_strict_readers_take(
    report: Callable[..., Path], name: str, text: str, message: str, value: str
) -> None:
    written = {each: bin_xml_escape(each) for each in (name, text)}  # as pytest does
    pair = f"<property name={quoteattr(written[name])} value={quoteattr(written[text])}/>"
    outputs = f"<failure>{escape(written[text])}</failure><system-out>{escape(written[text])}</system-out>"
    path = report(case(f"<properties>{ID}{pair}</properties>", outputs))
    assert rewrite(path, {"r1": verdict("failed", (f"rollout.{name}", value), message=message)}) == []
    testcase = only_case(path)
    assert testcase.find("failure").get("type") == "reward"  # type: ignore[union-attr]
    assert "[[ATTACHMENT|" not in path.read_text("utf-8")


# Repairs


def test_illegal_characters_are_escaped(report: Callable[..., Path]) -> None:
    path = report(case(f'<properties>{ID}<property name="a\x00\x1b&lt;\uffff" value="v" /></properties>'))
    assert rewrite(path, {"r1": verdict("failed", message="m\x07\udc80\ufffe")}) == []
    testcase = only_case(path)
    assert properties_of(testcase) == [(ROLLOUT_PROPERTY, "r1"), ("a\\x00\\x1b<\\uffff", "v")]
    assert testcase.find("failure").get("message") == "m\\x07\\udc80\\ufffe"  # type: ignore[union-attr]


def test_bytes_that_are_not_utf8_are_escaped(report: Callable[..., Path]) -> None:
    path = report(case(OWN, "<system-out>é BYTES</system-out>"))
    path.write_bytes(path.read_bytes().replace(b"BYTES", b"\xff\xfe"))
    assert rewrite(path, {"r1": verdict("passed")}) == []
    assert only_case(path).findtext("system-out") == "é \\xff\\xfe"


def test_names_that_are_not_valid_do_not_hide_the_others(report: Callable[..., Path]) -> None:
    path = report('<testcase classname="t" name="odd" a b="1" >="2" xmlns="3" />', case(OWN))
    assert rewrite(path, {"r1": verdict("infra")}) == []
    odd, own = suite_of(path)
    assert odd.attrib == {"classname": "t", "name": "odd", "a_b": "1", "_": "2", "_xmlns": "3"}
    assert own.find("error") is not None


def test_random_names_and_values_stay_readable(report: Callable[..., Path]) -> None:
    chance = random.Random(20261129)
    alphabet = "ab_:=\"'<>&/ \t\n\r\x00\x1b\x85é\u2028\ud800\ufffe\U0001f600"

    def odd() -> str:
        return "".join(chance.choices(alphabet, k=chance.randrange(8)))

    for _ in range(200):
        element = ET.Element(
            "testcase",
            {"classname": "t", "name": "n", **{odd(): odd().encode("utf-8", "replace").decode() for _ in range(3)}},
        )
        block = ET.SubElement(element, "properties")
        ET.SubElement(block, "property", name=odd(), value="v")
        text = ET.tostring(element, encoding="unicode")
        path = report(text, case(OWN))
        pairs = ((odd(), odd()), (odd(), odd()))
        assert rewrite(path, {"r1": verdict("failed", *pairs, message=odd())}) == [], text
        assert len(suite_of(path)) == 2, text


@pytest.mark.parametrize("content", ["", "<testsuites>", '<?xml version="1.0" encoding="utf-8"?>', "not xml & all"])
def test_a_hopeless_file_is_left_alone(tmp_path: Path, content: str) -> None:
    path = tmp_path / "report.xml"
    path.write_text(content)
    (problem,) = rewrite(path, {"r1": verdict("passed")})
    assert problem.startswith(f"The JUnit report {path} is malformed beyond repair and was left as it is: ")
    assert path.read_text() == content
    assert os.listdir(tmp_path) == ["report.xml"]


# Reading and writing


def test_without_rollouts_nothing_is_touched(tmp_path: Path, report: Callable[..., Path]) -> None:
    path = report('<testcase a b="1" />')
    before = (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_ino)
    assert rewrite(path, {}) == []
    assert (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_ino) == before
    assert rewrite(tmp_path / "missing.xml", {}) == []


def test_the_mode_stays_and_a_link_is_followed(report: Callable[..., Path], tmp_path: Path) -> None:
    path = report(case(OWN))
    path.chmod(0o604)
    link = tmp_path / "link.xml"
    link.symlink_to("report.xml")
    assert rewrite(link, {"r1": verdict("infra")}) == []
    assert stat.S_IMODE(path.stat().st_mode) == 0o604
    assert link.is_symlink()
    assert only_case(path).find("error") is not None
    assert path.read_bytes().startswith(b'<?xml version="1.0" encoding="utf-8"?>\n<testsuites name="pytest tests">')
    assert sorted(os.listdir(tmp_path)) == ["link.xml", "report.xml"]


def test_a_file_that_can_not_be_read_is_a_problem(tmp_path: Path) -> None:
    missing, fifo = tmp_path / "missing.xml", tmp_path / "fifo.xml"
    os.mkfifo(fifo)
    cases = {"r1": verdict("passed")}
    assert rewrite(missing, cases) == [f"The JUnit report {missing} could not be read: No such file or directory."]
    assert rewrite(fifo, cases) == [f"The JUnit report {fifo} could not be read: it is not a regular file."]
    (problem,) = rewrite(Path("a\0b"), cases)
    assert problem.startswith("The JUnit report a\\x00b could not be read: ")
    assert "embedded null" in problem


def test_a_file_that_can_not_be_written_is_a_problem(
    report: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = report(case(OWN))
    before = path.read_bytes()

    def refuse(source: object, target: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    sentence = f"The JUnit report {path} could not be rewritten: No space left on device."
    assert rewrite(path, {"r1": verdict("infra")}) == [sentence]
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["report.xml"]


def test_rollouts_without_a_testcase_are_told(report: Callable[..., Path]) -> None:
    path = report(case(OWN))
    cases = {name: verdict("infra") for name in ["r1", *"abcdefg"]}
    sentence = f"The JUnit report {path} has no testcase for 7 of 8 rollouts: a, b, c, d, e and 2 more."
    assert rewrite(path, cases) == [sentence]
    assert only_case(path).find("error") is not None


def test_a_second_rewrite_changes_nothing(report: Callable[..., Path]) -> None:
    path = report(
        case(OWN, "<failure>[[ATTACHMENT|x]]</failure>"),
        case(OWN, f"<error message='m'>{'x' * (TEXT_LIMIT + 5)}</error>"),
    )
    cases = {"r1": verdict("failed", ("rollout.reward", "0.5"))}
    assert rewrite(path, cases) == []
    before = path.read_bytes()
    assert rewrite(path, cases) == []
    assert path.read_bytes() == before


# What pytest writes

SUITE = """
    import pytest

    @pytest.fixture
    def rollout(request):
        request.node.user_properties.append(("rollout.rollout_id", request.node.name))
        yield
        if "teardown" in request.node.name:
            raise RuntimeError("late")

    def test_fail_teardown(rollout):
        print("said \\x1b\\x00 [[ATTACHMENT|/etc/passwd]]")
        assert 0, "wrong \\x07"

    def test_pass_teardown(rollout):
        pass

    @pytest.mark.xfail(reason="known")
    def test_xfail(rollout):
        assert 0

    def test_setup_error(rollout, nothing):
        pass

    def test_names(rollout, record_property, record_xml_attribute):
        record_property("n\\x01<\\uffff", "v\\x01")
        for name in ("a b", "n\\x00", "<", 'q"', "xmlns", "classname2"):
            record_xml_attribute(name, 'v"<')

    @pytest.fixture
    def late():
        yield
        raise RuntimeError("late")

    def test_plain(late):
        assert 0
"""

SUBTESTS = """
    def test_subtests(record_property, subtests):
        record_property("rollout.rollout_id", "r1")
        for number in range(3):
            with subtests.test(number=number):
                assert number == 1, f"number {number}"
"""


@pytest.fixture
def run_pytest(tmp_path: Path) -> Callable[..., Path]:
    def run(family: str, source: str = SUITE) -> Path:
        (tmp_path / "test_real.py").write_text(textwrap.dedent(source))
        (tmp_path / "pytest.ini").write_text(f"[pytest]\njunit_family = {family}\njunit_logging = all\n")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        command = [sys.executable, "-m", "pytest", "-p", "no:rollout", "-p", "no:cacheprovider", "--junitxml=r.xml"]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 1, done.stdout + done.stderr
        return tmp_path / "r.xml"

    return run


def real_cases() -> dict[str, CaseVerdict]:
    outcomes: dict[str, Outcome] = {
        "test_fail_teardown": "failed",
        "test_pass_teardown": "passed",
        "test_xfail": "failed",
        "test_setup_error": "infra",
        "test_names": "passed",
    }
    return {name: verdict(outcome, ("rollout.outcome", outcome)) for name, outcome in outcomes.items()}


@pytest.mark.parametrize("family", ["xunit2", "xunit1"])
def test_a_file_of_pytests_own(run_pytest: Callable[..., Path], family: str) -> None:
    path = run_pytest(family)
    raw = path.read_text("utf-8")
    assert raw.count('name="test_fail_teardown"') == 2
    assert raw.count('name="test_plain"') == 2
    with pytest.raises(ET.ParseError):
        ET.fromstring(raw)
    assert rewrite(path, real_cases()) == []
    suite = suite_of(path)
    found = {element.get("name"): [(tag, attributes) for tag, attributes, _ in shape(element)] for element in suite}
    output: list[tuple[str, dict[str, str]]] = [("system-out", {}), ("system-err", {})]
    failure = ("failure", {"type": "reward", "message": "why"})
    assert found == {
        "test_fail_teardown": [failure, *output],
        "test_pass_teardown": output,
        "test_xfail": [("skipped", {"type": "pytest.xfail", "message": "known"}), *output],
        "test_setup_error": [("error", {"type": "infra.stage", "message": "why"}), *output],
        "test_names": output,
        "test_plain": [("failure", {"message": "assert 0"}), *output],
    }
    assert counts(suite) == {"tests": "6", "failures": "2", "errors": "1", "skipped": "1"}
    assert all(child.tag == "properties" for element in suite[:-1] for child in element[:1])


@pytest.mark.parametrize("family", ["xunit2", "xunit1"])
def test_what_pytest_wrote_is_kept(run_pytest: Callable[..., Path], family: str) -> None:
    path = run_pytest(family)
    assert rewrite(path, real_cases()) == []
    by_name = {element.get("name"): element for element in suite_of(path)}
    both = by_name["test_fail_teardown"]
    text = both.findtext("failure", "")
    assert "AssertionError: wrong #x07" in text
    assert "RuntimeError: late" in text
    assert "said #x1B#x00 [[ATTACHMENT |/etc/passwd]]" in both.findtext("system-out", "")
    assert properties_of(both) == [(ROLLOUT_PROPERTY, "test_fail_teardown"), ("rollout.outcome", "failed")]
    moved = by_name["test_pass_teardown"].findtext("system-err", "")
    assert (
        '- error reported by pytest, rollout passed -------------------\nfailed on teardown with "RuntimeError: late"'
        in moved
    )
    assert moved.endswith("RuntimeError\n")
    assert ("n\\x01<\\uffff", "v#x01") in properties_of(by_name["test_names"])
    attributes = {"a_b", "n_x00", "_", "q_", "_xmlns", "classname2"} if family == "xunit1" else set()
    assert set(by_name["test_names"].attrib) - {"classname", "name", "file", "line", "time"} == attributes


@pytest.mark.skipif(not hasattr(pytest, "Subtests"), reason="subtests came with pytest 9")
def test_subtests_share_one_verdict(run_pytest: Callable[..., Path]) -> None:
    path = run_pytest("xunit2", SUBTESTS)
    assert len(ET.parse(path).getroot().findall(".//failure")) == 3
    assert rewrite(path, {"r1": verdict("failed")}) == []
    text = only_case(path).findtext("failure", "")
    assert [f"number {number}" in text for number in range(3)] == [True, False, True]
    assert text.endswith("\ncontains 2 failed subtests")
    assert counts(suite_of(path)) == {"tests": "1", "failures": "1", "errors": "0", "skipped": "0"}


@pytest.mark.parametrize("family", ["xunit2", "xunit1"])
def test_junitparser_reads_edits_and_writes_it(run_pytest: Callable[..., Path], family: str) -> None:
    path = run_pytest(family)
    assert rewrite(path, real_cases()) == []
    parsed = JUnitXml.fromfile(str(path))
    (suite,) = parsed
    assert (suite.tests, suite.failures, suite.errors, suite.skipped) == (6, 2, 1, 1)
    testcases = {element.name: xunit2.TestCase.fromelem(element._elem) for element in suite}  # type: ignore[no-untyped-call]
    assert [len(testcases[name].result) for name in ("test_fail_teardown", "test_pass_teardown")] == [1, 0]
    testcases["test_setup_error"].add_property("seen", "yes")
    parsed.update_statistics()  # type: ignore[no-untyped-call]
    parsed.write()
    again = suite_of(path)
    assert counts(again) == {"tests": "6", "failures": "2", "errors": "1", "skipped": "1"}
    (edited,) = [element for element in again if element.get("name") == "test_setup_error"]
    assert properties_of(edited) == [
        (ROLLOUT_PROPERTY, "test_setup_error"),
        ("rollout.outcome", "infra"),
        ("seen", "yes"),
    ]


def test_an_id_with_markup_is_found(report: Callable[..., Path]) -> None:
    odd = "a<b>&\"'"
    path = report(case(f"<properties><property name='{ROLLOUT_PROPERTY}' value={quoteattr(odd)} /></properties>"))
    assert rewrite(path, {odd: verdict("infra")}) == []
    assert only_case(path).find("error") is not None
