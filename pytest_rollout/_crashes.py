"""A worker of pytest-xdist died in a rollout: that is the result, or the rollout is begun again.

The crash makes a report of its own. Where the rollout is begun again, that report becomes one of a setup that passed:
nothing is shown of it, nothing is counted, and the testcase that it makes in JUnit has no name and is removed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from pytest_rollout.outcome import Infra
from pytest_rollout.recording import lost_result
from pytest_rollout.report.inert import one_line
from pytest_rollout.report.junit import CaseVerdict
from pytest_rollout.run import Run
from pytest_rollout.store.load import load_results
from pytest_rollout.store.lost import lost_attempts
from pytest_rollout.store.records import Earlier, Plan, Planned, Result

__all__ = ["Crashes"]

_ITSELF = "LoadScopeScheduling"  # it hands out the test that a worker died in once more, asked or not


class Crashes:
    """Those of one session. ``cases`` are the rollouts that were reported, ``attach`` makes a report say a result.

    ``earlier`` are the attempts of sessions before, by rollout.
    """

    def __init__(
        self,
        config: pytest.Config,
        run: Run,
        plan: Plan,
        *,
        cases: Mapping[str, CaseVerdict],
        add: Callable[[Result], None],
        attach: Callable[[pytest.TestReport, Result], None],
        earlier: Mapping[str, tuple[Earlier, ...]],
    ) -> None:
        self._config, self._run = config, run
        self._planned = {planned.node: planned for planned in plan.rollouts}
        self._cases, self._add, self._attach = cases, add, attach
        self._earlier = dict(earlier)
        self._spent = Counter[str]()
        self.waiting: dict[str, Result] = {}  # what the result is, should the rollout not be begun again

    def crashed(self, node: str, report: pytest.TestReport, sched: Any, *, ending: bool) -> None:
        """A worker died in the test ``node``; ``ending`` says that no test is begun any more.

        A rollout that was scored before that keeps its score. A report of a rollout's end becomes that of a teardown:
        with that one a testcase of JUnit gets its properties.
        """
        planned = self._planned.get(node)
        if planned is None:
            return
        said, case = str(report.longrepr), self._cases.get(planned.rollout)
        known = self._known(planned)
        lost = None
        if case is None and (known is None or known.kind == "worker"):
            lost = self._lost(planned, known, said)
            if not ending and self._again(planned, lost, sched):
                report.when, report.outcome, report.longrepr = "setup", "passed", None
                return
        self._run.claims.close(planned.task, planned.sample)
        if known is not None and known.kind != "worker":  # that one says it itself
            self._add(replace(known, amends=True, warnings=(f"{said}, after it was scored",)))
        report.when, report.location = (
            "teardown",
            (report.location[0], None, node.partition("::")[2].replace("::", ".")),
        )
        if case is not None or (known is not None and known.outcome == "passed"):
            report.outcome, report.longrepr = "passed", None
        if case is not None:  # its own report came, and says more
            report.user_properties.extend(case.properties)
            return
        result = known or lost
        assert result is not None
        if known is None:
            self._add(result)
        self._attach(report, result)

    def _known(self, planned: Planned) -> Result | None:
        """The result that the worker recorded before it died; not that of an attempt before."""
        before = {each.attempt for each in self._earlier.get(planned.rollout, ())}
        results = load_results(self._run.folder).results
        return next((r for r in results if r.rollout == planned.rollout and r.attempt not in before), None)

    def _lost(self, planned: Planned, known: Result | None, said: str) -> Result:
        """The result of a rollout whose worker died, with the attempts before that."""
        if known is not None:  # the worker was told to end, and recorded that
            return known
        before = self._earlier.get(planned.rollout, ())
        *earlier, last = lost_attempts(self._run.folder, planned.task, planned.sample, before, said)
        return lost_result(
            planned, said, forgeable=last.forgeable, attempt=last.attempt, earlier=tuple(earlier), folder=last.folder
        )

    def _again(self, planned: Planned, lost: Result, sched: Any) -> bool:
        """Have the rollout begun again, where that is allowed and can be done."""
        infra = Infra(kind="worker", message=lost.message, forgeable=lost.forgeable)
        if not self._run.retry_policy.allows(infra, self._spent[planned.rollout]):
            return False
        itself = any(kind.__name__ == _ITSELF for kind in type(sched).__mro__)
        if not itself and planned.node not in (getattr(sched, "collection", None) or ()):
            return False
        this = Earlier(
            attempt=lost.attempt,
            kind="worker",
            forgeable=lost.forgeable,
            message=lost.message,
            folder=lost.folder,
            usage=lost.usage,
        )
        earlier = (*lost.earlier, this)
        if not self._run.claims.give_back(planned.task, planned.sample, earlier):
            return False
        if not itself:
            try:
                sched.mark_test_pending(planned.node)
            except NotImplementedError:  # a scheduler that can't
                return False
        self._spent[planned.rollout] += 1
        self._earlier[planned.rollout], self.waiting[planned.rollout] = earlier, lost
        self._say(f"rollout: {planned.node} is begun again: {lost.message}")
        return True

    def _say(self, line: str) -> None:
        terminal: Any = self._config.pluginmanager.get_plugin("terminalreporter")
        if terminal is not None and self._config.get_verbosity() >= 0:
            terminal.ensure_newline()
            terminal.write_line(one_line(self._run.redactor.text(line)))
