"""Examine this machine: climb the ladder, look at the facts, and diagnose."""

from __future__ import annotations

import platform
from pathlib import Path

from pytest_rollout.doctor.diagnosis import Diagnosis, diagnose
from pytest_rollout.doctor.facts import look
from pytest_rollout.executors.ladder import ISOLATED, NONE, Climb, Rejected, climb, make
from pytest_rollout.stage.root import StageRoot, default_root

__all__ = ["examine"]


def examine(stage_root: Path | None = None) -> Diagnosis:
    """The diagnosis of this machine, with stages in ``stage_root``.

    Raises ConfigError where that can't be used, HostError where the machine has no room to try.
    """
    root = StageRoot(stage_root or default_root())
    try:
        if platform.system() == "Linux":
            executor, climbed = climb(root, (*ISOLATED, NONE))
        else:
            said = Rejected(rung=1, kind="isolation", message=f"this machine is not Linux: {platform.system()}")
            executor, climbed = make(root, NONE), Climb(rung=NONE, rejected=(said,))
        info = executor.info if executor is not None else None
        return diagnose(look(root), climbed, info)
    finally:
        root.close()
