"""Score a stored attempt again: its stage made anew, its evidence taken over, no agent.

The baseline has to be the one that the agent started from: the workspace as it is now where its fingerprint is still
the same, else the frozen tree of that fingerprint, where this machine has it. What ran then stays as it was recorded
(exit code, usage, pins, findings); what judges is of now: the task's checks, hidden files and protected paths, the
evaluator revision, the sandbox. So a result is trusted only where the agent was isolated then, and evaluations are now.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from pytest_rollout.attempt import Attempt, Request
from pytest_rollout.bundle import BundleRecord, Captured, bounded
from pytest_rollout.errors import (
    ConfigError,
    HostError,
    InfraError,
    RecordingError,
    SelectorError,
    StageError,
    recording_error,
)
from pytest_rollout.evaluation.evaluator import Evaluator
from pytest_rollout.executors.protocol import Executor
from pytest_rollout.executors.rungs import unmet
from pytest_rollout.outcome import Infra
from pytest_rollout.plain import clean_text
from pytest_rollout.redaction.redactor import FORMS, Redactor
from pytest_rollout.rescoring.laying import lay
from pytest_rollout.rescoring.looking import StoredReader, StoredTrees
from pytest_rollout.rescoring.stored import Stored
from pytest_rollout.retained.left import Left, is_veiled, veiled
from pytest_rollout.stage.baseline import Baseline
from pytest_rollout.stage.layers import forbidden
from pytest_rollout.store.folder import write_record
from pytest_rollout.store.journal import AttemptJournal
from pytest_rollout.task import Task

__all__ = ["score_again"]

_CUT_SHORT = frozenset({"changes.entries", "changes.depth", "changes.paths", "changes.unreadable"})
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM)

Frozen = Callable[[str], Baseline | None]


def score_again(
    stored: Stored,
    request: Request,
    *,
    executor: Executor,
    frozen: Frozen,
    folder: Path,
    stage_root: Path,
    redactor: Redactor = FORMS,
) -> Attempt:
    """The attempt that a test judges again, its evidence in ``folder`` (there, empty).

    ``frozen`` gives the baseline of a revision, where this machine has it. Raises RecordingError or HostError only
    when not even the journal could be written.
    """
    redactor.learn(request.episode.task.env)
    attempt = Attempt(folder, AttemptJournal(folder / "journal.jsonl", redactor=redactor), redactor)
    attempt.source = stored.source
    if stored.unscored:
        kind = stored.result.kind or "recording"
        attempt.infra = Infra(kind=kind, message=stored.unscored, forgeable=stored.result.forgeable)
        return attempt
    try:
        _restore(stored, request, attempt, executor, frozen, stage_root)
    except InfraError as error:
        kind_of_error: Any = error.kind
        attempt.infra = Infra(kind=kind_of_error, message=clean_text(str(error)), forgeable=error.forgeable)
    except (ConfigError, SelectorError) as error:
        attempt.infra = Infra(kind="recording", message=clean_text(str(error)))
    except ValueError as error:  # a mode or a name in the record that no agent can have left
        attempt.infra = Infra(kind="recording", message=clean_text(f"its record can't be used: {error}"))
    except OSError as error:
        attempt.infra = Infra(kind="host" if error.errno in _FULL else "recording", message=clean_text(str(error)))
    return attempt


def _restore(
    stored: Stored, request: Request, attempt: Attempt, executor: Executor, frozen: Frozen, stage_root: Path
) -> None:
    assert stored.folder is not None
    task, left = request.episode.task, Left(stored.folder, stage_root)
    found, wanted = left.bundle.identity, stored.result
    if (found.task, found.sample) != (wanted.task, wanted.sample) and not is_veiled(found.task):
        raise RecordingError(f"{stored.folder} holds what another rollout left, {found.rollout}")
    hidden = next((why for change in left.bundle.changes if (why := veiled(change))), None)
    if hidden is not None:
        raise RecordingError(f"a change of {stored.result.rollout} is not known, so it can't be scored again: {hidden}")
    baseline, warnings = _baseline(task, left.bundle, executor, frozen)
    stage = executor.provision(baseline)
    attempt.holds(executor, stage)
    gaps = lay(left.bundle.changes, left.new, stage.path, baseline.path)
    cut = next((finding.message for finding in left.bundle.findings if finding.code in _CUT_SHORT), "")
    gaps = msgspec.structs.replace(gaps, tree=cut or gaps.tree)
    attempt.journal.event("restored", source=stored.result.rollout, environment_revision=baseline.revision)
    view = executor.view(stage)

    def tell(error: RecordingError) -> None:
        attempt.infra = Infra(kind="recording", message=clean_text(str(error)))  # also where the body swallows it

    attempt.reader = StoredReader(view, gaps, tell)
    trees = StoredTrees(
        gaps,
        tell,
        executor=executor,
        stage=stage,
        view=view,
        task=task,
        suite=Path(request.suite),
        redactor=attempt.redactor,
    )
    attempt.evaluator = Evaluator(trees, attempt.journal.event)
    _take_over(left, attempt.folder)
    if left.bundle.pins.task_digest != task.digest():
        warnings.append(
            f"{task.id}: the task is not as its agent was asked: the prompt, the limits, the network, the variables, "
            "the threshold, score_on or the protected paths were others"
        )
    trusted = executor.info.trusted and not unmet(executor.info.unenforced, task.network)
    attempt.record = _record(left.bundle, request, trusted=trusted, warnings=tuple(warnings))
    write_record(attempt.folder / "bundle.json", attempt.record, redactor=attempt.redactor)


def _baseline(task: Task, record: BundleRecord, executor: Executor, frozen: Frozen) -> tuple[Baseline, list[str]]:
    """The tree that the agent started from, and what to say of it. Raises StageError that names both revisions."""
    wanted = record.pins.environment_revision or "of an unknown revision"
    now: str
    try:
        today = executor.prepare(None if task.workspace is None else Path(task.workspace.path))
        if today.revision == wanted:
            return today, [today.note] if today.note else []
        now = f"is {today.revision} now"
    except (ConfigError, StageError) as error:
        now = f"can't be used now ({error.message})"
    old = frozen(wanted)
    if old is not None:
        return old, [f"{task.id}: scored over the baseline {wanted} that its agent had; the workspace {now}"]
    raise StageError(
        f"the workspace {now}, and the agent started from {wanted}, which this machine does not have any more",
        hint="Bring the workspace back as it was, or score again where its baseline still is.",
    )


def _take_over(left: Left, folder: Path) -> None:
    """Captured output and changed files, as links where that can be: the new run stands without the old one."""
    for stream in (left.bundle.stdout, left.bundle.stderr):
        _take_stream(left.folder, stream, folder)
    source, target = left.folder / "changes", folder / "changes"
    for place in _files_below(source):
        made = target / place.relative_to(source)
        try:
            made.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _link(place, made)
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                continue
            raise recording_error("a changed file", target, error) from error


def _take_stream(source: Path, stream: Captured, folder: Path) -> None:
    if stream.file not in ("stdout", "stderr"):
        raise RecordingError(f"{source / 'bundle.json'} names {stream.file!r} as a captured stream")
    place = source / stream.file
    if place.is_symlink() or not place.is_file():
        raise RecordingError(f"{place} is not there any more")
    try:
        _link(place, folder / stream.file)
    except OSError as error:
        raise recording_error("captured output", folder, error) from error


def _files_below(folder: Path) -> Iterator[Path]:
    """The plain files; there is nothing else that is ours."""
    if folder.is_symlink():
        return
    for at, _, names in os.walk(folder):
        for name in names:
            place = Path(at, name)
            if place.is_file() and not place.is_symlink():
                yield place


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError as error:
        if error.errno in _FULL:
            raise HostError(f"{target} can't be written: {error.strerror}") from error
        shutil.copyfile(source, target, follow_symlinks=False)  # another disk, or another owner


def _record(old: BundleRecord, request: Request, *, trusted: bool, warnings: tuple[str, ...]) -> BundleRecord:
    """The record of the stored attempt as that of this rollout, with what judges now."""
    protect = request.episode.task.protect
    broken = forbidden(old.changes, protect)
    kept = tuple(finding for finding in old.findings if finding.code != "protected")
    usage = msgspec.structs.replace(old.usage, invalid_actions=len(broken) if protect else None)
    return msgspec.structs.replace(
        old,
        identity=request.identity,
        pins=msgspec.structs.replace(old.pins, evaluator_revision=request.evaluator_revision),
        trusted=old.trusted and trusted,
        usage=usage,
        stage=None,
        audit=request.audit,
        findings=(*kept, *bounded(broken)),
        warnings=warnings,
    )
