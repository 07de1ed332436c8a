"""One attempt: a task, an agent and an executor make a bundle of evidence.

:func:`run_attempt` is a plain function that knows no pytest. It can run in any thread, many at once
in one process, and be cancelled from another. It returns an :class:`Attempt`, also when the harness
failed: ``infra`` then says how, and ``record`` is there wherever there was evidence to keep.
"""

from __future__ import annotations

import errno
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import msgspec

from pytest_rollout.agents.protocol import Agent, AgentInfo, Episode, LiveStage
from pytest_rollout.bundle import (
    TRUNCATED,
    AuditVerdict,
    BundleRecord,
    Captured,
    Ended,
    Finding,
    Identity,
    Times,
    bounded,
)
from pytest_rollout.capacity import Capacity, Places
from pytest_rollout.enforced import controls_of
from pytest_rollout.errors import AuthenticationError, ConfigError, InfraError, ProviderError
from pytest_rollout.evaluation.evaluator import Evaluator
from pytest_rollout.evaluation.trees import Trees
from pytest_rollout.executors.cancel import Cancel
from pytest_rollout.executors.capture import Capture
from pytest_rollout.executors.protocol import Executor, ExecutorInfo, Stage
from pytest_rollout.executors.rungs import unmet
from pytest_rollout.findings import dropped, held
from pytest_rollout.outcome import Infra
from pytest_rollout.pins import pins_of
from pytest_rollout.plain import clean, clean_text
from pytest_rollout.redaction.redactor import FORMS, Redactor
from pytest_rollout.stage.collect import CollectBounds, collect
from pytest_rollout.stage.kept import name_keeper
from pytest_rollout.stage.layers import forbidden
from pytest_rollout.stage.reader import StageReader
from pytest_rollout.stage.root import is_full
from pytest_rollout.store.folder import write_record
from pytest_rollout.store.journal import AttemptJournal, utc_now
from pytest_rollout.store.records import Earlier, Source

__all__ = ["Attempt", "Request", "run_attempt"]

_NOT_STARTED = (126, 127)


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What :func:`run_attempt` is asked for, as plain values.

    ``suite`` is the folder of the test file; ``audit`` what was last found out about its checks.
    """

    run: str
    node: str
    episode: Episode
    pins: dict[str, Any] = {}
    plugin_version: str
    bounds: CollectBounds = CollectBounds()
    suite: str = "."
    evaluator_revision: str | None = None
    audit: AuditVerdict | None = None

    @property
    def identity(self) -> Identity:
        """Whose evidence the bundle is."""
        return Identity(
            run=self.run,
            task=self.episode.task.id,
            sample=self.episode.sample,
            attempt=self.episode.attempt,
            rollout=self.episode.rollout,
            node=self.node,
        )


class Attempt:
    """What came of an attempt, one of a rollout's. ``reader`` reads its stage, which is there until :meth:`finish`."""

    def __init__(self, folder: Path, journal: AttemptJournal, redactor: Redactor = FORMS) -> None:
        self.folder, self.journal, self.redactor = folder, journal, redactor
        self.number = 1
        self.earlier: tuple[Earlier, ...] = ()  # the attempts before it
        self.notes: list[str] = []  # warnings of putting those away
        self.record: BundleRecord | None = None
        self.infra: Infra | None = None
        self.reader: StageReader | None = None
        self.evaluator: Evaluator | None = None
        self.waited: float | None = None  # seconds for a place, where there is a limit
        self.source: Source | None = None  # the stored rollout, where no agent runs
        self.acted = False  # whether the agent began, and so may have filled the disk itself
        self._executor: Executor | None = None
        self._stage: Stage | None = None

    @property
    def judged_in_process(self) -> bool:
        """Whether a verdict on it came from a process that held code of the candidate's."""
        return self.evaluator is not None and self.evaluator.in_process

    @property
    def limited_evaluation(self) -> bool:
        """Whether an evaluation of it ended by its limit."""
        return self.evaluator is not None and self.evaluator.limited

    def holds(self, executor: Executor, stage: Stage) -> None:
        """Remember the stage, so that it can be dropped."""
        self._executor, self._stage = executor, stage

    def finish(self, *, keep: bool) -> list[str]:
        """Keep or drop the stage, close the journal; returns warnings. May be called twice."""
        warnings, self.notes = self.notes, []
        executor, stage = self._executor, self._stage
        if self.evaluator is not None:
            self.evaluator.close()
            self.evaluator = None
        if self.reader is not None:
            self.reader.close()
            self.reader = None
        if executor is not None and stage is not None:
            self._executor = self._stage = None
            try:
                self._end_stage(executor, stage, keep, warnings)
            except (OSError, InfraError) as error:
                warnings.append(f"the stage could not be put away: {error}")
        self.journal.close()
        return warnings

    def _end_stage(self, executor: Executor, stage: Stage, keep: bool, warnings: list[str]) -> None:
        if keep:
            place = executor.keep(stage)
            with suppress(InfraError):  # what is done counts, and not that it is told
                self.journal.event("kept", stage=place)
            if self.record is not None:
                self.record = msgspec.structs.replace(self.record, stage=place)
                write_record(self.folder / "bundle.json", self.record, redactor=self.redactor)
            name_keeper(place, self.folder)
            return
        problem = executor.drop(stage)
        with suppress(InfraError):
            self.journal.event("dropped")
        if problem:
            warnings.append(f"the stage was not removed: {problem}")


def run_attempt(
    request: Request,
    *,
    agent: Agent,
    executor: Executor,
    folder: Path,
    cancel: Cancel,
    capacity: Capacity | None = None,
    redactor: Redactor = FORMS,
) -> Attempt:
    """Provision a stage, let the agent act in it, and keep the evidence in ``folder`` (there, empty).

    It waits for a place in ``capacity`` first, which is no time of the agent's.
    Raises RecordingError or HostError only when not even the journal could be written.
    """
    redactor.learn(request.episode.task.env)
    journal = AttemptJournal(folder / "journal.jsonl", redactor=redactor)
    attempt = Attempt(folder, journal, redactor)
    attempt.number = request.episode.attempt
    try:
        task = request.episode.task
        place = nullcontext() if capacity is None else capacity.held(task.pools, cancel, node=request.node)
        with place as places:
            _run(request, attempt, agent, executor, cancel, places)
    except InfraError as error:
        forgeable = error.forgeable or (attempt.acted and error.kind == "host")
        attempt.infra = Infra(kind=error.kind, message=clean_text(str(error)), forgeable=forgeable)  # type: ignore[arg-type]
    except ConfigError as error:
        attempt.infra = Infra(kind="stage", message=clean_text(str(error)))
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
        kind: Any = "host" if full else "recording"
        attempt.infra = Infra(kind=kind, message=clean_text(str(error)), forgeable=full and attempt.acted)
    if attempt.infra is not None:
        try:
            infra = attempt.infra
            journal.event("infra", kind=infra.kind, message=infra.message, forgeable=infra.forgeable)
        except InfraError:
            pass
    return attempt


def _run(
    request: Request, attempt: Attempt, agent: Agent, executor: Executor, cancel: Cancel, places: Places | None
) -> None:
    task, journal, redactor = request.episode.task, attempt.journal, attempt.redactor
    attempt.waited = None if places is None else places.waited
    baseline = executor.prepare(None if task.workspace is None else Path(task.workspace.path))
    if attempt.waited:
        journal.event("waited", seconds=round(attempt.waited, 3))
    stage = executor.provision(baseline)
    attempt.holds(executor, stage)
    if places is not None:
        places.used_by(stage.path)
    journal.event("provisioned", environment_revision=baseline.revision, executor=executor.info.name)
    assert task.limits.output is not None
    streams = [Capture(attempt.folder / name, task.limits.output, redactor) for name in ("stdout", "stderr")]
    started = utc_now()
    live = LiveStage(
        executor=executor,
        stage=stage,
        episode=request.episode,
        stdout=streams[0],
        stderr=streams[1],
        cancel=cancel,
        journal=journal.event,
        redactor=redactor,
    )
    journal.event("started", agent=agent.info.name)
    try:
        ended, infra = _act(agent, live, cancel)
    finally:
        captured = [stream.close() for stream in streams]
    attempt.acted = True
    journal.event("ended", termination=ended.termination, exit_code=ended.exit_code, signal=ended.signal)
    if ended.tree_dead:
        journal.event("tree_dead")
    if infra is None and is_full(stage.path):
        infra = Infra(kind="host", message="the disk of the stages was full when the agent ended", forgeable=True)
    view = executor.view(stage)
    attempt.reader = StageReader(view)
    trees = Trees(executor=executor, stage=stage, view=view, task=task, suite=Path(request.suite), redactor=redactor)
    attempt.evaluator = Evaluator(trees, journal.event)
    collected = collect(view, attempt.folder / "changes", request.bounds, redactor)
    broken = forbidden(collected.changes, task.protect)
    journal.event("collected", changes=len(collected.changes), findings=len(collected.findings))
    attempt.record = _record(
        request,
        agent.info,
        executor.info,
        ended,
        revision=baseline.revision,
        captured=(captured[0], captured[1]),
        times=Times(started=started, ended=utc_now(), duration=ended.duration, waited=attempt.waited),
        changes=collected.changes,
        findings=(*ended.findings, *dropped(captured), *held(streams), *collected.findings, *broken),
        invalid_actions=len(broken) if task.protect else None,
        warnings=(baseline.note,) if baseline.note else (),
    )
    write_record(attempt.folder / "bundle.json", attempt.record, redactor=redactor)
    attempt.infra = infra


def _act(agent: Agent, live: LiveStage, cancel: Cancel) -> tuple[Ended, Infra | None]:
    """Let the agent act; what it shows of itself to be infrastructure comes back beside the evidence."""
    try:
        ended = agent.run(live)
    except (ProviderError, AuthenticationError) as error:  # what the agent did before it stays
        message, kind = clean_text(str(error)), error.kind
        return live.finished(failure=message), Infra(kind=kind, message=message, forgeable=error.forgeable)  # type: ignore[arg-type]
    except InfraError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception | SystemExit) and type(error).__name__ != "CancelledError":  # of asyncio
            raise  # whatever else a callable agent raises is told, not lost
        message = f"the agent raised {type(error).__name__}: {clean(error)}"
        return live.finished(failure=clean_text(message)), Infra(kind="agent", message=clean_text(message))
    if ended.termination == "cancelled" or cancel.is_set:
        return ended, Infra(kind="cancelled", message="the session ended while the agent ran")
    if ended.exit_code in agent.infra_exit_codes:
        message = f"the agent ended with exit code {ended.exit_code}, which it declares for infrastructure"
        return ended, Infra(kind="agent", message=message, forgeable=True)
    if ended.exit_code in _NOT_STARTED:
        meaning = "not found" if ended.exit_code == 127 else "not runnable"
        message = f"exit code {ended.exit_code}: the agent's program, or one that it starts, is {meaning}"
        return ended, Infra(kind="spawn", message=message, forgeable=True)
    return ended, None


def _record(
    request: Request,
    agent: AgentInfo,
    executor: ExecutorInfo,
    ended: Ended,
    *,
    revision: str,
    captured: tuple[Captured, Captured],
    times: Times,
    invalid_actions: int | None,
    findings: tuple[Finding, ...],
    **evidence: Any,
) -> BundleRecord:
    episode = request.episode
    return BundleRecord(
        identity=request.identity,
        pins=pins_of(
            episode.task,
            episode.seed,
            agent,
            executor,
            pins=request.pins,
            environment=revision,
            evaluator=request.evaluator_revision,
            plugin_version=request.plugin_version,
        ),
        exit_code=ended.exit_code,
        signal=ended.signal,
        termination=ended.termination,
        truncated=ended.termination in TRUNCATED,
        trusted=executor.trusted and not unmet(executor.unenforced, episode.task.network),
        rung=executor.rung,
        times=times,
        usage=msgspec.structs.replace(ended.usage, invalid_actions=invalid_actions),
        audit=request.audit,
        controls=controls_of(episode.task, executor, ended, captured),
        tree_dead=ended.tree_dead,
        findings=bounded(findings),
        stdout=captured[0],
        stderr=captured[1],
        **evidence,
    )
