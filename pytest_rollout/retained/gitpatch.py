"""The difference of two versions of a path as ``git apply`` takes it: text, binary, modes and links.

The format is that of git's documents: git-diff(1), and gitformat-pack's neighbour diff-format for the extended headers.
Nothing here touches the disk. Texts that differ too much to be compared in reasonable time are replaced whole, which
is a right difference as well.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Iterator
from difflib import SequenceMatcher

import msgspec

from pytest_rollout.diff import comparison_work

__all__ = ["FilePatch", "Version", "file_patch"]

_MAX_COMPARED = 1 << 20
_MAX_LINES = 20_000
_MAX_WORK = 500_000
_NONE = b"/dev/null"
_LINE = 52  # bytes in a line of a binary difference
_LINK = "120000"
_PLAIN = {0x07: b"\\a", 0x08: b"\\b", 0x09: b"\\t", 0x0A: b"\\n", 0x0B: b"\\v", 0x0C: b"\\f", 0x0D: b"\\r"}


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """A path as git sees it: its content (of a link: its target) and its mode, ``100644``, ``100755`` or ``120000``."""

    mode: str
    data: bytes


class FilePatch(msgspec.Struct, frozen=True, kw_only=True):
    """The difference of one path; ``added`` and ``removed`` count lines, and are None for what is not text."""

    data: bytes
    added: int | None = None
    removed: int | None = None


def file_patch(path: bytes, old: Version | None, new: Version | None, *, binary: bool = True) -> FilePatch:
    """From one version to the other; None is a path that is not there. ``binary`` says to write out what is no text.

    A file that becomes a link, or a link a file, is removed and added, as git has it.
    """
    if old is not None and new is not None and (old.mode == _LINK) is not (new.mode == _LINK):
        parts = [file_patch(path, old, None, binary=binary), file_patch(path, None, new, binary=binary)]
        known = all(part.added is not None for part in parts)
        return FilePatch(
            data=b"".join(part.data for part in parts),
            added=sum(part.added or 0 for part in parts) if known else None,
            removed=sum(part.removed or 0 for part in parts) if known else None,
        )
    head = b"".join(_head(path, old, new))
    before, after = (version.data if version is not None else b"" for version in (old, new))
    if before == after:
        return FilePatch(data=head, added=0, removed=0)
    if b"\0" in before or b"\0" in after:
        index = b"index %s..%s\n" % (_blob(old), _blob(new))
        if not binary:
            return FilePatch(data=head + b"Binary file, %d bytes before and %d now\n" % (len(before), len(after)))
        return FilePatch(data=head + index + b"GIT binary patch\n" + _literal(after) + _literal(before))
    names = b"--- %s\n+++ %s\n" % (_named(b"a/", path, old), _named(b"b/", path, new))
    body, added, removed = _hunks(before, after)
    return FilePatch(data=head + names + body, added=added, removed=removed)


def _head(path: bytes, old: Version | None, new: Version | None) -> Iterator[bytes]:
    yield b"diff --git %s %s\n" % (_quoted(b"a/" + path), _quoted(b"b/" + path))
    if old is None and new is not None:
        yield b"new file mode %s\n" % new.mode.encode()
    elif old is not None and new is None:
        yield b"deleted file mode %s\n" % old.mode.encode()
    elif old is not None and new is not None and old.mode != new.mode:
        yield b"old mode %s\nnew mode %s\n" % (old.mode.encode(), new.mode.encode())


def _named(prefix: bytes, path: bytes, version: Version | None) -> bytes:
    if version is None:
        return _NONE
    name = _quoted(prefix + path)
    return name + b"\t" if b" " in name and not name.startswith(b'"') else name  # as git ends a name with blanks


def _quoted(name: bytes) -> bytes:
    """A name as git writes it: in quotes where it holds quotes, backslashes, control characters or other bytes."""
    if all(0x20 <= byte < 0x7F and byte not in b'"\\' for byte in name):
        return name
    return b'"%s"' % b"".join(map(_escaped, name))


def _escaped(byte: int) -> bytes:
    if byte in b'"\\':
        return b"\\" + bytes([byte])
    if byte in _PLAIN:
        return _PLAIN[byte]
    return bytes([byte]) if 0x20 <= byte < 0x7F else b"\\%03o" % byte


def _blob(version: Version | None) -> bytes:
    """The id of a version's content; all zeros for none."""
    if version is None:
        return b"0" * 40
    head = b"blob %d\0" % len(version.data)
    return hashlib.sha1(head + version.data, usedforsecurity=False).hexdigest().encode()


def _literal(data: bytes) -> bytes:
    packed = zlib.compress(data)
    lines = [b"literal %d\n" % len(data)]
    for at in range(0, len(packed), _LINE):
        piece = packed[at : at + _LINE]
        length = len(piece)
        letter = bytes([ord("A") + length - 1 if length <= 26 else ord("a") + length - 27])
        lines.append(letter + base64.b85encode(piece, pad=True) + b"\n")
    return b"".join((*lines, b"\n"))


def _lines(data: bytes) -> list[bytes]:
    *whole, last = data.split(b"\n")
    return [*(line + b"\n" for line in whole), *([last] if last else [])]


def _hunks(before: bytes, after: bytes) -> tuple[bytes, int, int]:
    """The hunks with three lines around each change, and how many lines are added and removed."""
    old, new = _lines(before), _lines(after)
    parts: list[bytes] = []
    added = removed = 0
    for group in _groups(old, new):
        _, first_old, _, first_new, _ = group[0]
        last_old, last_new = group[-1][2], group[-1][4]
        parts.append(b"@@ -%s +%s @@\n" % (_range(first_old, last_old), _range(first_new, last_new)))
        for tag, old_from, old_to, new_from, new_to in group:
            if tag == "equal":
                parts += [_line(b" ", line) for line in old[old_from:old_to]]
                continue
            parts += [_line(b"-", line) for line in old[old_from:old_to]]
            parts += [_line(b"+", line) for line in new[new_from:new_to]]
            removed += old_to - old_from
            added += new_to - new_from
    return b"".join(parts), added, removed


_Operation = tuple[str, int, int, int, int]


def _groups(old: list[bytes], new: list[bytes]) -> Iterator[list[_Operation]]:
    if _is_comparable(old, new):
        for group in SequenceMatcher(None, old, new).get_grouped_opcodes(3):
            yield list(group)
    else:
        yield [("replace", 0, len(old), 0, len(new))]


def _is_comparable(old: list[bytes], new: list[bytes]) -> bool:
    size = sum(map(len, old)) + sum(map(len, new))
    if not old or not new or size > _MAX_COMPARED or len(old) + len(new) > _MAX_LINES:
        return False
    return comparison_work(old, new) <= _MAX_WORK


def _range(start: int, stop: int) -> bytes:
    length = stop - start
    return b"%d,%d" % (start + 1 if length else start, length)


def _line(sign: bytes, line: bytes) -> bytes:
    return sign + line if line.endswith(b"\n") else sign + line + b"\n\\ No newline at end of file\n"
