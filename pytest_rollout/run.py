"""A run: one session's settings, folder, agents and executor, and the rollouts that it makes.

It knows no pytest. Every process of a session (the controller, each worker) has one; what they
share is the run's name and its folder.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import msgspec

from pytest_rollout import __version__
from pytest_rollout.agents.config import AgentConfig, choose_agent, load_config
from pytest_rollout.agents.protocol import Agent, Episode
from pytest_rollout.agents.version import version_of
from pytest_rollout.attempt import Attempt, Request, run_attempt
from pytest_rollout.capacity import SLOTS, Capacity
from pytest_rollout.errors import InfraError
from pytest_rollout.executors.cancel import Cancel
from pytest_rollout.executors.protocol import Executor, ExecutorInfo
from pytest_rollout.identity import rollout_id
from pytest_rollout.isolation import Isolation
from pytest_rollout.job import Job
from pytest_rollout.outcome import Verdict, lost
from pytest_rollout.plain import clean, clean_text
from pytest_rollout.recording import news, result_of, score_of, this_process
from pytest_rollout.redaction.redactor import Redactor
from pytest_rollout.rescoring.attempt import score_again
from pytest_rollout.rescoring.stored import Stored, StoredRun, load_stored
from pytest_rollout.reward import Reward
from pytest_rollout.settings import Settings
from pytest_rollout.shown import check_private
from pytest_rollout.sources.prepare import prepared_source
from pytest_rollout.stage.baseline import frozen
from pytest_rollout.stage.holds import Holds
from pytest_rollout.stage.kept import remove_kept
from pytest_rollout.stage.root import SOURCES, StageRoot, default_root
from pytest_rollout.store.claims import Claims
from pytest_rollout.store.facts import FactsFolder
from pytest_rollout.store.folder import ResultsFolder, RunFolder, kept_stages, write_record
from pytest_rollout.store.journal import ResultsJournal, utc_now
from pytest_rollout.store.records import Earlier, Plan, Result, RunRecord, SourceRun
from pytest_rollout.task import Archive, Folder, Git, Task
from pytest_rollout.tries import RetryPolicy, backoff, next_number, persist

__all__ = ["Run"]


class Run:
    """``name`` is the run's id; ``worker`` names this process in it (``main``, ``gw0`` …), ``session`` pytest's."""

    def __init__(self, settings: Settings, name: str, worker: str, session: str = "main") -> None:
        self.settings, self.name, self.worker = settings, name, worker
        self.results = ResultsFolder(Path(settings.dir), "audits" if settings.audit else "runs")
        self.redactor = Redactor.of_process(os.environ, named=settings.redact, exists=os.path.exists)
        self.facts = FactsFolder(self.results, self.redactor)
        self.folder = RunFolder(self.results.runs / name)
        self.claims = Claims(self.folder, session)
        self.named = load_config(Path(settings.config), must_exist=settings.config_given)
        self.reaped = 0
        self.isolation = Isolation(settings, self.folder.path, self.redactor)
        self._root: StageRoot | None = None
        self._agents: dict[str, Agent] = {}
        self._journal: ResultsJournal | None = None
        self._told: set[str] = set()
        self._holds = Holds(self.stage_root)
        sizes = {**settings.pools, **({SLOTS: settings.slots} if settings.slots is not None else {})}
        self.backoff: Callable[[int], float] = lambda retry: backoff(retry, random.random)  # seconds before a retry
        self.waits = self.folder.path / "waiting" if sizes else None  # where long waits for a place are told
        slots = self.stage_root / "slots"
        self._capacity = Capacity(slots, sizes, run=name, worker=worker, notices=self.waits) if sizes else None

    # -- before anything is started

    @property
    def stage_root(self) -> Path:
        """Where stages lie."""
        return Path(self.settings.stage_root) if self.settings.stage_root else default_root()

    def choose(self, value: object, where: str, folder: Path | None) -> AgentConfig | Agent:
        """The agent that ``value`` means; raises ConfigError."""
        return choose_agent(value, self.named, where=where, folder=folder)

    def prepare_source(self, asked: Git | Archive) -> Folder:
        """The folder of a workspace that is none of the suite's, made now if this machine has none.

        Raises ConfigError, StageError and HostError.
        """
        return prepared_source(asked, self.stage_root / SOURCES, self.name, self._holds.hold)

    def check_hidden(self, files: set[Path], hidden: set[Path], agents: list[AgentConfig | Agent]) -> None:
        """Refuse to run where an agent could read the suite, the results or other stages.

        ``files`` are the suite's, ``hidden`` its hidden files and oracles. Raises ConfigError with the remedy.
        """
        if self.settings.executor == "local":
            return
        private = [(path, "the suite") for path in sorted(files)]
        private += [(path, "what the evaluator keeps hidden") for path in sorted(hidden)]
        private += [(self.results.path, "the folder of the results"), (self.stage_root, "the stage root")]
        check_private(private, agents)

    def prepare(self, *, reap: bool = True) -> None:
        """Take the stage root and see that results can be written; raises ConfigError.

        ``reap`` says to remove the stages of processes that died: one process of a session does, and counts them.
        """
        self.results.check_writable()
        if self._root is None:
            self._root = StageRoot(self.stage_root)
            self.reaped = self._root.reap() if reap else 0

    def open(self, plan: Plan, options: dict[str, Any]) -> None:
        """Make the folder of the run, its record and its plan; the first process to come writes them."""
        self.folder = self.results.open_run(self.name)
        record = RunRecord(
            run=self.name,
            started=utc_now(),
            plugin_version=__version__,
            options=clean(options),
            pins=self.settings.pins,
            environment=this_process(),
            redacted=self.redactor.names,
            not_redacted=self.redactor.ignored,
            source=None if self.stored is None else SourceRun(run=self.stored.name, folder=str(self.settings.rescore)),
            shard=plan.shard,
        )
        write_record(self.folder.record, record, create_only=True, redactor=self.redactor)
        write_record(self.folder.plan, plan, create_only=True, redactor=self.redactor)

    def executor(self) -> Executor:
        """The executor, made and probed when first asked for; raises the same InfraError every time."""
        assert self._root is not None
        return self.isolation.executor(self._root)

    def executor_info(self) -> ExecutorInfo | InfraError:
        """What the executor is, or why there is none."""
        try:
            return self.executor().info
        except InfraError as error:
            return error

    # -- rollouts

    def ready_agent(self, chosen: AgentConfig | Agent) -> Agent:
        """An agent that can act: of a named one the version is asked for, once."""
        if not isinstance(chosen, AgentConfig):
            return chosen
        if chosen.name not in self._agents:
            self._agents[chosen.name] = chosen.agent(os.environ, version_of(chosen, self.executor()))
        return self._agents[chosen.name]

    def rollout(self, job: Job, agent: AgentConfig | Agent, cancel: Cancel) -> Attempt:
        """Make attempts at one sample until one is measured or may not be followed; or one trial of its checks.

        Raises InfraError where nothing could be recorded of the last one.
        """
        self.redactor.learn(os.environ)  # a suite may have added to it
        executor = self.executor()
        self.isolation.check(job.task, executor.info)  # what these two refuse once, they refuse to the end
        if job.trial is not None or job.stored is not None:
            return self._attempt(job, agent, cancel, 1 if job.stored is None else job.stored.result.attempt)
        return persist(
            job.earlier,
            lambda number: self._attempt(job, agent, cancel, number),
            self.retry_policy,
            pause=lambda retry: cancel.wait(self.backoff(retry)),
            put_away=lambda attempt: attempt.finish(keep=self.keeps(lost(attempt.infra))),
            relative=lambda attempt: self.folder.relative(attempt.folder),
        )

    @property
    def retry_policy(self) -> RetryPolicy:
        """Which infrastructure failures are followed by another attempt."""
        return RetryPolicy(retries=self.settings.retries, forgeable=self.settings.retry_forgeable)

    def _attempt(self, job: Job, agent: AgentConfig | Agent, cancel: Cancel, number: int) -> Attempt:
        executor, ready = self.executor(), self.ready_agent(agent)
        if job.trial is None:
            folder = self.folder.new_attempt(job.task.id, job.sample, number)
        else:
            folder = self.folder.new_trial(job.task.id, job.sample, f"{job.trial}-{self.worker}")
        rollout, seed = rollout_id(self.name, job.task.id, job.sample), job.task.seed + job.sample
        episode = Episode(rollout=rollout, task=job.task, sample=job.sample, attempt=number, seed=seed)
        request = Request(
            run=self.name,
            node=clean_text(job.node),
            episode=episode,
            pins=self.settings.pins,
            plugin_version=__version__,
            suite=str(job.suite),
            evaluator_revision=job.evaluator_revision,
            audit=job.audit,
        )
        if job.stored is not None and job.trial is None:
            return self._score_again(job.stored, request, executor, folder)
        capacity = self._capacity if job.trial is None else None
        try:
            return run_attempt(
                request,
                agent=ready,
                executor=executor,
                folder=folder,
                cancel=cancel,
                capacity=capacity,
                redactor=self.redactor,
            )
        finally:
            if not executor.info.trusted:
                self.folder.reopen()

    def _score_again(self, stored: Stored, request: Request, executor: Executor, folder: Path) -> Attempt:
        assert self._root is not None
        return score_again(
            stored,
            request,
            executor=executor,
            frozen=partial(frozen, self._root),
            folder=folder,
            stage_root=self.stage_root,
            redactor=self.redactor,
        )

    @cached_property
    def stored(self) -> StoredRun | None:
        """The run that is scored again, or None where agents run."""
        return None if self.settings.rescore is None else load_stored(Path(self.settings.rescore))

    def environment_of(self, task: Task) -> str:
        """The revision of a task's baseline, frozen now if it was not; raises InfraError and ConfigError."""
        return self.executor().prepare(None if task.workspace is None else Path(task.workspace.path)).revision

    def keeps(self, verdict: Verdict | None) -> bool:
        """Whether the stage of a rollout is kept: an unjudged one is, as one that failed; not one of a full disk."""
        if verdict is not None and verdict.kind == "host":
            return False
        if self.settings.keep == "failed" and self.settings.rescore is None:  # made again, it can be made once more
            return verdict is None or verdict.outcome != "passed"
        return self.settings.keep == "all"

    def record(
        self,
        *,
        task: Task,
        sample: int,
        node: str,
        agent: str,
        verdict: Verdict,
        attempt: Attempt | None,
        reward: Reward,
        earlier: tuple[Earlier, ...] = (),
        xfail: str | None = None,
    ) -> Result:
        """Write ``score.json`` and the line of results, synced. Raises RecordingError or HostError.

        ``earlier`` are the attempts before, where there is no ``attempt`` that knows them.
        """
        bundle = attempt.record if attempt is not None else None
        rollout = rollout_id(self.name, task.id, sample)
        folder, in_process = None, attempt is not None and attempt.judged_in_process
        earlier = attempt.earlier if attempt is not None else earlier
        number = attempt.number if attempt is not None else next_number(earlier)
        if attempt is not None:
            attempt.journal.event("scored", outcome=verdict.outcome, reward=verdict.reward)
            score = score_of(
                task,
                rollout=rollout,
                sample=sample,
                verdict=verdict,
                bundle=bundle,
                reward=reward,
                attempt=number,
                in_process=in_process,
            )
            write_record(attempt.folder / "score.json", score, redactor=self.redactor)
            folder = self.folder.relative(attempt.folder)
        result = result_of(
            task,
            rollout=rollout,
            sample=sample,
            node=node,
            agent=agent,
            verdict=verdict,
            bundle=bundle,
            folder=folder,
            attempt=number,
            earlier=earlier,
            in_process=in_process,
            metrics=reward.metrics,
            xfail=xfail,
            warnings=news(bundle, self._told),
        )
        if attempt is not None:
            result = msgspec.structs.replace(result, source=attempt.source)
        self.append(result)
        return result

    def append(self, result: Result) -> None:
        """Add a line to this process's results, and see it on the disk."""
        if self._journal is None:
            self._journal = ResultsJournal(self.folder.results / f"{self.worker}.jsonl", self.redactor)
        self._journal.append(result)

    # -- afterwards

    def prune(self) -> list[str]:
        """Remove the oldest runs over ``rollout_keep_runs``, with their kept stages; not one that is scored again."""
        but = () if self.stored is None else (self.stored.name,)
        for run in self.results.surplus(self.settings.keep_runs, but):
            for stage in kept_stages(run):
                if self._root is not None and stage.parent == self._root.kept:
                    remove_kept(stage)
        return self.results.prune(self.settings.keep_runs, but)

    def close(self) -> None:
        """Give back the journal, the executor and the sources; may be called twice."""
        self._holds.close()
        if self._journal is not None:
            self._journal.close()
            self._journal = None
        if self._root is not None:
            root, self._root = self._root, None
            with suppress(OSError):  # somebody may have removed it
                root.reap()  # a worker of this session may have died
            with suppress(OSError):
                root.close()
