"""Look at a tree that was made again: a look at what is not as the attempt left it is infrastructure, never a score."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pytest_rollout.errors import EvidenceError, RecordingError
from pytest_rollout.evaluation.trees import Hidden, Trees
from pytest_rollout.executors.protocol import Stage
from pytest_rollout.rescoring.laying import Gaps
from pytest_rollout.stage.reader import MAX_READ, StageReader
from pytest_rollout.stage.tree import show
from pytest_rollout.stage.view import View

__all__ = ["StoredReader", "StoredTrees"]
__tracebackhide__ = True  # pytest shows the suite's line, not ours

Tell = Callable[[RecordingError], None]


class StoredReader(StageReader):
    """Reads such a tree. What it can't tell it tells ``tell`` too, and raises as RecordingError."""

    def __init__(self, view: View, gaps: Gaps, tell: Tell) -> None:
        super().__init__(view)
        self._gaps, self._tell = gaps, tell

    def read(self, path: str, limit: int = MAX_READ) -> bytes:
        self._check()
        raw = _plain(path)
        gap = self._gaps.contents.get(raw)
        if gap is not None:
            if gap.size is not None and gap.size > limit:  # what the stage itself would say
                raise EvidenceError(f"{show(raw)} is larger than {limit} bytes, the most that is read")
            self._refuse(f"the content of {show(raw)} was not kept: {gap.why}")
        return super().read(path, limit)

    def exists(self, path: str) -> bool:
        self._check()
        return super().exists(path)

    def glob(self, pattern: str) -> list[str]:
        self._check()
        return super().glob(pattern)

    def _check(self) -> None:
        if self._gaps.tree:
            self._refuse(f"what the agent left is not known whole: {self._gaps.tree}")

    def _refuse(self, message: str) -> None:
        error = RecordingError(f"{message}; so a test that looks at it can't be scored again")
        self._tell(error)
        raise error


class StoredTrees(Trees):
    """The clean tree over such a stage."""

    def __init__(self, gaps: Gaps, tell: Tell, **given: Any) -> None:
        super().__init__(**given)
        self._gaps, self._tell = gaps, tell

    @contextmanager
    def of_candidate(self, hidden: Hidden | None = None) -> Iterator[Stage]:
        if self._gaps:
            error = RecordingError(f"no evaluation can be made again over what the agent left: {self._gaps.first}")
            self._tell(error)
            raise error
        with super().of_candidate(hidden) as stage:
            yield stage


def _plain(path: str) -> bytes:
    """The path as the tree names it; what is none is left to the reader to say."""
    try:
        raw = os.fsencode(path)
    except UnicodeEncodeError:
        return b""
    return b"/".join(part for part in raw.split(b"/") if part not in (b"", b"."))
