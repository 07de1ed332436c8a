"""A job: which sample of which task is rolled out, and for which test."""

from __future__ import annotations

from pathlib import Path

import msgspec

from pytest_rollout.bundle import AuditVerdict
from pytest_rollout.rescoring.stored import Stored
from pytest_rollout.store.records import Earlier
from pytest_rollout.task import Task

__all__ = ["Job"]


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What is rolled out: a sample of a task, for the test ``node`` in the folder ``suite``.

    ``trial`` names a trial of the task's checks, which is not recorded as a rollout. ``stored`` is what is scored
    again: then no agent runs. ``earlier`` are the attempts at the sample that there were before.
    """

    task: Task
    sample: int
    node: str
    suite: Path
    evaluator_revision: str | None = None
    audit: AuditVerdict | None = None
    trial: str | None = None
    stored: Stored | None = None
    earlier: tuple[Earlier, ...] = ()
