"""Turn anything into plain JSON values and printable text.

What crosses to another process, into JSON or into XML goes through here first. A lone surrogate, a
Path or an Enum would otherwise lose the test that carries it (execnet refuses it), and a control
character would make a report unreadable.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

__all__ = ["clean", "clean_text", "nearest", "printable", "shown_path", "xml_text"]

_CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
_NOT_XML = re.compile(r"[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufdcf\ufdf0-\ufffd\U00010000-\U0010ffff]")
_ESCAPED = re.compile(rb"\\x([0-9a-f]{2})")
_MAX_LEVELS = 100


def clean_text(text: str) -> str:
    """``text`` with lone surrogates written as ``\\udcff``: it encodes as UTF-8."""
    if type(text) is str and text.isascii():
        return text  # itself, not a copy: reports are kept to the end of a session
    return text.encode("utf-8", "backslashreplace").decode()


def clean(value: Any) -> Any:
    """``value`` as None, bool, int, float, str, list, tuple and dict only; anything else as its text.

    Tuples stay tuples: pytest's report serialiser takes some of its own apart again. A value that holds
    itself, and what lies under 100 levels, is ``…``.
    """
    return _clean(value, ())


def _clean(value: Any, above: tuple[int, ...]) -> Any:
    """``above`` are the ids of the containers that ``value`` is in."""
    if value is None or type(value) in (bool, float):
        return value
    if type(value) is int:
        return value if -(2**31) <= value < 2**63 else _text(value)
    if type(value) is str:
        return clean_text(value)
    if isinstance(value, dict | list | tuple | set | frozenset):
        if len(above) >= _MAX_LEVELS or id(value) in above:
            return "…"
        above = (*above, id(value))
        if isinstance(value, dict):
            return {_key(key): _clean(item, above) for key, item in value.items()}
        items = [_clean(item, above) for item in value]
        return tuple(items) if type(value) is tuple else items
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, bool | int | float):
        return _number(value)
    return _text(value)


def _key(key: Any) -> Any:
    """A text or a number: what msgspec, json and execnet all take as a key."""
    return clean(key) if isinstance(key, str | bytes | int | float) and not isinstance(key, bool) else _text(key)


def _text(value: Any) -> str:
    """The text of a value, also of one that has none: it must not take the whole report with it."""
    try:
        return clean_text(str(value))
    except Exception as error:  # noqa: BLE001  the code of a suite's own class
        if isinstance(value, int):
            return f"<int of {value.bit_length()} bits>"
        return f"<{type(value).__name__}: its text raised {type(error).__name__}>"


def nearest(word: str, valid: Iterable[str]) -> str:
    """`` Did you mean 'x'?`` for a misspelt word, or nothing."""
    import difflib  # needed for a mistake only

    close = difflib.get_close_matches(word, list(valid), n=1, cutoff=0.6)
    return f" Did you mean {close[0]!r}?" if close else ""


def _number(value: float) -> Any:
    """A plain number out of a subclass (an IntEnum, a numpy float)."""
    if isinstance(value, int):
        return clean(int(value))
    return float(value) if math.isfinite(value) else str(float(value))


def printable(text: str) -> str:
    """``text`` safe for a terminal and a log: control characters and bidi overrides are escaped."""
    return _CONTROL.sub(_escape, text)


def shown_path(shown: str) -> bytes:
    """The path that :func:`pytest_rollout.stage.tree.show` has shown as this text: it escapes backslashes too."""
    return _ESCAPED.sub(lambda match: bytes.fromhex(match[1].decode()), shown.encode())


def xml_text(text: str) -> str:
    """``text`` with every character that XML 1.0 forbids written as ``\\x00`` or ``\\ud800``."""
    return _NOT_XML.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
