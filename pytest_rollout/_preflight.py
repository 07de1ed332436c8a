"""The preflight in pytest: made before the first rollout, told in a line, and the end of a session where it fails."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, wait

import pytest

from pytest_rollout._items import RolloutItem
from pytest_rollout._threads import in_thread, outcome_of
from pytest_rollout.decisions.forecast import Forecast, forecast, history_of
from pytest_rollout.errors import InfraError
from pytest_rollout.executors.cancel import Cancel
from pytest_rollout.preflight import Flight, Preflight, load_preflight, preflight_once
from pytest_rollout.report.inert import one_line
from pytest_rollout.run import Run
from pytest_rollout.store.records import Plan

__all__ = ["fly", "preflight_lines"]

_UNMEASURED = 75
_TICK = 1.0  # seconds


def fly(config: pytest.Config, run: Run, planned: Sequence[tuple[pytest.Item, RolloutItem]]) -> None:
    """Make the preflight, or wait for the process that does; where it fails, end the session: nothing is run.

    A worker sends a report instead, with which the controller ends it.
    """
    flights = [Flight(task=rollout.task, agent=rollout.chosen) for _, rollout in planned]
    try:
        failed = _made(run, flights).failed
    except InfraError as error:
        failed = f"infra {error.kind}: {error}"
    if not failed:
        return
    message = one_line(run.redactor.text(f"rollout: the preflight failed, so nothing is run: {failed}"))
    if not hasattr(config, "workerinput"):
        pytest.exit(message, returncode=_UNMEASURED)
    report = pytest.CollectReport(nodeid="", outcome="failed", longrepr=message, result=[])
    report.rollout_stop = message  # type: ignore[attr-defined]
    config.hook.pytest_collectreport(report=report)


def _made(run: Run, flights: Sequence[Flight]) -> Preflight:
    """In a thread, so that an interrupt ends what runs in the stage."""
    cancel, future = Cancel(), Future[Preflight]()
    try:
        in_thread(future, preflight_once, run, flights, cancel)
        while not wait([future], timeout=_TICK).done:
            pass
        return future.result()
    except KeyboardInterrupt:
        cancel.set()
        outcome_of(future)
        raise
    finally:
        if future.done():
            cancel.close()


def preflight_lines(run: Run, plan: Plan) -> list[str]:
    """What was tried before the first rollout, and what the rollouts will cost as far as that is known."""
    found = load_preflight(run.folder)
    if found is None:
        return []
    tried = f"{', '.join(found.tried)}" if found.tried else "no agent"
    line = f"rollout: preflight passed in {found.seconds:.3g} s: a stage, {tried}"
    if found.without:
        line += f"; without a preflight command: {', '.join(found.without)}"
    told = _told(forecast(plan.rollouts, history_of(run.results, run.name)))
    return [one_line(line), *([f"rollout: {told}"] if told else [])]


def _told(found: Forecast) -> str:
    parts = []
    if found.seconds is not None:
        minutes = f"{found.seconds / 60:.3g} min" if found.seconds >= 60 else f"{found.seconds:.3g} s"
        parts.append(f"{minutes} of agents' time (known for {found.timed} of {found.planned})")
    if found.cost is not None:
        parts.append(f"${found.cost:.2f} (known for {found.priced} of {found.planned})")
    return f"by the means of earlier runs: {', '.join(parts)}" if parts else ""
