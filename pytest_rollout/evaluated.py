"""What running something for a test gives: the end of a command, the report of hidden tests.

Plain values. What is in them may come from a candidate; that a test *passed* may not, see
:class:`TestRun`.
"""

from __future__ import annotations

import msgspec

from pytest_rollout.bundle import Ended
from pytest_rollout.errors import EvaluatorError

__all__ = ["Exec", "TestRun", "exec_of"]
__tracebackhide__ = True  # pytest shows the suite's line, not ours

_SHOWN = 3


class Exec(msgspec.Struct, frozen=True, kw_only=True):
    """How a command ended and the start of what it printed (1 MiB of each stream).

    ``termination`` is ``completed``, ``exit_code``, ``signal`` or a limit.
    """

    exit_code: int | None
    signal: int | None
    termination: str
    stdout: str
    stderr: str

    def __bool__(self) -> bool:
        """Refuse to be taken for a verdict: it would always be true. Raises EvaluatorError."""
        message = "an Exec is neither true nor false: look at its exit_code, or compare what it printed"
        raise EvaluatorError(message, asked=True)

    @property
    def output(self) -> str:
        """Standard output, then standard error."""
        return self.stdout + self.stderr


def exec_of(ended: Ended, stdout: str, stderr: str) -> Exec:
    """How a command ended, with what was kept of its streams."""
    return Exec(
        exit_code=ended.exit_code, signal=ended.signal, termination=ended.termination, stdout=stdout, stderr=stderr
    )


class TestRun(msgspec.Struct, frozen=True, kw_only=True):
    """What hidden tests came to.

    ``tests`` maps each expected id to ``passed``, ``failed``, ``skipped`` or ``missing``; where none was
    named, also each other one that was reported. ``problem`` says why the run as a whole does not count, or is empty.
    ``in_process`` says that code of the candidate's ran in the process of the tests, which can then
    not be trusted wholly.
    """

    tests: dict[str, str]
    output: str
    problem: str = ""
    in_process: bool
    messages: dict[str, str] = {}

    __test__ = False  # not a test of pytest's, whatever its name

    def __bool__(self) -> bool:
        """Refuse to be taken for a verdict: it would always be true. Raises EvaluatorError."""
        raise EvaluatorError("a TestRun is neither true nor false: write .passed", asked=True)

    @property
    def passed(self) -> bool:
        """Whether the run counts, and every test in it was reported passed."""
        return not self.problem and bool(self.tests) and all(end == "passed" for end in self.tests.values())

    def __repr__(self) -> str:
        """Short, because pytest shows it where ``assert run.passed`` fails."""
        good = sum(end == "passed" for end in self.tests.values())
        parts = [f"{good} of {len(self.tests)} passed"]
        parts += [self.problem] if self.problem else []
        bad = [(test, end) for test, end in self.tests.items() if end != "passed"]
        for test, end in bad[:_SHOWN]:
            why = self.messages.get(test, "").strip().splitlines()
            parts.append(f"{test} {end}" + (f": {why[0][:200]}" if why else ""))
        if len(bad) > _SHOWN:
            parts.append(f"… and {len(bad) - _SHOWN} more")
        return f"<TestRun {'; '.join(parts)}>"
