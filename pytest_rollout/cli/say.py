"""What the console tool prints: without secrets, and, of its own, on one line.

Records have no secrets of the session that made them, but this may be another one.
"""

from __future__ import annotations

import json
import os
import sys
from functools import cache
from typing import Any

import msgspec

from pytest_rollout.redaction.redactor import Redactor
from pytest_rollout.report.inert import inert_json, inert_text, one_line

__all__ = ["complain", "json_of", "plain_of", "redacted", "redactor", "say"]


@cache
def redactor() -> Redactor:
    """What knows the secrets of this process."""
    return Redactor.of_process(os.environ, exists=os.path.exists)


def redacted(text: str) -> str:
    """A text without secrets."""
    return redactor().text(text)


def say(text: str, *, end: str = "\n") -> None:
    """Print, without secrets."""
    print(redacted(text), end=end)


def complain(text: str, *, lines: bool = False) -> None:
    """Tell on standard error, without secrets, inert, and on one line unless ``lines`` are wanted."""
    made = redacted(text)
    print(f"pytest-rollout: {inert_text(made) if lines else one_line(made)}", file=sys.stderr)


def plain_of(value: object) -> Any:
    """A value as plain values without secrets."""
    return redactor().value(msgspec.to_builtins(value))


def json_of(value: object, indent: int | None = None) -> str:
    """A value as JSON without secrets."""
    return inert_json(json.dumps(plain_of(value), indent=indent))
