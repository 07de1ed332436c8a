"""Proxied modules: a test process without candidate code asks, another process answers.

The verb ``serve`` is the candidate's side. :class:`Finder` is the test's: what a test imports from a proxied
module stands for the other side, and only plain values cross.
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
from pytest_rollout.evaluation.guest.values import CROSSING, MAX_ANSWER, Message, describe, encode, plain, written

__all__ = ["CandidateError", "Channel", "Finder", "serve"]

_ENDING = (StopIteration, StopAsyncIteration)


def serve(spec: Message) -> None:
    """Answer requests until the socket is closed; a module's state lasts as long as that."""
    see_candidate_first()
    stream = socket.socket(fileno=spec["socket"]).makefile("rwb")
    while line := stream.readline(MAX_ANSWER):
        request = json.loads(line)
        message = answer(request) if request["verb"] == "call" else attribute(request["target"])
        stream.write(written(message) + b"\n")
        stream.flush()


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
        return {"ok": True, "is": "value", "value": plain(value)}
    except (TypeError, RecursionError) as error:
        return {"ok": False, "kind": "not plain", "type": type(error).__name__, "text": str(error)}


class CandidateError(AssertionError):
    """The candidate's code could not be asked, or gave what can't cross."""


class Channel:
    """The test process's side of a proxy: one request, one answer."""

    def __init__(self, fd: int) -> None:
        self._stream = socket.socket(fileno=fd).makefile("rwb")

    def ask(self, verb: str, target: str, args: Sequence[Any] = (), kwargs: Message | None = None) -> Message:
        """What the candidate's side says; raises CandidateError, and TypeError for what can't cross."""
        request = {"verb": verb, "target": target, "args": plain(list(args)), "kwargs": plain(kwargs or {})}
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


class Proxy:
    """What a test gets for a module of the candidate's."""

    def __init__(self, name: str, channel: Channel) -> None:
        self.__dict__.update(__name__=name, __path__=[], __spec__=None, __file__=None, _channel=channel)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        target = f"{self.__name__}:{name}"
        message = self._channel.ask("get", target)
        if not message["ok"]:
            error = raised(target, message)
            raise AttributeError(str(error)) if message.get("kind") == "missing" else error
        if message.get("is") == "function":
            return self._function(target)
        if message.get("is") == "value":
            return plain(message.get("value"))
        raise CandidateError(
            f"{target} is a {message.get('is')}; a proxied module offers functions and plain values. "
            "Test it through a function that gives plain values, or without proxy="
        )

    def _function(self, target: str) -> Callable[..., Any]:
        def function(*args: Any, **kwargs: Any) -> Any:
            try:
                message = self._channel.ask("call", target, args, kwargs)
            except (TypeError, ValueError) as error:
                raise CandidateError(
                    f"{target} was given {error}; {CROSSING} to the candidate. Pass such values, or test without proxy="
                ) from None
            if not message["ok"]:
                raise raised(target, message)
            return plain(message.get("value"))

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
