"""What arguments of several verbs have in common: their help, and how they are read."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TypeVar

__all__ = ["A_ROLLOUT", "A_RUN", "A_SIDE", "STAGES", "Verbs", "as_", "number_of_runs"]

A_ROLLOUT = "a rollout: its id, a unique prefix, or 'last'"
A_SIDE = "a run: its name, a unique prefix, its digits, its folder, or 'last'; or a baseline file"
A_RUN = "a run: its name, a unique prefix, its digits, or 'last'"
STAGES = "where stages lie, if the ini key rollout_stage_root was set"
Value = TypeVar("Value")
Verbs = argparse._SubParsersAction  # argparse has no public name for what add_parser is a method of


def as_(parse: Callable[[object], Value]) -> Callable[[str], Value]:
    """An argument as a limit of a task is written; days too."""

    def convert(text: str) -> Value:
        days = text[:-1] if text[-1:] == "d" else ""
        try:
            return parse(f"{int(days) * 24}h" if days.isdecimal() else text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert


def number_of_runs(text: str) -> int:
    """How many runs, at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of runs: at least 1")
    return int(text)
