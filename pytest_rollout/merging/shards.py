"""One of the runs that are merged, as it is read: what its records say, and where its lines lie.

Of a line of results only what decides is decoded; its bytes are copied later, so that 100,000 of them fit into memory.
"""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import msgspec

from pytest_rollout.errors import ConfigError
from pytest_rollout.outcome import Outcome
from pytest_rollout.shard import MOST_SHARDS
from pytest_rollout.store.folder import RunFolder
from pytest_rollout.store.load import load_plan
from pytest_rollout.store.records import Planned, Result

__all__ = ["DUPLICATES", "LABELS", "Line", "LinePins", "Shard", "find_shards", "is_own", "read_shard"]

DUPLICATES = "duplicates.jsonl"  # of a merged run: lines of rollouts that do not count
LABELS = "labels.jsonl"


class LinePins(msgspec.Struct, frozen=True, kw_only=True):
    """The pins that have to be the same in all shards: of a task, of an agent, of the machinery."""

    task_digest: str | None = None
    environment_revision: str | None = None
    evaluator_revision: str | None = None
    agent: str = ""
    agent_digest: str | None = None
    agent_version: str | None = None
    policy_revision: str | None = None
    model: str | None = None
    sampling: Any = None
    extra: Any = None
    executor: str | None = None
    executor_version: str | None = None
    plugin_version: str | None = None


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A line of results: what decides whether it counts, its digest, and where its bytes are."""

    rollout: str
    task: str
    sample: Annotated[int, msgspec.Meta(ge=0)]
    attempt: Annotated[int, msgspec.Meta(ge=1)] = 1
    node: str = ""
    agent: str = ""
    outcome: Outcome
    reward: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    time: str = ""
    amends: bool = False
    tags: tuple[str, ...] = ()
    split: str | None = None
    evaluator_revision: str | None = None
    folder: str | None = None
    rung: int | None = None
    pins: LinePins | None = None
    digest: str = ""
    shard: int = 0
    path: str = ""
    offset: int = 0
    size: int = 0


class Shard(msgspec.Struct, frozen=True, kw_only=True):
    """What was read of one run. ``records`` are the ``run.json`` of the runs that it is made of, or its own.

    ``planned`` is None where the run was ended before it had a plan; ``broken`` counts lines that can't be read.
    """

    path: Path
    records: tuple[dict[str, Any], ...]
    planned: tuple[Planned, ...] | None
    lines: tuple[Line, ...]
    multiplied: dict[str, int] = {}
    notes: tuple[str, ...] = ()
    labels: tuple[bytes, ...] = ()
    broken: int = 0


def find_shards(places: Sequence[Path]) -> list[RunFolder]:
    """The runs that places name: a run, or all runs of a folder of results, or of the one that is in a place.

    In the order of their names, each once. What lies below a place may come from somebody else's machine, so a link
    there is refused: it would take along what lies on this one. Raises ConfigError.
    """
    found: dict[str, RunFolder] = {}
    for place in places:
        runs = _runs(place)
        if not runs:
            hint = "Name a folder of results (.rollout), or one run of it (.rollout/runs/…)."
            raise ConfigError(f"there are no runs in {place}", hint=hint)
        for path in runs:
            if path != place and not is_own(place, path):
                raise ConfigError(f"{path} is a link, or below one", hint="Name the folder that it points to.")
            found[str(path.resolve())] = RunFolder(path.resolve())
    for run in found.values():
        _check_plain(run)
        if run.in_progress():
            raise ConfigError(f"the run {run.path} is still in progress", hint="Merge it when it has ended.")
    return [found[path] for path in sorted(found, key=lambda path: (Path(path).name, path))]


def _runs(place: Path) -> list[Path]:
    if (place / "results").is_dir():
        return [place]
    for folder in (place / "runs", place / ".rollout" / "runs"):
        if folder.is_dir():
            return [path for path in folder.iterdir() if (path / "results").is_dir()]
    return []


def is_own(top: Path, path: Path) -> bool:
    """Whether ``path``, below ``top``, is a folder, and no link leads there."""
    parts = path.relative_to(top).parts
    try:
        modes = [top.joinpath(*parts[: number + 1]).lstat().st_mode for number in range(len(parts))]
    except OSError:
        return False
    return all(map(stat.S_ISDIR, modes))


def _check_plain(run: RunFolder) -> None:
    """Refuse a run whose records are no plain files: a link may lead anywhere, and a FIFO never ends."""
    if not is_own(run.path, run.results):
        raise ConfigError(f"{run.results} is no folder")
    for path in (run.record, run.plan, run.path / LABELS, run.path / DUPLICATES, *run.results.glob("*.jsonl")):
        with suppress(FileNotFoundError):
            if not stat.S_ISREG(path.lstat().st_mode):
                raise ConfigError(f"{path} is no plain file")


def read_shard(run: RunFolder, number: int) -> Shard:
    """Read a run, which is the shard of this number; raises ConfigError and OSError."""
    lines: list[Line] = []
    broken, pins = 0, dict[bytes, LinePins | None]()
    for path in [*sorted(run.results.glob("*.jsonl")), run.path / DUPLICATES]:
        for line in _lines(path, number, pins):
            if line is None:
                broken += 1
            else:
                lines.append(line)
    plan, records = load_plan(run), _records(run)
    if any(record.get("source") for record in records):
        raise ConfigError(
            f"{run.name} scored another run again, and its scores stand beside those: it is no shard of theirs",
            hint="Merge the shards first, and score the merged run again.",
        )
    return Shard(
        path=run.path,
        records=records,
        planned=None if plan is None else plan.rollouts,
        multiplied={} if plan is None else plan.multiplied,
        notes=() if plan is None else plan.notes,
        lines=tuple(lines),
        labels=_labels(run.path / LABELS),
        broken=broken,
    )


def _lines(path: Path, shard: int, known: dict[bytes, LinePins | None]) -> Iterator[Line | None]:
    """The lines of a journal; None for one that can't be read, such as half a line of a writer that was killed."""
    decoder, whole, offset, place = msgspec.json.Decoder(Line), msgspec.json.Decoder(Result), 0, str(path)
    try:
        file = open(path, "rb")  # noqa: SIM115 - closed below
    except FileNotFoundError:
        return
    with file:
        for raw in file:
            data, at = raw.rstrip(b"\n"), offset
            offset += len(raw)
            if not data.strip():
                continue
            try:
                line = decoder.decode(data)
                whole.decode(data)  # a line that counts has to be one that every reader can read
            except (msgspec.MsgspecError, RecursionError):
                yield None
                continue
            pins = None if line.pins is None else known.setdefault(msgspec.json.encode(line.pins), line.pins)
            digest = hashlib.sha256(data).hexdigest()
            yield msgspec.structs.replace(
                line, pins=pins, digest=digest, shard=shard, path=place, offset=at, size=len(data)
            )


class _OfShard(msgspec.Struct):
    index: int
    count: int
    all_rollouts: int | None = None


class _Leaf(msgspec.Struct):
    """What is read of the ``run.json`` of a run that was made; whatever else it says is kept."""

    run: str
    started: str = ""
    plugin_version: str = ""
    redacted: tuple[str, ...] = ()
    not_redacted: dict[str, str] = {}
    shard: _OfShard | None = None


def _records(run: RunFolder) -> tuple[dict[str, Any], ...]:
    """The ``run.json`` of the run, or of those that it was merged of; its name where it has none that can be read."""
    try:
        record = json.loads(run.record.read_bytes())
    except (OSError, ValueError, RecursionError):
        record = None
    if not _is_leaf(record):
        return ({"run": run.name},)
    merged = record.pop("merged", None)
    leaves = [leaf for leaf in merged if _is_leaf(leaf)] if isinstance(merged, list) else []
    return tuple(leaves) or (record,)


def _is_leaf(record: Any) -> bool:
    try:
        shard = msgspec.convert(record, _Leaf).shard
        msgspec.json.encode(record)
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError):
        return False
    return shard is None or 1 <= shard.index <= shard.count <= MOST_SHARDS


def _labels(path: Path) -> tuple[bytes, ...]:
    """Lines of labels as they are; half a line is left out."""
    try:
        found = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return ()
    return tuple(line for line in found if _is_object(line))


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
