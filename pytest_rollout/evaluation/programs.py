"""``bundle.run`` and ``bundle.evaluate``: programs over the clean tree.

``run`` is for a program of the candidate's: what it prints is compared by the test. ``evaluate`` is
for a program of the evaluator's, tried on the clean baseline first, so that one that isn't there is
never held against the candidate.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence

from pytest_rollout.errors import CandidateError, EvaluatorError, SpawnError
from pytest_rollout.evaluated import Exec
from pytest_rollout.evaluation.interpreter import own_interpreter
from pytest_rollout.evaluation.trees import Hidden, Trees
from pytest_rollout.executors.memory import memory_file
from pytest_rollout.executors.protocol import Stage

__all__ = ["evaluate", "run"]
__tracebackhide__ = True  # pytest shows the suite's line, not ours

_LONGEST_WORD, _LONGEST_COMMAND = 100_000, 1_000_000
_NOT_STARTED = {126: "is not runnable", 127: "was not found"}
_FROM = ("sh", "-c", 'input=$1; shift; exec "$@" </proc/self/fd/"$input"', "sh")
_tried: set[tuple[str, ...]] = set()  # commands that start on the baseline of that revision, in this process


def run(trees: Trees, command: Sequence[str] | str, stdin: str | bytes) -> Exec:
    """Run a program of the candidate's; raises CandidateError where a limit ended it."""
    trees.check_unseen()
    argv = _argv(command)
    if not isinstance(stdin, str | bytes):
        raise EvaluatorError(f"run(…, stdin={stdin!r}): it is neither a text nor bytes", asked=True)
    data = stdin.encode("utf-8", "surrogateescape") if isinstance(stdin, str) else stdin
    fd = memory_file(data)
    try:
        with trees.of_candidate() as stage:
            return _within(trees, stage, (*_FROM, str(fd), *argv), shlex.join(argv), (fd,))
    finally:
        os.close(fd)


def evaluate(trees: Trees, command: Sequence[str] | str, hidden: Hidden | None) -> Exec:
    """Run a program of the evaluator's over the clean tree with the hidden files.

    Raises EvaluatorError where it does not start on the baseline, CandidateError where a limit ended it.
    """
    trees.check_unseen()
    argv = _argv(command)
    key = (trees.baseline_revision, trees.executor.info.name, "" if hidden is None else hidden.layer, *argv)
    if key not in _tried:
        _try(trees, argv, hidden)
        _tried.add(key)
    with trees.of_candidate(hidden) as stage:
        return _within(trees, stage, argv, shlex.join(argv), ())


def _try(trees: Trees, argv: tuple[str, ...], hidden: Hidden | None) -> None:
    """See that the command starts where no candidate was."""
    with trees.of_baseline(hidden) as stage:
        try:
            code = trees.run(stage, argv).exit_code
        except SpawnError as error:  # without a sandbox
            raise EvaluatorError(f"evaluate({shlex.join(argv)!r}): {error.message}", asked=True) from None
    if code in _NOT_STARTED:
        raise EvaluatorError(
            f"evaluate({shlex.join(argv)!r}): on the clean baseline it ended with exit code {code}: "
            f"the program, or one that it starts, {_NOT_STARTED[code]}",
            hint="Install it below /usr or beside Python, or add it to the hidden files. "
            "A program that the candidate has to write is for bundle.run().",
            asked=True,
        )


def _within(trees: Trees, stage: Stage, argv: tuple[str, ...], shown: str, inherit: tuple[int, ...]) -> Exec:
    try:
        ended = trees.run(stage, argv, inherit=inherit)
    except SpawnError as error:
        raise CandidateError(f"{shown}: {error.message}") from None
    if ended.termination not in ("completed", "exit_code", "signal"):
        allowed = f": {trees.task.limits.evaluation:g} s are allowed" if ended.termination == "wall_limit" else ""
        raise CandidateError(f"{shown} ended by {ended.termination}{allowed}")
    return ended


def _argv(command: Sequence[str] | str) -> tuple[str, ...]:
    """The words of a command; a text runs under ``sh -c``. Raises EvaluatorError."""
    if isinstance(command, str) and command.strip() and "\0" not in command:
        command = ("sh", "-c", command)
    words = tuple(command) if isinstance(command, list | tuple) else ()
    if words and words[0] == sys.executable:
        words = (own_interpreter().program, *words[1:])
    if not words or not words[0] or not all(isinstance(word, str) and "\0" not in word for word in words):
        raise EvaluatorError(f"{command!r} is not a command: a text for sh -c, or a list of words", asked=True)
    sizes = [len(os.fsencode(word)) for word in words]
    if max(sizes) > _LONGEST_WORD or sum(sizes) > _LONGEST_COMMAND:
        raise EvaluatorError(f"a command of {sum(sizes)} bytes is too long for the system", asked=True)
    return words
