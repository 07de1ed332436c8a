"""What a tree takes on the disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_rollout.stage.usage import taken


@pytest.fixture
def top(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path, os.O_PATH | os.O_DIRECTORY)
    yield fd
    os.close(fd)


def test_blocks_are_counted_and_holes_are_not(top: int, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 10_000)
    with open(tmp_path / "hole", "wb") as file:
        file.truncate(1 << 40)
    os.link(tmp_path / "a", tmp_path / "same")
    os.symlink("/usr", tmp_path / "link")
    folders = sum(os.lstat(place).st_blocks for place in (tmp_path / "link",)) * 512
    found = taken(top)
    assert (found.size - folders, found.files, found.whole) == (12_288, 4, True)


def test_counting_stops_at_a_bound(top: int, tmp_path: Path) -> None:
    for number in range(50):
        (tmp_path / str(number)).write_bytes(b"x" * 5_000)
    few = taken(top, files=10)
    assert (few.files, few.whole) == (11, False)
    small = taken(top, size=20_000)
    assert (small.size, small.whole) == (24_576, False)
    assert taken(top, size=10**6, files=50).whole


def test_a_link_is_not_followed(top: int, tmp_path: Path) -> None:
    os.symlink("/usr/lib", tmp_path / "lib")
    assert taken(top).files == 1


def test_closed_folders_are_counted_and_left_closed(top: int, tmp_path: Path) -> None:
    inner = tmp_path / "outer" / "inner"
    inner.mkdir(parents=True)
    (inner / "f").write_bytes(b"x")
    inner.chmod(0o000)
    (tmp_path / "outer").chmod(0o000)
    try:
        assert taken(top).files == (3 if os.geteuid() == 0 else 1)
        found = taken(top, force=True)
        assert (found.files, found.whole) == (3, True)
        assert os.lstat(tmp_path / "outer").st_mode & 0o777 == 0
    finally:
        (tmp_path / "outer").chmod(0o700)
        assert os.lstat(inner).st_mode & 0o777 == 0
        inner.chmod(0o700)


def test_a_folder_that_tells_names_only_is_counted_at_the_end(top: int, tmp_path: Path) -> None:
    named = tmp_path / "named"
    named.mkdir()
    (named / "f").write_bytes(b"x" * 5000)
    named.chmod(0o600)
    try:
        found = taken(top, force=True)
        assert (found.files, found.whole, found.size >= 5000) == (2, True, True)
        assert os.lstat(named).st_mode & 0o777 == 0o600
    finally:
        named.chmod(0o700)


def test_what_can_not_be_reached_is_said(top: int, tmp_path: Path) -> None:
    at = os.open(tmp_path, os.O_RDONLY)
    for _ in range(40):
        os.mkdir("d" * 200, dir_fd=at)
        below = os.open("d" * 200, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)
    found = taken(top, force=True)
    assert (found.whole, found.too_deep, taken(top).too_deep) == (False, True, True)
