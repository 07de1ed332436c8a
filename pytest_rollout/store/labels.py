"""Labels: the scores that people gave to rollouts, beside the computed ones and never mixed into them.

::

    <run>/labels.jsonl      one line a label, in the order in which they were given

A later label of the same person for the same rollout takes the place of the earlier one, which stays in the file.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from pytest_rollout.bundle import SCHEMA_VERSION
from pytest_rollout.errors import ConfigError, recording_error
from pytest_rollout.redaction.redactor import FORMS, Redactor
from pytest_rollout.store.folder import RunFolder
from pytest_rollout.store.journal import append_synced

__all__ = ["Label", "add_label", "check_reward", "counted", "load_labels", "person"]

_MAX_NAME, _MAX_REASON = 200, 10_000


class Label(msgspec.Struct, frozen=True, kw_only=True):
    """A person's score of one rollout, in [0, 1], and why.

    ``computed`` and ``evaluator_revision`` are the reward beside which it was given (null where nothing was measured)
    and the checks that gave that; ``threshold`` is the task's: from there on a reward is a pass. ``time`` is UTC.
    """

    schema_version: int = SCHEMA_VERSION
    rollout: str
    reward: float
    by: str
    reason: str
    time: str
    computed: float | None = None
    evaluator_revision: str | None = None
    threshold: float = 1.0


def check_reward(text: str) -> float:
    """A score that a person wrote; raises ValueError."""
    try:
        reward = float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number from 0 to 1") from None
    if not 0 <= reward <= 1:
        raise ValueError(f"{text!r} is not a number from 0 to 1")
    return reward + 0.0  # no -0


def person(name: str) -> str:
    """The name of who gives a label, with single blanks; raises ConfigError for one that is empty or too long."""
    plain = " ".join(name.split())
    if not plain:
        raise ConfigError("--by: the name of who gives the label is empty")
    if len(plain) > _MAX_NAME:
        raise ConfigError(f"--by: the name has {len(plain)} characters; at most {_MAX_NAME}")
    return plain


def _place(run: RunFolder) -> Path:
    return run.path / "labels.jsonl"


def add_label(run: RunFolder, label: Label, redactor: Redactor = FORMS) -> Path:
    """Add a label to a run, and see it on the disk; returns where. Raises ConfigError, RecordingError or HostError."""
    if len(label.reason) > _MAX_REASON:
        raise ConfigError(f"--reason: it has {len(label.reason)} characters; at most {_MAX_REASON}")
    plain = {**redactor.value(msgspec.to_builtins(label)), "rollout": label.rollout}
    place = _place(run)
    try:
        append_synced(place, msgspec.json.encode(plain))
    except OSError as error:
        raise recording_error("a label", place, error) from error
    return place


def load_labels(run: RunFolder) -> tuple[tuple[Label, ...], int]:
    """Every label of a run in the order in which they were given, and how many lines can't be read."""
    try:
        lines = _place(run).read_bytes().splitlines()
    except OSError:
        return (), 0
    found: list[Label] = []
    broken = 0
    for line in filter(None, lines):
        try:
            found.append(msgspec.json.decode(line, type=Label))
        except msgspec.MsgspecError:
            broken += 1
    return tuple(found), broken


def counted(labels: Iterable[Label]) -> tuple[Label, ...]:
    """The labels that count: of each person the last one for each rollout."""
    found: dict[tuple[str, str], Label] = {}
    for label in labels:
        found.pop((label.rollout, label.by), None)
        found[label.rollout, label.by] = label
    return tuple(found.values())
