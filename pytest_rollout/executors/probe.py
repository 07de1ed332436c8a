"""The canary: run the real recipe once, and see that it isolates, before any agent is trusted to it.

Seen from inside: a file of the stage root is not there, our environment is not in ``/proc``, only
the loopback interface exists, no capability is held. Seen from outside: what the canary wrote and
deleted, and it is dead. A stage root whose files can't be run (``noexec``) is the machine's, not a rung's.

Where there is no namespace (rung 4) it looks whether it may: read, change and signal what is the host's.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from pytest_rollout.errors import ConfigError, HostError, IsolationError
from pytest_rollout.executors.bwrap import REMEDY
from pytest_rollout.executors.cancel import Cancel
from pytest_rollout.executors.capture import Capture
from pytest_rollout.executors.protocol import Command, Executor, Stage
from pytest_rollout.stage.baseline import freeze
from pytest_rollout.stage.root import StageRoot
from pytest_rollout.stage.tree import lstat
from pytest_rollout.stage.view import View

__all__ = ["probe"]

_BEGIN = """
rm gone || exit 1
printf '#!/bin/sh\\n' > tried && chmod 700 tried && { ./tried 2>/dev/null; [ $? != 126 ] || echo noexec; }
"""
_SCRIPT = """
cat "$1" >/dev/null 2>&1 && echo 'problem: a file of the host was read'
grep -qa PYTEST_ROLLOUT_CANARY /proc/*/environ 2>/dev/null && echo 'problem: the environment of the host was read'
grep -qv -e lo: -e '|' /proc/net/dev && echo 'problem: there is a network'
grep -q '^CapEff:[[:space:]]*0*$' /proc/self/status || echo 'problem: a capability is held'
[ "$(id -u)" = 0 ] && echo 'problem: it runs as root'
echo done > written
echo finished
"""
_SHARED = """
cat "$1" >/dev/null 2>&1 && echo 'problem: a file of the host was read'
ls "${1%/*}" >/dev/null 2>&1 && echo 'problem: a folder of the host was read'
(echo x >> "$2") 2>/dev/null && echo 'problem: a file of the host was changed'
cat "/proc/$3/environ" >/dev/null 2>&1 && echo 'problem: the environment of the host was read'
[ "$4" = yes ] && kill -0 "$3" 2>/dev/null && echo 'problem: a process of the host can be signalled'
grep -q '^CapEff:[[:space:]]*0*$' /proc/self/status || echo 'problem: a capability is held'
[ "$(id -u)" = 0 ] && echo 'problem: it runs as root'
touch "$HOME/x" "$TMPDIR/x" || echo 'problem: its own folders are closed'
echo done > written
echo finished
"""


def probe(executor: Executor, root: StageRoot) -> None:
    """Raise IsolationError (or another InfraError) where the sandbox does not hold, or can't be tried."""
    os.environ["PYTEST_ROLLOUT_CANARY"] = "1"
    try:
        with tempfile.TemporaryDirectory(prefix="rollout-probe-") as folder:
            _probe(executor, root, Path(folder))
    except (OSError, ConfigError) as error:  # the workspace is ours, and no mistake of the user's
        raise HostError(f"the sandbox can't be probed: {error}") from error
    finally:
        del os.environ["PYTEST_ROLLOUT_CANARY"]


def _probe(executor: Executor, root: StageRoot, folder: Path) -> None:
    source = folder / "baseline"
    source.mkdir()
    (source / "gone").write_text("canary\n", encoding="utf-8")
    secret = root.path / "canary"
    secret.write_text("canary\n", encoding="utf-8")
    os.chmod(secret, 0o644)
    shared = root.path / "canary-shared"
    shared.touch()
    os.chmod(shared, 0o666)
    stage = executor.provision(freeze(root, source))
    cancel = Cancel()
    streams = [Capture(folder / name, 1 << 16) for name in ("stdout", "stderr")]
    try:
        words: tuple[str, ...] = (_BEGIN + _SCRIPT, "sh", str(secret))
        if not executor.info.mounts:
            words = (_BEGIN + _SHARED, "sh", str(secret), str(shared), str(os.getpid()), executor.info.levels["reach"])
        command = Command(argv=("sh", "-c", *words), env={"PATH": "/usr/bin:/bin"}, wall=20.0)
        ended = executor.run(stage, command, streams[0], streams[1], cancel)
        for stream in streams:
            stream.close()
        said = streams[0].path.read_text(encoding="utf-8", errors="replace")
        if "noexec" in said.splitlines():
            raise HostError(
                f"no file of a stage can be run: {root.path} is mounted noexec. Set the ini key rollout_stage_root."
            )
        if ended.exit_code != 0 or "problem:" in said or not said.rstrip().endswith("finished"):
            problems = [line.removeprefix("problem: ") for line in said.splitlines() if line.startswith("problem: ")]
            rest = f"{said}{streams[1].path.read_text('utf-8', 'replace')}"
            complaint = "; ".join(problems) or " ".join(rest.split())[:300]
            raise IsolationError(f"the sandbox does not hold: {complaint or ended.termination}", hint=REMEDY)
        _look(executor, stage)
    finally:
        cancel.close()
        executor.drop(stage)


def _look(executor: Executor, stage: Stage) -> None:
    """What the canary wrote and deleted is seen on the host."""
    view = executor.view(stage)
    try:
        if not _is_there(view, b"written") or _is_there(view, b"gone"):
            raise IsolationError("the tree of the stage does not show its changes on the host", hint=REMEDY)
    finally:
        view.close()


def _is_there(view: View, path: bytes) -> bool:
    try:
        folder, name = view.locate(path)
    except FileNotFoundError:
        return False
    return lstat(folder, name) is not None
