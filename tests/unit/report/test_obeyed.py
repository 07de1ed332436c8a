"""No text whatever becomes a line that a CI system obeys, wherever the report shows it."""

from __future__ import annotations

import re

from hypothesis import example, given
from hypothesis import strategies as st

from pytest_rollout.report.inert import inert_text, one_line
from pytest_rollout.report.terminal import check_lines, indented, inert
from pytest_rollout.reward import Check

TEXTS = st.text(st.sampled_from("#:[]| \t\n\r\x0b\x1b\x85\u2028\u3000vsoteamcity") | st.characters())


def obeyed(line: str) -> bool:
    """What the runners of GitHub, Azure and TeamCity take for a command."""
    return line.lstrip().startswith("::") or re.search(r"##(?:vso|teamcity)?\[", line) is not None


def lines_of(text: str) -> list[str]:
    """The lines as the most eager reader takes them."""
    return re.split(r"\r\n|[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]", text)


@given(TEXTS)
@example(":")
@example("###[x]")
@example("####vso[x]")
@example("a\r::b")
@example("a\u2028::b")
@example("\u3000::b")
@example("##\x00vso[")
def test_no_line_is_obeyed(text: str) -> None:
    check = Check(name=text or "a", weight=1.0, value=0.0, message=text)
    shown = [inert_text(text), one_line(text), inert(text.replace("\n", " ")), indented(text), *check_lines([check])]
    for made in shown:
        assert [line for line in lines_of(made) if obeyed(line)] == []
        made.encode("utf-8")
    assert len(lines_of(inert_text(text))) == text.count("\n") + 1
    assert "\n" not in one_line(text)


def test_the_commands_of_these_tests_are_obeyed_as_they_are() -> None:
    assert all(map(obeyed, ["::error::x", "  ::stop-commands::x", "##[group]", "x ##vso[y]", "##teamcity[x]"]))
    assert not any(map(obeyed, ["a::b", "## x", "#[x]"]))
