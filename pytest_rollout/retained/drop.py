"""Let the kept stage of a rollout go. What its results hold stays."""

from __future__ import annotations

from pathlib import Path

import msgspec

from pytest_rollout.bundle import BundleRecord
from pytest_rollout.errors import SelectorError
from pytest_rollout.stage.kept import disk_usage, is_kept_stage, remove_kept
from pytest_rollout.store.folder import read_record, write_record
from pytest_rollout.store.journal import AttemptJournal

__all__ = ["drop_stage"]


def drop_stage(attempt: Path) -> int | None:
    """Remove the kept stage of an attempt; returns the bytes that this freed, or None where none was kept.

    The record then names no stage, and the journal says that it was dropped. Raises SelectorError where the record
    can't be read, or names what is no kept stage.
    """
    place = attempt / "bundle.json"
    try:
        record = read_record(place, BundleRecord)
    except (OSError, msgspec.MsgspecError) as error:
        raise SelectorError(f"{place} can't be read: {error}") from None
    if record.stage is None:
        return None
    stage = Path(record.stage)
    freed = 0
    if stage.exists() or stage.is_symlink():
        if stage.is_symlink() or not is_kept_stage(stage):
            raise SelectorError(f"{place} names {stage}, which is no kept stage of this user: nothing was removed")
        freed = disk_usage(stage)
        problem = remove_kept(stage)
        if problem is not None:
            raise SelectorError(f"the stage {stage} was not removed: {problem}")
    journal = AttemptJournal(attempt / "journal.jsonl")
    try:
        journal.event("dropped")
    finally:
        journal.close()
    write_record(place, msgspec.structs.replace(record, stage=None))
    return freed
