"""Plain values and printable text, for any value and any text."""

from __future__ import annotations

import enum
import json
import math
import unicodedata
from fractions import Fraction
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from pytest_rollout.plain import clean, clean_text, nearest, printable, xml_text

OVERRIDES = ("LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI")
TEXTS = st.text(st.characters() | st.sampled_from("\0\x07\x1b\x7f\x85\u2028\u202e\u2066\ud800\udcff\ufdd0\ufffe"))


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Name(str):
    __slots__ = ()


class Ratio(float):
    pass


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | TEXTS
    | st.binary()
    | st.sampled_from([Colour.RED, Level.HIGH, Path("a/b"), Fraction(1, 3), Name("n\udc80"), Ratio("nan"), object()])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(SCALARS, inner)
        | st.sets(SCALARS)
        | st.frozensets(SCALARS)
    ),
    max_leaves=20,
)


def assert_plain(value: Any) -> None:
    """Exactly the types that every serialiser takes, and no text that can't be encoded."""
    if type(value) is dict:
        for key, item in value.items():
            assert type(key) in (str, int, float)
            assert_plain(key)
            assert_plain(item)
    elif type(value) in (list, tuple):
        for item in value:
            assert_plain(item)
    elif type(value) is str:
        value.encode("utf-8")
    elif type(value) is int:
        assert -(2**31) <= value < 2**63
    else:
        assert value is None or type(value) in (bool, float)


@given(VALUES)
def test_everything_becomes_plain(value: Any) -> None:
    cleaned = clean(value)
    assert_plain(cleaned)
    json.dumps(cleaned).encode("utf-8")
    msgspec.json.encode(cleaned)


@given(VALUES)
def test_what_is_plain_stays(value: Any) -> None:
    cleaned = clean(value)
    assert repr(clean(cleaned)) == repr(cleaned)


@given(VALUES)
def test_execnet_takes_it_to_another_process(value: Any) -> None:
    execnet = pytest.importorskip("execnet")
    cleaned = clean(value)
    assert repr(execnet.loads(execnet.dumps(cleaned))) == repr(cleaned)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Path("a/b"), "a/b"),
        (Colour.RED, "Colour.RED"),
        (Level.HIGH, 3),
        (Name("x\udcff"), "x\\udcff"),
        (Ratio(0.5), 0.5),
        (Ratio("inf"), "inf"),
        (Fraction(1, 3), "1/3"),
        (b"\xffok", "\\xffok"),
        (bytearray(b"x"), "bytearray(b'x')"),
        ((1, [2, (3,)]), (1, [2, (3,)])),
        ({1}, [1]),
        (frozenset({"a"}), ["a"]),
        ({Path("k"): Path("v"), 1: 2, None: 3, Level.HIGH: 4}, {"k": "v", 1: 2, "None": 3, 3: 4}),
        ({b"k": 1, True: 2}, {"k": 1, "True": 2}),
        (2**63 - 1, 2**63 - 1),
        (2**63, "9223372036854775808"),
        (-(2**31), -(2**31)),
        (-(2**31) - 1, "-2147483649"),
        (True, True),
        ("\ud800", "\\ud800"),
    ],
)
def test_values_by_example(value: Any, expected: Any) -> None:
    cleaned = clean(value)
    assert cleaned == expected
    assert type(cleaned) is type(expected)


def test_a_number_of_too_many_digits_is_told_by_its_size() -> None:
    assert clean(10**5000) == "<int of 16610 bits>"
    assert clean({"n": -(10**5000)}) == {"n": "<int of 16610 bits>"}


def test_a_value_without_a_text_does_not_end_the_report() -> None:
    class Broken:
        def __str__(self) -> str:
            raise RuntimeError("no text")

    assert clean([Broken()]) == ["<Broken: its text raised RuntimeError>"]


def test_a_value_that_holds_itself_ends() -> None:
    inner: list[Any] = [1]
    inner.append(inner)
    twice: list[Any] = []
    twice += [twice, twice, {"k": inner}]
    assert clean({"a": inner, "b": inner}) == {"a": [1, "…"], "b": [1, "…"]}
    assert clean(twice) == ["…", "…", {"k": [1, "…"]}]


def test_deep_values_are_cut_and_shallow_ones_are_not() -> None:
    def nest(levels: int) -> Any:
        value: Any = "end"
        for _ in range(levels):
            value = [value]
        return value

    assert clean(nest(100)) == nest(100)
    assert "end" not in json.dumps(clean(nest(101)))
    assert_plain(clean(nest(50_000)))


def test_clean_text_is_no_copy_where_nothing_is_to_clean() -> None:
    text = "".join(["rollout", ".task"])
    assert clean_text(text) is text


def test_clean_text_of_a_subclass_is_plain() -> None:
    class Name(str):
        __slots__ = ()

    assert type(clean_text(Name("agent"))) is str


@given(TEXTS)
def test_clean_text_encodes_and_keeps_what_could_be_encoded(text: str) -> None:
    cleaned = clean_text(text)
    cleaned.encode("utf-8")
    if not any("\ud800" <= c <= "\udfff" for c in text):
        assert cleaned == text


@given(TEXTS)
def test_xml_text_is_legal_in_xml_1_0(text: str) -> None:
    cleaned = xml_text(text)
    root = etree.fromstring(f"<a>{escape(cleaned)}</a>".encode())
    assert (root.text or "") == cleaned.replace("\r\n", "\n").replace("\r", "\n")
    assert xml_text(cleaned) == cleaned


@given(TEXTS)
def test_printable_text_moves_no_cursor_and_turns_no_line(text: str) -> None:
    cleaned = printable(text)
    cleaned.encode("utf-8")
    for character in cleaned:
        category = unicodedata.category(character)
        assert category not in ("Cc", "Cs", "Zl", "Zp") or character in "\t\n"
        assert unicodedata.bidirectional(character) not in OVERRIDES
    assert printable(cleaned) == cleaned


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain \t ascii\n", "plain \t ascii\n"),
        ("\x1b[31mred\r\x07", "\\x1b[31mred\\x0d\\x07"),
        ("a\x85b\x9bc", "a\\x85b\\x9bc"),
        ("\u202egnp.exe\u2069", "\\u202egnp.exe\\u2069"),
        ("\u2028\ud83d", "\\u2028\\ud83d"),
        ("größe 😀", "größe 😀"),
    ],
)
def test_printable_by_example(text: str, expected: str) -> None:
    assert printable(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\x00\x1f\x7f\x85", "\\x00\\x1f\\x7f\x85"),
        ("\ufffe\uffff\ufdd0\ud800", "\\ufffe\\uffff\\ufdd0\\ud800"),
        ("\t\n\r<&>😀", "\t\n\r<&>😀"),
    ],
)
def test_xml_text_by_example(text: str, expected: str) -> None:
    assert xml_text(text) == expected


def test_the_nearest_word_is_named_or_none() -> None:
    assert nearest("promt", ("prompt", "samples")) == " Did you mean 'prompt'?"
    assert nearest("zzz", ("prompt", "samples")) == ""
    assert nearest("x", ()) == ""


def test_nan_is_kept_as_a_float() -> None:
    cleaned = clean([float("nan")])
    assert math.isnan(cleaned[0])
