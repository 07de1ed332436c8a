"""Do shards belong together: what has to be the same in all of them, and is not."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from pytest_rollout.merging.shards import Line, LinePins, Shard

__all__ = ["Difference", "differing"]

_OF_A_TASK = ("task_digest", "environment_revision", "evaluator_revision")
_OF_AN_AGENT = ("agent_digest", "agent_version", "policy_revision", "model", "sampling", "extra")
_OF_ALL = ("executor", "executor_version", "plugin_version")


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A pin that has several values: of which task or agent (empty: of all), and each value with a run that has it."""

    pin: str
    of: str
    values: tuple[tuple[str, str], ...]


def differing(lines: Iterable[Line], shards: Sequence[Shard]) -> list[Difference]:
    """The pins that differ among lines of different runs. A pin that is not known differs from nothing.

    Tasks may name agents of their own, so runs that have no task in common show by the agent of their sessions that
    they are of different ones.
    """
    seen: dict[tuple[str, str], dict[str, int]] = {}
    told: set[tuple[int, int | None, str, int]] = set()
    for line in lines:
        known = (id(line.pins), line.rung, line.task, line.shard)  # the samples of a task share them
        if line.pins is None or known in told:
            continue
        told.add(known)
        for key, value in [(("rung", ""), line.rung), *_pins(line.pins, line.task)]:
            if value is not None:
                seen.setdefault(key, {}).setdefault(_text(value), line.shard)
    for number, shard in enumerate(shards):
        for agent in filter(None, map(_agent, shard.records)):
            seen.setdefault(("agent", ""), {}).setdefault(agent, number)
    return [
        Difference(
            pin=pin, of=of, values=tuple(sorted((value, shards[shard].path.name) for value, shard in values.items()))
        )
        for (pin, of), values in sorted(seen.items())
        if len(values) > 1 and len(set(values.values())) > 1
    ]


def _pins(pins: LinePins, task: str) -> Iterator[tuple[tuple[str, str], Any]]:
    yield ("agent", f"task {task}"), pins.agent or None
    for name in _OF_A_TASK:
        yield (name, f"task {task}"), getattr(pins, name)
    for name in _OF_AN_AGENT:
        yield (name, f"agent {pins.agent}"), getattr(pins, name)
    for name in _OF_ALL:
        yield (name, ""), getattr(pins, name)


def _agent(record: dict[str, Any]) -> str | None:
    """The agent that a session was given, by its command line or the ini file."""
    options = record.get("options")
    agent = options.get("agent") if isinstance(options, dict) else None
    return agent if isinstance(agent, str) else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
