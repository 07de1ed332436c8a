"""A session and the whole of its run: what it did not make itself, where it goes on with one.

Gates, the closing block, the JUnit report and the exit status are of the whole run; what is proved (that each rollout
was reported and recorded) is of this session alone.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Container, Sequence

import pytest
from msgspec.structs import replace

from pytest_rollout.decisions.resume import Before, ended
from pytest_rollout.report.rebuilt import cases_of, recorded, verdict_of
from pytest_rollout.report.terminal import plural
from pytest_rollout.store.folder import RunFolder
from pytest_rollout.store.load import LoadedRun, load_plan
from pytest_rollout.store.records import Earlier, Plan, Result

__all__ = ["Whole"]


class Whole:
    """``plan`` is what the session makes; ``before`` what there was, None where the run is its own."""

    def __init__(self, run: RunFolder, plan: Plan, before: Before | None) -> None:
        self._run, self._plan, self._before = run, plan, before
        self._mine = {planned.rollout for planned in plan.rollouts}

    def header(self, run: str) -> list[str]:
        """What is gone on with, and what this session leaves out or adds."""
        if self._before is None:
            return []
        plan = load_plan(self._run)
        whole = {planned.rollout for planned in plan.rollouts} if plan is not None else set()
        known = {planned.rollout for planned in self._before.plan.rollouts}
        measured = self._measured()
        lines = [f"rollout: goes on with {run}: {plural(measured, 'rollout')} of {len(known)} measured before"]
        new = len(whole - known)
        if new:
            lines.append(f"rollout: {plural(new, 'rollout')} more than it had planned")
        left = sum(not self._before.is_measured(rollout) for rollout in known - self._mine)
        if left:
            lines.append(f"rollout: {plural(left, 'rollout')} without a measurement not selected here, or gone")
        return lines

    def said(self) -> list[str]:
        """A line for the closing block."""
        measured = self._measured()
        return [f"{plural(measured, 'rollout')} measured before, in the same run"] if measured else []

    def _measured(self) -> int:
        return sum(map(self._before.is_measured, self._before.results)) if self._before is not None else 0

    def earlier(self) -> dict[str, tuple[Earlier, ...]]:
        """What was tried before of the rollouts that the session makes again."""
        results = self._before.results if self._before is not None else {}
        return {rollout: ended(results[rollout]) for rollout in self._mine if rollout in results}

    def of_session(self, loaded: LoadedRun) -> dict[str, Result]:
        """The results by rollout, without those that were there before and are made again."""
        found = {result.rollout: result for result in loaded.results}
        for rollout in self._mine if self._before is not None else ():
            old = self._before.results.get(rollout) if self._before is not None else None
            new = found.get(rollout)
            if old is not None and new is not None and (old.time, old.attempt) == (new.time, new.attempt):
                del found[rollout]
        return found

    def joined(self, loaded: LoadedRun, made: Sequence[Result]) -> LoadedRun:
        """All results of the run, with those that were made for rollouts of which none is on the disk."""
        found = {result.rollout: result for result in (*loaded.results, *made)}
        missing = sorted(self._mine - found.keys() - {*loaded.missing, *loaded.skipped})
        left = tuple(rollout for rollout in (*loaded.missing, *missing) if rollout not in found)
        return replace(loaded, results=tuple(found.values()), missing=left)

    def testcases(self, loaded: LoadedRun, reported: Container[str]) -> list[ET.Element]:
        """What a JUnit report of this session alone lacks; ``reported`` are the nodes of which it was told.

        An interrupted session does not hear any more of what its workers still recorded.
        """
        known = load_plan(self._run) if self._before is not None else None
        told = {planned.rollout for planned in self._plan.rollouts if planned.node in reported}
        results = [result for result in loaded.results if result.rollout not in told]
        without = told | (self._mine - {result.rollout for result in results})
        return list(cases_of(self._run, recorded(known, results), cut=False, but=without))

    def status(self, status: int, loaded: LoadedRun) -> int:
        """pytest's exit status, as it had been had this session made them all."""
        if self._before is None or status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            return status
        others = (result for result in loaded.results if result.rollout not in self._mine)
        failed = any((verdict := verdict_of(each, cut=False)) and verdict.tag == "failure" for each in others)
        return int(pytest.ExitCode.TESTS_FAILED if failed else pytest.ExitCode.OK)
