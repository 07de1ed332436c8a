"""Plain values across a boundary: what may cross, and how it is written."""

from __future__ import annotations

import json
import os
from typing import Any

__all__ = ["CROSSING", "MAX_ANSWER", "Message", "answer_with", "describe", "encode", "plain", "written"]

MAX_ANSWER = 8 << 20
MAX_DEPTH = 150
PLAIN = (type(None), bool, int, float, str)
CROSSING = "only None, bool, int, float, str, list and dict cross"

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
    at, data = 0, len(data).to_bytes(8, "big") + data
    while at < len(data):
        at += os.pwrite(fd, data[at:], at)
