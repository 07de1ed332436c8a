"""The beginning of a guest: its verb and its orders are the last two words of the command."""

from __future__ import annotations

import importlib
import json
import sys

__all__ = ["main"]

_VERBS = {"begin": "hidden", "call": "calls", "serve": "proxy", "test": "hidden"}


def main() -> None:
    """Do what the command line says; the folder of this package is then off the path of imports."""
    verb, orders = sys.argv[1:]
    module = importlib.import_module(f"pytest_rollout.evaluation.guest.{_VERBS[verb]}")
    del sys.path[0]
    getattr(module, verb)(json.loads(orders))
