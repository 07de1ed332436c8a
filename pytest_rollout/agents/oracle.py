"""Agents of the evaluator's own, for control runs and audits: the oracle, and work that is laid in ready-made.

What they need is bound into their own stage, never into that of an agent that is measured.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from pytest_rollout.agents.protocol import DEFAULT_PATH, AgentInfo, LiveStage
from pytest_rollout.bundle import Ended
from pytest_rollout.executors.protocol import Bind

__all__ = ["OracleAgent", "PlantAgent"]

_FOLDER = "/rollout/oracle"
_LAY = 'cp -R -- "$1/." . || exit 1'


class OracleAgent:
    """A right solution: a script that runs in the stage, or a folder whose files are laid over it."""

    infra_exit_codes: tuple[int, ...] = ()

    def __init__(self, path: str, *, mounted: bool) -> None:
        self.info = AgentInfo(name="oracle")
        self._path, self._mounted = os.path.realpath(path), mounted

    def run(self, stage: LiveStage) -> Ended:
        place = _FOLDER if self._mounted else self._path
        if os.path.isdir(self._path):
            argv: Sequence[str] = _copying(place)
        else:
            place = f"{_FOLDER}/{os.path.basename(self._path)}" if self._mounted else self._path
            interpreter = "python3" if place.endswith(".py") else "sh"
            argv = [place] if _is_program(self._path) else [interpreter, place]
        return stage.execute(argv, env=stage.environment(DEFAULT_PATH), binds=(Bind(source=self._path, target=place),))


class PlantAgent:
    """Work that was made ready outside: the files of a folder are laid over the stage, then a script runs there."""

    infra_exit_codes: tuple[int, ...] = ()

    def __init__(self, name: str, folder: str, script: str, *, mounted: bool) -> None:
        self.info = AgentInfo(name=name)
        self._folder, self._script, self._mounted = folder, script, mounted

    def run(self, stage: LiveStage) -> Ended:
        place = _FOLDER if self._mounted else self._folder
        argv = ["sh", "-c", f"{_LAY}\n{self._script}", "sh", place]
        return stage.execute(
            argv, env=stage.environment(DEFAULT_PATH), binds=(Bind(source=self._folder, target=place),)
        )


def _copying(place: str) -> list[str]:
    return ["sh", "-c", _LAY, "sh", place]


def _is_program(path: str) -> bool:
    if not os.access(path, os.X_OK):
        return False
    with open(path, "rb") as file:
        return file.read(4).startswith((b"#!", b"\x7fELF"))
