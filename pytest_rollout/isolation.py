"""Which rung of isolation a run has, chosen once for all of its processes, and what it refuses to run there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
from filelock import FileLock

from pytest_rollout.errors import HostError, InfraError, IsolationError
from pytest_rollout.executors.ladder import ISOLATED, NONE, Climb, climb, make, none_holds
from pytest_rollout.executors.protocol import Executor, ExecutorInfo
from pytest_rollout.executors.rungs import unmet
from pytest_rollout.redaction.redactor import Redactor
from pytest_rollout.settings import Settings
from pytest_rollout.stage.root import StageRoot
from pytest_rollout.store.folder import write_record
from pytest_rollout.task import Task

__all__ = ["Isolation"]


class _Probed(msgspec.Struct, frozen=True, kw_only=True):
    """``probe.json``: the climb of the first process of a run; ``host`` is why it could not be made."""

    climb: Climb
    host: str | None = None


class Isolation:
    """The executor of a run; ``folder`` is where its processes tell each other what the canary found."""

    def __init__(self, settings: Settings, folder: Path, redactor: Redactor) -> None:
        self._settings, self._folder, self._redactor = settings, folder, redactor
        self._climb = Climb(rung=None)
        self._executor: Executor | None = None
        self._refusal: InfraError | None = None

    def executor(self, root: StageRoot) -> Executor:
        """The executor, made and probed when first asked for; raises the same InfraError every time."""
        if self._refusal is not None:
            raise self._refusal
        if self._executor is None:
            try:
                self._executor = self._make(root)
            except InfraError as error:
                self._refusal = error
                raise
        return self._executor

    def check(self, task: Task, info: ExecutorInfo) -> None:
        """Refuse a task that asks for what its rung does not enforce, where isolation is required.

        Raises IsolationError that names what is missing, and why the better rungs do not hold.
        """
        missing = unmet(info.unenforced, task.network)
        if self._settings.isolation != "required" or not missing:
            return
        raise IsolationError(
            f"rung {info.rung} does not enforce what the task asks for: {', '.join(missing)}",
            hint="\n".join([*_reasons(self._climb), "What to do about it: pytest-rollout doctor"]),
        )

    def _make(self, root: StageRoot) -> Executor:
        if self._settings.executor == "local":
            return make(root, NONE)
        executor, self._climb = self._climbed_once(root)
        if self._climb.rung is None:
            raise none_holds(self._climb.rejected)
        return executor or make(root, self._climb.rung)

    def _climbed_once(self, root: StageRoot) -> tuple[Executor | None, Climb]:
        """One climb for all processes of the run: the first one tries the rungs, the others read what it found."""
        place = self._folder / "probe.json"
        with FileLock(self._folder / "probe.lock"):
            if place.exists():
                found = msgspec.json.decode(place.read_bytes(), type=_Probed)
                if found.host is not None:
                    raise HostError(found.host)
                return None, found.climb
            try:
                executor, climbed = climb(root, self._rungs())
            except HostError as error:
                write_record(place, _Probed(climb=Climb(rung=None), host=error.message), redactor=self._redactor)
                raise
            write_record(place, _Probed(climb=climbed), redactor=self._redactor)
        return executor, climbed

    def _rungs(self) -> Sequence[int]:
        """The rungs that may be taken, the best first."""
        if self._settings.rung is not None:
            return (self._settings.rung,)
        return ISOLATED if self._settings.isolation == "required" else (*ISOLATED, NONE)


def _reasons(climbed: Climb) -> list[str]:
    return [f"Rung {each.rung} does not hold here: {each.message}" for each in climbed.rejected]
