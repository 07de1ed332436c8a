"""Sources that are made to take memory, disk or time: refused within bounds, with a message."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import stat
import struct
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_rollout.errors import ConfigError, StageError
from pytest_rollout.sources import archive, repository
from pytest_rollout.sources.archive import unpack
from pytest_rollout.sources.repository import open_repository
from pytest_rollout.task import Git
from tests.unit.sources.conftest import GitCommand

MIB = 1 << 20


@pytest.fixture
def target(tmp_path: Path) -> Path:
    (tmp_path / "made/tree").mkdir(parents=True)
    return tmp_path / "made/tree"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds that a test can meet."""
    monkeypatch.setattr(archive, "MAX_HEADS", MIB)
    monkeypatch.setattr(archive, "MAX_DIRECTORY", MIB)
    monkeypatch.setattr(archive, "MAX_BYTES", 2 * MIB)
    monkeypatch.setattr(archive, "MAX_MEMBERS", 100)


@pytest.fixture
def bounded() -> Iterator[Callable[[], int]]:
    """The most memory that was taken since the test began, in bytes."""
    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()


def refusal(path: Path, target: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        unpack(path, target)
    return caught.value.message.removeprefix(f"Archive({str(path)!r}): ")


def header(kind: bytes, size: int, name: str = "x") -> bytes:
    member = tarfile.TarInfo(name)
    member.type, member.size = kind, size
    return member.tobuf(tarfile.GNU_FORMAT)


COMPRESSIONS = {"plain": bytes, "gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_header_of_any_size(
    tmp_path: Path, target: Path, small: None, bounded: Callable[[], int], compression: str, kind: bytes
) -> None:
    data = header(kind, 40 * MIB) + bytes(3 * MIB if compression != "plain" else 0)
    with open(tmp_path / "x", "wb") as file:
        file.write(COMPRESSIONS[compression](data))  # type: ignore[operator]
        if compression == "plain":
            file.truncate(41 * MIB)
    before = bounded()
    assert refusal(tmp_path / "x", target) == f"its headers take more than {MIB} bytes"
    assert bounded() < before + 10 * MIB
    assert list(target.iterdir()) == []


def test_a_hard_link_before_a_header_of_any_size(
    tmp_path: Path, target: Path, small: None, bounded: Callable[[], int]
) -> None:
    link = tarfile.TarInfo("b")
    link.type, link.linkname = tarfile.LNKTYPE, "a"
    with open(tmp_path / "x", "wb") as file:
        file.write(header(tarfile.REGTYPE, 0, "a") + link.tobuf() + header(tarfile.XHDTYPE, 40 * MIB))
        file.truncate(41 * MIB)
    before = bounded()
    assert refusal(tmp_path / "x", target) == f"its headers take more than {MIB} bytes"
    assert bounded() < before + 10 * MIB


def test_a_map_of_a_sparse_file_that_does_not_end(tmp_path: Path, target: Path, small: None) -> None:
    with tarfile.open(tmp_path / "x", "w", format=tarfile.PAX_FORMAT) as tar:
        member = tarfile.TarInfo("sparse")
        member.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "s"}
        data = b"99999999\n" + b"0\n" * (2 * MIB)
        member.size = len(data)
        tar.addfile(member, io.BytesIO(data))
    assert refusal(tmp_path / "x", target) == f"its headers take more than {MIB} bytes"


def test_many_long_names_are_no_bomb(tmp_path: Path, target: Path, small: None) -> None:
    with tarfile.open(tmp_path / "x", "w:gz", format=tarfile.GNU_FORMAT) as tar:
        for number in range(90):
            tar.addfile(tarfile.TarInfo(f"{'d' * 150}/{number}"))
    assert unpack(tmp_path / "x", target) is False
    assert len(list((target / ("d" * 150)).iterdir())) == 90


@pytest.mark.parametrize("compression", ["gz", "bz2", "xz"])
def test_a_compressed_bomb(tmp_path: Path, target: Path, small: None, compression: str) -> None:
    (tmp_path / "x").write_bytes(COMPRESSIONS[compression](bytes(8 * MIB)))  # type: ignore[operator]
    assert refusal(tmp_path / "x", target) == "it holds more than 0 GiB"
    assert [path.name for path in target.parent.iterdir()] == ["tree"]


def test_a_window_that_takes_all_memory(tmp_path: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MAX_WINDOW", 16 * MIB)
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 32 * MIB}]
    (tmp_path / "x").write_bytes(lzma.compress(bytes(100), filters=filters))
    assert refusal(tmp_path / "x", target) == "it can't be read: Memory usage limit exceeded"


def test_streams_of_xz_one_behind_the_other(tmp_path: Path, target: Path) -> None:
    with tarfile.open(tmp_path / "x", "w") as tar:
        member = tarfile.TarInfo("a")
        member.size = 3
        tar.addfile(member, io.BytesIO(b"abc"))
    data = (tmp_path / "x").read_bytes()
    (tmp_path / "x").write_bytes(lzma.compress(data[:700]) + bytes(4) + lzma.compress(data[700:]))
    unpack(tmp_path / "x", target)
    assert (target / "a").read_bytes() == b"abc"


def test_a_directory_of_a_zip(tmp_path: Path, target: Path, small: None, bounded: Callable[[], int]) -> None:
    size = 40 * MIB
    with open(tmp_path / "x.zip", "wb") as file:
        file.truncate(size)
        file.seek(size)
        file.write(struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1, 1, size, 0, 0))
    before = bounded()
    assert refusal(tmp_path / "x.zip", target) == f"its directory takes more than {MIB} bytes"
    assert bounded() < before + 5 * MIB


@pytest.mark.parametrize("how", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_zip_that_unpacks_all_at_once(tmp_path: Path, target: Path, how: int) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w", how) as made:
        made.writestr("zeros", bytes(10 * MIB))
    assert refusal(tmp_path / "x.zip", target) == "'zeros' is compressed, but not by deflate"


def test_a_link_of_a_zip_that_says_less_than_it_holds(tmp_path: Path, target: Path, bounded: Callable[[], int]) -> None:
    link = zipfile.ZipInfo("link")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "x.zip", "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr(link, bytes(30 * MIB), zipfile.ZIP_DEFLATED)
    data = (tmp_path / "x.zip").read_bytes()
    (tmp_path / "x.zip").write_bytes(data.replace(struct.pack("<L", 30 * MIB), struct.pack("<L", 100)))
    before = bounded()
    with pytest.raises(ConfigError):
        unpack(tmp_path / "x.zip", target)
    assert bounded() < before + 5 * MIB


def test_a_name_of_any_length(tmp_path: Path, target: Path) -> None:
    with tarfile.open(tmp_path / "x", "w", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(tarfile.TarInfo("a/" * 50_000 + "a"))
    assert refusal(tmp_path / "x", target) == "the name of a member has 100001 characters"


# Repositories


def exported(path: Path, target: Path, rev: str = "HEAD") -> None:
    open_repository(Git(str(path), rev), target).export(target)


def test_a_listing_of_any_size(repository_path: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repository, "MAX_LISTING", 100)
    with pytest.raises(ConfigError) as caught:
        exported(repository_path, target)
    assert caught.value.message == "Git(…): git ls-tree says more than 100 bytes"


def test_files_of_any_size(repository_path: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(repository, "MAX_BYTES", 10)
        with pytest.raises(ConfigError, match=r"the commit holds 3 files of \d+ bytes, which are too many"):
            exported(repository_path, target)
    monkeypatch.setattr(repository, "MAX_FILES", 2)
    with pytest.raises(ConfigError, match="the commit holds 3 files, which are too many"):
        exported(repository_path, target)
    assert list(target.iterdir()) == []


def test_a_path_of_any_length(repository_path: Path, target: Path, git: GitCommand) -> None:
    sha = git(repository_path, "rev-parse", "HEAD:calc.py")
    git(repository_path, "update-index", "--add", "--cacheinfo", f"100644,{sha},{'a/' * 2500}a")
    git(repository_path, "commit", "-qm", "deep")
    with pytest.raises(ConfigError) as caught:
        exported(repository_path, target)
    assert caught.value.message == "Git(…): the commit holds a path of 5001 bytes"


def test_a_link_of_any_size(repository_path: Path, target: Path, git: GitCommand) -> None:
    (repository_path / "blob").write_text("x" * 5000)
    sha = git(repository_path, "hash-object", "-w", "blob")
    git(repository_path, "update-index", "--add", "--cacheinfo", f"120000,{sha},long")
    git(repository_path, "commit", "-qm", "long")
    with pytest.raises(ConfigError) as caught:
        exported(repository_path, target)
    assert caught.value.message == "Git(…): the link 'long' has 5000 bytes"


def test_a_blob_goes_through_in_pieces(
    repository_path: Path, target: Path, git: GitCommand, bounded: Callable[[], int]
) -> None:
    data = os.urandom(24 * MIB)
    (repository_path / "big").write_bytes(data)
    git(repository_path, "add", "big")
    git(repository_path, "commit", "-qm", "big")
    before = bounded()
    exported(repository_path, target)
    assert bounded() < before + 5 * MIB
    assert (target / "big").read_bytes() == data


def test_git_holds_no_content_of_any_size_at_once(
    repository_path: Path, target: Path, git: GitCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = os.urandom(3 * MIB)
    for version in (data, data + b"more"):
        (repository_path / "big").write_bytes(version)
        git(repository_path, "add", "big")
        git(repository_path, "commit", "-qm", "big")
    git(repository_path, "repack", "-adq")  # the older of the two is a delta, and does not go through in pieces
    assert repository._QUIET["GIT_ALLOC_LIMIT"] == "1g"
    monkeypatch.setitem(repository._QUIET, "GIT_ALLOC_LIMIT", "2m")
    with pytest.raises(StageError):
        exported(repository_path, target, "HEAD~1")


def test_git_that_does_not_end(
    repository_path: Path, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/git").write_text("#!/bin/sh\nexec sleep 600\n")
    (tmp_path / "bin/git").chmod(0o755)
    found = open_repository(Git(str(repository_path), "HEAD"), target)
    monkeypatch.setattr(repository, "_EXPORT_SECONDS", 0.2)
    listed = list(repository._listed(repository._output(found.git, "ls-tree", "-r", "-l", "-z", found.commit)))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    with pytest.raises(StageError), repository._Objects(found.git) as objects:
        objects.copy(listed[0], lambda piece: None)
    with pytest.raises(StageError) as caught:
        repository._git(["rev-parse"], seconds=0.2)
    assert caught.value.message == "git 'rev-parse' did not end within 0.2 s"


@pytest.fixture
def repository_path(repository: Path) -> Path:
    """A small repository."""
    return repository
