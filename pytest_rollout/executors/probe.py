"""The canary: run the real recipe once, and see that it isolates, before any agent is trusted to it.

Seen from inside: a file of the stage root is not there, our environment is not in ``/proc``, only
the loopback interface exists, no capability is held. Seen from outside: what the canary deleted is
a whiteout, and it is dead.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from pytest_rollout.errors import HostError, IsolationError
from pytest_rollout.executors.bwrap import REMEDY
from pytest_rollout.executors.cancel import Cancel
from pytest_rollout.executors.capture import Capture
from pytest_rollout.executors.protocol import Command, Stage
from pytest_rollout.executors.sandbox import SandboxExecutor
from pytest_rollout.stage.baseline import freeze
from pytest_rollout.stage.root import StageRoot
from pytest_rollout.stage.view import is_whiteout

__all__ = ["probe"]

_SCRIPT = """
rm gone || exit 1
cat "$1" >/dev/null 2>&1 && echo 'problem: a file of the host was read'
grep -qa PYTEST_ROLLOUT_CANARY /proc/*/environ 2>/dev/null && echo 'problem: the environment of the host was read'
grep -qv -e lo: -e '|' /proc/net/dev && echo 'problem: there is a network'
grep -q '^CapEff:[[:space:]]*0*$' /proc/self/status || echo 'problem: a capability is held'
[ "$(id -u)" = 0 ] && echo 'problem: it runs as root'
echo done > written
echo finished
"""


def probe(executor: SandboxExecutor, root: StageRoot) -> None:
    """Raise IsolationError (or another InfraError) where the sandbox does not hold, or can't be tried."""
    os.environ["PYTEST_ROLLOUT_CANARY"] = "1"
    try:
        with tempfile.TemporaryDirectory(prefix="rollout-probe-") as folder:
            _probe(executor, root, Path(folder))
    except OSError as error:
        raise HostError(f"the sandbox can't be probed: {error}") from error
    finally:
        del os.environ["PYTEST_ROLLOUT_CANARY"]


def _probe(executor: SandboxExecutor, root: StageRoot, folder: Path) -> None:
    source = folder / "baseline"
    source.mkdir()
    (source / "gone").write_text("canary\n", encoding="utf-8")
    secret = root.path / "canary"
    secret.write_text("canary\n", encoding="utf-8")
    os.chmod(secret, 0o644)
    stage = executor.provision(freeze(root, source))
    cancel = Cancel()
    streams = [Capture(folder / name, 1 << 16) for name in ("stdout", "stderr")]
    try:
        command = Command(argv=("sh", "-c", _SCRIPT, "sh", str(secret)), env={"PATH": "/usr/bin:/bin"}, wall=20.0)
        ended = executor.run(stage, command, streams[0], streams[1], cancel)
        for stream in streams:
            stream.close()
        said = streams[0].path.read_text(encoding="utf-8", errors="replace")
        if ended.exit_code != 0 or "problem:" in said or not said.rstrip().endswith("finished"):
            problems = [line.removeprefix("problem: ") for line in said.splitlines() if line.startswith("problem: ")]
            rest = f"{said}{streams[1].path.read_text('utf-8', 'replace')}"
            complaint = "; ".join(problems) or " ".join(rest.split())[:300]
            raise IsolationError(f"the sandbox does not hold: {complaint or ended.termination}", hint=REMEDY)
        _look(stage)
    finally:
        cancel.close()
        executor.drop(stage)


def _look(stage: Stage) -> None:
    upper = Path(stage.path) / "u"
    gone = os.lstat(upper / "gone") if os.path.lexists(upper / "gone") else None
    if gone is None or not is_whiteout(gone) or not (upper / "written").is_file():
        raise IsolationError("the overlay of the stage does not show its changes on the host", hint=REMEDY)
