"""What the executors of this machine share: baselines, stages and layers below one stage root."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from pytest_rollout.errors import StageError
from pytest_rollout.executors.protocol import Stage
from pytest_rollout.executors.trees import Trees
from pytest_rollout.stage.baseline import Baseline, freeze
from pytest_rollout.stage.removal import remove_tree
from pytest_rollout.stage.root import StageRoot
from pytest_rollout.stage.view import View

__all__ = ["Stages", "write_prompt"]


class Stages:
    """The part of an executor that makes stages and puts them away; methods are those of the contract."""

    def __init__(self, root: StageRoot, trees: Trees) -> None:
        self._root, self._trees = root, trees

    def prepare(self, workspace: Path | None) -> Baseline:
        return freeze(self._root, workspace)

    def provision(self, baseline: Baseline, layers: Sequence[str] = ()) -> Stage:
        return self._trees.provision(baseline, layers)

    def above(self, stage: Stage, layers: Sequence[str]) -> Stage:
        return self._trees.above(stage, layers)

    def layer(self, write: Callable[[str], None]) -> str:
        return self._root.new_layer(write)

    def drop_layer(self, layer: str) -> None:
        self._root.drop_layer(layer)

    def prompt_file(self, stage: Stage) -> str:
        return f"{stage.path}/prompt"

    def view(self, stage: Stage) -> View:
        return self._trees.view(stage)

    def keep(self, stage: Stage) -> str:
        return self._root.keep(stage.path)

    def drop(self, stage: Stage) -> str | None:
        self._trees.ready_to_drop(stage)
        return remove_tree(stage.path)

    def close(self) -> None:
        self._root.close()


def write_prompt(stage: Stage, prompt: str) -> str:
    """Write the prompt beside the tree of a stage; returns where. Raises StageError."""
    path = f"{stage.path}/prompt"
    try:
        with open(path, "wb") as file:
            file.write(prompt.encode("utf-8", "backslashreplace"))
        os.chmod(path, 0o644)
    except OSError as error:
        raise StageError(f"the prompt can't be written: {error.strerror}") from error
    return path
