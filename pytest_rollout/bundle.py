"""The bundle: the evidence of one finished attempt, as a frozen, versioned record.

``bundle.json`` is :class:`BundleRecord` as JSON; its JSON Schema is published in ``docs/schema/``.
A figure that was not measured is ``None``: unknown is never zero. The fixture ``bundle`` gives
:class:`pytest_rollout.evidence.Bundle`, a facade over this record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Literal, get_args

import msgspec

__all__ = [
    "SCHEMA_VERSION",
    "AuditVerdict",
    "Before",
    "BundleRecord",
    "Captured",
    "Change",
    "Control",
    "Ended",
    "Finding",
    "Identity",
    "Pins",
    "Times",
    "Usage",
    "bounded",
]

SCHEMA_VERSION = 1

Termination = Literal[
    "completed",
    "exit_code",
    "signal",
    "wall_limit",
    "cpu_limit",
    "memory_limit",
    "output_limit",
    "process_limit",
    "disk_limit",
    "step_budget",
    "token_budget",
    "cost_budget",
    "cancelled",
]
TRUNCATED = frozenset(name for name in get_args(Termination) if name.endswith(("_limit", "_budget")))
AuditVerdict = Literal["sound", "in-process", "weak", "unknown"]
ChangeKind = Literal["added", "modified", "deleted"]
FileType = Literal["file", "dir", "symlink", "fifo", "socket", "device"]


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Whose evidence this is; ids as in :mod:`pytest_rollout.identity`."""

    run: str
    task: str
    sample: int
    attempt: int
    rollout: str
    node: str


class Pins(msgspec.Struct, frozen=True, kw_only=True):
    """What must be equal for two results to be comparable."""

    task_digest: str
    environment_revision: str | None = None
    environment_commit: str | None = None
    evaluator_revision: str | None = None
    agent: str
    agent_digest: str | None = None
    agent_version: str | None = None
    policy_revision: str | None = None
    model: str | None = None
    sampling: dict[str, Any] | None = None
    extra: dict[str, Any] = {}
    seed: int
    limits: dict[str, float | None] = {}
    network: str
    executor: str
    executor_path: str | None = None
    executor_version: str | None = None
    executor_digest: str | None = None
    plugin_version: str
    image_digest: str | None = None


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """When the attempt began and ended (UTC, ISO 8601) and how long its agent ran (seconds).

    ``waited`` is how long it waited for a place before that; None where nothing limits their number.
    """

    started: str
    ended: str
    duration: float
    waited: float | None = None


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What the attempt used: seconds, bytes, counts, US dollars. ``None`` is not measured.

    ``cpu``, ``peak_memory`` and ``processes`` are of all the agent's processes together, ``disk`` is what the stage's
    own layer took. ``pressure`` is of the whole machine: by ``cpu``, ``memory`` and ``io`` the share of the time, 0 to
    1, in which some task waited for it (the kernel's pressure stall information, ``some``).
    """

    wall: float | None = None
    cpu: float | None = None
    peak_memory: int | None = None
    output_bytes: int | None = None
    processes: int | None = None
    disk: int | None = None
    pressure: dict[str, float] | None = None
    steps: int | None = None
    invalid_actions: int | None = None
    model_calls: int | None = None
    tokens: int | None = None
    cost: float | None = None


class Control(msgspec.Struct, frozen=True, kw_only=True):
    """A control as it was asked for and as it was observed in force; not observed is ``unknown``."""

    asked: str | None = None
    observed: str = "unknown"


class Before(msgspec.Struct, frozen=True, kw_only=True):
    """What the baseline has at a changed path. ``mode`` is octal text, ``size`` bytes, ``target`` that of a link.

    ``sha256`` of a file is None where too much would have been read for it.
    """

    type: FileType
    mode: str
    size: int | None = None
    sha256: str | None = None
    target: str | None = None


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One path that differs from the baseline. ``mode`` is octal text, ``size`` bytes.

    ``stored`` says that ``changes/`` holds its content; ``sha256`` may be known of a file that was too large for that.
    A path that is not UTF-8 has its bytes written as ``\\xff``. ``before`` is None for what was added.
    """

    path: str
    kind: ChangeKind
    type: FileType
    mode: str | None = None
    size: int | None = None
    sha256: str | None = None
    target: str | None = None
    links: int | None = None
    stored: bool = False
    before: Before | None = None


class Captured(msgspec.Struct, frozen=True, kw_only=True):
    """One captured stream: the file beside ``bundle.json``, bytes kept and bytes dropped."""

    file: str
    kept: int = 0
    dropped: int = 0


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something a reader of the evidence has to know: a bound that was hit, an odd file."""

    code: str
    message: str
    path: str | None = None


def bounded(findings: Iterable[Finding], most: int = 200) -> tuple[Finding, ...]:
    """The first findings of each code, and one more that counts the others: an agent can bring about any number."""
    seen, kept = Counter[str](), list[Finding]()
    for finding in findings:
        seen[finding.code] += 1
        if seen[finding.code] <= most:
            kept.append(finding)
    more = [(code, number - most) for code, number in seen.items() if number > most]
    return (*kept, *(Finding(code=code, message=f"{number:,} more findings of this kind") for code, number in more))


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How one command ended, before anybody judges it.

    A command that died of signal n has ``exit_code`` 128 + n and ``signal`` n, on every executor.
    """

    exit_code: int | None
    signal: int | None = None
    termination: Termination
    duration: float = 0.0
    stdout: Captured
    stderr: Captured
    tree_dead: bool | None = None
    usage: Usage = Usage()
    observed: dict[str, str] = {}
    findings: tuple[Finding, ...] = ()


class BundleRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The evidence of one finished attempt, as written to ``bundle.json``.

    ``audit`` is the verdict of the last audit of the checks of this evaluator revision, if there was one.
    """

    schema_version: int = SCHEMA_VERSION
    identity: Identity
    pins: Pins
    exit_code: int | None
    signal: int | None
    termination: Termination
    truncated: bool
    trusted: bool
    rung: int | None
    times: Times
    usage: Usage
    controls: dict[str, Control]
    tree_dead: bool | None
    changes: tuple[Change, ...]
    stdout: Captured
    stderr: Captured
    trajectory: str | None = None
    stage: str | None = None
    audit: AuditVerdict | None = None
    findings: tuple[Finding, ...] = ()
    warnings: tuple[str, ...] = ()
