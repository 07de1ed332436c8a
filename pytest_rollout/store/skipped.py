"""Rollouts that a suite skipped: pytest never began them, so they are not missing.

They stay in the plan, marked: a later session may run them.
"""

from __future__ import annotations

from collections.abc import Container

import msgspec

from pytest_rollout.redaction.redactor import FORMS, Redactor
from pytest_rollout.store.folder import RunFolder, write_record
from pytest_rollout.store.load import load_plan

__all__ = ["mark_skipped"]


def mark_skipped(run: RunFolder, rollouts: Container[str], redactor: Redactor = FORMS) -> None:
    """Mark these rollouts in the plan of a run; raises RecordingError or HostError."""
    plan = load_plan(run)
    if plan is None:
        return
    marked = tuple(
        msgspec.structs.replace(planned, skipped=True) if planned.rollout in rollouts else planned
        for planned in plan.rollouts
    )
    write_record(run.plan, msgspec.structs.replace(plan, rollouts=marked), redactor=redactor)
