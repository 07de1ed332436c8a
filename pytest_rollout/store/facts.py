"""What is known of checks, kept from run to run: facts of control runs, verdicts of audits.

::

    <dir>/controls/<digest>.json    the facts of one task's checks, on the oracle and on the no-op
    <dir>/audits/<digest>.json      the last verdict on a task's checks, with every trial
    <dir>/audits/latest.json        the last audit, whole

A digest is of the task and its evaluator revision, so a changed check is a new one. A record that can't
be read is one that is not there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import msgspec
from filelock import FileLock, Timeout

from pytest_rollout.bundle import SCHEMA_VERSION, AuditVerdict
from pytest_rollout.control import Control, Facts
from pytest_rollout.errors import recording_error
from pytest_rollout.identity import canonical_digest
from pytest_rollout.redaction.redactor import FORMS, Redactor
from pytest_rollout.store.folder import ResultsFolder, read_record, write_record

__all__ = ["AuditRecord", "FactsFolder", "TaskAudit", "Trial"]

Record = TypeVar("Record", bound=msgspec.Struct)


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One trial of an audit: what was put in an agent's place, what should come of it, and what did."""

    name: str
    wanted: str
    facts: Facts
    good: bool


class TaskAudit(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on one task's checks. ``reason`` says what scored and how, or why nothing is known."""

    schema_version: int = SCHEMA_VERSION
    task: str
    node: str
    evaluator_revision: str
    verdict: AuditVerdict
    reason: str
    failed: bool = False
    trials: tuple[Trial, ...] = ()
    time: str = ""


class AuditRecord(msgspec.Struct, frozen=True, kw_only=True):
    """``audits/latest.json``: every verdict of one session."""

    schema_version: int = SCHEMA_VERSION
    run: str
    tasks: tuple[TaskAudit, ...]
    missing: tuple[str, ...] = ()


class FactsFolder:
    """The folder of what is known of checks, beside the runs."""

    def __init__(self, results: ResultsFolder, redactor: Redactor = FORMS) -> None:
        self._redactor = redactor
        self._controls, self._audits = results.path / "controls", results.path / "audits"

    @contextmanager
    def control_lock(self, key: str, patience: float) -> Iterator[None]:
        """Held by the process that makes the facts of a key; others wait, but not longer than ``patience`` seconds.

        Raises RecordingError or HostError.
        """
        try:
            self._controls.mkdir(exist_ok=True)  # results that somebody removed are not begun again
            lock = FileLock(self._controls / f".{_name(key)}.lock", thread_local=False)
            with suppress(Timeout):  # it is stuck; the same facts are made twice then
                lock.acquire(timeout=patience)
        except OSError as error:
            raise recording_error("a control run", self._controls, error) from error
        try:
            yield
        finally:
            lock.release()

    def control(self, key: str) -> Control | None:
        """The facts of a key, if there are any."""
        return _read(self._controls / f"{_name(key)}.json", Control)

    def keep_control(self, key: str, control: Control) -> None:
        """Keep facts; raises RecordingError or HostError."""
        write_record(self._controls / f"{_name(key)}.json", control, redactor=self._redactor)

    def audit(self, task: str, revision: str) -> TaskAudit | None:
        """The last verdict on a task's checks of this revision."""
        return _read(self._audits / f"{_name(_audit_key(task, revision))}.json", TaskAudit)

    def keep_audit(self, audit: TaskAudit) -> None:
        """Keep a verdict; raises RecordingError or HostError."""
        self._make_audits()
        place = self._audits / f"{_name(_audit_key(audit.task, audit.evaluator_revision))}.json"
        write_record(place, audit, redactor=self._redactor)

    def keep_record(self, record: AuditRecord) -> Path:
        """Keep a whole audit; returns where. Raises RecordingError or HostError."""
        self._make_audits()
        place = self._audits / "latest.json"
        write_record(place, record, redactor=self._redactor)
        return place

    def _make_audits(self) -> None:
        try:
            self._audits.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise recording_error("an audit", self._audits, error) from error


def _audit_key(task: str, revision: str) -> str:
    return canonical_digest([task, revision])


def _name(key: str) -> str:
    return key.removeprefix("sha256:")[:32]


def _read(path: Path, kind: type[Record]) -> Record | None:
    try:
        return read_record(path, kind)
    except (OSError, msgspec.MsgspecError):
        return None
