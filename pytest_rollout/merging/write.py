"""Write a merged run: whole or not at all, and once more into one that is there."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from pytest_rollout.errors import ConfigError
from pytest_rollout.identity import task_folder
from pytest_rollout.merging.merged import Merged
from pytest_rollout.merging.shards import DUPLICATES, LABELS, Line, Shard, is_own
from pytest_rollout.stage.copying import copy_tree
from pytest_rollout.stage.removal import remove_tree
from pytest_rollout.stage.tree import Bound
from pytest_rollout.store.folder import ResultsFolder, RunFolder, read_record, write_record
from pytest_rollout.store.records import RunRecord

__all__ = ["Written", "write"]

_JOURNAL = "merged.jsonl"


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """Where a merged run was written.

    ``absent`` counts rollouts whose evidence none of the shards has; ``failed`` are those whose evidence could not be
    copied, with the reason.
    """

    path: Path
    absent: int = 0
    failed: tuple[tuple[str, str], ...] = ()


class _Copied(NamedTuple):
    absent: int = 0
    failed: tuple[tuple[str, str], ...] = ()


def write(merged: Merged, shards: Sequence[Shard], into: ResultsFolder, *, evidence: bool) -> Written:
    """Write a run, with the folders of its rollouts if ``evidence``; raises ConfigError, RecordingError, HostError.

    Into a run that is there already, which then is the same, only evidence and labels are added.
    """
    into.check_writable()
    target = RunFolder(into.runs / merged.record.run)
    if target.path.exists():
        _check_same(target, merged)
        copied = _copy_all(merged.winners, shards, target) if evidence else _Copied()
        _add_labels(target.path, merged.labels)
    else:
        copied = _make(merged, shards, into, target, evidence=evidence)
    into.open_run(merged.record.run)
    return Written(path=target.path, absent=copied.absent, failed=copied.failed)


def _make(
    merged: Merged, shards: Sequence[Shard], into: ResultsFolder, target: RunFolder, *, evidence: bool
) -> _Copied:
    made = RunFolder(into.path / f".merging-{secrets.token_hex(4)}")
    try:
        try:
            made.results.mkdir(parents=True)
            into.runs.mkdir(exist_ok=True)
            _write_lines(made.results / _JOURNAL, merged.counted)
            if merged.others:
                _write_lines(made.path / DUPLICATES, merged.others)
            write_record(made.plan, merged.plan)
            write_record(made.record, merged.record)
            copied = _copy_all(merged.winners, shards, made) if evidence else _Copied()
            _add_labels(made.path, merged.labels)
            os.rename(made.path, target.path)
        except OSError as error:
            raise ConfigError(f"the merged run {target.path} can't be written: {error.strerror}") from None
    except BaseException:
        remove_tree(str(made.path))
        raise
    return copied


def _check_same(target: RunFolder, merged: Merged) -> None:
    try:
        same = read_record(target.record, RunRecord).merged == merged.record.merged
    except (OSError, msgspec.MsgspecError):
        same = False
    if not same:
        raise ConfigError(f"{target.path} is there already, and is not this merged run", hint="Remove it first.")


def _write_lines(path: Path, lines: Iterable[Line]) -> None:
    """The bytes of lines; each of their files is opened once."""
    files: dict[str, int] = {}
    try:
        with open(path, "xb") as out:
            for line in lines:
                if line.path not in files:
                    files[line.path] = os.open(line.path, os.O_RDONLY | os.O_CLOEXEC)
                out.write(os.pread(files[line.path], line.size, line.offset) + b"\n")
    finally:
        for descriptor in files.values():
            os.close(descriptor)


def _copy_all(winners: Iterable[Line], shards: Sequence[Shard], target: RunFolder) -> _Copied:
    """The folder of every rollout that counts, with all its attempts."""
    holders: dict[str, list[Shard]] = {}
    for shard in shards:
        for rollout in {line.rollout for line in shard.lines}:
            holders.setdefault(rollout, []).append(shard)
    absent, failed = 0, []
    for line in winners:
        below = Path("rollouts") / task_folder(line.task) / f"s{line.sample}"
        if (target.path / below).exists():
            continue
        places = [holder.path / below for holder in holders[line.rollout] if is_own(holder.path, holder.path / below)]
        if not places:
            absent += line.folder is not None
            continue
        source = next((place for place in places if (place / f"a{line.attempt}").is_dir()), places[0])
        try:
            (target.path / below).parent.mkdir(parents=True, exist_ok=True)
            copy_tree(str(source), str(target.path / below), links=False)  # evidence holds none
        except (OSError, Bound) as error:
            remove_tree(str(target.path / below))
            failed.append((line.rollout, str(error)))
    return _Copied(absent, tuple(failed))


def _add_labels(path: Path, labels: Sequence[bytes]) -> None:
    """Append the labels that a run does not have yet."""
    try:
        known = (path / LABELS).read_bytes()
    except FileNotFoundError:
        known = b""
    new = [label for label in labels if label not in set(known.split(b"\n"))]
    if new:
        begin = b"\n" if known and not known.endswith(b"\n") else b""
        with open(path / LABELS, "ab") as file:
            file.write(begin + b"".join(label + b"\n" for label in new))
