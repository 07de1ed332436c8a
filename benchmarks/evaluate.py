"""What judging costs: each way of trusted evaluation beside the same command bare, and under bare bubblewrap.

``bare``   the command in a copy of the candidate's tree that lies ready: no isolation, no clean tree.
``bwrap``  the command in bubblewrap over a kernel overlay of that tree, with this package's isolation
           arguments and binds, and nothing else: make the folders, run it, remove them.
``ours``   ``bundle.evaluate``, ``run_tests``, ``call``, ``call_many`` and ``run`` of one attempt, without pytest
           around it.

All of them take turns in every round. The ratios are those of one round each, and their median::

    python benchmarks/evaluate.py            # about three minutes
    python benchmarks/evaluate.py --quick    # about half a minute, and rough
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest_rollout
from pytest_rollout.agents.command import CommandAgent
from pytest_rollout.agents.protocol import Episode
from pytest_rollout.attempt import Attempt, Request, run_attempt
from pytest_rollout.evaluation.interpreter import own_interpreter
from pytest_rollout.evidence import Bundle
from pytest_rollout.executors.bwrap import INSIDE, Bwrap, arguments, find_bwrap, reachable
from pytest_rollout.executors.cancel import Cancel
from pytest_rollout.executors.launch import local_mounts, prepared
from pytest_rollout.executors.sandbox import SandboxExecutor
from pytest_rollout.stage.root import StageRoot
from pytest_rollout.task import Folder, Task

CALC = "def add(left, right):\n    return left + right\n"
TESTS = "from calc import add\n\n\ndef test_add():\n    assert add(2, 3) == 5\n"
CHECK = ("sh", "-c", "grep -q 'left + right' calc.py")
PYTHON = (sys.executable, "-I", "-B")
CALL = (*PYTHON, "-c", "import sys; sys.path.insert(0, '.'); from calc import add; print(add(2, 3))")
PYTEST = (
    *(*PYTHON, "-c", "import sys; sys.path.insert(0, '.'); import pytest; sys.exit(pytest.main(sys.argv[1:]))"),
    *("-q", "-c", os.devnull, "--rootdir", ".", "--import-mode=importlib", "-p", "no:cacheprovider", "test_calc.py"),
)
MANY = 100


class Bare:
    """Runs commands in a tree, without and with bubblewrap."""

    def __init__(self, root: StageRoot, bwrap: Bwrap, tree: Path) -> None:
        self._root, self._bwrap, self._tree = root, bwrap, tree
        self._env = {"PATH": own_interpreter().path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "LANG": "C.UTF-8"}

    def plain(self, command: Sequence[str]) -> None:
        """One turn without isolation."""
        subprocess.run(
            command, cwd=self._tree, env=self._env, stdin=subprocess.DEVNULL, capture_output=True, check=True
        )

    def boxed(self, command: Sequence[str]) -> None:
        """One turn in bubblewrap."""
        stage = self._root.new_stage("u", "w")
        own = own_interpreter().binds
        hidden = [self._root.owner.uid != os.geteuid() and not reachable(Path(bind.source)) for bind in own]
        binds, mounts = local_mounts(own, stage, hidden)
        overlay = ["--overlay-src", str(self._tree), "--overlay", f"{stage}/u", f"{stage}/w", INSIDE]
        args = arguments(overlay=overlay, env=self._env, binds=binds, prompt=None, host_network=False)
        with prepared(self._bwrap, args, command, owner=self._root.owner, mounts=mounts) as (argv, options):
            subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=True, **options)
        os.chmod(f"{stage}/w/work", 0o700)
        shutil.rmtree(stage)


def attempt_of(executor: SandboxExecutor, folder: Path) -> Attempt:
    """An attempt whose candidate wrote the calculator."""
    for name in ("workspace", "hidden", "attempt"):
        (folder / name).mkdir()
    (folder / "workspace" / "calc.py").write_text("", encoding="utf-8")
    (folder / "hidden" / "test_calc.py").write_text(TESTS, encoding="utf-8")
    task = Task(
        id="benchmark",
        workspace=Folder(path=str(folder / "workspace")),
        hidden=Folder(path=str(folder / "hidden")),
    )
    episode = Episode(rollout="benchmark", task=task, sample=0, attempt=1, seed=0)
    request = Request(run="benchmark", node="benchmark", episode=episode, plugin_version="0", suite=str(folder))
    agent = CommandAgent(name="writes", command=f"printf '%s' '{CALC}' > calc.py")
    cancel = Cancel()
    try:
        return run_attempt(request, agent=agent, executor=executor, folder=folder / "attempt", cancel=cancel)
    finally:
        cancel.close()


def bundle_of(attempt: Attempt) -> Bundle:
    """What a test would be given."""
    assert attempt.record is not None and attempt.reader is not None, attempt.infra
    return Bundle(attempt.record, attempt.reader, attempt.folder, attempt.evaluator)


def turns(bundle: Bundle, bare: Bare) -> dict[str, Callable[[], None]]:
    """Every loop by its name."""

    def evaluate() -> None:
        assert bundle.evaluate(list(CHECK)).exit_code == 0

    def run_tests() -> None:
        assert bundle.run_tests().passed

    def proxied() -> None:
        assert bundle.run_tests(proxy=["calc"]).passed

    def call() -> None:
        assert bundle.call("calc:add", 2, 3) == 5

    def call_many() -> None:
        assert bundle.call_many("calc:add", [(number, 1) for number in range(MANY)]) == list(range(1, MANY + 1))

    def run() -> None:
        assert bundle.run(list(CHECK)).exit_code == 0

    found: dict[str, Callable[[], None]] = {}
    for name, command in (("check", CHECK), ("pytest", PYTEST), ("call", CALL)):
        found[f"{name}, bare"] = lambda command=command: bare.plain(command)  # type: ignore[misc]
        found[f"{name}, bwrap"] = lambda command=command: bare.boxed(command)  # type: ignore[misc]
    ours = (evaluate, run, run_tests, proxied, call, call_many)
    return found | {function.__name__: function for function in ours}


PAIRS = (
    ("evaluate", "check"),
    ("run", "check"),
    ("run_tests", "pytest"),
    ("proxied", "pytest"),
    ("call", "call"),
    ("call_many", "call"),
)
LABELS = {"proxied": "run_tests(proxy=)", "call_many": f"call_many, one of {MANY}"}


def measure(loops: dict[str, Callable[[], None]], rounds: int, count: int) -> dict[str, list[float]]:
    """Seconds of a turn in each round; of ``call_many``, of one call."""
    seen: dict[str, list[float]] = {name: [] for name in loops}
    for number in range(rounds + 1):
        for name, turn in loops.items():
            began = time.perf_counter()
            for _ in range(count):
                turn()
            seconds = (time.perf_counter() - began) / count
            if number:  # the first round warms up
                seen[name].append(seconds / MANY if name == "call_many" else seconds)
        print(f"round {number} of {rounds}", file=sys.stderr)
    return seen


def row(name: str, values: Sequence[float], unit: str) -> str:
    """A line with the median, the least and the greatest value."""
    return f"{name:<42}{statistics.median(values):>9.2f}   {min(values):.2f} – {max(values):.2f} {unit}"


def report(seen: dict[str, list[float]]) -> None:
    """Print the table."""
    print(f"\n{'':<42}{'median':>9}   min – max")
    for name, values in seen.items():
        print(row(LABELS.get(name, name), [value * 1000 for value in values], "ms"))
    print()
    for ours, theirs in PAIRS:
        for kind in ("bare", "bwrap"):
            pairs = zip(seen[ours], seen[f"{theirs}, {kind}"], strict=True)
            print(row(f"{LABELS.get(ours, ours)} / {theirs}, {kind}", [left / right for left, right in pairs], "×"))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7, help="how often everything takes its turn (default: 7)")
    parser.add_argument("--count", type=int, default=10, help="turns of a loop at a time (default: 10)")
    parser.add_argument("--quick", action="store_true", help="three rounds of three turns")
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"), help="where to work (default: /var/tmp)")
    args = parser.parse_args()
    rounds, count = (3, 3) if args.quick else (args.rounds, args.count)
    folder = Path(tempfile.mkdtemp(prefix="rollout-benchmark-", dir=args.folder))
    folder.chmod(0o711)  # the uid that root drops to passes through it
    root = StageRoot(folder / "stages")
    try:
        bwrap = find_bwrap(root.path / "bin", dropped=root.owner.uid != os.geteuid())
        user = "root" if os.geteuid() == 0 else "ordinary user"
        print(
            f"pytest-rollout {pytest_rollout.__version__}, Python {platform.python_version()}, bwrap {bwrap.version}, "
            f"Linux {platform.release()}, {os.cpu_count()} cores, {user}"
        )
        attempt = attempt_of(SandboxExecutor(root, bwrap), folder)
        tree = folder / "tree"
        tree.mkdir(mode=0o755)
        for name, text in (("calc.py", CALC), ("test_calc.py", TESTS)):
            (tree / name).write_text(text, encoding="utf-8")
        root.give(str(tree), *(str(path) for path in tree.iterdir()))
        report(measure(turns(bundle_of(attempt), Bare(root, bwrap, tree)), rounds, count))
        attempt.finish(keep=False)
    finally:
        root.close()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
