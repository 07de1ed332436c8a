"""The rows of a run, read twice: once for what decides, once for what is written.

The first reading keeps of each line its place and little more, so that a run of 100,000 rollouts is exported in bounded
memory; the second one decodes a line at a time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from pytest_rollout.exporting.columns import Given, row_of
from pytest_rollout.outcome import Outcome
from pytest_rollout.store.folder import RunFolder
from pytest_rollout.store.labels import counted, load_labels
from pytest_rollout.store.load import load_plan
from pytest_rollout.store.records import Result
from pytest_rollout.store.union import counting

__all__ = ["Index", "index_of", "rows_of"]


class _Line(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What decides about a line, and where it is."""

    rollout: str
    task: str
    sample: int
    attempt: int = 1
    outcome: Outcome
    reward: float | None = None
    trusted: bool | None = None
    split: str | None = None
    time: str = ""
    amends: bool = False
    file: int = 0
    offset: int = 0
    size: int = 0


class Index(msgspec.Struct, frozen=True, kw_only=True):
    """What is exported of a run, and how many rollouts are not: untrusted ones, and those without a result.

    ``groups`` has by task how many rollouts there are, planned ones too, and how many of the exported are measured.
    """

    run: RunFolder
    files: tuple[str, ...]
    lines: tuple[_Line, ...]
    groups: Mapping[str, tuple[int, int]]
    untrusted: int
    missing: int
    broken: int


def index_of(run: RunFolder, *, untrusted: bool = False, split: str | None = None) -> Index:
    """Read a run for the first time. ``untrusted``: also rollouts that were not isolated as their task asks.

    ``split``: only tasks of this split.
    """
    files = tuple(map(str, sorted(run.results.glob("*.jsonl"))))
    found: dict[str, _Line] = {}
    broken = 0
    for number, file in enumerate(files):
        broken += _read(file, number, found)
    plan = load_plan(run)
    selected = [line for line in found.values() if split is None or line.split == split]
    missing = [
        planned.task
        for planned in (plan.rollouts if plan is not None else ())
        if planned.rollout not in found and not planned.skipped and (split is None or planned.split == split)
    ]
    kept = [line for line in selected if untrusted or line.trusted is not False]
    sizes: dict[str, int] = {}
    for task in [*(line.task for line in selected), *missing]:
        sizes[task] = sizes.get(task, 0) + 1
    measured = dict.fromkeys(sizes, 0)
    for line in kept:
        measured[line.task] += line.reward is not None
    return Index(
        run=run,
        files=files,
        lines=tuple(sorted(kept, key=lambda line: (line.task, line.sample, line.rollout))),
        groups={task: (size, measured[task]) for task, size in sizes.items()},
        untrusted=len(selected) - len(kept),
        missing=len(missing),
        broken=broken,
    )


def _read(file: str, number: int, found: dict[str, _Line]) -> int:
    """Take the lines of a journal; returns how many can't be read."""
    decoder, offset, broken = msgspec.json.Decoder(_Line), 0, 0
    tasks: dict[str, str] = {}
    try:
        journal = open(file, "rb")  # noqa: SIM115 - closed below
    except OSError:
        return 1
    with journal:
        for data in journal:
            at, offset = offset, offset + len(data)
            if not data.strip():
                continue
            try:
                line = decoder.decode(data)
            except msgspec.MsgspecError:
                broken += 1
                continue
            if line.amends:  # it adds a warning, and changes nothing
                continue
            task = tasks.setdefault(line.task, line.task)  # samples share it
            line = msgspec.structs.replace(line, task=task, file=number, offset=at, size=len(data))
            known = found.get(line.rollout)
            found[line.rollout] = line if known is None else counting(known, line)
    return broken


def rows_of(index: Index) -> Iterator[dict[str, Any]]:
    """The rows, in the order of task, sample and id. Raises OSError."""
    decoder = msgspec.json.Decoder(Result)
    labels = _labels(index.run)
    descriptors = [os.open(file, os.O_RDONLY | os.O_CLOEXEC) for file in index.files]
    try:
        for line in index.lines:
            result = decoder.decode(os.pread(descriptors[line.file], line.size, line.offset))
            size, measured = index.groups[line.task]
            yield row_of(
                Given(
                    run=index.run.name,
                    result=result,
                    group_size=size,
                    group_measured=measured,
                    present=_present(index.run, result),
                    labels=labels.get(line.rollout, ()),
                )
            )
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _present(run: RunFolder, result: Result) -> frozenset[str]:
    """The names in the folder of an attempt."""
    if result.folder is None:
        return frozenset()
    try:
        return frozenset(os.listdir(run.path / result.folder))
    except OSError:
        return frozenset()


def _labels(run: RunFolder) -> dict[str, Sequence[Mapping[str, Any]]]:
    """What people said of rollouts, by rollout: of each person the last word."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for label in counted(load_labels(run)[0]):
        told = {"by": label.by, "reward": label.reward, "reason": label.reason, "time": label.time}
        found.setdefault(label.rollout, []).append(told)
    return dict(found)
