"""Write what a session makes of a run that there was: its new plan, and that it was resumed."""

from __future__ import annotations

import msgspec

from pytest_rollout.errors import ConfigError
from pytest_rollout.redaction.redactor import FORMS, Redactor
from pytest_rollout.store.folder import RunFolder, read_record, write_record
from pytest_rollout.store.records import Plan, Resumed, RunRecord

__all__ = ["go_on", "refuse_made"]


def refuse_made(run: RunFolder) -> None:
    """Raise ConfigError for a run of which no session was: it was made out of other runs."""
    try:
        record = read_record(run.record, RunRecord)
    except (OSError, msgspec.MsgspecError):
        return  # whoever goes on with it tells
    if record.source is not None:
        raise ConfigError(
            f"--rollout-resume: {run.name} is {record.source.run} scored again: no agent ran",
            hint="Resume that one, or score it again.",
        )
    if record.merged:
        parts = ", ".join(str(part.get("run")) for part in record.merged[:3])
        raise ConfigError(
            f"--rollout-resume: {run.name} was merged of other runs ({parts}{' …' if record.merged[3:] else ''})",
            hint="Resume those, each with its shard, and merge them again.",
        )


def go_on(run: RunFolder, plan: Plan, resumed: Resumed, redactor: Redactor = FORMS) -> None:
    """Replace the plan and the record of a run, each in one step; raises ConfigError, RecordingError and HostError."""
    try:
        record = read_record(run.record, RunRecord)
    except (OSError, msgspec.MsgspecError) as error:
        raise ConfigError(f"--rollout-resume: {run.record} can't be read: {error}") from None
    write_record(run.record, msgspec.structs.replace(record, resumed=(*record.resumed, resumed)), redactor=redactor)
    write_record(run.plan, plan, redactor=redactor)
