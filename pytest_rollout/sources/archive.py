"""Unpack an archive of a workspace, and nothing beside it: members that lead out, and bombs, are refused."""

from __future__ import annotations

import lzma
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from pytest_rollout.errors import ConfigError

__all__ = ["unpack"]

MAX_BYTES = 8 * 2**30
MAX_MEMBERS = 200_000
_PIECE = 1 << 20
_BROKEN = (tarfile.TarError, zipfile.BadZipFile, EOFError, RuntimeError, KeyError, zlib.error, lzma.LZMAError)

_Member = tuple[str, str, int, str, Callable[[], IO[bytes]]]  # name, kind, mode, target of a link, its content


def unpack(archive: Path, target: Path) -> bool:
    """Unpack a tar (of any compression that Python has) or a zip below ``target``, which is empty.

    Folders ``.git`` are left out, since a history often holds what an agent is to find; returns whether there was one.
    Raises ConfigError for what is no archive, for a member that lies or points outside, that is no file, folder or
    link, and for more than 8 GiB or 200,000 members.
    """
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as opened:
                return _write(archive, target, _of_zip(opened))
        else:
            with tarfile.open(archive) as tar:
                return _write(archive, target, _of_tar(archive, tar))
    except (
        tarfile.TarError,
        zipfile.BadZipFile,
        EOFError,
        RuntimeError,
        KeyError,
        zlib.error,
        lzma.LZMAError,
    ) as error:
        raise ConfigError(f"Archive({str(archive)!r}): it can't be read: {error}") from None


def _of_tar(archive: Path, tar: tarfile.TarFile) -> Iterator[_Member]:
    for member in tar:
        kind = next((name for name in ("file", "dir", "sym", "lnk") if getattr(member, f"is{name}")()), "special")
        if kind == "special":
            raise ConfigError(f"Archive({str(archive)!r}): {member.name!r} is not a file, a folder or a link")

        def content(member: tarfile.TarInfo = member) -> IO[bytes]:
            file = tar.extractfile(member)
            assert file is not None
            return file

        link = member.linkname if kind == "sym" else ""
        yield member.name, "file" if kind == "lnk" else kind, member.mode, link, content


def _of_zip(opened: zipfile.ZipFile) -> Iterator[_Member]:
    for member in opened.infolist():
        mode = member.external_attr >> 16
        kind = "dir" if member.is_dir() else "sym" if stat.S_ISLNK(mode) else "file"
        link = (
            opened.read(member).decode("utf-8", "surrogateescape") if kind == "sym" and member.file_size < 4096 else ""
        )
        yield member.filename, kind, mode, link, lambda member=member: opened.open(member)  # type: ignore[misc]


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
            with content() as source:
                left -= _copy(archive, source, place, left)
            place.chmod(0o755 if mode & 0o111 else 0o644)
    for inside, link in links.items():
        if any(inside.startswith(f"{other}/") for other in links):
            raise ConfigError(f"Archive({str(archive)!r}): {inside!r} lies below a link")
        place = target / inside
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            place.symlink_to(link)
        except FileExistsError:
            raise ConfigError(f"Archive({str(archive)!r}): {inside!r} is in it twice") from None
    return repository


def _inside(archive: Path, name: str) -> str:
    """The path of a member below the target; raises ConfigError for one that is not below it."""
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
