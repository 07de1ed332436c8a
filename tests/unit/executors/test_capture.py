"""Head and tail of a stream are kept to the byte, and what was dropped is counted."""

from __future__ import annotations

import errno
import os
import stat
import tracemalloc
from collections.abc import Iterator
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_rollout.bundle import Captured
from pytest_rollout.errors import HostError, RecordingError
from pytest_rollout.executors.capture import Capture, dropped_marker

_numbers = count()


@pytest.fixture
def names(tmp_path: Path) -> Iterator[Path]:
    """New paths of files."""
    return (tmp_path / f"stream-{number}" for number in _numbers)


def expected(data: bytes, limit: int) -> tuple[bytes, int, int]:
    """What the file holds, and the bytes kept and dropped: the rule, written again."""
    if len(data) <= limit:
        return data, len(data), 0
    tail = limit // 2
    head = limit - tail
    dropped = len(data) - limit
    return data[:head] + dropped_marker(dropped) + data[len(data) - tail :], limit, dropped


@given(data=st.binary(max_size=300), limit=st.integers(1, 64), cuts=st.lists(st.integers(0, 300), max_size=8))
def test_exact_for_any_pieces_and_limit(names: Iterator[Path], data: bytes, limit: int, cuts: list[int]) -> None:
    path = next(names)
    capture = Capture(path, limit)
    points = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for start, end in pairwise(points):
        capture.feed(memoryview(data)[start:end])
    kept = capture.close()
    content, kept_bytes, dropped = expected(data, limit)
    assert path.read_bytes() == content
    assert kept == Captured(file=path.name, kept=kept_bytes, dropped=dropped)
    assert capture.total == len(data)
    path.unlink()


@pytest.mark.parametrize("limit", [1, 2, 3, (1 << 16) - 1, 1 << 16, (1 << 17) + 1])
@pytest.mark.parametrize("piece", [1 << 12, 77_777])
def test_exact_where_the_tail_is_cut_back_in_memory(names: Iterator[Path], limit: int, piece: int) -> None:
    data = os.urandom(1 << 20)
    path = next(names)
    capture = Capture(path, limit)
    for start in range(0, len(data), piece):
        capture.feed(data[start : start + piece])
    kept = capture.close()
    content, kept_bytes, dropped = expected(data, limit)
    assert path.read_bytes() == content
    assert (kept.kept, kept.dropped) == (kept_bytes, dropped)


def test_the_marker_line() -> None:
    assert dropped_marker(7) == b"\n[... 7 bytes dropped ...]\n"


def test_the_head_is_in_the_file_before_the_end(names: Iterator[Path]) -> None:
    path = next(names)
    capture = Capture(path, 10)
    capture.feed(b"abc")
    assert path.read_bytes() == b"abc"
    capture.feed(b"defghij")
    assert path.read_bytes() == b"abcde"
    capture.close()
    assert path.read_bytes() == b"abcdefghij"


def test_closing_twice_says_the_same(names: Iterator[Path]) -> None:
    path = next(names)
    capture = Capture(path, 4)
    capture.feed(b"0123456789")
    before = len(os.listdir("/proc/self/fd"))
    assert capture.close() == capture.close() == Captured(file=path.name, kept=4, dropped=6)
    assert path.read_bytes() == b"01\n[... 6 bytes dropped ...]\n89"
    assert len(os.listdir("/proc/self/fd")) == before - 1


def test_the_file_is_private_and_new(names: Iterator[Path]) -> None:
    path = next(names)
    Capture(path, 1).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(RecordingError) as caught:
        Capture(path, 1)
    assert str(caught.value) == f"the output can't be written to {path}: File exists"


def test_memory_is_bounded_by_the_limit(names: Iterator[Path]) -> None:
    capture = Capture(next(names), 1 << 16)
    piece = bytes(1 << 18)
    capture.feed(piece)
    tracemalloc.start()
    try:
        for _ in range(400):  # 100 MiB
            capture.feed(piece)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    capture.close()
    assert capture.total == 401 << 18
    assert peak < 4 << 20


@pytest.mark.parametrize(("number", "kind"), [(errno.ENOSPC, HostError), (errno.EIO, RecordingError)])
def test_a_disk_that_fails_is_told(
    names: Iterator[Path], monkeypatch: pytest.MonkeyPatch, number: int, kind: type[Exception]
) -> None:
    def failing(*_: Any) -> int:
        raise OSError(number, os.strerror(number))

    path = next(names)
    capture = Capture(path, 4)
    with monkeypatch.context() as patch:
        patch.setattr("os.write", failing)
        with pytest.raises(kind) as caught:
            capture.feed(b"x")
    assert type(caught.value) is kind
    assert str(caught.value) == f"the output can't be written to {path}: {os.strerror(number)}"
    capture.close()


def test_a_folder_that_is_gone_is_told(tmp_path: Path) -> None:
    with pytest.raises(RecordingError) as caught:
        Capture(tmp_path / "gone/stdout", 4)
    assert str(caught.value) == f"the output can't be written to {tmp_path}/gone/stdout: No such file or directory"


def test_a_close_that_fails_still_gives_the_descriptor_back(
    names: Iterator[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    capture = Capture(next(names), 2)
    capture.feed(b"012345")
    before = len(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as patch:
        patch.setattr("os.write", full)
        with pytest.raises(HostError):
            capture.close()
    assert len(os.listdir("/proc/self/fd")) == before - 1
    assert capture.close().dropped == 4
