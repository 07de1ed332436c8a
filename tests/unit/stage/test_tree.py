"""Opening, listing and reading a hostile tree, with ``openat2`` and with the walk that stands in for it."""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_rollout.plain import shown_path
from pytest_rollout.stage import tree
from pytest_rollout.stage.tree import Bound, entries, lstat, open_path, read_file, reading, show, walk

ROOT = os.geteuid() == 0


@pytest.fixture(params=["openat2", "walking"], autouse=True)
def opener(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each way to open a path."""
    way = {"openat2": tree._openat2, "walking": tree._open_by_walking}[request.param]
    monkeypatch.setattr(tree, "_opener", [way])
    return str(request.param)


@pytest.fixture
def top(tmp_path: Path) -> Iterator[int]:
    """A descriptor of the folder ``tree``; beside it lies a secret."""
    (tmp_path / "tree").mkdir()
    (tmp_path / "secret").write_text("the host's")
    fd = os.open(tmp_path / "tree", os.O_PATH | os.O_DIRECTORY)
    yield fd
    os.close(fd)


def refusal(call: Callable[[], Any]) -> int | None:
    """The number of the OSError that the call raises."""
    with pytest.raises(OSError) as caught:
        call()
    return caught.value.errno


def test_the_kernel_here_has_openat2() -> None:
    assert tree._choose() is tree._openat2


def test_without_openat2_the_walk_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_such_call(folder: int, path: bytes, flags: int) -> int:
        raise OSError(errno.ENOSYS, "not there")

    monkeypatch.setattr(tree, "_openat2", no_such_call)
    assert tree._choose() is tree._open_by_walking


def test_reads_a_file_and_says_whether_there_is_more(top: int, tmp_path: Path) -> None:
    (tmp_path / "tree/a").mkdir()
    (tmp_path / "tree/a/b").write_bytes(b"12345")
    assert read_file(top, b"a/b", 5) == (b"12345", False)
    assert read_file(top, b"a/b", 4) == (b"1234", True)
    assert read_file(top, b"a/b", 0) == (b"", True)
    (tmp_path / "tree/empty").touch()
    assert read_file(top, b"empty", 0) == (b"", False)


def test_a_read_is_whole_beyond_one_piece(top: int, tmp_path: Path) -> None:
    data = os.urandom((2 << 20) + 17)
    (tmp_path / "tree/big").write_bytes(data)
    assert read_file(top, b"big", len(data)) == (data, False)
    assert read_file(top, b"big", len(data) - 1) == (data[:-1], True)


@pytest.mark.parametrize("target", ["../secret", "/etc/passwd", "inside", "missing", "/proc/self/root/etc/passwd"])
def test_a_link_is_never_read(top: int, tmp_path: Path, target: str) -> None:
    (tmp_path / "tree/inside").write_text("x")
    (tmp_path / "tree/link").symlink_to(target)
    assert refusal(lambda: read_file(top, b"link", 10)) == errno.EINVAL
    info = lstat(top, b"link")
    assert info is not None
    assert stat.S_ISLNK(info.st_mode)


@pytest.mark.parametrize("target", ["..", "/etc", "folder", "."])
def test_a_link_on_the_way_is_never_followed(top: int, tmp_path: Path, target: str) -> None:
    (tmp_path / "tree/folder").mkdir()
    (tmp_path / "tree/link").symlink_to(target)
    for name in (b"secret", b"passwd", b"link"):
        with pytest.raises(OSError) as caught:
            read_file(top, b"link/" + name, 10)
        assert caught.value.errno in (errno.ELOOP, errno.ENOTDIR)
        assert lstat(top, b"link/" + name) is None


@pytest.mark.parametrize("path", [b"../secret", b"a/../../secret", b".."])
def test_a_path_that_leaves_is_refused(top: int, tmp_path: Path, path: bytes) -> None:
    (tmp_path / "tree/a").mkdir()
    assert refusal(lambda: open_path(top, path)) == errno.EXDEV
    assert lstat(top, path) is None


def test_an_absolute_path_is_refused(top: int) -> None:
    assert refusal(lambda: open_path(top, b"/etc/passwd")) == errno.EXDEV
    assert lstat(top, b"/etc/passwd") is None


def test_what_is_no_regular_file_is_refused_without_blocking(
    top: int, tmp_path: Path, within: Callable[..., Any]
) -> None:
    os.mkfifo(tmp_path / "tree/fifo")
    (tmp_path / "tree/folder").mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "tree/s"))
        for name in (b"fifo", b"folder", b"s"):
            assert within(10, lambda name=name: refusal(lambda: read_file(top, name, 10))) == errno.EINVAL


@pytest.mark.skipif(not ROOT, reason="only root can make a device")
def test_a_device_is_refused_and_not_opened(top: int, tmp_path: Path) -> None:
    os.mknod(tmp_path / "tree/zero", 0o666 | stat.S_IFCHR, os.makedev(1, 5))
    os.mknod(tmp_path / "tree/none", 0o666 | stat.S_IFCHR, os.makedev(42, 42))  # opening it would be ENXIO
    assert refusal(lambda: read_file(top, b"zero", 10)) == errno.EINVAL
    assert refusal(lambda: read_file(top, b"none", 10)) == errno.EINVAL


def test_a_sparse_terabyte_is_read_within_the_bound(top: int, tmp_path: Path) -> None:
    with open(tmp_path / "tree/big", "wb") as file:
        os.truncate(file.fileno(), 1 << 40)
    assert read_file(top, b"big", 1000) == (bytes(1000), True)


def test_a_file_of_mode_000_is_read_and_keeps_its_mode(top: int, tmp_path: Path) -> None:
    place = tmp_path / "tree/closed"
    place.write_text("evidence")
    place.chmod(0o000)
    assert read_file(top, b"closed", 100) == (b"evidence", False)
    assert stat.S_IMODE(place.stat().st_mode) == 0


@pytest.mark.skipif(ROOT, reason="root can read every file")
def test_a_file_of_mode_000_that_is_not_the_agents_is_left_alone(top: int, tmp_path: Path) -> None:
    place = tmp_path / "tree/closed"
    place.write_text("x")
    place.chmod(0o000)

    def look() -> None:
        with reading(top, b"closed", force=False):
            pytest.fail("it was read")

    assert refusal(look) == errno.EACCES
    (tmp_path / "tree/folder").mkdir(mode=0o000)
    assert refusal(lambda: entries(top, b"folder", 1, 10, force=False)) == errno.EACCES
    assert stat.S_IMODE((tmp_path / "tree/folder").stat().st_mode) == 0


@pytest.mark.parametrize("mode", [0o000, 0o400, 0o100, 0o200])
def test_a_folder_that_forbids_it_is_listed(top: int, tmp_path: Path, mode: int) -> None:
    (tmp_path / "tree/closed").mkdir()
    (tmp_path / "tree/closed/file").write_text("x")
    (tmp_path / "tree/closed").chmod(mode)
    assert [entry.path for entry in entries(top, b"closed", 2, 10)] == [b"closed/file"]
    assert [entry.path for entry in walk(top, max_entries=10, max_depth=10)] == [b"closed", b"closed/file"]


def test_entries_are_sorted_and_carry_their_depth(top: int, tmp_path: Path) -> None:
    for name in ("b", "a", "c"):
        (tmp_path / "tree" / name).touch()
    (tmp_path / "tree/d").mkdir()
    (tmp_path / "tree/d/e").touch()
    assert [(e.path, e.depth, e.is_folder) for e in walk(top, max_entries=5, max_depth=2)] == [
        (b"a", 1, False),
        (b"b", 1, False),
        (b"c", 1, False),
        (b"d", 1, True),
        (b"d/e", 2, False),
    ]


def test_a_bound_of_entries_is_exact(top: int, tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / "tree" / str(number)).mkdir()
        (tmp_path / "tree" / str(number) / "x").touch()
    assert len(list(walk(top, max_entries=8, max_depth=9))) == 8
    with pytest.raises(Bound) as caught:
        list(walk(top, max_entries=7, max_depth=9))
    assert (caught.value.what, caught.value.limit) == ("entries", 7)
    assert len(entries(top, b"", 1, 4)) == 4
    with pytest.raises(Bound) as caught:
        entries(top, b"", 1, 3)
    assert (caught.value.what, caught.value.limit) == ("entries", 3)


def test_a_bound_of_depth_is_exact_and_what_is_higher_up_comes_first(top: int, tmp_path: Path) -> None:
    os.makedirs(tmp_path / "tree/a/b/c")
    os.makedirs(tmp_path / "tree/z/y")
    assert len(list(walk(top, max_entries=9, max_depth=4))) == 5
    seen: list[bytes] = []
    with pytest.raises(Bound) as caught:
        seen.extend(entry.path for entry in walk(top, max_entries=9, max_depth=2))
    assert (caught.value.what, caught.value.limit) == ("depth", 2)
    assert seen == [b"a", b"z", b"a/b", b"z/y"]


def test_four_thousand_levels_end_at_the_bound(private_folder: Path, dig: Callable[[Path, int], None]) -> None:
    dig(private_folder, 4000)
    top = os.open(private_folder, os.O_PATH)
    try:
        seen: list[int] = []
        with pytest.raises(Bound, match="depth"):
            seen.extend(entry.depth for entry in walk(top, max_entries=100_000, max_depth=200))
        assert seen == list(range(1, 201))
    finally:
        os.close(top)


def test_walk_skips_folders_by_name_but_no_file_of_that_name(top: int, tmp_path: Path) -> None:
    (tmp_path / "tree/a/__pycache__").mkdir(parents=True)
    (tmp_path / "tree/a/__pycache__/x").touch()
    (tmp_path / "tree/__pycache__").touch()
    skip = frozenset({b"__pycache__"})
    assert [e.path for e in walk(top, max_entries=9, max_depth=9, skip=skip)] == [b"__pycache__", b"a"]


def test_walk_does_not_enter_links(top: int, tmp_path: Path) -> None:
    (tmp_path / "tree/loop").symlink_to(".")
    (tmp_path / "tree/out").symlink_to("/etc")
    assert [entry.path for entry in walk(top, max_entries=9, max_depth=9)] == [b"loop", b"out"]


@pytest.mark.parametrize("name", [b"a\nb", b"\xff\xfe", b"-rf", b" ", b"\x1b[31m", "ü".encode(), b"\\xff", b"'\""])
def test_odd_names_are_read_and_listed(top: int, tmp_path: Path, name: bytes) -> None:
    with open(os.path.join(os.fsencode(tmp_path), b"tree", name), "wb") as file:
        file.write(b"ok")
    assert read_file(top, name, 9) == (b"ok", False)
    assert [entry.path for entry in walk(top, max_entries=9, max_depth=9)] == [name]


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        (b"plain/a b.txt", "plain/a b.txt"),
        ("grün/€".encode(), "grün/€"),
        (b"a\nb\tc", "a\\x0ab\\x09c"),
        (b"\xff\x80ok", "\\xff\\x80ok"),
        (b"\x1b[31m", "\\x1b[31m"),
        ("\u202egnp".encode(), "\\xe2\\x80\\xaegnp"),
        ("a\u00a0b".encode(), "a\\xc2\\xa0b"),
    ],
)
def test_show(path: bytes, shown: str) -> None:
    assert show(path) == shown


@given(st.binary() | st.lists(st.sampled_from([b"\\", b"\\x5c", b"x", b"5c", b"\n", b"\xc3", b"\xa9"])).map(b"".join))
def test_what_is_shown_is_printable_and_stands_for_one_path(path: bytes) -> None:
    shown = show(path)
    assert shown.isprintable()
    assert shown_path(shown) == path


def test_a_missing_path_is_none_and_a_name_too_long_is_an_error(top: int) -> None:
    assert lstat(top, b"no/such") is None
    assert refusal(lambda: lstat(top, b"n" * 300)) == errno.ENAMETOOLONG


def test_no_descriptor_is_left_open(top: int, tmp_path: Path) -> None:
    os.makedirs(tmp_path / "tree/a/b")
    (tmp_path / "tree/a/b/file").write_text("x")
    (tmp_path / "tree/a/link").symlink_to("b")
    os.mkfifo(tmp_path / "tree/fifo")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        read_file(top, b"a/b/file", 9)
        list(walk(top, max_entries=9, max_depth=9))
        for bad in (b"a/link/file", b"fifo", b"a/b/none/x", b"../secret", b"a/b/file/x"):
            refusal(lambda bad=bad: read_file(top, bad, 9))  # type: ignore[misc]
    assert len(os.listdir("/proc/self/fd")) == before
