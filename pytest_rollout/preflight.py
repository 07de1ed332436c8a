"""Before the first rollout is paid for: see that the machine makes a stage, and that each agent reaches its model.

A stage of the first task is made, and nothing is done in it. Then the ``preflight`` command of each named agent runs
in an empty stage, with the agent's own variables and paths. It is made once for a run: the first process makes it
and writes ``preflight.json``, the others wait and read that. Evidence lies below ``preflight/`` in the run's folder.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from filelock import FileLock

from pytest_rollout import __version__
from pytest_rollout.agents.config import AgentConfig
from pytest_rollout.agents.noop import NoopAgent
from pytest_rollout.agents.protocol import Agent, Episode
from pytest_rollout.attempt import Attempt, Request, run_attempt
from pytest_rollout.errors import InfraError
from pytest_rollout.executors.cancel import Cancel
from pytest_rollout.identity import slug
from pytest_rollout.limits import DEFAULT_LIMITS, Limits
from pytest_rollout.plain import clean_text
from pytest_rollout.run import Run
from pytest_rollout.store.folder import RunFolder, read_record, write_record
from pytest_rollout.task import Task

__all__ = ["Flight", "Preflight", "load_preflight", "preflight", "preflight_once"]

_ID = "preflight"
_LIMITS = Limits(wall="2m").over(DEFAULT_LIMITS)
_TAIL = 300  # characters of what a command said last


class Preflight(msgspec.Struct, frozen=True, kw_only=True):
    """``preflight.json``: ``failed`` says why no rollout is made, or nothing.

    ``tried`` are the agents whose command ran, ``without`` those that name none; ``seconds`` is how long it took.
    """

    schema_version: int = 1
    failed: str = ""
    tried: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    seconds: float = 0.0


class Flight(msgspec.Struct, frozen=True, kw_only=True):
    """A task that is going to be run, with its agent; None where the suite's own fixture will say."""

    task: Task
    agent: AgentConfig | Agent | None


def load_preflight(run: RunFolder) -> Preflight | None:
    """What was found out before the first rollout of a run, or None."""
    with suppress(OSError, msgspec.MsgspecError):
        return read_record(run.path / "preflight.json", Preflight)
    return None


def preflight_once(run: Run, flights: Sequence[Flight], cancel: Cancel) -> Preflight:
    """The preflight of a run, made by the first process that asks; raises RecordingError and HostError."""
    with FileLock(run.folder.path / "preflight.lock"):
        found = load_preflight(run.folder)
        if found is None:
            found = preflight(run, flights, cancel)
            if not cancel.is_set:
                write_record(run.folder.path / "preflight.json", found, redactor=run.redactor)
    return found


def preflight(
    run: Run, flights: Sequence[Flight], cancel: Cancel, clock: Callable[[], float] = time.monotonic
) -> Preflight:
    """Try the machine, then the agents in the order of their names; it ends with the first failure."""
    began = clock()
    named = {f.agent.name: f.agent for f in flights if isinstance(f.agent, AgentConfig)}
    others = {_name(f.agent) for f in flights if not isinstance(f.agent, AgentConfig | NoopAgent)}
    asked = {name: agent for name, agent in sorted(named.items()) if agent.preflight is not None}
    without = tuple(sorted({*others, *(name for name in named if name not in asked)}))
    failed, tried = _machine(run, flights, cancel), []
    for name, agent in asked.items():
        if failed:
            break
        tried.append(name)
        network = max((f.task.network for f in flights if f.agent is agent), key=("none", "gateway", "host").index)
        failed = _agent(run, agent, Task(id=_ID, network=network, limits=_LIMITS), cancel)
    return Preflight(failed=failed, tried=tuple(tried), without=without, seconds=clock() - began)


def _name(agent: Agent | None) -> str:
    return "(fixture)" if agent is None else agent.info.name


def _machine(run: Run, flights: Sequence[Flight], cancel: Cancel) -> str:
    """What the machine refuses: isolation, a stage."""
    try:
        executor = run.executor()
        for flight in flights:
            run.isolation.check(flight.task, executor.info)
        first = flights[0].task
        attempt = _attempt(run, NoopAgent(), Task(id=_ID, workspace=first.workspace, limits=_LIMITS), "noop", cancel)
    except InfraError as error:
        return f"infra {error.kind}: {error}"
    return f"infra {attempt.infra.kind}: {attempt.infra.message}" if attempt.infra is not None else ""


def _agent(run: Run, agent: AgentConfig, task: Task, cancel: Cancel) -> str:
    """How the command of an agent failed, or nothing."""
    assert agent.preflight is not None
    acting = msgspec.structs.replace(agent.agent(os.environ), command=agent.preflight)
    what = f"the preflight command of agent {agent.name!r}"
    try:
        attempt = _attempt(run, acting, task, f"agent-{slug(agent.name)}", cancel)
    except InfraError as error:
        return f"{what}: infra {error.kind}: {error}"
    record = attempt.record
    if record is None or record.termination == "cancelled":
        return f"{what}: infra {attempt.infra.kind}: {attempt.infra.message}" if attempt.infra is not None else what
    if record.termination == "completed" and attempt.infra is None:
        return ""
    code = f" {record.exit_code}" if record.termination == "exit_code" else ""
    said = _last_line(attempt.folder / record.stderr.file) or _last_line(attempt.folder / record.stdout.file)
    return f"{what} ended by {record.termination}{code}" + (f": {said}" if said else "") + f" ({attempt.folder})"


def _attempt(run: Run, agent: Agent, task: Task, name: str, cancel: Cancel) -> Attempt:
    episode = Episode(rollout=_ID, task=task, sample=0, attempt=1, seed=task.seed)
    request = Request(run=run.name, node=_ID, episode=episode, pins=run.settings.pins, plugin_version=__version__)
    folder = run.folder.new_preflight(name)
    attempt = run_attempt(
        request, agent=agent, executor=run.executor(), folder=folder, cancel=cancel, redactor=run.redactor
    )
    attempt.finish(keep=False)
    return attempt


def _last_line(path: Path) -> str:
    with suppress(OSError):
        lines = path.read_bytes()[-4096:].decode("utf-8", "replace").strip().splitlines()
        return clean_text(lines[-1])[-_TAIL:] if lines else ""
    return ""
