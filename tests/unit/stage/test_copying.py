"""Copies of trees that a candidate wrote: as they are, within bounds, and no larger than what is in them."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_rollout.stage.copying import copy_tree, data_ranges
from pytest_rollout.stage.tree import Bound

MIB = 1 << 20


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    """A folder to fill, and where its copy goes."""
    (tmp_path / "source").mkdir()
    return tmp_path / "source", tmp_path / "copy"


def facts(top: Path) -> dict[bytes, tuple[Any, ...]]:
    """Kind, mode, time and content (of a link its target) by path."""
    found: dict[bytes, tuple[Any, ...]] = {}
    for at, *both in os.walk(os.fsencode(top)):
        for name in (*both[0], *both[1]):
            path = os.path.join(at, name)
            info = os.lstat(path)
            content: Any = None
            if stat.S_ISREG(info.st_mode):
                with open(path, "rb") as file:
                    content = file.read()
            elif stat.S_ISLNK(info.st_mode):
                content = os.readlink(path)
            time = None if stat.S_ISLNK(info.st_mode) else info.st_mtime_ns
            found[os.path.relpath(path, os.fsencode(top))] = (info.st_mode, time, content)
    return found


def test_a_copy_is_the_tree_itself(places: tuple[Path, Path]) -> None:
    source, copy = places
    (source / "d/e").mkdir(parents=True)
    (source / "d/e/f").write_bytes(bytes(range(256)) * 9000)
    (source / "d/e/f").chmod(0o751)
    (source / "empty").touch()
    os.utime(source / "empty", ns=(1, 1_000_000_001))
    (source / "d/up").symlink_to("..")
    (source / "absolute").symlink_to("/etc/passwd")
    (source / "loop").symlink_to("loop")
    for name in (b"a\nb", b"\xff\xfe", b"-rf", b"]]>"):
        Path(os.fsdecode(os.path.join(os.fsencode(source), name))).write_bytes(name)
    (source / "d/e").chmod(0o555)
    copy_tree(str(source), str(copy))
    assert facts(copy) == facts(source)
    assert len(facts(copy)) == 11
    (copy / "d/e").chmod(0o755)
    (source / "d/e").chmod(0o755)


def test_holes_stay_holes(places: tuple[Path, Path], within: Callable[..., Any]) -> None:
    source, copy = places
    with open(source / "big", "wb") as file:
        file.write(b"head")
        file.seek(512 * MIB)
        file.write(b"middle")
        file.truncate(1 << 40)
    within(20, lambda: copy_tree(str(source), str(copy)))
    info = (copy / "big").stat()
    assert info.st_size == 1 << 40
    assert info.st_blocks * 512 < MIB
    with open(copy / "big", "rb") as file:
        assert file.read(5) == b"head\0"
        file.seek(512 * MIB)
        assert file.read(7) == b"middle\0"


def test_what_is_no_file_is_left_out_or_made_anew(places: tuple[Path, Path], within: Callable[..., Any]) -> None:
    source, copy = places
    os.mkfifo(source / "pipe")
    (source / "pipe").chmod(0o620)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(source / "socket"))
    if os.geteuid() == 0:
        os.mknod(source / "zero", stat.S_IFCHR | 0o666, os.makedev(1, 5))
        os.mknod(source / "whiteout", stat.S_IFCHR | 0o666, os.makedev(0, 0))
    within(20, lambda: copy_tree(str(source), str(copy)))
    assert os.listdir(copy) == []
    copy.rmdir()
    within(20, lambda: copy_tree(str(source), str(copy), specials=True))
    assert {name: stat.filemode(os.lstat(copy / name).st_mode)[0] for name in os.listdir(copy)} == {
        "pipe": "p",
        "socket": "s",
    }
    assert stat.S_IMODE(os.lstat(copy / "pipe").st_mode) == 0o620


def test_closed_files_are_copied_and_rights_of_others_are_not(places: tuple[Path, Path]) -> None:
    source, copy = places
    for name, mode in (("closed", 0o000), ("setuid", 0o6755)):
        (source / name).write_text(name)
        (source / name).chmod(mode)
    copy_tree(str(source), str(copy))
    assert {name: stat.S_IMODE(os.stat(copy / name).st_mode) for name in ("closed", "setuid")} == {
        "closed": 0o000,
        "setuid": 0o755,
    }
    (copy / "closed").chmod(0o600)
    assert (copy / "closed").read_text() == "closed"


def test_depth_is_bounded(private_folder: Path, dig: Callable[[Path, int], None]) -> None:
    (private_folder / "source").mkdir()
    dig(private_folder / "source", 4000)
    with pytest.raises(Bound, match=r"^more than 200 depth$"):
        copy_tree(f"{private_folder}/source", f"{private_folder}/copy")


def test_ranges_of_data(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"")
    os.truncate(path, 8 * MIB)
    with open(path, "rb+") as file:
        assert list(data_ranges(file.fileno(), 8 * MIB)) == []
        os.pwrite(file.fileno(), b"x", 4 * MIB)
        ((start, end),) = data_ranges(file.fileno(), 8 * MIB)
        assert start <= 4 * MIB < end < 5 * MIB
        assert list(data_ranges(file.fileno(), 4 * MIB + 1)) == [(start, 4 * MIB + 1)]
    path.write_bytes(b"abc")
    with open(path, "rb") as file:
        assert list(data_ranges(file.fileno(), 3)) == [(0, 3)]
