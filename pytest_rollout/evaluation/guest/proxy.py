"""Proxied modules: a test process without candidate code asks, another process answers.

The verb ``serve`` is the candidate's side. :class:`Finder` is the test's: what a test imports from a proxied
module stands for the other side, and only plain values cross. What a function does to a list, a dict or a set that it
is given is done again to the test's own.
"""

from __future__ import annotations

import builtins
import importlib.abc
import importlib.machinery
import json
import socket
from collections.abc import Callable, Sequence
from typing import Any

from pytest_rollout.evaluation.guest.modules import answer, found, load, see_candidate_first
from pytest_rollout.evaluation.guest.values import (
    CROSSING,
    MAX_ANSWER,
    Message,
    describe,
    encode,
    packed,
    unpacked,
    written,
)

__all__ = ["CandidateError", "Channel", "Finder", "Misuse", "serve"]

_ENDING = (StopIteration, StopAsyncIteration)


def serve(spec: Message) -> None:
    """Answer requests until the socket is closed; a module's state lasts as long as that."""
    see_candidate_first()
    stream = socket.socket(fileno=spec["socket"]).makefile("rwb")
    while line := stream.readline(MAX_ANSWER):
        request = json.loads(line)
        message = called(request) if request["verb"] == "call" else attribute(request["target"])
        stream.write(written(message) + b"\n")
        stream.flush()


def called(request: Message) -> Message:
    """What came of a call, and of its arguments where it changed them."""
    args, kwargs = unpacked(request["args"]), unpacked(request["kwargs"])
    message = answer(request["target"], args, kwargs, packed)
    try:
        after = [packed(args), packed(kwargs)]
    except (TypeError, RecursionError) as error:
        text = f"{error} in an argument"
        return {"ok": False, "kind": "not plain", "type": type(error).__name__, "text": text}
    same = json.dumps(after) == json.dumps([request["args"], request["kwargs"]])  # 1 is not 1.0, and order counts
    return message if same else {**message, "changed": after}


def attribute(target: str) -> Message:
    """What a proxied module, or an attribute of one, is: a module, a function, a class, or a plain value."""
    module, _, name = target.partition(":")
    try:
        value = load(module)
        if not name:
            return {"ok": True, "is": "module"}
        value = found(value, name)
    except (ImportError, AttributeError) as error:
        return describe(error, "missing")
    except BaseException as error:
        return describe(error)
    if isinstance(value, type):
        return {"ok": True, "is": "class"}
    if callable(value):
        return {"ok": True, "is": "function"}
    try:
        return {"ok": True, "is": "value", "value": packed(value)}
    except (TypeError, RecursionError) as error:
        return {"ok": False, "kind": "not plain", "type": type(error).__name__, "text": str(error)}


class CandidateError(AssertionError):
    """The candidate's code could not be asked, or gave what can't cross."""


class Misuse(Exception):
    """A hidden test asks of a proxied module what no proxy can give, whatever the candidate wrote."""


class Channel:
    """The test process's side of a proxy: one request, one answer.

    ``told`` says whether anything came over it that a candidate could steer a test by.
    """

    def __init__(self, fd: int) -> None:
        self._stream = socket.socket(fileno=fd).makefile("rwb")
        self.told = False

    def ask(self, verb: str, target: str, args: Sequence[Any] = (), kwargs: Message | None = None) -> Message:
        """What the candidate's side says; raises CandidateError, and TypeError or ValueError for what can't cross."""
        request = {"verb": verb, "target": target, "args": packed(list(args)), "kwargs": packed(kwargs or {})}
        try:
            self._stream.write(encode(request) + b"\n")
            self._stream.flush()
            line = self._stream.readline(MAX_ANSWER)
        except OSError:
            line = b""
        if not line.endswith(b"\n"):
            raise CandidateError(f"{target}: the candidate's process ended before it answered")
        try:
            message = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise CandidateError(f"{target}: the candidate's process answered what can't be read: {error}") from None
        if type(message) is not dict or type(message.get("ok")) is not bool:
            self.told = True
            raise CandidateError(f"{target}: the candidate's process gave an answer of another form")
        plain_name = verb == "get" and message["ok"] and message.get("is") in ("module", "function")
        self.told = self.told or not plain_name
        if message["ok"] and not plain_name and message.get("is") != "class" and "value" not in message:
            raise CandidateError(f"{target}: the candidate's process gave an answer of another form")
        return message


def raised(target: str, message: Message) -> Exception:
    """The candidate's exception again: of the same built-in type where it was one, else CandidateError.

    A StopIteration would end the loop of a test that calls it through ``map``, and pass for no answers left.
    """
    kind, text = str(message.get("type")), str(message.get("text"))
    if message.get("kind") == "raised":
        known = getattr(builtins, kind, None)
        if isinstance(known, type) and issubclass(known, Exception) and not issubclass(known, _ENDING):
            try:
                return known(text)
            except TypeError:  # one that takes more, such as UnicodeDecodeError
                pass
        return CandidateError(f"{target} raised {kind}: {text}")
    if message.get("kind") == "not plain":
        return CandidateError(
            f"{target} gave {text}; {CROSSING} to the test. "
            "Test it through a function that gives such values, or without proxy="
        )
    return CandidateError(f"{target} is not there: {text}")


def value_of(target: str, written: Any) -> Any:
    """A value that crossed; raises CandidateError for what nobody packed."""
    try:
        return unpacked(written)
    except (TypeError, ValueError, RecursionError) as error:
        raise CandidateError(f"{target}: the candidate's process gave what can't be read: {error}") from None


def change_again(target: str, args: Sequence[Any], kwargs: Message, changed: Any) -> None:
    """Do to the arguments of a test what the call did to its copies; raises CandidateError."""
    after = value_of(target, changed)
    fits = type(after) is list and len(after) == 2 and type(after[0]) is list and type(after[1]) is dict
    if not fits or len(after[0]) != len(args) or after[1].keys() != kwargs.keys():
        raise CandidateError(f"{target}: the candidate's process gave an answer of another form")
    pairs = [*zip(args, after[0], strict=True), *((kwargs[name], after[1][name]) for name in kwargs)]
    for mine, other in [pair for pair in pairs if json.dumps(packed(pair[0])) != json.dumps(packed(pair[1]))]:
        _become(mine, other)  # one list as two arguments is two copies there: what changed counts


def _become(old: Any, new: Any) -> Any:
    """``old``, changed in place to equal ``new`` where both are of one mutable type; else ``new``."""
    if type(old) is list and type(new) is list:
        kept = [_become(mine, other) for mine, other in zip(old, new, strict=False)]
        old[:] = [*kept, *new[len(kept) :]]
    elif type(old) is dict and type(new) is dict:
        after = {key: _become(old[key], value) if key in old else value for key, value in new.items()}
        old.clear()
        old.update(after)
    elif type(old) is set and type(new) is set:
        old.clear()
        old.update(new)
    elif type(old) is tuple and type(new) is tuple and len(old) == len(new):
        for mine, other in zip(old, new, strict=True):
            _become(mine, other)
    else:
        return new
    return old


class Proxy:
    """What a test gets for a module of the candidate's."""

    def __init__(self, name: str, channel: Channel) -> None:
        self.__dict__.update(__name__=name, __path__=[], __spec__=None, __file__=None, _channel=channel)

    def __setattr__(self, name: str, value: Any) -> None:
        if not isinstance(value, Proxy) and not name.startswith("__"):  # Python's import sets these
            raise Misuse(f"the hidden tests set {self.__name__}.{name}, which changes nothing for the candidate's code")
        self.__dict__[name] = value

    def __getattr__(self, name: str) -> Any:
        if name == "__all__":
            raise Misuse(f"'from {self.__name__} import *' takes nothing from a proxied module: name what is imported")
        if (
            name.startswith(("__", "_pytest", "_mock")) or name == "pytestmark"
        ):  # Python and pytest look for these everywhere
            raise AttributeError(name)
        target = f"{self.__name__}:{name}"
        message = self._channel.ask("get", target)
        if not message["ok"]:
            error = raised(target, message)
            raise AttributeError(str(error)) if message.get("kind") == "missing" else error
        if message.get("is") == "function":
            return self._function(target)
        if message.get("is") == "value":
            return value_of(target, message.get("value"))
        raise CandidateError(
            f"{target} is a {message.get('is')}; a proxied module offers functions and plain values. "
            "Test it through a function that gives plain values, or without proxy="
        )

    def _function(self, target: str) -> Callable[..., Any]:
        def function(*args: Any, **kwargs: Any) -> Any:
            try:
                message = self._channel.ask("call", target, args, kwargs)
            except (TypeError, ValueError) as error:
                raise Misuse(f"{target} was given {error}; {CROSSING} to the candidate") from None
            if "changed" in message:
                change_again(target, args, kwargs, message["changed"])
            if not message["ok"]:
                raise raised(target, message)
            return value_of(target, message.get("value"))

        function.__name__ = function.__qualname__ = target.partition(":")[2]
        return function


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the proxied modules, and the packages that they are in, before anything else does."""

    def __init__(self, names: Sequence[str], channel: Channel) -> None:
        self._names, self._channel = tuple(names), channel

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if any(f"{name}.".startswith(f"{each}.") or each.startswith(f"{name}.") for each in self._names):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> Any:
        message = self._channel.ask("get", f"{spec.name}:")
        if not message["ok"]:
            error = raised(spec.name, message)
            raise ImportError(str(error)) if message.get("kind") == "missing" else error
        return Proxy(spec.name, self._channel)

    def exec_module(self, module: Any) -> None:
        pass
