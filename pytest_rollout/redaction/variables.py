"""Which variables hold secrets, and how a secret may be spelled in a text.

A name decides, never a value: a value is left out only where redacting it would take ordinary words out
of every text. What is left out is told by name.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator
from urllib.parse import quote, quote_plus

from pytest_rollout.plain import xml_text

__all__ = ["LEAST", "is_credential", "spellings", "why_not"]

LEAST = 8  # characters: what is shorter is met by chance
_DISTINCT = 5
_WORD, _NUMBER = 16, 12  # a plain word, or a number, that is shorter than this is met by chance
_LINE = 40

_BORDER = re.compile(r"[^A-Za-z0-9]+|(?<=[a-z0-9])(?=[A-Z])")
_WORDS = frozenset(
    (
        *("KEY", "KEYS", "PAT", "PASS", "PWD", "AUTH", "AUTHORIZATION", "BEARER", "COOKIE", "COOKIES", "CREDS"),
        *("SECRETS", "TOKENS", "PASSWORDS", "CREDENTIALS", "PASSPHRASE"),
    )
)
_ENDINGS = (
    *("TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "CREDENTIALS", "PASSPHRASE"),
    *("APIKEY", "ACCESSKEY", "SECRETKEY", "PRIVATEKEY", "AUTHKEY"),
)
_NEVER = ("PWD", "OLDPWD")
_ABOUT = frozenset(  # of a name that ends so, the value tells something about a secret
    (
        *(
            "NAME",
            "FILE",
            "FILENAME",
            "PATH",
            "DIR",
            "TYPE",
            "KIND",
            "METHOD",
            "MODE",
            "HOST",
            "PORT",
            "USER",
            "USERNAME",
        ),
        *("SOCK", "EXPIRES", "EXPIRY", "TTL", "TIMEOUT", "LENGTH", "LIMIT", "SIZE", "COUNT", "ENABLED", "REGION"),
        *("ALGORITHM", "FORMAT", "VERSION", "PREFIX", "HEADER"),
    )
)
_PLAIN_WORD = re.compile(r"[A-Za-z]?[a-z]+|[A-Z]+")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s@?]*")
_SECRET_LINE = re.compile(r"\S{16,}")


def is_credential(name: str) -> bool:
    """Whether a variable's name says that it holds a secret: ``API_KEY`` and ``dbPasswd`` do, ``KEY_FILE`` not."""
    if name in _NEVER:
        return False
    parts = [part.upper().rstrip("0123456789") for part in _BORDER.split(name)]
    return parts[-1] not in _ABOUT and any(part in _WORDS or part.endswith(_ENDINGS) for part in parts)


def why_not(value: str, exists: Callable[[str], bool]) -> str:
    """Why a value is not redacted, or nothing; ``exists`` says whether there is such a path."""
    if len(value) < LEAST:
        return f"shorter than {LEAST} characters"
    if len(set(value)) < _DISTINCT:
        return f"fewer than {_DISTINCT} different characters"
    if _PLAIN_WORD.fullmatch(value) and len(value) < _WORD:
        return "a plain word"
    if value.isdigit() and len(value) < _NUMBER:
        return "a short number"
    if value.startswith("/") and exists(value):
        return "a path of this machine"
    if _ADDRESS.fullmatch(value):
        return "an address without a password"
    return ""


def spellings(value: str) -> Iterator[bytes]:
    """A value as it may stand in a text: itself, quoted for a URL, in base64, escaped for JSON, Python or XML.

    Base64 is searched by what does not depend on the bytes around the value. Of a value of several lines,
    a line of 16 characters or more without a blank counts by itself: what shows a text may write something before each.
    """
    raw = value.encode("utf-8", "surrogateescape")
    yield raw
    text = raw.decode("utf-8", "replace")
    yield quote(raw, safe="").encode()
    yield quote(raw).encode()
    yield quote_plus(raw).encode()
    yield json.dumps(text)[1:-1].encode()
    yield json.dumps(text, ensure_ascii=False)[1:-1].encode()
    for around in ("", '"'):  # next to a double quote an apostrophe is escaped
        start = 1 + len(around)
        yield repr(around + text)[start:-1].encode()
        yield ascii(around + text)[start:-1].encode()
        yield repr(around.encode() + raw)[start + 1 : -1].encode()
    xml = xml_text(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    yield xml.encode()
    yield xml.replace('"', "&quot;").encode()
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        for before in range(3):
            whole = encode(bytes(before) + raw)
            start, end = (0, 2, 3)[before], (before + len(raw)) * 8 // 6
            yield whole[start:end]
    if "\n" in value:
        yield from (
            line.encode()
            for line in value.split("\n")
            if _SECRET_LINE.fullmatch(line) and not why_not(line, lambda path: False)
        )
