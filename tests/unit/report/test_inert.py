"""Text that a candidate may have written, made inert."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_rollout.report.inert import inert_json, inert_repr, inert_text, one_line


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("plain\n  indented\ttab\n", "plain\n  indented\ttab\n"),
        ("::error::x", "| ::error::x"),
        ("a\n \t::error::x\nb::c", "a\n|  \t::error::x\nb::c"),
        ("a\r::error::x", "a\\x0d::error::x"),
        ("##[error]x ##vso[task.complete] ##teamcity[x]", "# #[error]x # #vso[task.complete] # #teamcity[x]"),
        ("## A heading", "## A heading"),
        ("\x1b[31m\x00\x07\x7f\u202e\ud800", r"\x1b[31m\x00\x07\x7f\u202e\ud800"),
    ],
)
def test_inert_text(text: str, shown: str) -> None:
    assert inert_text(text) == shown
    assert inert_text(shown) == shown


def test_one_line() -> None:
    assert one_line("a\n::b\r") == r"a\n::b\x0d"
    assert one_line("::b") == "| ::b"


@given(st.text(st.sampled_from("#[\\"), max_size=8) | st.text())
def test_inert_json_means_the_same(text: str) -> None:
    shown = inert_json(json.dumps({text: [text]}))
    assert json.loads(shown) == {text: [text]}
    assert "##" not in shown


def test_inert_repr_goes_through_what_pytest_makes() -> None:
    try:
        raise RuntimeError("one\r::error::two\n\x1b[31mthree")
    except RuntimeError as error:
        found = pytest.ExceptionInfo.from_exception(error).getrepr()
    before = str(found)
    assert "\x1b" in before
    assert inert_repr(found) is found
    after = str(found)
    assert "\x1b" not in after
    assert "\r" not in after
    assert after.count("\n") == before.count("\n")
    assert re.search(r"^E +RuntimeError: one\\x0d::error::two$", after, re.MULTILINE)


def test_inert_repr_of_other_things() -> None:
    other = SimpleNamespace(text="::error::")
    assert inert_repr(None) is None
    assert inert_repr(("path", 3, "::error::")) == ("path", 3, "| ::error::")
    assert inert_repr(other) is other
    assert other.text == "::error::"
