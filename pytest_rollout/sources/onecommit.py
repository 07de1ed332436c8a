"""Give a tree a repository of one commit, in which an agent can work with git.

It is written here, not by git, so that no hook or configuration runs and equal trees give equal bytes: a pack of
objects that are stored and not compressed, an index without times, one branch. The formats are those of git's
documents gitformat-pack(5) and gitformat-index(5). Nothing of the repository that a tree came from is in it: no other
commit, branch, remote or log.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import stat
import struct
import zlib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import BinaryIO

__all__ = ["commit_tree"]

_COMMIT, _TREE, _BLOB = 1, 2, 3
_NAMES = {_COMMIT: b"commit", _TREE: b"tree", _BLOB: b"blob"}
_WHO = b"Baseline <baseline@localhost> 946684800 +0000"  # 2000-01-01
_MESSAGE = b"Baseline\n"
_CONFIG = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n"
_BLOCK = 0xFFFF

_Entry = tuple[bytes, int, bytes, int]  # path, mode, id, size


def commit_tree(top: Path) -> str:
    """Make ``top/.git`` with one commit of all that is in ``top``; returns the commit's id. Raises OSError."""
    git = top / ".git"
    (git / "objects/pack").mkdir(parents=True)
    (git / "objects/info").mkdir()
    (git / "refs/heads").mkdir(parents=True)
    with open(git / "objects/pack/new.pack", "w+b") as file:
        pack = _Pack(file)
        entries = list(_blobs(os.fsencode(top), pack))
        tree = _trees(entries, pack)
        commit = pack.add(
            _COMMIT, b"tree %s\nauthor %s\ncommitter %s\n\n%s" % (tree.hex().encode(), _WHO, _WHO, _MESSAGE)
        )
        name = pack.finish()
    place = git / f"objects/pack/pack-{name.hex()}"
    os.rename(git / "objects/pack/new.pack", f"{place}.pack")
    Path(f"{place}.idx").write_bytes(pack.index())
    (git / "index").write_bytes(_index(entries))
    (git / "config").write_text(_CONFIG, encoding="utf-8")
    (git / "HEAD").write_text("ref: refs/heads/main\n", encoding="utf-8")
    (git / "refs/heads/main").write_text(f"{commit.hex()}\n", encoding="utf-8")
    return commit.hex()


def _blobs(top: bytes, pack: _Pack) -> Iterator[_Entry]:
    """Every file and link, in the order of an index: by the bytes of the whole path."""
    found = []
    for at, folders, names in os.walk(top):
        if at == top:
            folders.remove(b".git")
        links = [name for name in folders if os.path.islink(os.path.join(at, name))]
        found += [os.path.relpath(os.path.join(at, name), top) for name in (*names, *links)]
    for path in sorted(found):
        place = os.path.join(top, path)
        info = os.lstat(place)
        if stat.S_ISLNK(info.st_mode):
            target = os.readlink(place)
            yield path, 0o120000, pack.add(_BLOB, target), len(target)
        else:
            mode = 0o100755 if info.st_mode & 0o111 else 0o100644
            with open(place, "rb") as file:
                yield path, mode, pack.add_file(file, info.st_size), info.st_size


def _trees(entries: list[_Entry], pack: _Pack) -> bytes:
    """Write the tree of each folder; returns the id of the uppermost."""
    children: dict[bytes, list[tuple[bytes, int, bytes]]] = {b"": []}
    for path, mode, sha, _ in entries:
        folder, _, name = path.rpartition(b"/")
        children.setdefault(folder, []).append((name, mode, sha))
        while folder:
            folder = folder.rpartition(b"/")[0]
            children.setdefault(folder, [])
    made = b""
    for folder in sorted(children, key=lambda each: (-each.count(b"/") - bool(each), each)):
        listed = sorted(children[folder], key=lambda each: each[0] + (b"/" if each[1] == 0o40000 else b""))
        made = pack.add(_TREE, b"".join(b"%o %s\0%s" % (mode, name, sha) for name, mode, sha in listed))
        if folder:
            above, _, name = folder.rpartition(b"/")
            children[above].append((name, 0o40000, made))
    return made


class _Pack:
    """A pack file as it grows, and what its index needs to know."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._known = file, dict[bytes, tuple[int, int]]()  # id: offset, checksum
        file.write(b"PACK" + struct.pack(">II", 2, 0))
        self._name = b""

    def add(self, kind: int, data: bytes) -> bytes:
        """Add an object that is not there yet; returns its id."""
        return self._add(kind, io.BytesIO(data), len(data))

    def add_file(self, file: BinaryIO, size: int) -> bytes:
        """Add a blob of this size, which is read twice, in pieces; returns its id."""
        return self._add(_BLOB, file, size)

    def _add(self, kind: int, file: BinaryIO, size: int) -> bytes:
        sha = hashlib.sha1(b"%s %d\0" % (_NAMES[kind], size), usedforsecurity=False)
        for piece in _blocks(file, size):
            sha.update(piece)
        if sha.digest() not in self._known:
            offset, checksum = self._file.tell(), 0
            file.seek(0)
            for written in chain((_head(kind, size),), _stored(file, size)):
                checksum = zlib.crc32(written, checksum)
                self._file.write(written)
            self._known[sha.digest()] = offset, checksum
        return sha.digest()

    def finish(self) -> bytes:
        """Write the number of objects and the checksum, which is the pack's name."""
        self._file.seek(8)
        self._file.write(struct.pack(">I", len(self._known)))
        self._file.seek(0)
        sha = hashlib.sha1(usedforsecurity=False)
        while piece := self._file.read(1 << 20):
            sha.update(piece)
        self._name = sha.digest()
        self._file.write(self._name)
        return self._name

    def index(self) -> bytes:
        """The pack's index, version 2."""
        ids = sorted(self._known)
        counts = _fan(ids)
        offsets = [self._known[each][0] for each in ids]
        large = [offset for offset in offsets if offset >= 1 << 31]
        small = [offset if offset < 1 << 31 else 1 << 31 | large.index(offset) for offset in offsets]
        data = b"".join(
            (
                b"\xfftOc" + struct.pack(">I", 2),
                struct.pack(">256I", *counts),
                *ids,
                *(struct.pack(">I", self._known[each][1]) for each in ids),
                *(struct.pack(">I", offset) for offset in small),
                *(struct.pack(">Q", offset) for offset in large),
                self._name,
            )
        )
        return data + hashlib.sha1(data, usedforsecurity=False).digest()


def _fan(ids: list[bytes]) -> list[int]:
    """How many ids begin with a byte up to each."""
    counts = [0] * 256
    for each in ids:
        counts[each[0]] += 1
    return [sum(counts[: first + 1]) for first in range(256)]


def _head(kind: int, size: int) -> bytes:
    """The kind and the size of an object in a pack, seven bits at a time."""
    first, size = (kind << 4) | (size & 15), size >> 4
    out = bytearray()
    while size:
        out.append(first | 0x80)
        first, size = size & 0x7F, size >> 7
    out.append(first)
    return bytes(out)


def _blocks(file: BinaryIO, size: int) -> Iterator[bytes]:
    """The blocks of a file; raises OSError where it has not this size any more."""
    while size:
        block = file.read(min(size, _BLOCK))
        if not block:
            raise OSError(errno.EIO, "a file changed while it was read")
        size -= len(block)
        yield block


def _stored(file: BinaryIO, size: int) -> Iterator[bytes]:
    """A stream of zlib (RFC 1950) whose blocks are stored: the same bytes from every version of zlib."""
    yield b"\x78\x01"
    checksum, left = zlib.adler32(b""), size
    if not size:
        yield struct.pack("<BHH", 1, 0, 0xFFFF)
    for block in _blocks(file, size):
        left -= len(block)
        checksum = zlib.adler32(block, checksum)
        yield struct.pack("<BHH", not left, len(block), len(block) ^ 0xFFFF) + block
    yield struct.pack(">I", checksum)


def _index(entries: list[_Entry]) -> bytes:
    """An index, version 2, that knows no times, inodes or owners: git looks at the content instead."""
    parts = [b"DIRC" + struct.pack(">II", 2, len(entries))]
    for path, mode, sha, size in entries:
        entry = struct.pack(">10I", 0, 0, 0, 0, 0, 0, mode, 0, 0, size & 0xFFFFFFFF)
        entry += sha + struct.pack(">H", min(len(path), 0xFFF)) + path
        parts.append(entry + b"\0" * (8 - len(entry) % 8))
    data = b"".join(parts)
    return data + hashlib.sha1(data, usedforsecurity=False).digest()
