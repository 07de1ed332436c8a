"""The contract of an agent: it is given a live stage, acts in it, and says how that ended."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import msgspec

from pytest_rollout.bundle import Captured, Ended, Finding, Termination, Usage
from pytest_rollout.errors import Cancelled, HostError
from pytest_rollout.evaluated import Exec, exec_of
from pytest_rollout.executors.cancel import Cancel
from pytest_rollout.executors.capture import Capture
from pytest_rollout.executors.protocol import Bind, Command, Executor, Stage
from pytest_rollout.redaction.redactor import FORMS, Redactor
from pytest_rollout.task import Task

__all__ = ["Agent", "AgentInfo", "Episode", "LiveStage", "join_path", "program_folders"]

DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
_EXEC_BYTES = 1 << 20


class Episode(msgspec.Struct, frozen=True, kw_only=True):
    """Which rollout an agent acts for: its ids, its sample, its attempt and its seed."""

    rollout: str
    task: Task
    sample: int
    attempt: int
    seed: int


class AgentInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What is recorded of an agent. ``digest`` is of its definition."""

    name: str
    digest: str | None = None
    version: str | None = None
    pins: dict[str, Any] = {}


class Agent(Protocol):
    """What acts. ``infra_exit_codes`` are exit codes by which it says that it is broken itself."""

    @property
    def info(self) -> AgentInfo: ...

    @property
    def infra_exit_codes(self) -> tuple[int, ...]: ...

    def run(self, stage: LiveStage) -> Ended:
        """Act. Raises AgentFailure when the agent failed; any other exception is infrastructure."""
        ...


class LiveStage:
    """A stage while its agent acts: run commands in it, know the task.

    ``prompt``, ``task``, ``sample``, ``attempt`` and ``seed`` tell what is asked; ``journal`` is told
    of every command.
    """

    def __init__(
        self,
        *,
        executor: Executor,
        stage: Stage,
        episode: Episode,
        stdout: Capture,
        stderr: Capture,
        cancel: Cancel,
        journal: Callable[..., None],
        redactor: Redactor = FORMS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._executor, self._stage, self._clock = executor, stage, clock
        self._streams, self._cancel, self._journal = (stdout, stderr), cancel, journal
        self._redactor = redactor
        self.episode = episode
        self.prompt, self.task = episode.task.prompt, episode.task.id
        self.sample, self.attempt, self.seed = episode.sample, episode.attempt, episode.seed
        assert episode.task.limits.wall is not None
        self._began = clock()
        self._deadline = self._began + episode.task.limits.wall
        self._last: Ended | None = None
        self._used = Usage()

    @property
    def prompt_file(self) -> str:
        """Where a command of the stage finds the prompt."""
        return self._executor.prompt_file(self._stage)

    def environment(self, path: str) -> dict[str, str]:
        """The variables that every command of an agent gets."""
        episode = self.episode
        return {
            "PATH": path,
            "LANG": "C.UTF-8",
            "ROLLOUT_ID": episode.rollout,
            "ROLLOUT_TASK": episode.task.id,
            "ROLLOUT_SAMPLE": str(episode.sample),
            "ROLLOUT_ATTEMPT": str(episode.attempt),
            "ROLLOUT_SEED": str(episode.seed),
            "ROLLOUT_PROMPT_FILE": self.prompt_file,
            **episode.task.env,
        }

    def execute(self, argv: Sequence[str], *, env: Mapping[str, str], binds: Sequence[Bind] = ()) -> Ended:
        """Run one command to its end, its output captured as the agent's."""
        with self._of_the_machine():
            return self._run(argv, env, binds, *self._streams)

    def run(
        self, command: Sequence[str] | str, *, env: Mapping[str, str] | None = None, binds: Sequence[Bind] = ()
    ) -> Exec:
        """For callable agents: run a command (a text runs under ``sh -c``) and give back its output.

        Raises Cancelled when the session ends; the limits of the task hold over all commands together.
        """
        argv = ["sh", "-c", command] if isinstance(command, str) else list(command)
        with self._of_the_machine(), tempfile.TemporaryDirectory(prefix="rollout-exec-") as folder:
            streams = [Capture(Path(folder) / name, _EXEC_BYTES) for name in ("stdout", "stderr")]
            try:
                ended = self._run(argv, {**self.environment(DEFAULT_PATH), **(env or {})}, binds, *streams)
            finally:
                texts = [self._pass_on(stream, whole) for stream, whole in zip(streams, self._streams, strict=True)]
        return exec_of(ended, *texts)

    @staticmethod
    def _pass_on(stream: Capture, whole: Capture) -> str:
        stream.close()
        data = stream.path.read_bytes()
        whole.feed(data)
        return data.decode("utf-8", "replace")

    def _run(
        self, argv: Sequence[str], env: Mapping[str, str], binds: Sequence[Bind], stdout: Capture, stderr: Capture
    ) -> Ended:
        if self._cancel.is_set:
            raise Cancelled("the session ended")
        left = self._deadline - self._clock()
        if left <= 0:
            return self._out_of("wall_limit")
        resources = self.episode.task.limits.resources()
        if resources.cpu is not None and self._used.cpu is not None:
            if self._used.cpu >= resources.cpu:
                return self._out_of("cpu_limit")
            resources = msgspec.structs.replace(resources, cpu=resources.cpu - self._used.cpu)
        self._redactor.learn(env)
        self._journal("exec", argv=list(argv)[:64])
        command = Command(
            argv=tuple(argv),
            env=env,
            binds=tuple(binds),
            network=self.episode.task.network,
            wall=left,
            prompt=self.prompt,
            resources=resources,
        )
        self._last = self._executor.run(self._stage, command, stdout, stderr, self._cancel)
        self._used = together(self._used, self._last.usage)
        return self._last

    @contextmanager
    def _of_the_machine(self) -> Iterator[None]:
        """What the system refuses us while a command is run is the machine's fault, unless one ran before it."""
        ran = self._last is not None
        try:
            yield
        except OSError as error:
            raise HostError(f"the command could not be run: {error.strerror or error}", forgeable=ran) from error

    def _out_of(self, limit: Termination) -> Ended:
        """The limit, for a command that was asked for after it."""
        last = self._last
        if last is None or last.termination != limit:
            self._last = last = Ended(
                exit_code=None,
                termination=limit,
                stdout=Captured(file=self._streams[0].path.name),
                stderr=Captured(file=self._streams[1].path.name),
                tree_dead=True if last is None else last.tree_dead,
                observed={} if last is None else last.observed,
            )
        return last

    def finished(self, *, failure: str | None = None) -> Ended:
        """How an agent that is not one command ended: as its last limit, or completed, or failed."""
        last = self._last
        duration = self._clock() - self._began
        limited = last is not None and last.termination not in ("completed", "exit_code", "signal")
        code = None if limited else (1 if failure is not None else 0)
        return Ended(
            exit_code=code,
            termination=last.termination if last is not None and limited else ("exit_code" if code else "completed"),
            duration=duration,
            stdout=Captured(file=self._streams[0].path.name),
            stderr=Captured(file=self._streams[1].path.name),
            tree_dead=last.tree_dead if last is not None else True,
            usage=msgspec.structs.replace(
                self._used, wall=duration, output_bytes=sum(stream.total for stream in self._streams)
            ),
            observed=last.observed if last is not None else {},
            findings=() if failure is None else (Finding(code="agent.failure", message=failure),),
        )


def together(first: Usage, second: Usage) -> Usage:
    """What two commands in one stage used, one after the other; what one of them does not know is unknown.

    A first one of nothing at all leaves the second as it is.
    """
    if first == Usage():
        return second

    def both(name: str, join: Callable[[Any, Any], Any]) -> Any:
        one, other = getattr(first, name), getattr(second, name)
        return None if one is None or other is None else join(one, other)

    return Usage(
        cpu=both("cpu", lambda one, other: one + other),
        peak_memory=both("peak_memory", max),
        processes=both("processes", max),
        disk=both("disk", max),
        pressure=both("pressure", lambda one, other: {key: max(one[key], other[key]) for key in one}),
    )


def join_path(binds: Sequence[Bind]) -> str:
    """PATH inside the sandbox: the folders of programs of each bound path, then the system's."""
    found = [folder for bind in binds for folder in program_folders(bind, bind.target)]
    return ":".join([*dict.fromkeys(found), DEFAULT_PATH])


def program_folders(bind: Bind, place: str) -> list[str]:
    """Where the programs of a bound path are, seen at ``place``: its ``bin``, itself if it is one, or around a file."""
    if os.path.isdir(f"{bind.source}/bin"):
        return [f"{place}/bin"]
    if not os.path.isdir(bind.source):
        return [os.path.dirname(place)]
    return [place] if os.path.basename(bind.target) == "bin" else []
