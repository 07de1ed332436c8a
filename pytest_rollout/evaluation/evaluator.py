"""The evaluator that the bundle of an attempt is given: one door to the ways of judging it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from pytest_rollout.bodylimit import BodyLimit
from pytest_rollout.errors import EvidenceError, HostError, InfraError
from pytest_rollout.evaluated import Exec, TestRun
from pytest_rollout.evaluation.calls import call, call_many
from pytest_rollout.evaluation.hidden_tests import run_tests
from pytest_rollout.evaluation.programs import evaluate, run
from pytest_rollout.evaluation.trees import Trees

__all__ = ["Evaluator"]
__tracebackhide__ = True  # pytest shows the suite's line, not ours

_MAX_TOLD = 500
_ALL_TOGETHER = 10


def _nowhere(event: str, **facts: Any) -> None:
    """A journal that nobody keeps."""


class Evaluator:
    """Judges one attempt, and tells ``journal`` of every evaluation.

    ``in_process`` says whether a verdict came from a process with candidate code in it; ``pausing`` gives a
    context in which the time of the body stands still.
    """

    def __init__(self, trees: Trees, journal: Callable[..., None] = _nowhere) -> None:
        self._trees, self._journal = trees, journal
        self.in_process = False
        self._used = 0.0
        self.pausing: Callable[[], AbstractContextManager[object]] = nullcontext

    @property
    def limited(self) -> bool:
        """Whether an evaluation ended by its limit."""
        return self._trees.limited

    def run_tests(self, files: object, expect: Sequence[str] | None, proxy: Sequence[str]) -> TestRun:
        with self._evaluating("run_tests", proxy=list(proxy)) as facts:
            found = run_tests(self._trees, self._trees.hidden(files), expect, proxy)
            facts["passed"] = found.passed
        self.in_process = self.in_process or found.in_process
        return found

    def call(self, target: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        with self._evaluating("call", target=target):
            return call(self._trees, target, args, kwargs)

    def call_many(self, target: str, calls: Sequence[Sequence[Any]]) -> list[Any]:
        with self._evaluating("call_many", target=target):
            return call_many(self._trees, target, calls)

    def run(self, command: Sequence[str] | str, stdin: str | bytes) -> Exec:
        with self._evaluating("run", command=command) as facts:
            found = run(self._trees, command, stdin)
            facts["exit_code"] = found.exit_code
        return found

    def evaluate(self, command: Sequence[str] | str, files: object) -> Exec:
        with self._evaluating("evaluate", command=command) as facts:
            found = evaluate(self._trees, command, self._trees.hidden(files))
            facts["exit_code"] = found.exit_code
        self.in_process = True
        return found

    @contextmanager
    def _evaluating(self, how: str, **facts: Any) -> Iterator[dict[str, Any]]:
        """The body's time stands still; what came of it goes into the journal.

        What the machine ran out of, the candidate's code may have used up.
        """
        began = time.monotonic()
        try:
            with self.pausing():
                self._check_time()
                yield facts
        except (EvidenceError, InfraError) as error:
            if isinstance(error, HostError):
                error.forgeable = True
            facts["error"] = self._trees.redactor.text(f"{type(error).__name__}: {error.message}")[:_MAX_TOLD]
            raise
        finally:
            self._used += time.monotonic() - began
            self._tell(how, facts)

    def _check_time(self) -> None:
        """Raise BodyLimit where the evaluations took too long: a candidate may say how many there are."""
        assert self._trees.task.limits.evaluation is not None
        allowed = _ALL_TOGETHER * self._trees.task.limits.evaluation
        if self._used > allowed:
            self._trees.limited = True
            raise BodyLimit(f"the evaluations of this rollout took longer than {allowed:g} s together")

    def _tell(self, how: str, facts: dict[str, Any]) -> None:
        try:
            self._journal("evaluated", how=how, **facts)
        except HostError as error:  # the agent may have left no more room than this
            error.forgeable = True
            raise

    def close(self) -> None:
        """Remove what the evaluations needed; may be called twice."""
        self._trees.close()
