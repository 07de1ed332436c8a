"""Named agents: read ``rollout.toml``, and turn what a user names into an agent.

A text that is one plain word is a name: of an agent in ``rollout.toml``, or ``noop``. Any other text
is a command for ``sh -c``, a list is a command as it is, and a callable is an agent of the suite's.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from pytest_rollout.agents.command import CommandAgent, check_fields, refuse_fields
from pytest_rollout.agents.function import FunctionAgent
from pytest_rollout.agents.noop import NoopAgent
from pytest_rollout.agents.paths import find_program, resolve_paths
from pytest_rollout.agents.protocol import Agent
from pytest_rollout.errors import ConfigError
from pytest_rollout.executors.protocol import Bind
from pytest_rollout.plain import nearest

__all__ = ["AgentConfig", "choose_agent", "load_config"]

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", re.ASCII)
_BUILT_IN = ("noop",)
_MOST = 2**63


class AgentConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One ``[agents.NAME]`` table, checked. ``version`` is the command that prints the version,
    ``preflight`` one that fails where the agent would."""

    name: str
    command: tuple[str, ...] | str
    version: tuple[str, ...] | str | None = None
    preflight: tuple[str, ...] | str | None = None
    binds: tuple[Bind, ...] = ()
    env: tuple[str, ...] = ()
    infra_exit_codes: tuple[int, ...] = ()
    pins: dict[str, Any] = {}

    def agent(self, environ: Mapping[str, str], version: str | None = None) -> CommandAgent:
        """The agent, with the values of the host's variables that it may see."""
        return CommandAgent(
            name=self.name,
            command=self.command,
            version=version,
            env={name: environ[name] for name in self.env if name in environ},
            binds=self.binds,
            infra_exit_codes=self.infra_exit_codes,
            pins=self.pins,
        )


_KEYS = ("command", "version", "preflight", "paths", "env", "infra_exit_codes", "pins")


def load_config(path: Path, *, must_exist: bool) -> Mapping[str, AgentConfig]:
    """The named agents of a ``rollout.toml``; none where the file isn't there.

    Every table is checked here but for what it needs of this machine, see :class:`Named`. Raises
    ConfigError that names the file, the table, the key and what is valid.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if must_exist:
            raise ConfigError(f"rollout_config: the file {path} does not exist") from None
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"rollout_config: the file {path} can't be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: this is not TOML: {error}") from None
    _refuse_unknown(data, ("agents",), str(path))
    tables = data.get("agents", {})
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise ConfigError(f"{path}: agents are tables: [agents.NAME]")
    for name, table in tables.items():
        _check_table(name, table, path)
    return Named(tables, path)


class Named(Mapping[str, "AgentConfig"]):
    """The agents of one ``rollout.toml``. Its paths and programs are looked for when an agent is taken:

    a file that many machines share may name agents that are not on this one. Taking one raises
    ConfigError where what it needs is not there.
    """

    def __init__(self, tables: Mapping[str, dict[str, Any]], path: Path) -> None:
        self._tables, self.path = tables, path
        self._made: dict[str, AgentConfig] = {}

    def __getitem__(self, name: str) -> AgentConfig:
        if name not in self._made:
            self._made[name] = _read_agent(name, self._tables[name], self.path)
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        return name in self._tables

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)


def _refuse_unknown(table: Mapping[str, Any], valid: Sequence[str], where: str) -> None:
    for key in table:
        if key not in valid:
            raise ConfigError(f"{where}: unknown key {key!r}; valid: {', '.join(valid)}.{nearest(key, valid)}")


def _check_table(name: str, table: dict[str, Any], path: Path) -> None:
    """Everything of a table that does not depend on the machine."""
    where = f"{path}: [agents.{name}]"
    if not _NAME.fullmatch(name) or name in _BUILT_IN:
        raise ConfigError(f"{where}: {name!r} is not a name for an agent: letters, digits, '_', '.', '-'; not 'noop'")
    _refuse_unknown(table, _KEYS, where)
    if "command" not in table:
        raise ConfigError(f"{where}: 'command' is missing")
    _texts(table, "paths", where)
    for key in ("command", "version", "preflight"):
        if key in table:
            _words(table[key], f"{where} {key}")
    _names(table, where)
    _codes(table, where)
    _pins(table, where)


def _read_agent(name: str, table: dict[str, Any], path: Path) -> AgentConfig:
    where = f"{path}: [agents.{name}]"
    binds = resolve_paths(_texts(table, "paths", where), path.parent, where)
    return AgentConfig(
        name=name,
        command=_command(table["command"], f"{where} command", binds, path.parent),
        **{
            key: _command(table[key], f"{where} {key}", binds, path.parent)
            for key in ("version", "preflight")
            if key in table
        },
        binds=binds,
        env=_names(table, where),
        infra_exit_codes=_codes(table, where),
        pins=_pins(table, where),
    )


def _texts(table: dict[str, Any], key: str, where: str) -> list[str]:
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        raise ConfigError(f"{where}: {key} = {value!r} is not a list of texts")
    return value


def _names(table: dict[str, Any], where: str) -> tuple[str, ...]:
    names = _texts(table, "env", where)
    for name in names:
        if "=" in name or "\0" in name:
            raise ConfigError(f"{where}: env: {name!r} is not a name of a variable; its value is the host's")
    return tuple(names)


def _codes(table: dict[str, Any], where: str) -> tuple[int, ...]:
    value = table.get("infra_exit_codes", [])
    if not isinstance(value, list) or not all(type(code) is int and 1 <= code <= 255 for code in value):
        raise ConfigError(f"{where}: infra_exit_codes = {value!r} is not a list of exit codes from 1 to 255")
    return tuple(value)


def _pins(table: dict[str, Any], where: str) -> dict[str, Any]:
    value = table.get("pins", {})
    if not isinstance(value, dict) or not all(
        isinstance(item, str) or (isinstance(item, int | float) and abs(item) < _MOST) for item in value.values()
    ):
        raise ConfigError(f"{where}: pins = {value!r} is not a table of texts, numbers and booleans")
    return value


def _words(value: Any, where: str) -> tuple[str, ...] | str:
    """A command as it was written: a text, or words; raises ConfigError."""
    if isinstance(value, str) and value.strip() and "\0" not in value:
        refuse_fields(value, where)
        return value
    words = value if isinstance(value, list | tuple) else ()
    if words and all(isinstance(word, str) and "\0" not in word for word in words) and words[0]:
        check_fields(words, where)
        return tuple(words)
    raise ConfigError(f"{where}: {value!r} is not a command: a text for sh -c, or a list of words")


def _command(value: Any, where: str, binds: Sequence[Bind], folder: Path | None) -> tuple[str, ...] | str:
    words = _words(value, where)
    return words if isinstance(words, str) else find_program(words, binds, folder, where)


def choose_agent(
    value: object, named: Mapping[str, AgentConfig], *, where: str, folder: Path | None
) -> AgentConfig | Agent:
    """The agent that ``value`` means; ``where`` says who said it, for the message of a ConfigError.

    A named agent comes back as its :class:`AgentConfig`, so that its version is asked for once.
    """
    if callable(value) and not isinstance(value, type):
        return FunctionAgent(value)
    if hasattr(value, "run") and hasattr(value, "info") and not isinstance(value, type):
        return value  # type: ignore[return-value]
    if isinstance(value, str) and _NAME.fullmatch(value.strip()):
        name = value.strip()
        if name == "noop":
            return NoopAgent()
        if name in named:
            return named[name]
        valid = (*named, *_BUILT_IN)
        raise ConfigError(
            f"{where}: there is no agent {name!r}; valid: {', '.join(valid)}.{nearest(name, valid)}",
            hint=f"A command of one word is written as a list, [{name!r}]; on the command line, as 'exec {name}'.",
        )
    command = _command(value, where, (), folder)
    shown = command if isinstance(command, str) else os.path.basename(command[0])
    return CommandAgent(name=_short(shown), command=command)


def _short(command: str) -> str:
    line = " ".join(command.split())
    return line if len(line) <= 40 else f"{line[:39]}…"
