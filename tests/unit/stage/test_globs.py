"""Globs over paths: what fits, and that no path of a candidate's is slow to match."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_rollout.stage import globs as module
from pytest_rollout.stage.globs import Glob


@pytest.mark.parametrize(
    ("pattern", "fits", "misses"),
    [
        ("a*b", ["ab", "axxb", "a\nb"], ["a/b", "abc", "xab"]),
        ("a?b", ["axb"], ["a/b", "ab"]),
        ("a[!x]b", ["ayb"], ["axb", "a/b"]),
        ("a[.-0]b", ["a.b", "a0b"], ["a/b"]),
        ("**", ["a", "a/b/c"], []),
        ("**/x", ["x", "a/x", "a/b/x"], ["ax", "x/a"]),
        ("a/**/x", ["a/x", "a/b/c/x"], ["ax", "a/bx"]),
        ("a/**", ["a/b", "a/b/c"], ["a", "ab"]),
        ("[a^]x", ["ax", "^x"], ["bx"]),
        ("[\\d]", ["d", "\\"], ["5"]),
        ("[", ["["], ["a"]),
        ("[]", ["[]"], ["[", "]"]),
        ("[a--]", ["[a--]"], ["a", "-"]),
        ("[&&~~||]", ["&", "~", "|"], ["a"]),
        ("[a-cx-z]", ["b", "y"], ["d", "-"]),
        ("[-a]", ["-", "a"], ["b"]),
        ("[a-]", ["-", "a"], ["b"]),
        ("[z-a]", ["[z-a]"], ["z", "m"]),
        ("a.b+(c)|$", ["a.b+(c)|$"], ["aXb+(c)|$", "a.bb+(c)|$"]),
        (".*", [".hidden"], ["hidden"]),
        ("*", [".hidden", "shown"], []),
    ],
)
def test_glob_patterns(pattern: str, fits: list[str], misses: list[str]) -> None:
    glob = Glob(pattern)
    assert [path for path in fits if not glob.fits(path)] == []
    assert [path for path in misses if glob.fits(path)] == []


PARTS = {"a": "a", "b": "b", "/": "/", "*": "[^/]*", "?": "[^/]", "**": ".*", "**/": "(?:[^/]+/)*", "[a.]": "[a.]"}
NAMES = st.text("ab.", min_size=1, max_size=3)


@given(st.lists(st.sampled_from(sorted(PARTS)), max_size=7), st.lists(NAMES, min_size=1, max_size=4))
def test_globs_are_what_a_regular_expression_of_the_same_parts_is(parts: list[str], names: list[str]) -> None:
    pattern, path = "".join(parts), "/".join(names)
    words = re.findall(r"\*\*/|\*\*|\[a\.\]|.", pattern)
    expression = "".join(PARTS[word] for word in words)
    assert Glob(pattern).fits(path) == bool(re.fullmatch(expression, path))


class Counted(str):
    """A path that counts how often it is read through."""

    rounds = 0

    def __iter__(self):  # type: ignore[no-untyped-def]
        Counted.rounds += 1
        return super().__iter__()


def test_a_path_is_read_once_however_many_stars_a_glob_has() -> None:
    path = Counted("a/" * 2047 + "c")
    Counted.rounds = 0
    glob = Glob("**/a/**/a/**/*a*/**b")
    assert not glob.fits(path)
    assert Counted.rounds == 1
    assert len(glob._next) < 50  # as few sets of states as there are kinds of places, not one for each character


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_KNOWN", 10)
    glob = Glob("**x")
    assert glob.fits("".join(map(chr, range(0x4E00, 0x4E00 + 500))) + "x")
    assert len(glob._next) <= 10
