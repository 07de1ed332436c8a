"""The records beside the bundle: ``run.json``, ``plan.json``, ``score.json`` and a line of results."""

from __future__ import annotations

from typing import Any

import msgspec

from pytest_rollout.bundle import SCHEMA_VERSION, AuditVerdict, Pins, Termination, Usage
from pytest_rollout.outcome import InfraKind, Outcome
from pytest_rollout.reward import Check
from pytest_rollout.shard import OfShard

__all__ = [
    "Earlier",
    "GatesRecord",
    "Plan",
    "Planned",
    "Result",
    "Resumed",
    "RunRecord",
    "ScoreRecord",
    "Source",
    "SourceRun",
]


class SourceRun(msgspec.Struct, frozen=True, kw_only=True):
    """The run whose stored bundles a run scores again: its name, and where its folder was (absolute)."""

    run: str
    folder: str


class Resumed(msgspec.Struct, frozen=True, kw_only=True):
    """A session that went on with a run. ``rollouts`` is how many it was to make, ``measured`` how many it found made.

    ``changed`` has, by its name, each pin that had changed and was allowed to: pairs of an old and a new value.
    """

    time: str
    plugin_version: str
    arguments: tuple[str, ...] = ()
    pins: dict[str, str] = {}
    rollouts: int
    measured: int
    changed: dict[str, list[tuple[str, str]]] = {}


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """``run.json``: when and how a run was started, and where.

    ``redacted`` names the variables whose values are redacted, ``not_redacted`` those whose values are not, and why.
    ``source`` is set where no agent ran: the run whose bundles were scored again.
    ``merged`` are the records of the runs that this one was merged of; it says itself only what they have in common.
    """

    schema_version: int = SCHEMA_VERSION
    run: str
    started: str
    plugin_version: str
    options: dict[str, Any]
    pins: dict[str, str]
    environment: dict[str, str]
    redacted: tuple[str, ...] = ()
    not_redacted: dict[str, str] = {}
    source: SourceRun | None = None
    merged: tuple[dict[str, Any], ...] = ()
    shard: OfShard | None = None
    resumed: tuple[Resumed, ...] = ()


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """One rollout that a run is going to make; ``skipped`` says that the suite itself left it out."""

    node: str
    rollout: str
    task: str
    sample: int
    agent: str
    tags: tuple[str, ...] = ()
    split: str | None = None
    skipped: bool = False


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """``plan.json``: every rollout that was selected, so that a lost one is noticed.

    ``multiplied`` says of a class whose marker holds for several tests how many agent runs it makes;
    ``notes`` are what a suite's author should look at.
    """

    schema_version: int = SCHEMA_VERSION
    rollouts: tuple[Planned, ...]
    multiplied: dict[str, int] = {}
    notes: tuple[str, ...] = ()
    shard: OfShard | None = None


class GatesRecord(msgspec.Struct, frozen=True, kw_only=True):
    """``gates.json``: what a session's gates came to; ``status`` is 0, 75 or 76, ``lines`` as they were shown."""

    schema_version: int = SCHEMA_VERSION
    status: int
    lines: tuple[str, ...]


class ScoreRecord(msgspec.Struct, frozen=True, kw_only=True):
    """``score.json``: the judgement of one attempt. ``reward`` is null where nothing was measured.

    ``in_process`` says that a verdict came from a process that held code of the candidate's, ``audit``
    what the last audit found out about the checks.
    """

    schema_version: int = SCHEMA_VERSION
    task: str
    rollout: str
    sample: int
    attempt: int
    outcome: Outcome
    kind: InfraKind | None
    forgeable: bool
    reward: float | None
    checks_reward: float | None
    checks: tuple[Check, ...]
    metrics: dict[str, float]
    threshold: float | None
    termination: Termination | None
    message: str
    bundle: str | None
    evaluator_revision: str | None = None
    in_process: bool = False
    audit: AuditVerdict | None = None
    warnings: tuple[str, ...] = ()


class Earlier(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt that infrastructure ended, and that another one followed. It is never scored.

    ``folder`` is relative to the run's folder; ``usage`` is None where there was no bundle.
    """

    attempt: int
    kind: InfraKind
    forgeable: bool = False
    message: str = ""
    folder: str | None = None
    usage: Usage | None = None


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """The stored rollout that a result scores again, and how it was scored when that was not again.

    ``folder`` is that of its attempt, relative to the folder of its run.
    """

    run: str
    rollout: str
    folder: str | None = None
    outcome: Outcome
    kind: InfraKind | None = None
    reward: float | None = None
    evaluator_revision: str | None = None


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One line of ``results/<worker>.jsonl``: a finished rollout.

    ``folder`` is relative to the run's folder; ``time`` is UTC, ISO 8601. A line with ``amends`` adds
    a warning to an earlier line of the same rollout and changes nothing else. ``attempt`` is the one that was judged,
    ``earlier`` those before it. ``pins`` and ``usage`` are those of its bundle, ``metrics`` what the test recorded.
    ``source`` is set where no agent ran: the stored rollout that was scored again.
    ``xfail`` is what pytest made of a mark that expects the test to fail: its reason, or ``[XPASS(strict)]`` and that.
    """

    schema_version: int = SCHEMA_VERSION
    rollout: str
    task: str
    sample: int
    attempt: int
    node: str
    agent: str
    outcome: Outcome
    kind: InfraKind | None = None
    forgeable: bool = False
    reward: float | None = None
    checks_reward: float | None = None
    termination: Termination | None = None
    type: str = ""
    message: str = ""
    trusted: bool | None = None
    duration: float | None = None
    waited: float | None = None
    folder: str | None = None
    earlier: tuple[Earlier, ...] = ()
    tags: tuple[str, ...] = ()
    split: str | None = None
    samples: int | None = None
    pins: Pins | None = None
    usage: Usage | None = None
    truncated: bool | None = None
    rung: int | None = None
    metrics: dict[str, float] = {}
    evaluator_revision: str | None = None
    in_process: bool = False
    audit: AuditVerdict | None = None
    xfail: str | None = None
    time: str = ""
    amends: bool = False
    source: Source | None = None
    warnings: tuple[str, ...] = ()

    @property
    def doubtful(self) -> bool:
        """Whether the candidate may have brought it about itself that this is unmeasured, or which attempt counts."""
        return self.forgeable or any(each.forgeable for each in self.earlier)
