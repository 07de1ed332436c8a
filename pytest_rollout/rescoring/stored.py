"""A stored run: the rollouts whose bundles are scored again, found by task and sample."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from pytest_rollout.decisions.sides import side_run
from pytest_rollout.errors import ConfigError, SelectorError
from pytest_rollout.outcome import InfraKind
from pytest_rollout.store.folder import ResultsFolder, RunFolder
from pytest_rollout.store.load import load_results
from pytest_rollout.store.records import Result, Source

__all__ = ["SCORED_NOW", "Stored", "StoredRun", "find_stored", "load_stored"]

# What broke the scoring of evidence, and not the evidence: where there is a bundle, today's checks are tried on it.
SCORED_NOW: tuple[InfraKind, ...] = ("evaluator", "vacuous", "fixture")


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """One stored rollout of the run ``run``. ``folder`` is that of its attempt, None where there is no bundle in it."""

    run: str
    result: Result
    folder: Path | None = None

    @property
    def unscored(self) -> str:
        """Why it can't be scored again, or nothing: what infrastructure ended left no evidence that counts."""
        if self.result.outcome == "infra" and (self.folder is None or self.result.kind not in SCORED_NOW):
            return f"it measured nothing in {self.run}: {self.result.message}"
        return "" if self.folder is not None else f"its bundle is not in {self.run} any more"

    @property
    def source(self) -> Source:
        """What a new result says of it."""
        result = self.result
        return Source(
            run=self.run,
            rollout=result.rollout,
            folder=result.folder,
            outcome=result.outcome,
            kind=result.kind,
            reward=result.reward,
            evaluator_revision=result.evaluator_revision,
        )


class StoredRun(msgspec.Struct, frozen=True, kw_only=True):
    """The rollouts of a stored run by (task, sample); ``missing`` counts those that were planned and have no result."""

    name: str
    rollouts: Mapping[tuple[str, int], Stored]
    missing: int = 0

    def samples_of(self, node: str, task: str | None) -> tuple[list[int], int]:
        """The samples of a test, by its node id without parameters, or by its task's id; and of how many they are.

        A test without any is planned once, as one that is new.
        """
        found = [
            stored.result
            for stored in self.rollouts.values()
            if stored.result.task == task or stored.result.node == node or stored.result.node.startswith(f"{node}[")
        ]
        samples = sorted({result.sample for result in found})
        if not samples:
            return [0], 1
        return samples, max(samples[-1] + 1, *(result.samples or 1 for result in found))

    def notes(self, selected: Iterable[tuple[str, int]], without: list[str]) -> tuple[str, ...]:
        """What a user has to know: tests ``without`` a stored rollout, rollouts that no selected test scores."""
        found: list[str] = []
        if without:
            found.append(f"left out, because {self.name} has no rollout of them: {_some(without)}")
        left = sorted(set(self.rollouts).difference(selected))
        if left:
            named = _some([self.rollouts[key].result.rollout for key in left])
            found.append(f"not scored again, because no selected test is theirs: {named}")
        if self.missing:
            found.append(f"{self.name} was cut short: it has no result of {self.missing} planned rollouts")
        return tuple(found)


def _some(names: list[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def find_stored(results: ResultsFolder, selector: str, invoked: Path) -> Path:
    """The folder of the run that ``--rollout-rescore`` names; raises ConfigError."""
    here = invoked / os.path.expanduser(selector)
    try:
        run = side_run(results, str(here) if (here / "results").is_dir() else selector)
    except SelectorError as error:
        raise ConfigError(f"--rollout-rescore: {error.message}", hint=error.hint) from None
    if run.in_progress():
        raise ConfigError(f"--rollout-rescore: the run {run.name} is still in progress")
    return run.path.resolve()


def load_stored(folder: Path) -> StoredRun:
    """The rollouts of the run in a folder."""
    run = RunFolder(folder)
    loaded = load_results(run)
    rollouts = {
        (result.task, result.sample): Stored(run=run.name, result=result, folder=_bundle_of(run, result))
        for result in loaded.results
    }
    return StoredRun(name=run.name, rollouts=rollouts, missing=len(loaded.missing))


def _bundle_of(run: RunFolder, result: Result) -> Path | None:
    """The folder of an attempt that left a bundle; never one outside of its run."""
    if result.folder is None:
        return None
    place = run.path / result.folder
    inside = place.resolve().is_relative_to(run.path.resolve())
    return place if inside and (place / "bundle.json").is_file() else None
