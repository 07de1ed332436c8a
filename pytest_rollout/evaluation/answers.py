"""Descriptors that carry a question into a sandbox and an answer out of it.

Both are files in memory. An answer's file has a fixed size, so that nobody fills the memory of the
machine through it; it is read when every process that could write to it is dead.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from pytest_rollout.errors import EvidenceError
from pytest_rollout.evidence import MAX_VALUES, count_values, parse_json
from pytest_rollout.executors.memory import memory_file

__all__ = ["MAX_ANSWER", "Room", "asking", "read_answer"]

MAX_ANSWER = 8 << 20
_OF_MANY, _TOGETHER = 1 << 20, 64 << 20


@contextmanager
def asking(questions: list[bytes]) -> Iterator[list[tuple[int, int]]]:
    """Pairs of descriptors: one to read each question from, one for its answer.

    A single answer may be of 8 MiB; many have 64 MiB together, and each of them 1 MiB at most.
    """
    size = MAX_ANSWER if len(questions) == 1 else min(_OF_MANY, _TOGETHER // max(len(questions), 1))
    with ExitStack() as opened:

        def held(fd: int) -> int:
            opened.callback(os.close, fd)
            return fd

        yield [(held(memory_file(question)), held(_answer_file(size))) for question in questions]


def _answer_file(size: int) -> int:
    fd = os.memfd_create("answer", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)
    return fd


class Room:
    """How many values of JSON several answers may hold together: in memory each is a hundred bytes."""

    def __init__(self) -> None:
        self._left = MAX_VALUES

    def take(self, text: str) -> None:
        """Raise EvidenceError where an answer is one too many."""
        self._left -= count_values(text)
        if self._left < 0:
            raise EvidenceError(f"the results of these calls hold more than {MAX_VALUES:,} values")


def read_answer(fd: int, what: str, room: Room | None = None) -> Any:
    """The answer, or None where there is none; raises EvidenceError for one that can't be read."""
    size = int.from_bytes(os.pread(fd, 8, 0), "big")
    if not 0 < size <= MAX_ANSWER - 8:
        return None
    data, at = bytearray(), 8
    while len(data) < size and (piece := os.pread(fd, size - len(data), at)):
        data += piece
        at += len(piece)
    text = data.decode("utf-8", "replace")
    value = parse_json(text, what)
    if room is not None:
        room.take(text)
    return value
