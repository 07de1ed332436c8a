"""How often held-out tasks were run: a ledger beside the runs, which stays when old runs go.

::

    <dir>/held-out.jsonl    one line per run in which an agent acted on a task with split="held-out"

Each look at a held-out split makes its next answer weaker, so looks are counted. The line is added at a session's end;
a run that was killed before that is found in its journals, for as long as they are there.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from pytest_rollout.bundle import SCHEMA_VERSION
from pytest_rollout.errors import recording_error
from pytest_rollout.identity import canonical_digest
from pytest_rollout.redaction.redactor import FORMS, Redactor
from pytest_rollout.store.folder import ResultsFolder, RunFolder, read_record
from pytest_rollout.store.journal import append_synced
from pytest_rollout.store.load import load_plan, load_results
from pytest_rollout.store.records import Result, RunRecord

__all__ = ["HELD_OUT", "Look", "Looks", "add_look", "look_of", "looks"]

HELD_OUT = "held-out"


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """One run of held-out tasks: when it ended, how many tasks, the digest of their ids, the agents."""

    schema_version: int = SCHEMA_VERSION
    run: str
    time: str
    tasks: int
    digest: str
    agents: tuple[str, ...]


class Looks(msgspec.Struct, frozen=True, kw_only=True):
    """The looks that are known, oldest first; ``broken`` counts lines of the ledger that could not be read."""

    looks: tuple[Look, ...]
    broken: int = 0

    def since(self, run: str) -> int:
        """How many runs were started after this one; names of runs begin with their time."""
        return sum(look.run > run for look in self.looks)


def look_of(run: str, results: Iterable[Result]) -> Look | None:
    """The look that a run was, or None where no agent acted on a held-out task."""
    acted = [result for result in results if result.split == HELD_OUT and _acted(result)]
    if not acted:
        return None
    tasks = sorted({result.task for result in acted})
    return Look(
        run=run,
        time=max(result.time for result in acted),
        tasks=len(tasks),
        digest=canonical_digest(tasks),
        agents=tuple(sorted({result.agent for result in acted})),
    )


def _acted(result: Result) -> bool:
    """Whether an agent acted, as far as is known: of a rollout whose worker died, only what it may have done is."""
    return result.termination is not None or result.forgeable


def add_look(results: ResultsFolder, look: Look, redactor: Redactor = FORMS) -> None:
    """Add a line to the ledger and see it on the disk; raises RecordingError or HostError."""
    place = _ledger(results)
    try:
        append_synced(place, msgspec.json.encode(redactor.value(msgspec.to_builtins(look))))
    except OSError as error:
        raise recording_error("the ledger of held-out runs", place, error) from error


def looks(results: ResultsFolder) -> Looks:
    """Every look that is known: the ledger's, and those of runs that ended without a line in it."""
    found: dict[str, Look] = {}
    broken = 0
    try:
        lines = _ledger(results).read_bytes().splitlines()
    except OSError:
        lines = []
    for line in filter(None, lines):
        try:
            look = msgspec.json.decode(line, type=Look)
        except msgspec.MsgspecError:
            broken += 1
        else:
            found[look.run] = look  # a run that went on later has a second line, and stays one look
    runs = results.all_runs()
    names = {*found, *(run.name for run in runs)}
    for run in runs:
        unwritten = _unwritten(run, names) if run.name not in found else None
        if unwritten is not None:
            found[run.name] = unwritten
    return Looks(looks=tuple(sorted(found.values(), key=lambda look: (look.run, look.time))), broken=broken)


def _unwritten(run: RunFolder, known: Container[str]) -> Look | None:
    """The look of a run that has no line; none where no agent ran, and none where its shards are among the known."""
    plan = load_plan(run)
    with suppress(OSError, msgspec.MsgspecError):
        record = read_record(run.record, RunRecord)
        if record.source is not None or any(part.get("run") in known for part in record.merged):
            return None
    if plan is None or all(planned.split != HELD_OUT for planned in plan.rollouts):
        return None
    return look_of(run.name, load_results(run).results)


def _ledger(results: ResultsFolder) -> Path:
    return results.path / "held-out.jsonl"
