"""Keys of the known forms are found wherever they stand; what only looks like one stays."""

from __future__ import annotations

import pytest

from pytest_rollout.redaction.patterns import PATTERNS, Pattern
from pytest_rollout.redaction.redactor import Redactor

from .samples import KEYS, LOOKALIKES

_ALL = [(label, key) for label, keys in KEYS.items() for key in keys]


def test_every_form_has_a_sample() -> None:
    assert set(KEYS) == {pattern.label for pattern in PATTERNS}


@pytest.mark.parametrize(("label", "key"), _ALL, ids=[f"{label} {number}" for number, (label, _) in enumerate(_ALL)])
@pytest.mark.parametrize(
    ("before", "after"),
    [("", ""), ("x=", "\n"), ('{"key": "', '", "more": 1}'), ("a ", " b"), ("it\\n", "\\n"), ("\x1b[1;32m", "\x1b[0m")],
)
def test_a_key_is_replaced_as_a_whole(label: str, key: str, before: str, after: str) -> None:
    assert Redactor().text(f"{before}{key}{after}") == f"{before}[redacted: {label}]{after}"


@pytest.mark.parametrize("text", LOOKALIKES, ids=range(len(LOOKALIKES)))
def test_what_only_looks_like_a_key_stays(text: str) -> None:
    redactor = Redactor()
    assert redactor.text(text) is text
    assert redactor.text(f"({text})") == f"({text})"


def test_a_block_that_was_cut_short_is_a_key_too() -> None:
    key = KEYS["private key"][0]
    assert Redactor().text(key[:200]) == "[redacted: private key]"


@pytest.mark.parametrize("before", ["\\u003d", "\\t", "token%3D", "\x1b[m", "\x1b[38;2;100;200;25m", "\\u001b[0m", "/"])
def test_an_escape_is_a_border(before: str) -> None:
    assert Redactor().text(f"{before}{KEYS['github token'][0]}") == f"{before}[redacted: github token]"


@pytest.mark.parametrize("before", ["x", "a-", "b_", "0m", "%3"])
def test_the_middle_of_a_word_is_none(before: str) -> None:
    text = f"{before}{KEYS['github token'][0]}"
    assert Redactor().text(text) == text


def test_a_key_begins_at_a_border_and_two_that_touch_are_two() -> None:
    (first, second) = KEYS["npm token"][0], KEYS["hugging face token"][0]
    assert Redactor().text(f"x{first}") == f"x{first}"
    assert Redactor().text(f"{first}/{second}") == "[redacted: npm token]/[redacted: hugging face token]"


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.prefixes[0].decode())
@pytest.mark.parametrize("filler", [b"A", b"a-", b"\nAb: x: ", b"\\n", b"eyJ."], ids=repr)
def test_no_form_backtracks_without_end(pattern: Pattern, filler: bytes) -> None:
    """Not timed: one that did would never come back."""
    text = (pattern.prefixes[0] + b"RSA PRIVATE KEY-----" + filler * 400 + b"-!") * 3
    redactor = Redactor(patterns=(pattern,))
    assert len(redactor.data(text)) <= len(text)
    assert redactor.open_from(text) <= len(text)
