"""JUnit files of shards become one file: bytes, counts, and rollouts that do not count."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest
from junitparser import JUnitXml
from lxml import etree

from pytest_rollout.merging.junit import JUnitMerge, merge_junit

ROLLOUT = '<properties><property name="rollout.rollout_id" value="{}" /></properties>'
REWARD = '<property name="rollout.reward" value="{}" />'
PLAIN = '<testcase classname="c" name="plain" time="0.5" />'


def case(rollout: str, verdict: str = "") -> str:
    inner = ROLLOUT.format(rollout) + (f'<{verdict} message="a &gt; b">x &amp; y</{verdict}>' if verdict else "")
    return f'<testcase classname="c" name="{rollout}" time="1.000">{inner}<system-out>é</system-out></testcase>'


def suite(*cases: str, time: str = "9.0", stamp: str = "2026-11-01", name: str = "pytest") -> str:
    head = f'<testsuite name="{name}" errors="7" failures="7" skipped="7" tests="7" time="{time}" timestamp="{stamp}"'
    return f'{head} hostname="a&gt;b>c">{"".join(cases)}</testsuite>'


def write(folder: Path, name: str, *suites: str) -> Path:
    path = folder / name
    text = f'<?xml version="1.0" encoding="utf-8"?><testsuites name="pytest tests">{"".join(suites)}</testsuites>'
    path.write_text(text, encoding="utf-8")
    return path


def test_suites_stand_beside_each_other_and_are_counted(tmp_path: Path) -> None:
    files = [
        write(tmp_path, "b.xml", suite(case("3", "error"), PLAIN, stamp="2026-11-02")),
        write(tmp_path, "a.xml", suite(case("1"), case("2", "failure")), suite(case("4", "skipped"), time="")),
    ]
    out = tmp_path / "out.xml"
    found = merge_junit(files, out, ())
    assert found == JUnitMerge(testcases=5, left_out=0, rollouts=frozenset("1234"), problems=())
    root = etree.fromstring(out.read_bytes())
    assert dict(root.attrib) == {
        "name": "pytest tests",
        "tests": "5",
        "failures": "1",
        "errors": "1",
        "skipped": "1",
        "time": "19.000",
    }
    assert [[each.get("name") for each in one] for one in root] == [["1", "2"], ["4"], ["3", "plain"]]
    assert [one.get("tests") for one in root] == ["2", "1", "2"]
    assert (root[0].get("hostname"), root[0].get("failures"), root[0].get("errors")) == ("a>b>c", "1", "0")
    assert case("2", "failure") in out.read_text("utf-8")
    assert JUnitXml.fromfile(str(out)).tests == 5


def test_order_and_repetition_do_not_matter(tmp_path: Path) -> None:
    files = [write(tmp_path, f"{number}.xml", suite(case(str(number)))) for number in range(3)]
    files.append(write(tmp_path, "copy.xml", suite(case("0"))))
    made = set()
    for order in itertools.permutations(files):
        merge_junit([*order, order[0]], tmp_path / "out.xml", ())
        made.add((tmp_path / "out.xml").read_bytes())
    assert len(made) == 1
    found = merge_junit([tmp_path / "out.xml", *files], tmp_path / "out.xml", ())
    assert (found.testcases, found.left_out) == (3, 3)


def test_testcases_of_rollouts_that_do_not_count_are_cut_out(tmp_path: Path) -> None:
    file = write(tmp_path, "a.xml", suite(case("1", "error"), case("2"), case("1"), PLAIN, PLAIN), suite(case("3")))
    found = merge_junit([file], tmp_path / "out.xml", {"2", "3"})
    assert found == JUnitMerge(testcases=3, left_out=3, rollouts=frozenset("1"), problems=())
    root = etree.fromstring((tmp_path / "out.xml").read_bytes())
    assert [[each.get("name") for each in one] for one in root] == [["1", "plain", "plain"], []]
    assert (root[0].get("tests"), root[0].get("errors"), root[0].get("time"), root[1].get("tests")) == (
        "3",
        "1",
        "2.000",
        "0",
    )


def test_a_file_that_cannot_be_read_is_named_and_the_others_stay(tmp_path: Path) -> None:
    good = write(tmp_path, "good.xml", suite(case("1")))
    torn = tmp_path / "torn.xml"
    torn.write_text(good.read_text("utf-8")[:200], encoding="utf-8")
    found = merge_junit([torn, tmp_path / "none.xml", good], tmp_path / "out.xml", ())
    assert found.testcases == 1
    assert found.problems[0] == f"{tmp_path}/none.xml can't be read: No such file or directory"
    assert found.problems[1].startswith(f"{torn} can't be read: ")


@pytest.mark.parametrize(
    ("data", "name"),
    [
        ('<testsuite name="s" tests="1"><testcase name="é"/></testsuite>'.encode(), "é"),
        ('<?xml version="1.0" encoding="latin-1"?><testsuite><testcase name="é"/></testsuite>'.encode("latin-1"), "é"),
        (b'<testsuite><testcase name="a\x01" time="x"></testcase></testsuite>', "a\\x01"),
        (b"<testsuites><testsuite name='s' tests='5'><testcase name='a>b'/></testsuite></testsuites>", "a>b"),
    ],
    ids=["root", "latin-1", "repaired", "quotes"],
)
def test_odd_files(data: bytes, name: str, tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_bytes(data)
    assert merge_junit([tmp_path / "a.xml"], tmp_path / "out.xml", ()).testcases == 1
    root = etree.fromstring((tmp_path / "out.xml").read_bytes())
    (case,) = root.iter("testcase")
    assert (case.get("name"), root[0].get("tests", "1")) == (name, "1")


def test_no_file_at_all_is_an_empty_report(tmp_path: Path) -> None:
    write(tmp_path, "a.xml")
    assert merge_junit([tmp_path / "a.xml"], tmp_path / "out.xml", ()).testcases == 0
    assert etree.fromstring((tmp_path / "out.xml").read_bytes()).get("tests") == "0"


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    file = write(tmp_path, "a.xml", suite(case("1")))
    (tmp_path / "out.xml").mkdir()
    with pytest.raises(OSError, match="Is a directory"):
        merge_junit([file], tmp_path / "out.xml", ())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.xml", "out.xml"]


def test_entities_of_one_file_do_not_spoil_the_others(tmp_path: Path) -> None:
    bad = tmp_path / "bad.xml"
    text = '<testsuites><testsuite name="&a;"><testcase name="c" /></testsuite></testsuites>'
    bad.write_text(f'<!DOCTYPE t [<!ENTITY a "x">]>{text}')
    found = merge_junit([bad, write(tmp_path, "a.xml", suite(case("1")))], tmp_path / "out.xml", ())
    assert found.testcases == 2
    assert etree.parse(tmp_path / "out.xml").xpath("//testsuite/@name") == ["x", "pytest"]


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    found = merge_junit([tmp_path / "fifo"], tmp_path / "out.xml", ())
    assert found.problems == (f"{tmp_path / 'fifo'} can't be read: it is no file",)


def test_of_a_rollout_that_was_made_again_the_testcase_that_counts_stays(tmp_path: Path) -> None:
    def attempt(number: int, reward: str = "") -> str:
        says = f'<property name="rollout.attempts" value="{number}" />{reward and REWARD.format(reward)}</properties>'
        return case("1", "" if reward == "1" else "failure" if reward else "error").replace("</properties>", says)

    tries = [attempt(1), attempt(2, "1"), attempt(3, "0"), attempt(4)]
    for stamps in itertools.permutations("1234"):
        files = [
            write(tmp_path, f"{n}.xml", suite(each, stamp=stamp))
            for n, (each, stamp) in enumerate(zip(tries, stamps, strict=True))
        ]
        found = merge_junit(files, tmp_path / "out.xml", ())
        root = etree.parse(tmp_path / "out.xml")
        assert (found.testcases, found.left_out) == (1, 3)
        assert root.xpath("//property[@name='rollout.attempts']/@value") == ["2"]
        assert root.getroot().get("errors") == "0"
    merge_junit([files[0], files[3]], tmp_path / "out.xml", ())
    assert etree.parse(tmp_path / "out.xml").xpath("//property[@name='rollout.attempts']/@value") == ["4"]
