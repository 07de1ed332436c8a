"""The version of a named agent: what its version command prints, in an empty stage."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from pytest_rollout.agents.config import AgentConfig
from pytest_rollout.agents.protocol import join_path
from pytest_rollout.errors import SpawnError
from pytest_rollout.executors.cancel import Cancel
from pytest_rollout.executors.capture import Capture
from pytest_rollout.executors.protocol import Command, Executor

__all__ = ["version_of"]

_SECONDS = 30.0


def version_of(config: AgentConfig, executor: Executor) -> str | None:
    """The first line that the version command prints in an empty stage, or None where it fails."""
    if config.version is None:
        return None
    words = ("sh", "-c", config.version) if isinstance(config.version, str) else config.version
    stage = executor.provision(executor.prepare(None))
    cancel, folder = Cancel(), tempfile.mkdtemp(prefix="rollout-version-")
    streams = [Capture(Path(folder) / name, 4096) for name in ("stdout", "stderr")]
    try:
        env = {"PATH": join_path(config.binds), "LANG": "C.UTF-8"}
        command = Command(argv=tuple(words), env=env, binds=config.binds, wall=_SECONDS)
        ended = executor.run(stage, command, streams[0], streams[1], cancel)
        for stream in streams:
            stream.close()
        lines = streams[0].path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except SpawnError:  # on the executor local the program itself is what is missing
        return None
    finally:
        cancel.close()
        executor.drop(stage)
        shutil.rmtree(folder, ignore_errors=True)
    return lines[0][:200] if lines and ended.exit_code == 0 else None
