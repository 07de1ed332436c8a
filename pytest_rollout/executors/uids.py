"""A uid of its own for each stage, where no namespace tells agents apart: for root, on rung 4.

The range lies at the end of the ordinary ones; a uid of it that has an account is left alone. Who uses
one holds a lock on it, for the whole machine, whatever the stage root is.
"""

from __future__ import annotations

import pwd
from pathlib import Path

from filelock import FileLock, Timeout

from pytest_rollout.errors import HostError

__all__ = ["UIDS", "OwnUid", "take_uid"]

UIDS = range(59_000, 59_512)
_LOCKS = Path("/run/pytest-rollout-uids")


class OwnUid:
    """A uid that nobody else has until it is given back."""

    def __init__(self, uid: int, lock: FileLock) -> None:
        self.uid, self._lock = uid, lock

    def give_back(self) -> None:
        """Let others have it; may be called twice."""
        self._lock.release()


def take_uid(locks: Path = _LOCKS) -> OwnUid:
    """The first uid that is free; raises HostError where none is, or none can be locked."""
    try:
        locks.mkdir(mode=0o700, exist_ok=True)
        for uid in UIDS:
            lock = FileLock(locks / str(uid), thread_local=False, is_singleton=False)
            try:
                lock.acquire(timeout=0)
            except Timeout:
                continue
            if not _has_account(uid):
                return OwnUid(uid, lock)
            lock.release()
    except OSError as error:
        raise HostError(f"no uid for a stage can be locked in {locks}: {error.strerror or error}") from error
    raise HostError(f"every uid from {UIDS.start} to {UIDS.stop - 1} is in use by a stage: too many stages at once")


def _has_account(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True
