"""Seals: what the stats of a prepared tree were, so that a change of it is seen without reading it again.

A seal is taken after the tree has its place, and lies beside it, never in it. One that was taken within a tick of the
clock of the newest change proves nothing, and neither does one that is missing (its writer was killed) or does not fit:
then the tree is read whole, and sealed again where it is right. A seal can't see what changes no stat: a disk that
loses bits, or a clock that somebody sets back. It is looked at once for each process.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from pytest_rollout.errors import ConfigError
from pytest_rollout.stage.fingerprint import state

__all__ = ["intact", "seal"]

_TICK = 20_000_000  # nanoseconds; file systems take their times from a clock of at least 100 Hz
_LARGE = 500  # entries of a tree that is worth waiting a tick for, rather than reading it once more
_ALL: frozenset[bytes] = frozenset()


class Seal(msgspec.Struct, frozen=True, kw_only=True):
    """The digest of a tree's stats, and whether that proves anything."""

    state: str
    settled: bool


def seal(tree: Path, place: Path, now: Callable[[], int] = time.time_ns) -> None:
    """Seal a tree that is known to be right; raises OSError and ConfigError."""
    found = state(tree, skip=_ALL)
    while found.count >= _LARGE and 0 <= (left := found.newest + _TICK - now()) <= _TICK:
        time.sleep(left / 1e9 + 0.001)
    settled = found.newest + _TICK < now() and (found.count < _LARGE or state(tree, skip=_ALL).digest == found.digest)
    made = place.with_name(f".{place.name}-{secrets.token_hex(4)}")
    try:
        made.write_bytes(msgspec.json.encode(Seal(state=found.digest, settled=settled)))
        made.replace(place)
    finally:
        made.unlink(missing_ok=True)


def intact(tree: Path, place: Path, is_right: Callable[[], bool]) -> bool:
    """Whether a tree is what it was made as: by its seal, else by ``is_right``, which reads it. Raises OSError."""
    try:
        found = msgspec.json.decode(place.read_bytes(), type=Seal)
        if found.settled and state(tree, skip=_ALL).digest == found.state:
            return True
    except (OSError, msgspec.MsgspecError, ConfigError):
        pass
    try:
        if not is_right():
            return False
        seal(tree, place)
    except ConfigError:
        return False
    return True
