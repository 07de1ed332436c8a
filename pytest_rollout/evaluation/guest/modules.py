"""The candidate's modules: find them in the tree, import them, run one of their functions."""

from __future__ import annotations

import importlib
import importlib.machinery
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from pytest_rollout.evaluation.guest.values import Message, describe, plain

__all__ = [
    "STAGE",
    "answer",
    "found",
    "load",
    "see_candidate_behind_the_library",
    "see_candidate_first",
    "trust_no_more_bytecode",
]

STAGE = os.getcwd()
_OURS = "__of_the_candidate__"
_asked: set[str] = set()  # names of modules that a test asked for


def trust_no_more_bytecode() -> None:
    """From here on no bytecode is read: a candidate can leave some that does not fit its source."""
    sys.pycache_prefix = "/dev/null"


def candidate_paths() -> list[str]:
    """Where the modules of the candidate's tree are: its root, and ``src`` where there is one."""
    return [STAGE, *([os.path.join(STAGE, "src")] if os.path.isdir(os.path.join(STAGE, "src")) else [])]


def load(name: str) -> Any:
    """Import a module of the candidate's tree, also one that is named as one of Python's own."""
    top = name.partition(".")[0]
    if importlib.machinery.PathFinder.find_spec(top, candidate_paths()) is None:
        raise ModuleNotFoundError(f"there is no module {top!r} in the candidate's tree")
    _asked.add(top)
    known = sys.modules.get(top)
    if known is not None and not vars(known).get(_OURS):
        for each in [each for each in sys.modules if each == top or each.startswith(f"{top}.")]:
            del sys.modules[each]
    module = importlib.import_module(name)
    try:
        vars(sys.modules[top])[_OURS] = True
    except BaseException:
        pass
    return module


class _Asked:
    """Finds what a test asked for in the candidate's tree, before a module that is built into Python."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        return importlib.machinery.PathFinder.find_spec(name, candidate_paths()) if name in _asked else None


def see_candidate_first() -> None:
    """Find the candidate's modules before any other that was not imported yet."""
    trust_no_more_bytecode()
    sys.path[:0] = candidate_paths()
    sys.meta_path.insert(0, _Asked)


def see_candidate_behind_the_library() -> None:
    """Find the candidate's modules after the standard library, before what is installed."""
    installed = ("site-packages", "dist-packages")
    place = next((n for n, path in enumerate(sys.path) if path.endswith(installed)), len(sys.path))
    sys.path[place:place] = candidate_paths()


def found(module: Any, name: str) -> Any:
    """What the dotted ``name`` means in a module; raises AttributeError."""
    value = module
    for part in name.split("."):
        value = getattr(value, part)
    return value


def answer(target: str, args: Sequence[Any], kwargs: Message, write: Callable[[Any], Any] = plain) -> Message:
    """Run one function of the candidate's and say what came of it, its value as ``write`` writes it."""
    module, _, name = target.partition(":")
    try:
        function = found(load(module), name)
    except (ImportError, AttributeError) as error:
        return describe(error, "missing")
    except BaseException as error:
        return describe(error)
    try:
        value = function(*args, **kwargs)
    except BaseException as error:
        return describe(error)
    try:
        return {"ok": True, "value": write(value)}
    except (TypeError, RecursionError) as error:
        return {"ok": False, "kind": "not plain", "type": type(error).__name__, "text": str(error)}
