"""What a rollout left: its record and its kept changes, and its stage and baseline while they are there.

All of it is read as a hostile tree is, and content counts only where its digest is the one of the record. So it does
not matter whether a file comes from ``changes/``, a kept stage or a baseline.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from pytest_rollout.bundle import BundleRecord, Change
from pytest_rollout.errors import SelectorError
from pytest_rollout.redaction.redactor import marked
from pytest_rollout.stage.globs import Glob
from pytest_rollout.stage.root import default_root
from pytest_rollout.stage.tree import reading, show, unshow
from pytest_rollout.store.folder import read_record

__all__ = ["Left", "Unavailable", "is_git", "is_veiled", "veiled"]

_PIECE = 1 << 20
_MARK = marked("").removesuffix("]")
_CUT_SHORT = frozenset({"changes.entries", "changes.depth", "changes.paths", "changes.unreadable"})
# Code points that HFS+ leaves out of names, so that ``.g\u200cit`` is a repository there (as git has it).
_IGNORED = dict.fromkeys([*range(0x200C, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF])


class Unavailable(Exception):
    """Content that can't be had; the text says why."""


def is_git(path: bytes) -> bool:
    """Whether a path is that of a repository's own data, on any file system: in any case, ``git~1``, ``.git.``."""
    return any(_is_git_name(part) for part in path.decode("utf-8", "surrogateescape").split("/"))


def _is_git_name(name: str) -> bool:
    return name.translate(_IGNORED).partition(":")[0].rstrip(". ").lower() in (".git", "git~1")


def is_veiled(text: str) -> bool:
    """Whether something in a text of a record looked like a secret, and is not there."""
    return _MARK in text


def veiled(change: Change) -> str | None:
    """What the record does not tell of a change because it looked like a secret; None where it tells all."""
    if _MARK in change.path:
        return "its path is redacted in the record"
    before = change.before.target if change.before is not None else None
    return "where it points is redacted in the record" if _MARK in f"{change.target} {before}" else None


class Left:
    """The evidence of one attempt, in the folder ``attempt``.

    ``stage_root`` is where stages lie; by default where its stage was kept, or the usual place. Raises SelectorError
    where there is no record.
    """

    def __init__(self, attempt: Path, stage_root: Path | None = None) -> None:
        self.folder = attempt
        try:
            self.bundle = read_record(attempt / "bundle.json", BundleRecord)
        except OSError:
            raise SelectorError(f"{attempt} holds no bundle: the attempt ended before there was evidence") from None
        except msgspec.MsgspecError as error:
            raise SelectorError(f"{attempt / 'bundle.json'} can't be read: {error}") from None
        self._stage = Path(self.bundle.stage) if self.bundle.stage else None
        root = stage_root or (self._stage.parent.parent if self._stage is not None else default_root())
        revision = self.bundle.pins.environment_revision or ""
        self._baseline = root / "baselines" / (revision.removeprefix("sha256:") or "none")

    def selected(self, patterns: Sequence[str]) -> list[Change]:
        """The changes that a glob fits (none given: all), with all that is below them.

        Raises SelectorError for a glob that fits nothing, and where the listing of changes stopped early: then only
        paths that are written out can be had.
        """
        changes = sorted(self.bundle.changes, key=lambda change: unshow(change.path))
        cut = next((finding.message for finding in self.bundle.findings if finding.code in _CUT_SHORT), None)
        fitting = {pattern: _fitting(pattern, changes) for pattern in patterns}
        chosen = {path for paths in fitting.values() for path in paths}
        if cut is not None and not (patterns and set(patterns) == chosen):
            raise SelectorError(
                f"the changes of {self.bundle.identity.rollout} are not known to their end: {cut}",
                hint="Name single paths with --path: those that are known can be had.",
            )
        for pattern, paths in fitting.items():
            if not paths:
                raise SelectorError(f"--path {pattern!r} fits no change of {self.bundle.identity.rollout}")
        return [change for change in changes if not patterns or change.path in chosen]

    def new(self, change: Change) -> Iterator[bytes]:
        """The content of a changed file in pieces; raises Unavailable, at the latest at the end."""
        if change.sha256 is None or change.size is None:
            raise Unavailable(f"its content was not kept ({self._why(change)})")
        if change.stored:
            return _pieces(self.folder / "changes", change.path, change.size, change.sha256)
        for inside in ("u", "copy"):
            if self._stage is not None and (self._stage / inside).is_dir():
                return _pieces(self._stage / inside, change.path, change.size, change.sha256)
        raise Unavailable(f"its content was not kept ({self._why(change)}), and neither was the stage")

    def old(self, change: Change) -> Iterator[bytes]:
        """What the baseline has at the path of a file in pieces; raises Unavailable, at the latest at the end."""
        before = change.before
        if before is None or before.sha256 is None or before.size is None:
            raise Unavailable("what the baseline had is not in the record")
        if not self._baseline.is_dir():
            raise Unavailable("the baseline is not on this machine any more")
        return _pieces(self._baseline, change.path, before.size, before.sha256)

    def _why(self, change: Change) -> str:
        found = [finding.message for finding in self.bundle.findings if finding.path == change.path]
        return found[0] if found else "the record does not say why"


def _fitting(pattern: str, changes: Sequence[Change]) -> set[str]:
    globs = Glob(pattern), Glob(f"{pattern.rstrip('/')}/**")
    return {change.path for change in changes if any(glob.fits(change.path) for glob in globs)}


def _pieces(folder: Path, path: str, size: int, sha256: str) -> Iterator[bytes]:
    """A file whose size and digest are these; raises Unavailable."""
    digest, used = hashlib.sha256(), 0
    try:
        top = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            with reading(top, unshow(path), force=False) as source:
                while piece := os.read(source, _PIECE):
                    used += len(piece)
                    if used > size:
                        break
                    digest.update(piece)
                    yield piece
        finally:
            os.close(top)
    except OSError as error:
        raise Unavailable(f"{folder / show(unshow(path))} can't be read: {error.strerror}") from None
    if used != size or digest.hexdigest() != sha256:
        raise Unavailable(f"{folder / show(unshow(path))} is not what the record says")
