"""The forms of keys that providers give out, as far as a prefix tells them from other text.

A length alone tells nothing: a git hash, a UUID and base64 data stay as they are. The formats are those
that the providers publish; where they only promise a prefix, a minimum length stands in.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

__all__ = ["CONTEXT", "PATTERNS", "Pattern"]

_ALNUM, _WORD = "[A-Za-z0-9]", "[A-Za-z0-9_-]"


CONTEXT = 20  # bytes in front of a key, on which it may depend
_COLOURS = "|".join(rf"(?<=\[[0-9;]{{{count}}}m)" for count in range(CONTEXT - 2))


def _border(more: str = "") -> str:
    """Where a key may start: behind a character that no key has, or an escape of JSON, of a terminal or a URL.

    No key starts inside another one's characters: a text of nothing but beginnings would be read over and over.
    """
    url = "" if "%" in more else "|(?<=%[0-9A-Fa-f]{2})"
    return rf"(?:(?<![A-Za-z0-9_{more}-])|(?<=\\[bfnrt])|(?<=\\u[0-9A-Fa-f]{{4}}){url}|(?<=m)(?:{_COLOURS}))"


@dataclass(frozen=True)
class Pattern:
    """One form. ``prefixes`` are texts that every key of it begins with, one of them each.

    A key has ``anchor``, one of them, ``offset`` bytes behind its start, and looks no further than ``reach`` bytes.
    ``key`` and ``beginning`` are expressions, compiled when a text first has an anchor: hardly any has.
    """

    label: str
    prefixes: tuple[bytes, ...]
    anchors: tuple[bytes, ...]
    offset: int
    key: str
    beginning: str
    reach: int

    @cached_property
    def whole(self) -> re.Pattern[bytes]:
        """Finds a key where one starts."""
        return re.compile(self.key.encode())

    @cached_property
    def opening(self) -> re.Pattern[bytes]:
        """Finds what may become a key, or a longer one, with more text."""
        return re.compile(self.beginning.encode())


def _pattern(
    label: str,
    prefixes: str,
    body: str,
    reach: int,
    opening: str,
    *,
    anchors: str = "",
    offset: int = 0,
    before: str | None = None,
) -> Pattern:
    """A form of key: a prefix, then ``body`` of at most ``reach`` bytes; ``opening`` fits all that it may begin with.

    Prefixes are separated by blanks; a ``~`` in one is a blank of its own.
    """
    words = prefixes.split()
    start = f"{before or _border()}(?:{'|'.join(re.escape(word) for word in words)})".replace("\\~", " ")
    return Pattern(
        label=label,
        prefixes=_words(prefixes),
        anchors=_words(anchors or prefixes),
        offset=offset,
        key=f"{start}{body}",
        beginning=f"{start}(?:{opening})\\Z",
        reach=reach + max(map(len, words)) + 1,  # a condition on what follows looks at one byte more
    )


def _words(text: str) -> tuple[bytes, ...]:
    return tuple(word.replace("~", " ").encode() for word in text.split())


def _token(
    label: str, prefixes: str, characters: str, least: int, most: int, anchors: str = "", offset: int = 0
) -> Pattern:
    body, opening = f"{characters}{{{least},{most}}}", f"{characters}{{0,{most}}}"
    before = _border("".join(each for each in ".%" if each in characters))
    return _pattern(label, prefixes, body, most, opening, anchors=anchors, offset=offset, before=before)


def _exact(label: str, prefixes: str, characters: str, length: int) -> Pattern:
    """A key of one length, which no letter or digit follows."""
    body = f"{characters}{{{length}}}(?!{_ALNUM})"
    return _pattern(label, prefixes, body, length + 1, f"{characters}{{0,{length}}}")


# A block of a private key, with line ends as they are or as ``\n`` in JSON; a block that was cut short counts too.
_KEY_HEAD, _KEY_TAIL = (rf"{mark}[A-Z0-9 ]{{0,32}}PRIVATE KEY[A-Z ]{{0,8}}-----" for mark in ("", "-----END "))
_LINE_END = r"(?:\r?\n|(?:\\r)?\\n)"
_KEY_BODY = (
    rf"(?:{_LINE_END}[A-Z][A-Za-z-]{{2,16}}: [^\r\n\\]{{0,80}}){{0,4}}"
    rf"(?:\s|\\[rn]){{1,8}}[A-Za-z0-9+/=]{{40}}[A-Za-z0-9+/=\s\\]{{0,16384}}(?:{_KEY_TAIL})?"
)
_KEY_OPENING = (
    rf"[A-Z0-9 ]{{0,60}}-{{0,5}}|{_KEY_HEAD}(?:{_LINE_END}[A-Z][A-Za-z-]{{0,16}}(?::[^\r\n\\]{{0,81}})?){{0,4}}"
    r"[A-Za-z0-9+/=\s\\]{0,16600}(?:-{1,5}[A-Z0-9 ]{0,60}-{0,5})?"
)

# Three parts in base64; the first two are objects.
_TOKEN_BODY = rf"{_WORD}{{8,4000}}\.eyJ{_WORD}{{8,8000}}\.{_WORD}{{16,2000}}"
_TOKEN_OPENING = rf"{_WORD}{{0,4000}}(?:\.e?|\.ey|\.eyJ{_WORD}{{0,8000}}(?:\.{_WORD}{{0,2000}})?)?"

PATTERNS = (
    _token("openai key", "sk-proj- sk-svcacct- sk-admin-", _WORD, 20, 250, anchors="sk-"),
    _token("anthropic key", "sk-ant-", _WORD, 20, 250, anchors="sk-"),
    _token("openrouter key", "sk-or-v1-", _ALNUM, 32, 128, anchors="sk-"),
    _token("api key", "sk-", _ALNUM, 32, 128),  # OpenAI's first form, and those who took it over
    _token("github token", "ghp_ gho_ ghu_ ghr_", _ALNUM, 36, 251),
    _token("github token", "ghs_", "[A-Za-z0-9_.-]", 36, 1000),
    _token("github token", "github_pat_", "[A-Za-z0-9_]", 40, 244),
    _exact("aws access key id", "AKIA ASIA", "[A-Z2-7]", 16),
    _exact("google key", "AIza", _WORD, 35),
    _token("google oauth secret", "GOCSPX-", _WORD, 28, 64),
    _token("slack token", "xoxa- xoxb- xoxc- xoxe- xoxo- xoxp- xoxr- xoxs-", "[A-Za-z0-9-]", 20, 300, anchors="xox"),
    _token("slack token", "xoxd-", "[A-Za-z0-9%-]", 20, 400, anchors="xox"),
    _token("slack token", "xoxe.xoxp- xoxe.xoxb- xapp-", "[A-Za-z0-9-]", 20, 300),
    _token("hugging face token", "hf_", _ALNUM, 34, 64),
    _token("gitlab token", "glpat- gldt- glrt- glcbt- glptt-", "[A-Za-z0-9_.-]", 20, 320),
    _token("stripe key", "sk_live_ sk_test_ rk_live_ rk_test_", _ALNUM, 16, 250, anchors="k_live_ k_test_", offset=1),
    _token("stripe webhook secret", "whsec_", "[A-Za-z0-9+/=]", 32, 100),
    _exact("npm token", "npm_", _ALNUM, 36),
    _token("pypi token", "pypi-AgEIcHlwaS5vcmc pypi-AgENdGVzdC5weXBpLm9yZw", _WORD, 50, 1000, anchors="pypi-Ag"),
    _pattern("json web token", "eyJ", _TOKEN_BODY, 14_010, _TOKEN_OPENING),
    _pattern("private key", "-----BEGIN~", _KEY_HEAD + _KEY_BODY, 17_200, _KEY_OPENING),
)
