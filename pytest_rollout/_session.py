"""The state of one process's session: its run, its rollouts, and the thread that they run in.

It translates between pytest and :class:`pytest_rollout.run.Run`; what it decides, the core decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, wait
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pytest_rollout._audit import Auditing, reporting_of
from pytest_rollout._items import plan
from pytest_rollout._judge import Judge
from pytest_rollout._planning import PlannedItem, Problems, plan_items, told, usage_error
from pytest_rollout._preflight import fly
from pytest_rollout._redaction import Redaction
from pytest_rollout._rescoring import select_stored
from pytest_rollout._resuming import Resuming, find_resumed
from pytest_rollout._revisions import Revisions
from pytest_rollout._settings import environment_of_worker, new_run, redactor_of_process, settings_of
from pytest_rollout._sharding import PLUGIN as SHARDING
from pytest_rollout._signals import Signals
from pytest_rollout._state import State
from pytest_rollout._threads import in_thread, outcome_of
from pytest_rollout._trials import Learning, Trials
from pytest_rollout._waits import Waits
from pytest_rollout._warned import Warned
from pytest_rollout.agents.config import AgentConfig
from pytest_rollout.agents.noop import NoopAgent
from pytest_rollout.agents.protocol import Agent
from pytest_rollout.attempt import Attempt
from pytest_rollout.errors import Cancelled, ConfigError, FixtureError, InfraError
from pytest_rollout.evaluation.exposure import check_exposure, secrets_of
from pytest_rollout.evidence import Bundle
from pytest_rollout.executors.cancel import Cancel
from pytest_rollout.marker import check_workspace, checked_task
from pytest_rollout.outcome import Infra
from pytest_rollout.plain import clean_text
from pytest_rollout.reward import Reward
from pytest_rollout.run import Run
from pytest_rollout.settings import Settings
from pytest_rollout.store.records import Plan
from pytest_rollout.task import Archive, Folder, Git, Task
from pytest_rollout.tries import joined

__all__ = ["RolloutSession"]

_TICK = 1.0  # seconds


class RolloutSession:
    """Made when the first rollout is met, in the process that runs it."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._worker = getattr(config, "workerinput", None)
        self._run: Run | None = None
        self._states = pytest.StashKey[State]()

        self._header: list[str] = []
        self._notes: Sequence[str] = ()  # what a reader of the plan has to know besides
        self._judge: Judge | None = None
        self._resuming: Resuming | None = None
        self._no_resuming: ConfigError | None = None
        self._revisions = Revisions(config.rootpath)
        self._waits: Waits | None = None  # where this process has the terminal
        self.trials: Trials

    @property
    def run_of_session(self) -> Run:
        """The run, from the settings of the controller; raises ConfigError."""
        if self._run is None:
            if self._worker is not None:
                self._run = Run(*environment_of_worker(self._worker))
                if self._run.settings.resume is not None:
                    self._resuming = Resuming.of_worker(self._config, self._run, self._worker["rollout"]["sizes"])
            else:
                settings = settings_of(self._config)
                self._run = (
                    Run(settings, new_run(datetime.now(UTC)), "main")
                    if settings.resume is None
                    else self._resumed(settings)
                )
        return self._run

    def _resumed(self, settings: Settings) -> Run:
        """The run that the session goes on with; raises ConfigError."""
        if self._no_resuming is not None:
            raise self._no_resuming
        try:
            folder, before = find_resumed(settings, hold=not self._only_shows)
        except ConfigError as error:
            self._no_resuming = error
            raise
        self._config.add_cleanup(lambda: folder.release(ended=False))
        run = Run(settings, folder.name, "main")
        run.folder = folder
        self._resuming = Resuming(self._config, run, before)
        return run

    # -- after collection

    def begin(self, session: pytest.Session) -> None:
        """Plan every rollout that was selected, refuse what can't be run, and open the run."""
        planned: list[PlannedItem] = []
        problems: Problems = {}
        try:
            planned = plan_items(session.items, self.run_of_session, self._prepare_source, problems)
            if not problems:
                planned, self._notes = select_stored(session, self.run_of_session.stored, planned)
                self._open(planned)
        except (ConfigError, InfraError) as error:
            problems[str(error)] = []
        if problems:
            self._refuse(problems)
            return
        self._start(planned if self._resuming is None else self._resuming.left(session, planned))

    @property
    def _only_shows(self) -> bool:
        """Whether pytest was asked what it would do: then nothing is written and nothing is started."""
        option = self._config.option
        asked = ("collectonly", "setupplan", "showfixtures", "show_fixtures_per_test")
        return any(getattr(option, name, False) for name in asked)

    def _open(self, planned: list[PlannedItem]) -> None:
        run = self.run_of_session
        run.check_hidden(
            {Path(item.path) for item, _ in planned},
            secrets_of([rollout.task for _, rollout in planned]),
            [rollout.chosen for _, rollout in planned if rollout.chosen is not None],
        )
        if self._only_shows:
            return
        run.prepare(reap=self._worker is None)
        if self._resuming is not None:
            self._resuming.open(planned, self._plan_of(planned), self._revisions.of)
        else:
            run.open(self._plan_of(planned), self._options())
        if self._worker is not None:
            run.folder.hold(run.worker)
        elif self._resuming is None:
            run.folder.hold()

    def _plan_of(self, planned: list[PlannedItem]) -> Plan:
        sharding = self._config.pluginmanager.getplugin(SHARDING)
        return plan(planned, self.run_of_session.name, getattr(sharding, "of_session", None), self._notes)

    def _prepare_source(self, asked: Git | Archive) -> Folder | None:
        """Make a workspace ready, but where pytest only shows: then nothing is fetched."""
        return None if self._only_shows else self.run_of_session.prepare_source(asked)

    def _options(self) -> dict[str, Any]:
        arguments = list(self._config.invocation_params.args)
        return {"arguments": [str(argument) for argument in arguments], **self.run_of_session.settings.to_json()}

    def _refuse(self, problems: Problems) -> None:
        """End the session with one message."""
        redactor = self._run.redactor if self._run is not None else redactor_of_process()
        if self._run is not None:
            self._run.folder.release(ended=False)
            self._run.close()
        usage_error(self._config, redactor.text(told(problems)))

    def _start(self, planned: list[PlannedItem]) -> None:
        run = self.run_of_session
        self.signals = Signals(self._config, self.close)
        self._judge = Judge(run, self.signals)
        for item, rollout in planned:
            item.stash[self._states] = State(item, rollout, run.redactor)
        self.trials = Trials(self._config, run, self._judge, self._states, self._revisions)
        if not self._only_shows:
            plugin = Auditing(run, self.trials, self._states) if run.settings.audit else Learning(self._learn)
            self._config.pluginmanager.register(plugin, "rollout-trials")
            self._config.pluginmanager.register(Warned({item.nodeid for item, _ in planned}), "rollout-warned")
        redaction = Redaction(run.redactor)
        if self._worker is not None or not self._only_shows:
            self._config.add_cleanup(self.signals.restore)
            self._config.add_cleanup(self.close)
            self._config.pluginmanager.register(self.signals, "rollout-signals")
            self.signals.install()
        if run.settings.preflight and not self._only_shows and not run.settings.audit:
            fly(self._config, run, planned)
        if self._worker is not None:
            self._config.pluginmanager.register(redaction, "rollout-redaction")
            return
        before = self._resuming.before if self._resuming is not None else None
        reporting = reporting_of(self._config, run, self._plan_of(planned), self.signals, before)
        if self._only_shows:
            self._header = reporting.header(None)
            return
        self._waits = Waits(self._config, run.waits) if run.waits is not None else None
        self._header = reporting.header(run.executor_info())
        self._config.pluginmanager.register(reporting, "rollout-reporting")
        self._config.pluginmanager.register(redaction, "rollout-redaction")

    def header(self) -> list[str]:
        """The lines below «collected N items»."""
        return self._header

    # -- fixtures

    def knows(self, item: pytest.Item) -> bool:
        """Whether this test is a rollout of ours."""
        return self._states in item.stash

    def _state(self, item: pytest.Item) -> State:
        if self._states not in item.stash:
            raise ConfigError(f"{item.nodeid} asks for a rollout in a way that collection does not see: name 'bundle'")
        return item.stash[self._states]

    def task(self, item: pytest.Item) -> Task:
        """The task of a test."""
        return self._state(item).rollout.task

    def agent(self, item: pytest.Item) -> AgentConfig | Agent | None:
        """The agent of a test, or None where the suite has to say."""
        return self._state(item).rollout.chosen

    def reward(self, item: pytest.Item) -> Reward:
        """The reward of a test."""
        return self._state(item).reward

    def run(self, item: pytest.Item, task: Task, agent: Any) -> Bundle:
        """Make the rollout of a test in a thread, and wait; an interrupt cancels it."""
        state, run = self._state(item), self.run_of_session
        try:
            chosen = self._take(state, task, agent)
        except ConfigError as error:
            raise FixtureError(error.message, hint=error.hint) from None
        cancel, future = Cancel(), Future[Attempt]()
        try:  # from before the thread starts: it may run while an interrupt comes in its start
            in_thread(future, run.rollout, state.job(), chosen, cancel)
            while not wait([future], timeout=_TICK).done:  # an interrupt just before a wait does not end it
                if self._waits is not None:
                    self._waits.look()
            state.attempt = future.result()
        except BaseException as error:
            if future.done() and future.exception() is error:
                state.earlier = getattr(error, "earlier", state.earlier)
                raise
            interrupted = isinstance(error, KeyboardInterrupt | pytest.exit.Exception)
            self._stop(state, future, cancel, interrupted=interrupted)
            if interrupted:
                raise
            raise _ended_from_outside(state, error) from error
        finally:
            if future.done():
                cancel.close()
        return state.hand_out()

    def _take(self, state: State, task: Task, agent: Any) -> AgentConfig | Agent:
        """What the fixtures rollout_task and rollout_agent gave, checked as a marker's arguments are."""
        run, item = self.run_of_session, state.item
        if task is not state.rollout.task:  # that one was checked at collection; its workspace may be gone since
            state.take(checked_task(task, state.rollout.task, item.path.parent, run.prepare_source))
            check_exposure(state.task)
        if state.trial_agent is not None or state.rollout.stored is not None:
            return state.trial_agent or NoopAgent()  # of what is stored none runs
        chosen = (
            agent if isinstance(agent, AgentConfig) else run.choose(agent, "fixture rollout_agent", item.path.parent)
        )
        state.agent_name = chosen.name if isinstance(chosen, AgentConfig) else chosen.info.name
        if state.task != state.rollout.task or chosen is not state.rollout.chosen:
            run.check_hidden({item.path}, secrets_of([state.task]), [chosen])
            check_workspace(state.task, results=run.results.path, stage_root=run.stage_root, test_file=item.path)
        return chosen

    def _stop(self, state: State, future: Future[Attempt], cancel: Cancel, *, interrupted: bool) -> None:
        """Cancel an attempt and record it; a second interrupt, which often follows at once, does not prevent that."""
        again: KeyboardInterrupt | None = None
        for _ in range(2):
            try:
                with self.signals.held():
                    cancel.set()
                    state.attempt = state.attempt or outcome_of(future)
                    if interrupted and state.result is None:
                        self.judge_of_session.cancelled(state)
                break
            except KeyboardInterrupt as error:
                again = error
        if again is not None and not interrupted:
            raise again

    def put_away(self, item: pytest.Item) -> None:
        """End the stage of a judged rollout."""
        if self._judge is not None:
            with self.signals.held():
                self._judge.put_away(self._state(item))

    # -- judging

    def _learn(self, item: pytest.Item) -> None:
        """Before a rollout: which checks will score it, and what control runs and audits have shown of them."""
        if not self.knows(item):
            return
        state, run = self._state(item), self.run_of_session
        why = run.folder.stopped() if self._worker is not None else ""
        if why:  # another worker met what ends the run
            state.left_alone, item.session.shouldstop = True, why
            return
        if self._worker is not None and not isinstance(run.executor_info(), InfraError):
            earlier = run.claims.take(state.task.id, state.rollout.sample)
            state.left_alone, state.earlier = earlier is None, joined(state.earlier, earlier or ())
        if state.left_alone:
            return
        if self._resuming is not None:
            state.earlier = self._resuming.earlier(state.task.id, state.rollout.sample, state.earlier)
        try:
            self.trials.learn(state)
        except (KeyboardInterrupt, pytest.exit.Exception):
            self.judge_of_session.cancelled(state)
            raise

    @property
    def judge_of_session(self) -> Judge:
        """Who judges the rollouts."""
        assert self._judge is not None
        return self._judge

    def interrupted(self, state: State) -> None:
        """Record a rollout whose test was interrupted after its agent ran."""
        if state.attempt is not None and state.result is None:
            self.judge_of_session.cancelled(state)

    def state(self, item: pytest.Item) -> State:
        """The state of a test that :meth:`knows` of."""
        return item.stash[self._states]

    def close(self) -> None:
        """Give back everything; stages that are left are removed."""
        if self._run is not None:
            self._run.folder.release()
            self._run.close()


def _ended_from_outside(state: State, error: BaseException) -> Cancelled:
    """A plugin (a time limit of a test, say) ended the test while its agent ran."""
    said = clean_text(f"the test was ended while the agent ran: {type(error).__name__}: {error}")
    if state.attempt is not None and state.attempt.infra is not None:
        state.attempt.infra = Infra(kind="cancelled", message=said, forgeable=True)
    return Cancelled(said, forgeable=True)  # it may have been slow on purpose
