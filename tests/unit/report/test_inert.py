"""Text of a candidate's that no terminal and no CI system obeys."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pytest_rollout.report.inert import inert_repr, inert_text, one_line
from pytest_rollout.report.terminal import indented, inert

TEXTS = st.text(st.sampled_from("#:[]| \t\n\r\x0b\x1b\x85\u2028\u3000vsoteamcity") | st.characters())


def obeyed(line: str) -> bool:
    """What the runners of GitHub, Azure and TeamCity take for a command."""
    return line.lstrip().startswith("::") or re.search(r"##(?:vso|teamcity)?\[", line) is not None


def lines_of(text: str) -> list[str]:
    """The lines as the most eager reader takes them."""
    return re.split(r"\r\n|[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]", text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("::error::x", "| ::error::x"),
        ("  ::stop-commands::x", "|   ::stop-commands::x"),
        ("a\n\t::x\nb", "a\n| \t::x\nb"),
        ("a::b", "a::b"),
        ("##[group]", "# #[group]"),
        ("x ##vso[task.setvariable]", "x # #vso[task.setvariable]"),
        ("##teamcity[x]", "# #teamcity[x]"),
        ("###[group]", "## #[group]"),
        ("## heading", "## heading"),
        ("\x1b[31m\u202ex", "\\x1b[31m\\u202ex"),
        ("a\r::x", "a\\x0d::x"),
        ("", ""),
    ],
)
def test_inert_text_by_example(text: str, expected: str) -> None:
    assert inert_text(text) == expected


@given(TEXTS)
@example("###[x]")
@example("####vso[x]")
@example("a\r::b")
@example("a\u2028::b")
@example("\u3000::b")
@example("##\x00vso[")
def test_no_line_of_it_is_obeyed(text: str) -> None:
    for made in (inert_text(text), one_line(text), inert(text.replace("\n", " ")), indented(text)):
        assert [line for line in lines_of(made) if obeyed(line)] == []
        made.encode("utf-8")
    assert len(lines_of(inert_text(text))) == text.count("\n") + 1
    assert "\n" not in one_line(text)


def test_the_commands_of_these_tests_are_obeyed_as_they_are() -> None:
    assert all(map(obeyed, ["::error::x", "  ::stop-commands::x", "##[group]", "x ##vso[y]", "##teamcity[x]"]))
    assert not any(map(obeyed, ["a::b", "## x", "#[x]"]))


def test_a_tuple_and_a_list_are_made_inert_and_other_values_stay() -> None:
    parts = ["::a", ("::b", 5, None)]
    assert inert_repr(parts) is parts
    assert parts == ["| ::a", ("| ::b", 5, None)]
    other = SimpleNamespace(text="::a")
    assert inert_repr(other) is other
    assert other.text == "::a"
    assert inert_repr("::x") == "| ::x"
