"""Folders that are repositories by what is in them: nothing in the path of a bare one says so."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

__all__ = ["Repositories", "is_repository"]

_PARTS = (b"HEAD", b"objects", b"refs")


def is_repository(folder: Path) -> bool:
    """Whether a folder has all that makes a repository."""
    return all((folder / os.fsdecode(part)).exists() for part in _PARTS)


class Repositories:
    """Tells which paths would lie in a repository once ``paths`` are written where ``exists`` looks."""

    def __init__(self, paths: Iterable[bytes], exists: Callable[[bytes], bool]) -> None:
        self._exists = exists
        self._known: dict[bytes, bool] = {}
        self._written: dict[bytes, set[bytes]] = {}
        for path in paths:
            pieces = path.split(b"/")
            for at, name in enumerate(pieces):
                for part in _PARTS:
                    if name.lower() == part.lower():  # a file system may not tell them apart
                        self._written.setdefault(b"/".join(pieces[:at]), set()).add(part)

    def hold(self, path: bytes) -> bool:
        """Whether a folder above a path has all that makes a repository."""
        pieces = path.split(b"/")
        return any(self._is_one(b"/".join(pieces[:count])) for count in range(len(pieces)))

    def _is_one(self, folder: bytes) -> bool:
        if folder not in self._known:
            written = self._written.get(folder, set())
            beside = folder + b"/" if folder else b""
            self._known[folder] = all(part in written or self._exists(beside + part) for part in _PARTS)
        return self._known[folder]
