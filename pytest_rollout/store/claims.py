"""Who begins a rollout: of the workers of one session the first, and another one only where it was given back.

::

    <run>/claims/<session>/<task folder>-s0.claimed      by a worker, before it begins
                                           .given-back   by the controller: the worker died, try again
                                           .over         by the controller: it died, and that is the result

pytest-xdist may hand out a test once more whose worker died, by itself or because it was asked to. The worker that is
handed it waits until the controller has said which, so that it does not matter who is faster. A session that goes on
with a run of another one claims anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from pytest_rollout.identity import task_folder
from pytest_rollout.store.folder import RunFolder
from pytest_rollout.store.records import Earlier

__all__ = ["Claims"]

_PATIENCE = 30.0  # seconds
_LOOK = 0.02


class Claims:
    """The claims of one session in a run's folder."""

    def __init__(
        self,
        run: RunFolder,
        session: str,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run, self._folder = run.path, run.path / "claims" / session
        self._sleep, self._clock = sleep, clock

    def take(self, task: str, sample: int) -> tuple[Earlier, ...] | None:
        """Begin a sample: the attempts that were lost before, or None where it is not to be begun.

        Where no claim can be made, in a folder that is gone or full, it may be begun: what can't be recorded is told
        by the attempt itself.
        """
        try:
            self._run.stat()  # a run that somebody removed is not begun again
            self._folder.mkdir(parents=True, exist_ok=True)
            if not self._over(task, sample) and self._create(self._place(task, sample, "claimed")):
                return self._take_over(task, sample) or ()  # its worker may have died before it claimed it
        except OSError:
            return ()
        until = self._clock() + _PATIENCE
        while True:
            earlier = self._take_over(task, sample)
            if earlier is not None:
                return earlier
            if self._over(task, sample) or self._clock() > until:
                return None
            self._sleep(_LOOK)

    def give_back(self, task: str, sample: int, earlier: Sequence[Earlier]) -> bool:
        """Let another worker begin a sample whose worker died, after these attempts; whether that could be said."""
        place = self._place(task, sample, "given-back")
        made = place.with_suffix(".new")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            made.write_bytes(msgspec.json.encode(list(earlier)))
            made.replace(place)
        except OSError:
            return False
        return True

    def close(self, task: str, sample: int) -> None:
        """No worker begins this sample any more."""
        with suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            self._create(self._place(task, sample, "over"))

    def _over(self, task: str, sample: int) -> bool:
        return self._place(task, sample, "over").exists()

    def _take_over(self, task: str, sample: int) -> tuple[Earlier, ...] | None:
        """Take what was given back: of several workers the one that can move it away."""
        place = self._place(task, sample, "given-back")
        taken = place.with_suffix(".taken")
        try:
            place.rename(taken)
            return msgspec.json.decode(taken.read_bytes(), type=tuple[Earlier, ...])
        except (OSError, msgspec.MsgspecError):
            return None

    @staticmethod
    def _create(place: Path) -> bool:
        try:
            place.touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def _place(self, task: str, sample: int, what: str) -> Path:
        return self._folder / f"{task_folder(task)}-s{sample}.{what}"
