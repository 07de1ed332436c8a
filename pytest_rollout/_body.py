"""What the body of a test did, told to the core: from what it raised and from what it looked at."""

from __future__ import annotations

import inspect
import os
import traceback
from typing import Any

import pytest

from pytest_rollout._state import SKIPS, State, bounded, place
from pytest_rollout.bodylimit import BodyLimit
from pytest_rollout.control import Facts
from pytest_rollout.errors import CheckerError, EvaluatorError, EvidenceError
from pytest_rollout.evidence import looked, told_apart
from pytest_rollout.outcome import Body, Verdict
from pytest_rollout.plain import clean

__all__ = ["body_of", "facts_of", "is_async", "leaves_of", "raised"]

_SAY_NOTHING = ("assert False", "assert not True")
_FAILURES = (AssertionError, pytest.fail.Exception)


def body_of(state: State, error: BaseException | None) -> Body:
    """How a body ended, where ``error`` is what came out of it."""
    seen: dict[str, Any] = {
        "looked": state.bundle is not None and looked(state.bundle),
        "recorded": state.reward.recorded,
    }
    leaves = raised(state, error)
    for leaf in leaves:
        if isinstance(leaf, CheckerError) or not isinstance(leaf, (*_FAILURES, *SKIPS)):
            message = bounded(f"{type(leaf).__name__}: {clean(leaf)}")
            asked = isinstance(leaf, EvaluatorError) and leaf.asked
            return Body(end="error", message=message, where=_where(state.item, leaf), asked=asked, **seen)
    if state.clock.fired:  # it was caught on its way out
        message = f"BodyLimit: the body of the test went on after its limit of {state.clock.seconds:g} s"
        return Body(end="error", message=message, where=BodyLimit.__name__, **seen)
    problem = state.reward.problem
    if problem is not None:  # so was this
        return Body(end="error", message=f"CheckerError: {problem}", where=_where(state.item, problem), **seen)
    skips = [leaf for leaf in leaves if isinstance(leaf, SKIPS)]  # an xfail is a subclass of a fail
    for leaf in leaves:
        if not isinstance(leaf, SKIPS):
            return Body(end="assertion", message=_message(leaf), **seen)
    if skips:
        where = _where(state.item, skips[-1])
        return Body(end="skipped", message=bounded(clean(skips[-1])), where=where, **seen)
    return Body(end="passed", **seen)


def raised(state: State, error: BaseException | None) -> list[BaseException]:
    """Everything that the body and its subtests raised, out of its groups."""
    errors = [*state.subtests, *([error] if error is not None else [])]
    return [leaf for each in errors for leaf in leaves_of(each)]


def facts_of(state: State, verdict: Verdict, error: BaseException | None) -> Facts:
    """What a trial has shown of the checks."""
    if verdict.kind in (None, "evaluator") and state.bundle is not None:
        body = body_of(state, None if error is state.told else error)
        end: Any = body.end
    else:
        body, end = Body(end="error"), "infra"
    return Facts(
        end=end,
        accepted=verdict.outcome == "passed",
        reward=verdict.reward,
        message=verdict.message,
        where=body.where,
        kind=verdict.kind,
        checks=state.reward.all_checks,
        direct=state.reward.direct is not None,
        in_process=state.attempt is not None and state.attempt.judged_in_process,
        limited=_limited(state, error),
        seeded=state.bundle is not None and told_apart(state.bundle),
    )


def _limited(state: State, error: BaseException | None) -> bool:
    """Whether a limit had a part in how a body ended: ours, or that of a plugin which fails a test."""
    evaluated = state.attempt is not None and state.attempt.limited_evaluation
    return state.clock.fired or evaluated or any(map(_from_timeout, raised(state, error)))


def _where(item: pytest.Item, error: BaseException) -> str:
    """The type of what was raised, and the last line of the test's file that it came through."""
    if isinstance(error, BodyLimit):  # it may strike anywhere
        return BodyLimit.__name__
    name = type(error).__name__
    if error.__traceback__ is None:
        return name
    entries = list(pytest.ExceptionInfo.from_exception(error).traceback)
    inside = [entry for entry in entries if os.fspath(entry.path) == os.fspath(item.path)]
    return f"{name} {place(item, (inside or entries)[-1])}"


def _from_timeout(error: BaseException) -> bool:
    """Whether pytest-timeout raised this."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(frame.f_globals.get("__name__") == "pytest_timeout" for frame in frames)


def leaves_of(error: BaseException) -> list[BaseException]:
    """What a group holds, of groups in it too; an exception that is none holds itself."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for each in error.exceptions for leaf in leaves_of(each)]
    return [error]


def is_async(item: pytest.Item) -> bool:
    """Whether a test would have to be awaited."""
    function = getattr(item, "function", None)
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def _message(error: BaseException) -> str:
    text = clean(error) or type(error).__name__
    if isinstance(error, EvidenceError):
        return bounded(text)
    first, *more = text.split("\n")
    if first in _SAY_NOTHING and more and " at 0x" not in more[0]:  # pytest's next line says more
        first = f"{first}: {more[0].strip(' +')}"
    return bounded(first)
