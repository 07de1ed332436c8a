"""Unpack an archive of a workspace, and nothing beside it: members that lead out, and bombs, are refused.

What is compressed is first unpacked into a nameless file, counted as it comes, so that nothing that an archive says of
its own sizes decides how much memory it takes. Of heads (extended headers of a tar, the directory of a zip) no more is
read at once than they have any use for.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import IO

from pytest_rollout.errors import ConfigError

__all__ = ["unpack"]

MAX_BYTES = 8 * 2**30
MAX_MEMBERS = 200_000
MAX_HEADS = 16 * 2**20  # bytes of all that is no content, beside 4 KiB of each member
_HEAD = 4096
MAX_DIRECTORY = 32 * 2**20  # bytes of the directory of a zip
MAX_WINDOW = 256 * 2**20  # bytes that a decompressor of xz may take
_PIECE = 1 << 20
_LONGEST = 4096  # characters of a name, and of the target of a link

_Member = tuple[str, str, int, str, Callable[[], IO[bytes]]]  # name, kind, mode, target of a link, its content


def unpack(archive: Path, target: Path) -> bool:
    """Unpack a tar (plain, or compressed by gzip, bzip2 or xz) or a zip below ``target``, which is empty.

    Folders ``.git`` are left out, since a history often holds what an agent is to find; returns whether there was one.
    Raises ConfigError for what is no archive, for a member that lies or points outside, that is no file, folder or
    link, and for more than 8 GiB or 200,000 members.
    """
    try:
        if zipfile.is_zipfile(archive):
            with open(archive, "rb") as file, zipfile.ZipFile(_Directory(archive, file)) as opened:
                return _write(archive, target, _of_zip(archive, opened))
        with _plain(archive, target.parent) as plain:
            heads = _Heads(archive, plain)
            with tarfile.open(fileobj=heads, mode="r:") as tar:
                return _write(archive, target, _of_tar(archive, tar, heads))
    except (
        tarfile.TarError,
        zipfile.BadZipFile,
        EOFError,
        RuntimeError,
        KeyError,
        NotImplementedError,
        ValueError,
        OverflowError,
        gzip.BadGzipFile,
        zlib.error,
        lzma.LZMAError,
    ) as error:
        raise ConfigError(f"Archive({str(archive)!r}): it can't be read: {error}") from None


class _Heads(io.FileIO):
    """A tar, of which only so many bytes are read for heads: between :meth:`content` and the next member."""

    def __init__(self, archive: Path, file: IO[bytes]) -> None:
        super().__init__(file.fileno(), "rb", closefd=False)
        self._archive, self._left, self.counting = archive, MAX_HEADS, True
        self.seek(0)

    def member(self) -> None:
        """Another member has come, whose own head counts for nothing."""
        self._left += _HEAD

    def read(self, size: int | None = -1) -> bytes:
        if self.counting:
            wanted = MAX_HEADS + 1 if size is None or size < 0 else size
            self._left -= wanted
            if self._left < 0:
                raise ConfigError(f"Archive({str(self._archive)!r}): its headers take more than {MAX_HEADS} bytes")
        return super().read(-1 if size is None else size)


class _Directory(io.FileIO):
    """A zip, of which never more is read at once than a directory may hold."""

    def __init__(self, archive: Path, file: IO[bytes]) -> None:
        super().__init__(file.fileno(), "rb", closefd=False)
        self._archive = archive

    def read(self, size: int | None = -1) -> bytes:
        if size is None or size < 0:
            size = max(0, os.fstat(self.fileno()).st_size - self.tell())
        if size > MAX_DIRECTORY:
            raise ConfigError(f"Archive({str(self._archive)!r}): its directory takes more than {MAX_DIRECTORY} bytes")
        return super().read(size)


@contextmanager
def _plain(archive: Path, place: Path) -> Iterator[IO[bytes]]:
    """The archive without its compression; raises ConfigError where it holds too much."""
    with open(archive, "rb") as file:
        head = file.read(6)
        file.seek(0)
        if head.startswith(b"\x1f\x8b"):
            pieces = _pieces(gzip.GzipFile(fileobj=file))
        elif head.startswith(b"BZh"):
            pieces = _pieces(bz2.BZ2File(file))
        elif head.startswith((b"\xfd7zXZ\x00", b"\x5d\x00\x00")):
            pieces = _of_xz(file)
        else:
            yield file
            return
        left = MAX_BYTES + MAX_HEADS + _HEAD * MAX_MEMBERS
        with tempfile.TemporaryFile(dir=place) as plain:
            for piece in pieces:
                left -= len(piece)
                if left < 0:
                    raise ConfigError(f"Archive({str(archive)!r}): it holds more than {MAX_BYTES >> 30} GiB")
                plain.write(piece)
            plain.seek(0)
            yield plain


def _pieces(file: IO[bytes] | gzip.GzipFile | bz2.BZ2File) -> Iterator[bytes]:
    while piece := file.read(_PIECE):
        yield piece


def _of_xz(file: IO[bytes]) -> Iterator[bytes]:
    """What is in a file of xz, which may be of several streams, in pieces and within a window."""
    data = file.read(_PIECE)
    while data:
        stream = lzma.LZMADecompressor(memlimit=MAX_WINDOW)
        while not stream.eof:
            piece = stream.decompress(data, _PIECE)
            data = b""
            if piece:
                yield piece
            if not stream.eof and stream.needs_input and not (data := file.read(_PIECE)):
                raise EOFError("it ends in the middle")
        data = (stream.unused_data or file.read(_PIECE)).lstrip(b"\0")  # streams are padded by zeros


def _of_tar(archive: Path, tar: tarfile.TarFile, heads: _Heads) -> Iterator[_Member]:
    for member in tar:
        heads.member()
        kind = next((name for name in ("file", "dir", "sym", "lnk") if getattr(member, f"is{name}")()), "special")
        if kind == "special":
            raise ConfigError(f"Archive({str(archive)!r}): {member.name!r} is not a file, a folder or a link")

        def content(member: tarfile.TarInfo = member) -> IO[bytes]:
            file = tar.extractfile(member)
            assert file is not None
            return file

        heads.counting = False
        yield member.name, kind, member.mode, member.linkname if kind in ("sym", "lnk") else "", content
        heads.counting = True


def _of_zip(archive: Path, opened: zipfile.ZipFile) -> Iterator[_Member]:
    for member in opened.infolist():
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):  # others unpack all that they read
            raise ConfigError(f"Archive({str(archive)!r}): {member.filename!r} is compressed, but not by deflate")
        mode = member.external_attr >> 16
        kind = "dir" if member.is_dir() else "sym" if stat.S_ISLNK(mode) else "file"
        yield member.filename, kind, mode, _target(opened, member) if kind == "sym" else "", _reader(opened, member)


def _target(opened: zipfile.ZipFile, member: zipfile.ZipInfo) -> str:
    if member.file_size >= _LONGEST:
        return ""
    with opened.open(member) as file:
        return file.read(_LONGEST).decode("utf-8", "surrogateescape")


def _reader(opened: zipfile.ZipFile, member: zipfile.ZipInfo) -> Callable[[], IO[bytes]]:
    return lambda: opened.open(member)


def _write(archive: Path, target: Path, members: Iterator[_Member]) -> bool:
    """Write members; links come last, so that none is written through. Returns whether a repository was left out."""
    left, links, repository = MAX_BYTES, dict[str, str](), False
    for number, (name, kind, mode, link, content) in enumerate(members):
        if number >= MAX_MEMBERS:
            raise ConfigError(f"Archive({str(archive)!r}): more than {MAX_MEMBERS} members")
        inside = _inside(archive, name)
        place = target / inside
        if ".git" in inside.lower().split("/"):
            repository = True
        elif kind == "sym":
            _check_link(archive, inside, link)
            if inside in links:
                raise ConfigError(f"Archive({str(archive)!r}): {inside!r} is in it twice")
            links[inside] = link
        elif kind == "dir":
            place.mkdir(parents=True, exist_ok=True)
        elif inside:
            place.parent.mkdir(parents=True, exist_ok=True)
            with _linked(archive, target, inside, link) if kind == "lnk" else content() as source:
                left -= _copy(archive, source, place, left)
            place.chmod(0o755 if mode & 0o111 else 0o644)
    for inside, link in links.items():
        if any(above in links for above in accumulate(inside.split("/")[:-1], "{}/{}".format)):
            raise ConfigError(f"Archive({str(archive)!r}): {inside!r} lies below a link")
        place = target / inside
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            place.symlink_to(link)
        except FileExistsError:
            raise ConfigError(f"Archive({str(archive)!r}): {inside!r} is in it twice") from None
    return repository


def _linked(archive: Path, target: Path, inside: str, link: str) -> IO[bytes]:
    """The file that a hard link names, which was written before it: to find it, ``tarfile`` would read all heads."""
    try:
        return open(target / _inside(archive, link), "rb")
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise ConfigError(f"Archive({str(archive)!r}): the hard link {inside!r} names no file before it") from None


def _inside(archive: Path, name: str) -> str:
    """The path of a member below the target; raises ConfigError for one that is not below it."""
    if len(name) > _LONGEST:
        raise ConfigError(f"Archive({str(archive)!r}): the name of a member has {len(name)} characters")
    parts = [part for part in name.replace("\\", "/").split("/") if part not in ("", ".")]
    if name.startswith(("/", "\\")) or ".." in parts or "\0" in name or (parts and parts[0].endswith(":")):
        raise ConfigError(f"Archive({str(archive)!r}): the member {name!r} lies outside of it")
    return "/".join(parts)


def _check_link(archive: Path, inside: str, link: str) -> None:
    """Raise ConfigError for a link that leads out of the archive."""
    parts = [part for part in link.split("/") if part not in ("", ".")]
    up = len([part for part in parts if part == ".."])
    leaves = ".." in parts[up:] or up > inside.count("/")  # ``..`` behind a name may be that of another link
    if not parts or link.startswith("/") or "\0" in link or leaves:
        raise ConfigError(f"Archive({str(archive)!r}): the link {inside!r} points outside of it, to {link!r}")


def _copy(archive: Path, source: IO[bytes], place: Path, left: int) -> int:
    """Copy what a member holds, which is counted as it comes and not believed; returns how much that was."""
    used = 0
    try:
        with open(place, "xb") as file:
            while piece := source.read(_PIECE):
                used += len(piece)
                if used > left:
                    raise ConfigError(f"Archive({str(archive)!r}): it holds more than {MAX_BYTES >> 30} GiB")
                file.write(piece)
    except FileExistsError:
        raise ConfigError(f"Archive({str(archive)!r}): {place.name!r} is in it twice") from None
    return used
