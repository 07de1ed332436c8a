"""The redactor of a process: it knows the values of variables and the forms of keys, and replaces them.

What a text loses is the union of everything that fits anywhere in it, so it doesn't matter where a search
begins or in which pieces a text comes. Where several fit over each other, one mark stands for all; it
names what begins first, a variable before a form of key.

A process makes its own from its own environment: values are never written, nor sent to another process.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pytest_rollout.redaction.patterns import PATTERNS, Pattern
from pytest_rollout.redaction.variables import LEAST, is_credential, spellings, why_not

__all__ = ["FORMS", "Redactor", "Span", "marked"]

_HEAD = 8  # bytes: what begins like a value is searched by these
_ODD = re.compile(r"[^\w.-]", re.ASCII)


class Span(NamedTuple):
    """A secret in a text, in bytes; ``rank`` is 0 for a variable's value, 1 for a form of key."""

    start: int
    rank: int
    end: int
    label: str


class _Known(NamedTuple):
    """What is searched for, made whenever a value is added; never changed."""

    needles: tuple[tuple[bytes, str], ...]
    beginnings: Mapping[int, tuple[bytes, ...]]  # by their last byte, the longest first
    reach: int


def marked(label: str) -> str:
    """What stands in the place of a secret."""
    return f"[redacted: {label}]"


class Redactor:
    """Redacts the values that it :meth:`learn`\\ s, and keys of the known forms.

    ``named`` are variables that count whatever their names; ``exists`` says whether a path exists.
    """

    def __init__(
        self,
        *,
        named: Iterable[str] = (),
        exists: Callable[[str], bool] = lambda path: False,
        patterns: Sequence[Pattern] = PATTERNS,
    ) -> None:
        self._named, self._exists, self._patterns = frozenset(named), exists, tuple(patterns)
        self._anchors = _anchors(self._patterns)
        self._labels: dict[bytes, str] = {}
        self._learned: set[tuple[str, str]] = set()
        self.names: tuple[str, ...] = ()
        self.ignored: dict[str, str] = {}
        self._known = self._compiled()

    @property
    def reach(self) -> int:
        """The longest secret, in bytes."""
        return self._known.reach

    @classmethod
    def of_process(
        cls, environment: Mapping[str, str], *, named: Iterable[str] = (), exists: Callable[[str], bool]
    ) -> Redactor:
        """A redactor that knows the secrets of an environment."""
        redactor = cls(named=named, exists=exists)
        redactor.learn(environment)
        return redactor

    # -- what is searched for

    def learn(self, variables: Mapping[str, str]) -> None:
        """Redact the values of those of these variables that hold secrets, from now on."""
        new = False
        for name, value in sorted(variables.items(), key=str):
            if (name, value) in self._learned or not isinstance(value, str):  # a callable agent may give anything
                continue
            if name not in self._named and not is_credential(name):
                continue
            self._learned.add((name, value))
            new = self._take(name, value.strip()) or new
        if new:
            self._known = self._compiled()

    def _take(self, name: str, value: str) -> bool:
        label = _ODD.sub("?", name)[:64]
        reason = why_not(value, self._exists)
        if reason and (name not in self._named or len(value) < LEAST):
            if value:
                self.ignored[label] = reason
            return False
        self.names = tuple(sorted({*self.names, label}))
        for needle in spellings(value):
            self._labels.setdefault(needle, label)
        return True

    def _compiled(self) -> _Known:
        needles = tuple(sorted(self._labels.items()))
        beginnings: dict[int, set[bytes]] = {}
        starts = [needle[: _HEAD - 1] for needle in self._labels]
        starts += [prefix[:-1] for pattern in self._patterns for prefix in pattern.prefixes]
        for start in starts:
            for length in range(1, len(start) + 1):
                beginnings.setdefault(start[length - 1], set()).add(start[:length])
        return _Known(
            needles=needles,
            beginnings={last: tuple(sorted(found, key=len, reverse=True)) for last, found in beginnings.items()},
            reach=max([0, *map(len, self._labels), *(pattern.reach for pattern in self._patterns)]),
        )

    # -- where it is

    def spans(self, data: bytes, begin: int = 0) -> list[Span]:
        """Every secret that starts at ``begin`` or behind it, in the order of their starts; they may overlap."""
        found: list[Span] = []
        for needle, label in self._known.needles:
            at = data.find(needle, begin)
            while at >= 0:
                found.append(Span(at, 0, at + len(needle), label))
                at = data.find(needle, at + 1)
        for pattern, at in self._anchored(data, begin):
            match = pattern.whole.match(data, at)
            if match is not None:
                found.append(Span(at, 1, match.end(), pattern.label))
        found.sort(key=lambda span: (span.start, span.rank, -span.end))
        return found

    def open_from(self, data: bytes, begin: int = 0) -> int:
        """Where the earliest secret may start that ends behind the end of ``data``; its length where none does."""
        size = len(data)
        if size == begin:
            return size
        open_at = size
        known = self._known
        for start in known.beginnings.get(data[-1], ()):
            if len(start) <= size - begin and data.endswith(start):
                open_at = size - len(start)
                break
        for needle, _ in known.needles:
            at = data.find(needle[:_HEAD], max(begin, size - len(needle) + 1))
            while 0 <= at < open_at:
                if data.endswith(needle[: size - at]):
                    open_at = at
                at = data.find(needle[:_HEAD], at + 1)
        for pattern, at in self._anchored(data, begin, last=True):
            if at < open_at and pattern.opening.match(data, at):
                open_at = at
        return open_at

    def _anchored(self, data: bytes, begin: int, *, last: bool = False) -> Iterator[tuple[Pattern, int]]:
        """Where a key of each form may start; with ``last`` only where it may reach the end of ``data``."""
        for anchor, offset, reach, patterns in self._anchors:
            at = data.find(anchor, (max(begin, len(data) - reach) if last else begin) + offset)
            while at >= 0:
                for pattern in patterns:
                    yield pattern, at - offset
                at = data.find(anchor, at + 1)

    # -- without it

    def found(self, text: str | bytes) -> list[str]:
        """The variables and forms of keys of which there are any in a text, without duplicates."""
        data = text if isinstance(text, bytes) else _encoded(text)
        return list(dict.fromkeys(span.label for span in self.spans(data)))

    def data(self, data: bytes) -> bytes:
        """``data`` without secrets; itself where there are none."""
        if len(data) < LEAST:
            return data
        spans = self.spans(data)
        if not spans:
            return data
        pieces, at = list[bytes](), 0
        for span in spans:
            if span.start >= at:
                pieces += [data[at : span.start], marked(span.label).encode()]
            at = max(at, span.end)
        return b"".join([*pieces, data[at:]])

    def text(self, text: str) -> str:
        """``text`` without secrets; itself where there are none."""
        if len(text) < LEAST:
            return text
        data = _encoded(text)
        cleaned = self.data(data)
        return text if cleaned is data else cleaned.decode("utf-8", "surrogatepass")

    def value(self, value: Any) -> Any:
        """A plain value (of None, numbers, texts, lists, tuples and dicts) with every text in it redacted.

        Itself where there are no secrets in it: all its texts are searched at once.
        """
        if not self.spans(_encoded("\0".join(_texts(value)))):
            return value
        return self._replaced(value)

    def _replaced(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self._replaced(key): self._replaced(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            items = [self._replaced(item) for item in value]
            return tuple(items) if isinstance(value, tuple) else items
        return value


def _texts(value: Any) -> Iterator[str]:
    """Every text in a plain value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _texts(key)
            yield from _texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)


def _encoded(text: str) -> bytes:
    """Text as bytes; what pytest read from bytes that are not UTF-8 stays as it is."""
    return text.encode("utf-8", "surrogatepass")


def _anchors(patterns: Sequence[Pattern]) -> list[tuple[bytes, int, int, list[Pattern]]]:
    """Each anchor once, with its offset in keys, their reach, and their forms."""
    found: dict[tuple[bytes, int], list[Pattern]] = {}
    for pattern in patterns:
        for anchor in pattern.anchors:
            found.setdefault((anchor, pattern.offset), []).append(pattern)
    return [(anchor, offset, max(p.reach for p in those), those) for (anchor, offset), those in found.items()]


FORMS = Redactor()  # knows no values: for what has no redactor of a session's
