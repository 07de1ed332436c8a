"""``pytest --rollout-resume RUN``: go on with a run, in each process of the session.

The process that collects first (the only one, or the worker gw0) looks whether today's rollouts may join the run, and
writes the new plan; each one leaves out what was measured when the session began, and not what is measured meanwhile:
a worker that replaces a dead one has to collect the same.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins

from pytest_rollout import __version__
from pytest_rollout._items import is_own_agent, is_own_task
from pytest_rollout._planning import PlannedItem
from pytest_rollout.agents.config import AgentConfig
from pytest_rollout.agents.protocol import AgentInfo
from pytest_rollout.decisions.resume import Before, Candidate, changes, earlier_of, join, pairs_of, read_before, refusal
from pytest_rollout.errors import ConfigError, InfraError, RolloutError
from pytest_rollout.executors.protocol import ExecutorInfo
from pytest_rollout.identity import rollout_id
from pytest_rollout.pins import pins_of
from pytest_rollout.run import Run
from pytest_rollout.settings import Settings
from pytest_rollout.store.folder import ResultsFolder, RunFolder
from pytest_rollout.store.journal import utc_now
from pytest_rollout.store.load import find_run
from pytest_rollout.store.records import Earlier, Plan, Planned, Resumed
from pytest_rollout.store.resumed import go_on, refuse_made

__all__ = ["Resuming", "find_resumed"]

_PATIENCE = 10.0  # seconds for the workers of a killed session to see that it is over
_FIRST = "gw0"
_EXECUTOR = ("executor", "executor_version", "executor_digest", "rung")
_OF_AGENT = ("agent", "agent_digest", "agent_version", "policy_revision", "model", "sampling", "extra")


def find_resumed(settings: Settings, *, hold: bool) -> tuple[RunFolder, Before]:
    """The run that ``--rollout-resume`` names, held by this process; raises ConfigError."""
    assert settings.resume is not None
    try:
        run = find_run(ResultsFolder(Path(settings.dir)), settings.resume)
    except ConfigError:
        raise
    except RolloutError as error:
        raise ConfigError(f"--rollout-resume: {error.message}") from None
    until = time.monotonic() + _PATIENCE
    while run.in_progress() and not run.is_held() and time.monotonic() < until:
        time.sleep(0.05)
    refuse_made(run)
    if hold and not os.access(run.path, os.W_OK):
        raise ConfigError(f"--rollout-resume: the run {run.path} can't be written", hint="Whose is it?")
    if run.in_progress() or (hold and not run.hold()):
        raise ConfigError(f"--rollout-resume: the run {run.name} is in progress", hint="Wait for it, or end it.")
    try:
        before = read_before(run)
    except ConfigError:
        run.release(ended=False)
        raise
    if hold:
        run.begin_again()
    return run, before


class Resuming:
    """One process's part of it."""

    def __init__(self, config: pytest.Config, run: Run, before: Before) -> None:
        self._config, self._run, self.before = config, run, before
        worker = getattr(config, "workerinput", None)
        self._is_first = worker is None or worker["workerid"] == _FIRST

    @classmethod
    def of_worker(cls, config: pytest.Config, run: Run, sizes: Mapping[str, int]) -> Resuming:
        """That of a worker: ``sizes`` are what the controller found."""
        return cls(config, run, read_before(run.folder, sizes))

    def open(self, planned: list[PlannedItem], now: Plan, revision: Callable[[pytest.Item, Any], str]) -> None:
        """Look whether these may join the run, and write what it is now; raises ConfigError, and RecordingError.

        ``revision`` gives the evaluator revision of a test.
        """
        if not self._is_first:
            return
        whole = join(self.before, now, self._run.name)
        candidates = self._candidates(planned, now, revision)
        found = changes(self.before, now, candidates)
        allowed = self._run.settings.resume_changed
        refused = refusal(found, allowed, self._run.name)
        if refused is not None:
            raise refused
        measured = sum(self.before.is_measured(each.rollout) for each in now.rollouts)
        arguments = tuple(str(argument) for argument in self._config.invocation_params.args)
        self._run.results.open_run(self._run.name)
        go_on(
            self._run.folder,
            whole,
            Resumed(
                time=utc_now(),
                plugin_version=__version__,
                arguments=arguments,
                pins=self._run.settings.pins,
                rollouts=len(now.rollouts) - measured,
                measured=measured,
                changed=pairs_of(found),
            ),
            self._run.redactor,
        )

    def left(self, session: pytest.Session, planned: list[PlannedItem]) -> list[PlannedItem]:
        """Those that are made now; the others are deselected."""
        done = {id(item): item for item, rollout in planned if self.before.is_measured(self._rollout(rollout))}
        if done:
            session.items[:] = [item for item in session.items if id(item) not in done]
            self._config.hook.pytest_deselected(items=list(done.values()))
        return [pair for pair in planned if id(pair[0]) not in done]

    def earlier(self, task: str, sample: int, lost: Sequence[Earlier]) -> tuple[Earlier, ...]:
        """The attempts that there were at a sample; ``lost`` are those of this session's dead workers."""
        result = self.before.results.get(rollout_id(self._run.name, task, sample))
        return earlier_of(self._run.folder, task, sample, result, lost)

    def _rollout(self, rollout: Any) -> str:
        return rollout_id(self._run.name, rollout.task.id, rollout.sample)

    # -- pins

    def _candidates(
        self, planned: list[PlannedItem], now: Plan, revision: Callable[[pytest.Item, Any], str]
    ) -> Iterator[Candidate]:
        measured_tasks = {result.task for result in self.before.results.values() if result.reward is not None}
        if not measured_tasks:
            return
        executor = self._run.executor_info()
        agents: dict[int, AgentInfo | None] = {}
        environments: dict[str | None, str | None] = {}
        for (item, rollout), each in zip(planned, now.rollouts, strict=True):
            task, chosen = rollout.task, rollout.chosen
            agent = agents.setdefault(id(chosen), self._agent(chosen)) if is_own_agent(item) else None
            place = task.workspace.path if task.workspace is not None else None
            known = task.id in measured_tasks
            if known and place not in environments:
                environments[place] = self._environment(task)
            pins = pins_of(
                task,
                task.seed + rollout.sample,
                agent or AgentInfo(name=each.agent),
                executor if isinstance(executor, ExecutorInfo) else ExecutorInfo(name="none", trusted=False),
                pins=self._run.settings.pins,
                environment=environments.get(place),
                evaluator=revision(item, task) if known else None,
                plugin_version=__version__,
            )
            plain = {**self._run.redactor.value(to_builtins(pins)), "rung": getattr(executor, "rung", None)}
            for name in self._unsure(item, each, agent, executor, environments.get(place)):
                plain.pop(name, None)
            yield Candidate(planned=each, pins=plain, named=isinstance(chosen, AgentConfig))

    def _unsure(
        self,
        item: pytest.Item,
        planned: Planned,
        agent: AgentInfo | None,
        executor: ExecutorInfo | InfraError,
        environment: str | None,
    ) -> set[str]:
        """The pins that only the attempt will know: fixtures of the suite say them, or there is no executor."""
        unsure = set[str]()
        if isinstance(executor, InfraError):
            unsure.update(_EXECUTOR, ("agent_version",))
        if agent is None:
            unsure.update(_OF_AGENT)
        if not is_own_task(item):
            unsure.update(("task_digest", "seed", "environment_revision"))
        if environment is None:
            unsure.add("environment_revision")
        return unsure

    def _agent(self, chosen: Any) -> AgentInfo | None:
        """What is known of an agent; its version too, where there is an executor to ask it in."""
        if chosen is None:
            return None
        if not isinstance(chosen, AgentConfig):
            info: AgentInfo = chosen.info
            return info
        try:
            return self._run.ready_agent(chosen).info
        except InfraError:
            return chosen.agent(os.environ).info

    def _environment(self, task: Any) -> str | None:
        try:
            return self._run.environment_of(task)
        except (InfraError, ConfigError):
            return None  # the attempt will say it
