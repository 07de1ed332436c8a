"""``bundle.call``: functions of the candidate's, run in a sandboxed child; plain values come back.

What a candidate did wrong (an exception, an exit, a limit, a value that is not plain) is a
:class:`~pytest_rollout.errors.CandidateError`, so an assertion; what the test asked wrongly is an
EvaluatorError. The comparison is the test's own, in a process that holds no code of the candidate's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pytest_rollout.bundle import TRUNCATED
from pytest_rollout.errors import CandidateError, EvaluatorError, EvidenceError
from pytest_rollout.evaluated import Exec
from pytest_rollout.evaluation.answers import Room, asking, read_answer
from pytest_rollout.evaluation.interpreter import own_interpreter
from pytest_rollout.evaluation.trees import Trees
from pytest_rollout.plain import printable

__all__ = ["call", "call_many"]
__tracebackhide__ = True  # pytest shows the suite's line, not ours

_TARGET = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
_BATCH = 100
_SHOWN = 600

Call = tuple[tuple[Any, ...], Mapping[str, Any]]


def call(trees: Trees, target: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What ``module:function`` of the candidate's gives for these arguments, out of JSON's types.

    Tuples come back as lists. Raises CandidateError, and EvaluatorError.
    """
    _check_target(target)
    (value,) = _run(trees, target, [(tuple(args), kwargs)], Room(), sealed=False)
    return value


def call_many(trees: Trees, target: str, calls: Sequence[Sequence[Any]]) -> list[Any]:
    """What the function gives for each tuple of arguments, in one sandbox, a child process for each.

    The tree is read-only there, and nothing of one call is left when the next begins. Raises
    CandidateError for the first call that gave nothing, and EvaluatorError.
    """
    _check_target(target)
    if isinstance(calls, str | bytes) or not all(isinstance(args, list | tuple) for args in calls):
        raise EvaluatorError(
            f"call_many({target!r}): it takes a list with one tuple of arguments for each call", asked=True
        )
    values, room = list[Any](), Room()
    for start in range(0, len(calls), _BATCH):
        batch: list[Call] = [(tuple(args), {}) for args in calls[start : start + _BATCH]]
        values += _run(trees, target, batch, room, sealed=True, first=start)
    return values


def _check_target(target: object) -> None:
    if not isinstance(target, str) or not _TARGET.fullmatch(target):
        raise EvaluatorError(
            f"{target!r} is not 'module:function', as in 'calc:add' or 'pkg.mod:Class.method'", asked=True
        )


def _run(
    trees: Trees, target: str, calls: Sequence[Call], room: Room, *, sealed: bool, first: int | None = None
) -> list[Any]:
    trees.check_unseen()
    mounted = trees.executor.info.mounts
    questions = [_question(target, args, kwargs) for args, kwargs in calls]
    with asking(questions) as pairs, trees.of_candidate() as stage:
        spec = json.dumps({"pairs": pairs, "alone": mounted})
        argv = own_interpreter().argv("call", spec, mounted=mounted)
        inherit = tuple(fd for pair in pairs for fd in pair)
        ended = trees.run(stage, argv, sealed=sealed, inherit=inherit)
        numbers = [None] * len(calls) if first is None else range(first, first + len(calls))
        shown = [_shown(target, each, number) for each, number in zip(calls, numbers, strict=True)]
        return [_value(trees, name, answer, ended, room) for name, (_, answer) in zip(shown, pairs, strict=True)]


def _question(target: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
    try:
        asked = {"target": target, "args": _plain(list(args)), "kwargs": _plain(dict(kwargs))}
        return json.dumps(asked, allow_nan=False).encode("utf-8", "surrogatepass")
    except (TypeError, ValueError, RecursionError) as error:
        raise EvaluatorError(
            f"{target} can't be called: {error}",
            hint="Arguments are None, bool, int, float, str, list and dict.",
            asked=True,
        ) from None


def _plain(value: Any) -> Any:
    """The value, if JSON gives the same one back; raises TypeError."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) in (list, tuple):
        return [_plain(item) for item in value]
    if type(value) is dict and all(type(key) is str for key in value):
        return {key: _plain(item) for key, item in value.items()}
    raise TypeError(f"an argument is of type {type(value).__name__}")


def _shown(target: str, call: Call, number: int | None) -> str:
    """A call for a message: ``calc:add(2, 3)``."""
    args, kwargs = call
    words = [_short(repr(value)) for value in args] + [
        f"{name}={_short(repr(value))}" for name, value in kwargs.items()
    ]
    return f"{target}({_short(', '.join(words), 200)})" + ("" if number is None else f" (call {number})")


def _short(text: str, length: int = 60) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _value(trees: Trees, name: str, answer: int, ended: Exec, room: Room) -> Any:
    try:
        message = read_answer(answer, f"the result of {name}", room)
    except EvidenceError as error:
        raise CandidateError(error.message) from None
    if message is None:
        trees.check_python(tests=False)
        raise CandidateError(f"{name} gave no result: {_why(ended)}")
    if not isinstance(message, dict) or message.get("ok") not in (True, False):
        raise CandidateError(f"{name} gave a result of another form")
    if message["ok"] is True and "value" in message:
        return message["value"]
    text = _short(printable(trees.redactor.text(str(message.get("text", "")))), _SHOWN)
    kind = message.get("kind")
    if kind == "missing":
        raise CandidateError(f"{name} can't be called: {text}")
    if kind == "not plain":
        raise CandidateError(f"{name} gave what is not a plain JSON value: {text}")
    raise CandidateError(f"{name} raised {_short(printable(str(message.get('type', '?'))))}: {text}")


def _why(ended: Exec) -> str:
    """Why there is no answer, from how the sandbox ended."""
    if ended.termination == "wall_limit":
        return "it did not end within the limit of an evaluation"
    if ended.termination in TRUNCATED:
        return f"it was ended by the {ended.termination.replace('_', ' ')}"
    said = ended.stderr.strip().splitlines()
    last = f"; the last line on its standard error: {_short(printable(said[-1]), 200)}" if said else ""
    return f"its process ended before that{last}"
