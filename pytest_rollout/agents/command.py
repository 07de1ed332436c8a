"""Agents that are one command: a list of words with fields, or a text that runs under ``sh -c``."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from pytest_rollout.agents.protocol import AgentInfo, Episode, LiveStage, join_path
from pytest_rollout.bundle import Ended
from pytest_rollout.errors import ConfigError
from pytest_rollout.executors.protocol import Bind
from pytest_rollout.identity import canonical_digest
from pytest_rollout.plain import nearest

__all__ = ["FIELDS", "CommandAgent", "check_fields", "refuse_fields"]

_VARIABLES = {
    "prompt": "ROLLOUT_PROMPT_FILE",
    "prompt_file": "ROLLOUT_PROMPT_FILE",
    "task": "ROLLOUT_TASK",
    "sample": "ROLLOUT_SAMPLE",
    "attempt": "ROLLOUT_ATTEMPT",
    "seed": "ROLLOUT_SEED",
    "rollout_id": "ROLLOUT_ID",
}
FIELDS = tuple(_VARIABLES)


class CommandAgent(msgspec.Struct, frozen=True, kw_only=True):
    """Runs ``command`` in the stage. ``env`` are variables with their values, ``binds`` readable paths."""

    name: str
    command: tuple[str, ...] | str
    version: str | None = None
    env: Mapping[str, str] = {}
    binds: tuple[Bind, ...] = ()
    infra_exit_codes: tuple[int, ...] = ()
    pins: dict[str, Any] = {}

    @property
    def info(self) -> AgentInfo:
        definition = {
            "command": self.command if isinstance(self.command, str) else list(self.command),
            "env": sorted(self.env),
            "paths": [bind.target for bind in self.binds],
            "infra_exit_codes": list(self.infra_exit_codes),
        }
        return AgentInfo(name=self.name, digest=canonical_digest(definition), version=self.version, pins=self.pins)

    def argv(self, episode: Episode, prompt_file: str) -> list[str]:
        """The words that are run for one episode."""
        if isinstance(self.command, str):
            return ["sh", "-c", self.command]
        values = {
            "prompt": episode.task.prompt,
            "prompt_file": prompt_file,
            "task": episode.task.id,
            "sample": str(episode.sample),
            "attempt": str(episode.attempt),
            "seed": str(episode.seed),
            "rollout_id": episode.rollout,
        }
        return [word.format_map(values) for word in self.command]

    def run(self, stage: LiveStage) -> Ended:
        env = {**self.env, **stage.environment(join_path(self.binds))}
        return stage.execute(self.argv(stage.episode, stage.prompt_file), env=env, binds=self.binds)


def refuse_fields(text: str, where: str) -> None:
    """Raise ConfigError where a text has a field in it: it would reach the shell as it is."""
    for field in FIELDS:
        if f"{{{field}}}" in text:
            raise ConfigError(
                f"{where}: the text {text!r} has the field {{{field}}}, but fields are filled in lists only",
                hint=f"Write a list, or use the variable ${_VARIABLES[field]} in the text.",
            )


def check_fields(words: Sequence[str], where: str) -> None:
    """Raise ConfigError where a word of a list command has a field that does not exist."""
    for word in words:
        try:
            parts = [part[1:] for part in string.Formatter().parse(word)]
        except ValueError as error:
            raise ConfigError(
                f"{where}: {word!r}: {error}", hint="In a list, a brace that is meant is written twice: {{ or }}."
            ) from None
        for field in [_as_written(*part) for part in parts if part[0] is not None]:
            if field not in FIELDS:
                raise ConfigError(
                    f"{where}: {word!r} has the field {field!r}; valid: {', '.join(FIELDS)}.{nearest(field, FIELDS)}",
                    hint="In a list, a brace that is meant is written twice: {{ or }}.",
                )


def _as_written(name: str | None, form: str | None, conversion: str | None) -> str:
    """A field with its conversion and its format, which no field of ours takes."""
    return (name or "") + (f"!{conversion}" if conversion else "") + (f":{form}" if form else "")
