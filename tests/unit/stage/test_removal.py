"""Trees that a hostile agent wrote are removed whole, and nothing outside them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_rollout.stage.removal import remove_tree


def test_what_is_not_there_is_removed(tmp_path: Path) -> None:
    assert remove_tree(str(tmp_path / "missing")) is None


def test_four_thousand_levels(private_folder: Path, dig: Callable[[Path, int], None]) -> None:
    top = private_folder / "top"
    top.mkdir()
    dig(top, 4000)
    assert remove_tree(str(top)) is None
    assert not top.exists()


@pytest.mark.parametrize("mode", [0o000, 0o400, 0o500, 0o300])
def test_modes_that_forbid_it(private_folder: Path, mode: int) -> None:
    top = private_folder / "top"
    (top / "a/b").mkdir(parents=True)
    (top / "a/b/file").write_text("x")
    (top / "a/file").touch(mode=0o000)
    for folder in ("a/b", "a", "."):
        (top / folder).chmod(mode)
    assert remove_tree(str(top)) is None
    assert not top.exists()


@pytest.mark.parametrize("name", [b"-rf", b"--no-preserve-root", b"a\nb", b"\xff\xfe", b" ", b"*", b"$(x)", b"n" * 255])
def test_odd_names(private_folder: Path, name: bytes) -> None:
    top = os.path.join(os.fsencode(private_folder), name)
    os.makedirs(os.path.join(top, name), mode=0o700)
    os.chmod(os.path.join(top, name), 0o000)
    assert remove_tree(os.fsdecode(top)) is None
    assert not os.path.lexists(top)


def test_links_are_removed_and_not_followed(private_folder: Path) -> None:
    outside = private_folder / "outside"
    outside.mkdir()
    (outside / "file").write_text("kept")
    outside.chmod(0o500)
    top = private_folder / "top"
    (top / "closed").mkdir(parents=True)
    (top / "link").symlink_to(outside)
    (top / "closed/link").symlink_to(outside / "file")
    (top / "closed").chmod(0o000)
    assert remove_tree(str(top)) is None
    assert not top.exists()
    assert (outside / "file").read_text() == "kept"
    assert outside.stat().st_mode & 0o777 == 0o500


def test_a_link_instead_of_the_tree_is_removed_and_not_followed(private_folder: Path) -> None:
    outside = private_folder / "outside"
    outside.mkdir(mode=0o500)
    (private_folder / "link").symlink_to(outside)
    assert remove_tree(str(private_folder / "link")) is None
    assert not os.path.lexists(private_folder / "link")
    assert outside.stat().st_mode & 0o777 == 0o500


def test_a_file_is_removed_too(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert remove_tree(str(tmp_path / "file")) is None
    assert list(tmp_path.iterdir()) == []


def test_what_can_not_be_removed_is_told(private_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (private_folder / "top/closed").mkdir(parents=True)
    (private_folder / "top/closed").chmod(0o000)
    tools = private_folder / "tools"
    tools.mkdir()
    (tools / "rm").write_text('#!/bin/sh\necho "rm: can\'t" >&2\nexit 1\n')
    (tools / "rm").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    monkeypatch.setattr("os.scandir", _refuse)
    assert remove_tree(str(private_folder / "top")) == "rm: can't"
    assert (private_folder / "top").exists()


def _refuse(_: int) -> None:
    raise PermissionError
