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

__all__ = ["clean", "clean_text", "nearest", "printable", "xml_text"]

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_NOT_XML = re.compile(r"[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufdcf\ufdf0-\ufffd\U00010000-\U0010ffff]")


def clean_text(text: str) -> str:
    """``text`` with lone surrogates written as ``\\udcff``: it encodes as UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()


def clean(value: Any) -> Any:
    """``value`` as None, bool, int, float, str, list, tuple and dict only; anything else as its text.

    Tuples stay tuples: pytest's report serialiser takes some of its own apart again.
    """
    if value is None or type(value) in (bool, float):
        return value
    if type(value) is int:
        return value if -(2**31) <= value < 2**63 else str(value)
    if type(value) is str:
        return clean_text(value)
    if isinstance(value, dict):
        return {
            clean(key) if isinstance(key, str | int | float) else clean_text(str(key)): clean(item)
            for key, item in value.items()
        }
    if type(value) is tuple:
        return tuple(clean(item) for item in value)
    if isinstance(value, list | tuple | set | frozenset):
        return [clean(item) for item in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, bool | int | float):
        return _number(value)
    return clean_text(str(value))


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


def xml_text(text: str) -> str:
    """``text`` with every character that XML 1.0 forbids written as ``\\x00`` or ``\\ud800``."""
    return _NOT_XML.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
