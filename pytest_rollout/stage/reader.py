"""Read the evidence of one attempt, safely and within bounds.

Every problem is the candidate's: an :class:`~pytest_rollout.errors.EvidenceError`, which is an
AssertionError with a message that a person can act on.
"""

from __future__ import annotations

import errno
import os
import stat

from pytest_rollout.errors import EvidenceError
from pytest_rollout.stage.globs import Glob
from pytest_rollout.stage.tree import Bound, open_path, read_file, show
from pytest_rollout.stage.view import View

__all__ = ["MAX_READ", "StageReader"]
__tracebackhide__ = True  # pytest shows the suite's line, not ours

MAX_READ = 64 * 2**20
MAX_GLOB_ENTRIES = 50_000
MAX_DEPTH = 200


class StageReader:
    """Reads the stage of one attempt through its view."""

    def __init__(self, view: View) -> None:
        self._view = view

    def read(self, path: str, limit: int = MAX_READ) -> bytes:
        """The bytes of a regular file; more than ``limit`` of them are refused."""
        raw = _relative(path)
        try:
            data, more = read_file(*self._view.locate(raw), limit)
        except OSError as error:
            raise EvidenceError(f"{show(raw)}: {self._why(raw, error)}") from None
        if more:
            raise EvidenceError(f"{show(raw)} is larger than {limit} bytes, the most that is read")
        return data

    def read_baseline(self, path: bytes, limit: int) -> bytes | None:
        """The bytes that the baseline has there, or None where it has no readable file."""
        try:
            data, more = read_file(self._view.baseline, path, limit)
        except OSError:
            return None
        return None if more else data

    def exists(self, path: str) -> bool:
        """Whether anything is at ``path``: a link counts, whatever it points to."""
        raw = _relative(path)
        try:
            os.close(open_path(*self._view.locate(raw)))
        except OSError as error:
            if error.errno in _GONE:
                return False
            raise EvidenceError(f"{show(raw)}: {error.strerror or error}") from None
        return True

    def glob(self, pattern: str) -> list[str]:
        """The paths that fit, sorted; ``**`` crosses folders. At most 50,000 entries are looked at."""
        glob = Glob(pattern)
        found, pending, seen = [], [(b"", 1)], 0
        while pending:
            at, depth = pending.pop()
            if depth > MAX_DEPTH:
                raise EvidenceError(f"the stage is deeper than {MAX_DEPTH} folders")
            try:
                listed = self._view.children(at, depth, MAX_GLOB_ENTRIES)
            except (Bound, OSError) as error:
                raise EvidenceError(f"the folder {show(at) or '.'} can't be listed: {error}") from None
            seen += len(listed)
            if seen > MAX_GLOB_ENTRIES:
                raise EvidenceError(f"the stage holds more than {MAX_GLOB_ENTRIES} entries, the most that is listed")
            found += [os.fsdecode(entry.path) for entry in listed if glob.fits(os.fsdecode(entry.path))]
            pending += [(entry.path, depth + 1) for entry in listed if entry.is_folder]
        return sorted(found)

    def close(self) -> None:
        """Give the descriptors back."""
        self._view.close()

    def _stat(self, raw: bytes) -> os.stat_result | None:
        try:
            where, inside = self._view.locate(raw)
            fd = open_path(where, inside)
        except OSError:
            return None
        try:
            return os.fstat(fd)
        finally:
            os.close(fd)

    def _why(self, raw: bytes, error: OSError) -> str:
        """What is wrong, in words: a link is said before the number that the kernel gave for it."""
        parts = raw.split(b"/")
        for count in range(1, len(parts) + 1):
            info = self._stat(b"/".join(parts[:count]))
            if info is None:
                break
            if stat.S_ISLNK(info.st_mode):
                return "is a symbolic link" if count == len(parts) else f"{show(parts[count - 1])} is a symbolic link"
            if count == len(parts) and not stat.S_ISREG(info.st_mode):
                return f"is {_KINDS.get(stat.S_IFMT(info.st_mode), 'not a file')}, not a file"
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            return "there is no such file in the stage"
        return error.strerror or str(error)


_GONE = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EXDEV, errno.ENAMETOOLONG}
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def _relative(path: str | os.PathLike[str]) -> bytes:
    try:
        raw = os.fsencode(path)
    except UnicodeEncodeError:
        raise EvidenceError(f"{path!r} is not a path inside the stage: it can't be a name of a file") from None
    parts = [part for part in raw.split(b"/") if part not in (b"", b".")]
    if raw.startswith(b"/") or b".." in parts or not parts or b"\0" in raw:
        raise EvidenceError(f"{show(raw)!r} is not a path inside the stage: write it relative, without '..'")
    return b"/".join(parts)
