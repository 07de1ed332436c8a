"""At a session's end: tell, and write down, that held-out tasks were run."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_rollout.errors import InfraError
from pytest_rollout.report.promotion import looks_line
from pytest_rollout.run import Run
from pytest_rollout.store.heldout import add_look, look_of, looks
from pytest_rollout.store.load import LoadedRun

__all__ = ["HeldOut"]


class HeldOut:
    """The ending that keeps the ledger of held-out runs."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def end(self, loaded: LoadedRun, status: int) -> tuple[int, Sequence[str]]:
        """The status as it is; one line where an agent acted on a held-out task."""
        look = look_of(self._run.name, loaded.results)
        if look is None:
            return status, ()
        try:
            add_look(self._run.results, look, self._run.redactor)
        except InfraError as error:
            return status, [f"warning: {error.message}"]
        return status, [looks_line(looks(self._run.results), tasks=look.tasks)]
