"""A stream that comes in any pieces loses what the whole loses, which is the union of all that fits anywhere."""

from __future__ import annotations

from itertools import count, pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_rollout.executors.capture import Capture, dropped_marker
from pytest_rollout.redaction.redactor import Redactor
from pytest_rollout.redaction.stream import RedactedStream

from .samples import KEYS

REDACTOR = Redactor()
# Values that begin and end like each other, and like themselves.
REDACTOR.learn({"A_KEY": "abcab-1234-abcab", "B_KEY": "abcab-9876-xyz", "C_TOKEN": "1234-abcab-1234-q"})
_keys = [keys[0].encode() for keys in KEYS.values()]
_values = [b"abcab-1234-abcab", b"abcab-9876-xyz", b"1234-abcab-1234-q"]
_parts = st.one_of(
    st.binary(max_size=12),
    st.sampled_from(_values),
    st.sampled_from([b"\\n", b"\\u003d", b"\x1b[38;2;100;200;255m", b"%3D", b"-", b"."]),
    st.sampled_from(_keys),
    st.sampled_from([*_values, *_keys]).flatmap(lambda key: st.integers(0, len(key)).map(lambda at: key[:at])),
    st.sampled_from([*_values, *_keys]).flatmap(lambda key: st.integers(0, len(key)).map(lambda at: key[at:])),
)
texts = st.lists(_parts, max_size=6).map(b"".join)
cuts = st.lists(st.integers(0, 3000), max_size=8)
_numbers = count()


def by_hand(data: bytes) -> bytes:
    """The rule, written again: every byte that is in anything that fits is gone."""
    fits: dict[int, tuple[int, str]] = {}
    for at in range(len(data)):
        there = [(0, -len(n), label) for n, label in REDACTOR._known.needles if data.startswith(n, at)]
        for pattern in REDACTOR._patterns:
            match = pattern.whole.match(data, at)
            if match is not None:
                there.append((1, at - match.end(), pattern.label))
        if there:
            _, _, label = min(there, key=lambda each: each[:2])
            fits[at] = (at + max(-each[1] for each in there), label)
    out, end = bytearray(), 0
    for at in range(len(data)):
        if at in fits:
            if at >= end:
                out += f"[redacted: {fits[at][1]}]".encode()
            end = max(end, fits[at][0])
        if at >= end:
            out.append(data[at])
    return bytes(out)


def pieces_of(data: bytes, at: list[int]) -> list[bytes]:
    """The data, cut."""
    points = [0, *sorted(min(cut, len(data)) for cut in at), len(data)]
    return [data[start:end] for start, end in pairwise(points)]


@given(data=texts)
def test_the_whole_is_redacted_by_the_rule(data: bytes) -> None:
    assert REDACTOR.data(data) == by_hand(data)


@given(data=texts, at=cuts)
def test_a_stream_in_pieces_is_the_whole(data: bytes, at: list[int]) -> None:
    stream = RedactedStream(REDACTOR)
    out = [piece for cut in pieces_of(data, at) for piece in stream.feed(cut)] + stream.close()
    assert b"".join(piece.shown for piece in out) == REDACTOR.data(data)
    assert b"".join(piece.raw for piece in out) == data
    assert stream.held == b""


@given(data=texts)
def test_a_stream_byte_by_byte_is_the_whole(data: bytes) -> None:
    stream = RedactedStream(REDACTOR)
    out = [piece for number in range(len(data)) for piece in stream.feed(data[number : number + 1])] + stream.close()
    assert b"".join(piece.shown for piece in out) == REDACTOR.data(data)


@given(data=texts, limit=st.integers(1, 400), at=cuts)
def test_a_capture_keeps_the_ends_of_the_redacted_stream(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, limit: int, at: list[int]
) -> None:
    path = tmp_path_factory.getbasetemp() / f"redacted-stream-{next(_numbers)}"
    capture = Capture(path, limit, REDACTOR)
    for cut in pieces_of(data, at):
        capture.feed(memoryview(cut))
    kept = capture.close()
    whole, content = REDACTOR.data(data), path.read_bytes()
    path.unlink()
    assert capture.total == len(data)
    if not kept.dropped:
        assert content == whole
        assert kept.kept == len(content) <= limit
        return
    head, tail = _split(content, kept.dropped, kept.kept)
    assert kept.kept <= limit
    assert whole.startswith(head)
    assert len(head) <= limit - limit // 2
    assert len(tail) <= limit // 2
    assert whole.endswith(tail)
    for value in _values:
        assert value not in content.replace(dropped_marker(kept.dropped), b"")


def _split(content: bytes, dropped: int, kept: int) -> tuple[bytes, bytes]:
    head, found, tail = content.partition(dropped_marker(dropped))
    assert found
    assert len(head) + len(tail) == kept
    return head, tail


def test_only_what_may_become_a_secret_is_held_back() -> None:
    stream = RedactedStream(REDACTOR)
    assert b"".join(piece.shown for piece in stream.feed(b"all is well: abcab-12")) == b"all is well: "
    assert stream.held == b"abcab-12"
    assert b"".join(piece.shown for piece in stream.feed(b"..")) == b"abcab-12.."
    assert stream.held == b""


def test_what_is_held_back_is_bounded_however_secrets_overlap() -> None:
    redactor = Redactor()
    redactor.learn({"A_KEY": "ab-deab-de"})
    stream = RedactedStream(redactor)
    shown, longest = b"", 0
    for _ in range(400):
        shown += b"".join(piece.shown for piece in stream.feed(b"ab-de" * 20))
        longest = max(longest, len(stream.held))
    shown += b"".join(piece.shown for piece in stream.close())
    assert shown == b"[redacted: A_KEY]"
    assert longest < 10


@pytest.mark.parametrize("after", range(0, 44, 3))
def test_a_tail_that_was_cut_back_in_memory_begins_with_no_part_of_a_secret(tmp_path: Path, after: int) -> None:
    redactor = Redactor(patterns=())
    redactor.learn({"A_KEY": "abcab-1234-abcab"})
    data = b"abcab-1234-abcab" + b"-" * 199_984 + b"abcab-1234-abcab" + b"." * after
    capture = Capture(tmp_path / "stdout", 80, redactor)
    for start in range(0, len(data), 777):
        capture.feed(data[start : start + 777])
    kept = capture.close()
    head, tail = _split((tmp_path / "stdout").read_bytes(), kept.dropped, kept.kept)
    assert head == b"[redacted: A_KEY]" + b"-" * 23
    whole = b"-" * 40 + b"[redacted: A_KEY]" + b"." * after
    room = after <= 40 - len(b"[redacted: A_KEY]")
    assert tail == (whole[-40:] if room else b"." * min(after, 40))
    represented = 16 + 23 + (40 - len(b"[redacted: A_KEY]") + 16 if room else min(after, 40))
    assert kept.dropped == len(data) - represented
