"""Read runs again: results from the journals, one rollout by its selector.

A journal may end in half a line (the writer was killed): that line is left out and counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from pytest_rollout.errors import SelectorError
from pytest_rollout.store.folder import ResultsFolder, RunFolder, read_record
from pytest_rollout.store.records import Plan, Result, RunRecord
from pytest_rollout.store.union import counting

T = TypeVar("T")

__all__ = ["LoadedRun", "find_rollout", "find_run", "lines_of", "load_plan", "load_results", "runs_merged", "sizes_of"]


class LoadedRun(msgspec.Struct, frozen=True, kw_only=True):
    """The results of a run, one a rollout, in the order of the plan and then of their time.

    ``broken`` counts lines that could not be read; ``missing`` names planned rollouts without a result, but for those
    that the suite ``skipped``.
    """

    results: tuple[Result, ...]
    missing: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    broken: int = 0


def load_plan(run: RunFolder) -> Plan | None:
    """The plan, or None where the run was ended before it had one."""
    try:
        return read_record(run.plan, Plan)
    except (OSError, msgspec.MsgspecError):
        return None


def runs_merged(run: RunFolder) -> int:
    """Of how many runs it was merged; 0 where it was made by sessions of its own, or says nothing."""
    try:
        return len(read_record(run.record, RunRecord).merged)
    except (OSError, msgspec.MsgspecError):
        return 0


def load_results(run: RunFolder, sizes: Mapping[str, int] | None = None) -> LoadedRun:
    """The union of a run's journals; of several lines of one rollout the one of :func:`counting` counts.

    With ``sizes`` (see :func:`sizes_of`) the journals are read as they were when they had these.
    """
    found: dict[str, Result] = {}
    amends: list[Result] = []
    broken = 0
    for line in lines_of(run.results, sizes):
        try:
            result = msgspec.json.decode(line, type=Result)
        except (msgspec.MsgspecError, RecursionError):
            broken += 1
            continue
        known = found.get(result.rollout)
        if result.amends:
            amends.append(result)
        else:
            found[result.rollout] = result if known is None else counting(known, result)
    for result in amends:
        known = found.get(result.rollout)
        warnings = (*known.warnings, *result.warnings) if known is not None else result.warnings
        found[result.rollout] = msgspec.structs.replace(known or result, warnings=warnings)
    plan = load_plan(run)
    order = {planned.rollout: number for number, planned in enumerate(plan.rollouts)} if plan else {}
    results = sorted(found.values(), key=lambda result: (order.get(result.rollout, len(order)), result.time))
    without = [planned for planned in (plan.rollouts if plan else ()) if planned.rollout not in found]
    return LoadedRun(
        results=tuple(results),
        missing=tuple(planned.rollout for planned in without if not planned.skipped),
        skipped=tuple(planned.rollout for planned in without if planned.skipped),
        broken=broken,
    )


def lines_of(folder: Path, sizes: Mapping[str, int] | None = None) -> Iterator[bytes]:
    """The lines of every journal in a folder, one journal after the other; b"?" for one that can't be read.

    With ``sizes`` no more of each than so many bytes.
    """
    for path in sorted(folder.glob("*.jsonl")):
        left = None if sizes is None else sizes.get(path.name, 0)
        try:
            with open(path, "rb") as file:
                for line in file:
                    if left is not None and (left := left - len(line)) < 0:
                        break
                    if line.strip():
                        yield line
        except OSError:
            yield b"?"


def sizes_of(folder: Path) -> dict[str, int]:
    """The sizes of the journals in a folder, in bytes, by name."""
    found = {}
    for path in folder.glob("*.jsonl"):
        with suppress(OSError):
            found[path.name] = path.stat().st_size
    return found


def find_run(results: ResultsFolder, selector: str = "last") -> RunFolder:
    """A run by its name, a unique prefix of it or of its 8 hex digits, or ``last``; raises SelectorError."""
    runs, latest = results.all_runs(), results.latest()
    if latest is None:
        raise SelectorError(
            f"there are no runs in {results.path}", hint="Run pytest first, or name the folder with --dir."
        )
    if selector == "last":
        return latest
    fitting = [run for run in runs if run.name.startswith(selector) or run.name.rpartition("-")[2].startswith(selector)]
    exact = [run for run in fitting if run.name == selector]
    return _only(exact or fitting, selector, "run", [run.name for run in fitting])


def find_rollout(results: ResultsFolder, selector: str = "last") -> tuple[RunFolder, Result]:
    """A rollout by its id, a unique prefix of it, or ``last`` (the newest of the newest run).

    Among the rollouts of the newest run that has such, a prefix of the part behind the run's digits, a
    prefix of the test's name, the node id and the task's id fit too. Raises SelectorError that names the candidates.
    """
    if selector == "last":
        latest = results.latest()
        for run in ([latest] if latest is not None else []) + results.all_runs()[::-1]:
            loaded = load_results(run).results
            if loaded:
                return run, max(loaded, key=lambda result: result.time)
        raise SelectorError(
            f"there are no rollouts in {results.path}", hint="Run pytest first, or name the folder with --dir."
        )
    runs = [(run, load_results(run).results) for run in reversed(results.all_runs())]
    pairs = [(run, result) for run, found in runs for result in found]
    fitting = [pair for pair in pairs if pair[1].rollout.startswith(selector)]
    if not fitting:
        behind = [pair for pair in pairs if _fits(pair[1], selector)]
        fitting = [pair for pair in behind if pair[0] is behind[0][0]]
    if not fitting:
        raise SelectorError(
            f"no rollout begins with {selector!r} in {results.path}",
            hint="pytest-rollout list last shows those of the newest run.",
        )
    exact = [pair for pair in fitting if selector in (pair[1].rollout, pair[1].rollout.partition("-")[2])]
    return _only(exact or fitting, selector, "rollout", [result.rollout for _, result in fitting])


def _fits(result: Result, selector: str) -> bool:
    """Whether a selector is the beginning of what follows a run's digits, or of a test's name, or a node id."""
    names = (result.rollout.partition("-")[2], result.node.rpartition("::")[2])
    return any(name.startswith(selector) for name in names) or selector in (result.node, result.task)


def _only(fitting: Sequence[T], selector: str, what: str, names: Sequence[str]) -> T:
    if len(fitting) == 1:
        return fitting[0]
    if not fitting:
        raise SelectorError(f"no {what} begins with {selector!r}", hint="pytest-rollout list shows them.")
    shown = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
    raise SelectorError(f"{selector!r} fits {len(names)} {what}s: {shown}")
