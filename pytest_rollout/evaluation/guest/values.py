"""Plain values across a boundary: what may cross, and how it is written.

A call answers in JSON's own types. Between a hidden test and a proxied module, both Python, the other built-in
containers cross as well: ``packed`` writes them as ``{"~": type, "of": …}``, ``unpacked`` reads that.
"""

from __future__ import annotations

import json
import os
from typing import Any

__all__ = [
    "CROSSING",
    "MAX_ANSWER",
    "Message",
    "answer_with",
    "describe",
    "encode",
    "packed",
    "plain",
    "unpacked",
    "written",
]

MAX_ANSWER = 8 << 20
MAX_DEPTH = 150
PLAIN = (type(None), bool, int, float, str)
CROSSING = "only None, bool, int, float, str, bytes, list, tuple, set, frozenset and dict cross"
_TAG = "~"
_GROUPS: dict[str, Any] = {"tuple": tuple, "set": set, "frozenset": frozenset, "dict": dict}

Message = dict[str, Any]


def plain(value: Any, depth: int = 0) -> Any:
    """``value`` out of JSON's types only; raises TypeError that names what it is instead."""
    if depth > MAX_DEPTH:
        raise TypeError(f"a value nested deeper than {MAX_DEPTH} levels")
    kind = type(value)
    if kind in PLAIN:
        return value
    if kind in (list, tuple):
        return [plain(item, depth + 1) for item in value]
    if kind is dict:
        for key in value:
            if type(key) is not str:
                raise TypeError(f"a dict with a key of type {type(key).__name__}")
        return {key: plain(item, depth + 1) for key, item in value.items()}
    raise TypeError(f"an object of type {kind.__module__}.{kind.__qualname__}")


def packed(value: Any, depth: int = 0) -> Any:
    """``value`` in JSON's types, with a tag where it is none of them; raises TypeError that names what can't cross."""
    if depth > MAX_DEPTH:
        raise TypeError(f"a value nested deeper than {MAX_DEPTH} levels")
    kind, deeper = type(value), depth + 1
    if kind in PLAIN:
        return value
    if kind is list:
        return [packed(item, deeper) for item in value]
    if kind is dict:
        if all(type(key) is str and key != _TAG for key in value):
            return {key: packed(item, deeper) for key, item in value.items()}
        return {_TAG: "dict", "of": [[packed(key, deeper), packed(item, deeper)] for key, item in value.items()]}
    if kind in (tuple, set, frozenset):
        return {_TAG: kind.__name__, "of": [packed(item, deeper) for item in value]}
    if kind is bytes:
        return {_TAG: "bytes", "of": value.hex()}
    raise TypeError(f"an object of type {kind.__module__}.{kind.__qualname__}")


def unpacked(value: Any) -> Any:
    """The value that was packed; raises TypeError or ValueError for what nobody packed."""
    if type(value) is list:
        return [unpacked(item) for item in value]
    if type(value) is not dict:
        return value
    if _TAG not in value:
        return {key: unpacked(item) for key, item in value.items()}
    kind, of = value[_TAG], value.get("of")
    if kind == "bytes" and type(of) is str:
        return bytes.fromhex(of)
    if kind not in _GROUPS or type(of) is not list:
        raise TypeError(f"a value of the kind {kind!r}")
    return _GROUPS[kind](unpacked(of))


def encode(message: Any) -> bytes:
    """A message as bytes; raises ValueError for what has no JSON of a bearable size."""
    data = json.dumps(message).encode("utf-8", "backslashreplace")
    if len(data) > MAX_ANSWER - 8:
        raise ValueError(f"a result of {len(data)} bytes")
    return data


def written(message: Any) -> bytes:
    """A message as bytes, or why it can't be."""
    try:
        return encode(message)
    except (ValueError, RecursionError, MemoryError) as error:
        return encode({"ok": False, "kind": "not plain", "type": type(error).__name__, "text": str(error)[:500]})


def describe(error: BaseException, kind: str = "raised") -> Message:
    """An exception of the candidate's as plain values; its own ``__str__`` may not work."""
    try:
        text = str(error)[:2000]
    except BaseException:
        text = "(its text can't be made)"
    return {"ok": False, "kind": kind, "type": type(error).__name__, "text": text}


def answer_with(fd: int, data: bytes) -> None:
    """Write an answer where it is read outside."""
    room = os.fstat(fd).st_size - 8
    if len(data) > room:
        data = written(
            {"ok": False, "kind": "not plain", "type": "ValueError", "text": f"a result of {len(data)} bytes"}
        )
    at, data = 0, len(data).to_bytes(8, "big") + data
    while at < len(data):
        at += os.pwrite(fd, data[at:], at)
