"""Reading XML as pytest writes it, also where it is not well-formed."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from pytest_rollout.report.xmlrepair import NAME_LIMIT, parse

HEAD = '<?xml version="1.0" encoding="utf-8"?>'
# What a test may put into a name; '="' ends one, so no reader could tell a name with it from two attributes.
NAMES = st.text(st.sampled_from("ab_:='<>&/. \t\n\r\x00\x1b\x85é\u2028\ufffe😀-1"), min_size=1, max_size=8)


def file(*testcases: str) -> bytes:
    return f"{HEAD}<testsuites><testsuite>{''.join(testcases)}</testsuite></testsuites>".encode()


def cases(data: bytes) -> list[ET.Element]:
    """The testcases, after a strict reader has taken what was made of the file."""
    root = parse(data)
    strict = etree.fromstring(ET.tostring(root, encoding="utf-8"), etree.XMLParser(recover=False, huge_tree=False))
    assert len(strict.findall(".//testcase")) == len(root.findall(".//testcase"))
    return root.findall(".//testcase")


def test_a_good_file_is_read_as_it_is() -> None:
    text = '<testcase name="a" u="&lt;é&#10;"><properties><property name="n" value="v" /></properties></testcase>'
    (case,) = cases(file(text))
    assert ET.tostring(case, encoding="unicode") == text.replace("&#10;", "&#10;")


def test_characters_and_bytes_that_xml_forbids_are_escaped() -> None:
    data = file('<testcase name="a\x00\x1b"><system-out>BYTES \ufffe</system-out></testcase>')
    (case,) = cases(data.replace(b"BYTES", b"\xff\xe2\x82"))
    assert case.get("name") == "a\\x00\\x1b"
    assert case.findtext("system-out") == "\\xff\\xe2\\x82 \\ufffe"


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ('a b="1"', {"a_b": "1"}),
        ('a b="1" a_b="2" a\tb="3"', {"a_b_2": "1", "a_b": "2", "a_b_3": "3"}),
        ('a\x00="&lt;"', {"a_x00": "<"}),
        ('<="1" >="2" />="3" ="4" =="5"', {"_": "1", "__2": "2", "__": "3", "__3": "4", "__4": "5"}),
        ('>="1"', {"_": "1"}),
        ('/>="1"', {"__": "1"}),
        ('q"="x &gt; y"', {"q_": "x > y"}),
        ('a="b="1"', {"a__b": "1"}),
        ('/><b ="1"', {"___b_": "1"}),
        ('1a="1" größe="2" gr öße="3"', {"_1a": "1", "größe": "2", "gr___e": "3"}),
        ('u:v="1" xmlns="2"', {"u_v": "1", "_xmlns": "2"}),
        ('xmlns="http://x"', {"_xmlns": "http://x"}),
        ('xml:id="1 2"', {"xml_id": "1 2"}),
        (f'{"n" * 60_000}="1"', {"n" * 100: "1"}),
        ('name="1"', {"name_2": "1"}),
    ],
    ids=lambda value: str(value)[:30],
)
@pytest.mark.parametrize("end", [" />", "><failure>x</failure></testcase>"])
def test_attribute_names_are_made_valid_and_unique(attributes: str, expected: dict[str, str], end: str) -> None:
    odd, plain = cases(file(f'<testcase name="odd" {attributes} time="0.5"{end}', '<testcase name="plain" />'))
    assert odd.attrib == {"name": "odd", **expected, "time": "0.5"}
    assert [child.tag for child in odd] == ["failure"] * end.count("<failure>")
    assert plain.attrib == {"name": "plain"}


def test_a_name_at_the_limit_is_kept() -> None:
    (case,) = cases(file(f'<testcase {"n" * NAME_LIMIT}="1" a b="2" />'))
    assert case.attrib == {"n" * NAME_LIMIT: "1", "a_b": "2"}


@given(st.lists(NAMES, max_size=4))
def test_any_names_leave_every_testcase_and_every_value(names: list[str]) -> None:
    attributes = "".join(f' {name}="v{number}"' for number, name in enumerate(names))
    odd, plain = cases(file(f'<testcase name="odd"{attributes} time="1" />', '<testcase name="plain" time="2" />'))
    assert plain.attrib == {"name": "plain", "time": "2"}
    assert set(odd.attrib.values()) >= {"odd", "1"}


@pytest.mark.parametrize("content", [b"", b"<testsuites>", HEAD.encode(), b"not xml & all", b"\0", b"<a></b>"])
def test_what_is_beyond_repair_is_an_error(content: bytes) -> None:
    with pytest.raises(ET.ParseError):
        parse(content)


@pytest.mark.parametrize("text", ["x", "<testcase />x", "<testcase>x</testcase>"])
def test_text_between_testcases_is_never_taken_for_good(text: str) -> None:
    with pytest.raises(ET.ParseError, match="text where only elements belong"):
        parse(file('<testcase name="a" />', text))
