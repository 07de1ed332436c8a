"""Layers: trees that are laid over a stage for an evaluation, and win over what is below them.

:func:`write_restored` makes the layer that undoes what a candidate did to protected paths;
:func:`write_texts` one of files that a test names in a mapping. An overlay merges layers in the
kernel; :func:`merge_layer` does the same into a copy. In both, a component of a candidate's that is
not a folder (a link above all) is replaced, never followed.
"""

from __future__ import annotations

import errno
import itertools
import os
import re
import shutil
import stat
from collections.abc import Iterable, Mapping, Sequence

from pytest_rollout.bundle import Change, Finding
from pytest_rollout.errors import ConfigError, EvidenceError
from pytest_rollout.stage.changes import Delta
from pytest_rollout.stage.globs import Glob
from pytest_rollout.stage.tree import lstat, open_path, reading, show
from pytest_rollout.stage.view import View, is_whiteout

__all__ = ["forbidden", "merge_layer", "protected", "text_path", "write_restored", "write_texts"]


def protected(paths: Iterable[str], patterns: Sequence[str]) -> set[str]:
    """The paths (as shown) that a pattern protects; ``tests/**`` is all that lies below ``tests``."""
    compiled = [Glob(pattern) for pattern in patterns]
    return {path for path in paths if any(glob.fits(path) for glob in compiled)}


_BYTECODE = re.compile(r"(.*/)?__pycache__(/[^/]*\.pyc)?", re.DOTALL)  # running the protected tests leaves it


def forbidden(changes: Iterable[Change], patterns: Sequence[str]) -> tuple[Finding, ...]:
    """The changes to protected paths, which no evaluation sees, as findings."""
    paths = protected((change.path for change in changes if not _BYTECODE.fullmatch(change.path)), patterns)
    return tuple(
        Finding(code="protected", message="changed, and restored for checks", path=path) for path in sorted(paths)
    )


def write_restored(view: View, deltas: Sequence[Delta], patterns: Sequence[str], layer: str) -> None:
    """Fill a layer so that every protected path is what the baseline has there, or is not there.

    Raises EvidenceError for a path of the candidate's that the system can't name in the layer, else OSError.
    """
    ours = protected((show(delta.path) for delta in deltas), patterns)
    top, closed = os.fsencode(layer), set[bytes]()
    for delta in sorted(deltas, key=lambda delta: delta.path):
        if show(delta.path) not in ours or _is_below_one(delta.path, closed):
            continue
        try:
            if not _restore(view, delta.path, os.path.join(top, delta.path)):
                closed.add(delta.path)
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            raise EvidenceError("the protected paths can't be restored: one is too long") from None


def _restore(view: View, path: bytes, place: bytes) -> bool:
    """Put at ``place`` what undoes a change of ``path``; returns whether that is a folder, which others go into."""
    os.makedirs(os.path.dirname(place), mode=0o755, exist_ok=True)
    info = lstat(view.baseline, path)
    if info is None:
        os.mknod(place, stat.S_IFCHR, os.makedev(0, 0))
    elif stat.S_ISDIR(info.st_mode):
        os.makedirs(place, mode=0o755, exist_ok=True)
        return True
    else:
        _copy_one(view.baseline, path, info, place)
    return False


def _is_below_one(path: bytes, folders: set[bytes]) -> bool:
    parts = path.split(b"/")
    return any(b"/".join(parts[:count]) in folders for count in range(1, len(parts)))


def _copy_one(folder: int, path: bytes, info: os.stat_result, place: bytes) -> None:
    """Copy a file or a link of a tree that is read safely."""
    if stat.S_ISLNK(info.st_mode):
        fd = open_path(folder, path)
        try:
            os.symlink(os.readlink(b"", dir_fd=fd), place)
        finally:
            os.close(fd)
        return
    with reading(folder, path) as source, open(place, "xb") as target:
        while piece := os.read(source, 1 << 20):
            target.write(piece)
    os.chmod(place, stat.S_IMODE(info.st_mode) & 0o777)


_LONGEST_NAME, _LONGEST_PATH = 255, 3_000
_TEXT_PATH = re.compile(r"(?!/)(?!.*(?:^|/)\.{1,2}(?:/|$))[^\0]+(?<!/)", re.DOTALL)


def text_path(path: object) -> str:
    """``path`` if a mapping may name a file by it; raises ConfigError."""
    if not isinstance(path, str) or not _TEXT_PATH.fullmatch(path) or "//" in path or _bytes(path) is None:
        raise ConfigError(f"{path!r} is not a path for a file of the tree: write it relative, without '..'")
    if max(len(os.fsencode(part)) for part in path.split("/")) > _LONGEST_NAME:
        raise ConfigError(f"{path[:60]!r}… has a part of more than {_LONGEST_NAME} bytes")
    if len(os.fsencode(path)) > _LONGEST_PATH:
        raise ConfigError(f"{path[:60]!r}… is longer than {_LONGEST_PATH} bytes")
    return path


def _bytes(text: str) -> bytes | None:
    """A text as UTF-8; None where it has surrogates that are no escaped bytes."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return None


def write_texts(files: Mapping[str, str], layer: str) -> None:
    """Fill a layer with texts by their paths; raises ConfigError for a path, or a text, that is none."""
    for path, text in files.items():
        place, data = os.path.join(layer, text_path(path)), _bytes(text)
        if data is None:
            raise ConfigError(f"the text of {path!r} can't be written as UTF-8")
        for folder in itertools.accumulate(path.split("/")[:-1], "{}/{}".format):
            if folder in files:
                raise ConfigError(f"{folder!r} is a file and a folder of others")
        os.makedirs(os.path.dirname(place), mode=0o755, exist_ok=True)
        with open(place, "xb") as file:
            file.write(data)
        os.chmod(place, 0o755 if text.startswith("#!") else 0o644)


def merge_layer(layer: str, target: str) -> None:
    """Lay a layer over a copied tree, as an overlay would show it. Raises OSError."""
    for at, folders, files in os.walk(layer):
        inside = os.path.relpath(at, layer)
        for name in (*folders, *files):
            source = os.path.join(at, name)
            place = os.path.normpath(os.path.join(target, inside, name))
            info = os.lstat(source)
            if stat.S_ISDIR(info.st_mode):
                if os.path.islink(place) or not os.path.isdir(place):
                    _remove(place)
                    os.mkdir(place, 0o755)
                continue
            _remove(place)
            if not is_whiteout(info):
                shutil.copy2(source, place, follow_symlinks=False)


def _remove(place: str) -> None:
    if os.path.isdir(place) and not os.path.islink(place):
        shutil.rmtree(place)
    elif os.path.lexists(place):
        os.unlink(place)
