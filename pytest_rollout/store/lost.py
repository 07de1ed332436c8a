"""What a worker that died had begun of a rollout, from what it left on the disk."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec

from pytest_rollout.bundle import BundleRecord, Usage
from pytest_rollout.outcome import INFRA_KINDS
from pytest_rollout.store.folder import RunFolder, read_record
from pytest_rollout.store.records import Earlier

__all__ = ["lost_attempts"]


def lost_attempts(
    run: RunFolder, task: str, sample: int, before: Sequence[Earlier], message: str
) -> tuple[Earlier, ...]:
    """The attempts before, and those of the worker that died with this ``message``; the last one is how it ended.

    An attempt whose journal says that infrastructure ended it has that kind, any other one died with its worker:
    forgeable, where its agent had been started. A worker that died before there was a folder lost an attempt too.
    """
    known = {each.attempt for each in before}
    new = [number for number in run.attempts(task, sample) if number not in known]
    found = [*before, *(_read(run, task, sample, number, message) for number in new)]
    if len(found) == len(before):
        number = 1 + max(known, default=0)
        found.append(Earlier(attempt=number, kind="worker", message=message))
    return tuple(found)


def _read(run: RunFolder, task: str, sample: int, number: int, message: str) -> Earlier:
    folder = run.attempt(task, sample, number)
    events: list[dict[str, Any]] = []
    with suppress(OSError):
        for line in (folder / "journal.jsonl").read_bytes().splitlines():
            with suppress(msgspec.MsgspecError):  # it may end in half a line
                events.append(msgspec.json.decode(line, type=dict[str, Any]))
    infra = next((event for event in events if event.get("event") == "infra"), {})
    acted = any(event.get("event") == "started" for event in events)
    kind: Any = infra.get("kind")
    its_own = kind in INFRA_KINDS
    usage: Usage | None = None
    with suppress(OSError, msgspec.MsgspecError):
        usage = read_record(folder / "bundle.json", BundleRecord).usage
    return Earlier(
        attempt=number,
        kind=kind if its_own else "worker",
        forgeable=infra.get("forgeable") is True if its_own else acted,
        message=str(infra.get("message", "")) if its_own else message,
        folder=run.relative(folder),
        usage=usage,
    )
