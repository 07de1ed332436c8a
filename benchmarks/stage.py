"""What a stage costs, and that it does not grow with the baseline: provision, run, list the changes, drop.

``ours``      the executor ``sandbox`` over a frozen baseline.
``looked``    the same, with the look at the workspace that each rollout takes: has anything in it changed?
``bwrap``     bubblewrap over a kernel overlay with the same isolation arguments, and nothing else: make the folders,
              run it, list the upper layer, remove them.
``copytree``  ``shutil.copytree``, the command without isolation, a comparison of all stats, ``rmtree``.
``worktree``  ``git worktree add``, the command without isolation, ``git status``, ``git worktree remove``.

In each the command changes one file, adds ten and deletes one. All of them take turns in every round, for workspaces
of 10, 1,000 and 20,000 files. The ratios are those of one round each, and their median::

    python benchmarks/stage.py            # about five minutes
    python benchmarks/stage.py --quick    # about a minute, and rough
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
from pytest_rollout.executors.bwrap import INSIDE, Bwrap, arguments, find_bwrap
from pytest_rollout.executors.cancel import Cancel
from pytest_rollout.executors.capture import Capture
from pytest_rollout.executors.launch import prepared
from pytest_rollout.executors.protocol import Command
from pytest_rollout.executors.sandbox import SandboxExecutor
from pytest_rollout.stage.baseline import Baseline
from pytest_rollout.stage.changes import ListingBounds, list_changes
from pytest_rollout.stage.root import StageRoot

SIZES = (10, 1_000, 20_000)
AGENT = "echo x >> 0/0; rm 1/1; mkdir new; for n in 0 1 2 3 4 5 6 7 8 9; do echo x > new/$n; done"
CHANGED = 13  # a folder, ten files in it, a change and a deletion
ENV = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": "/tmp"}
GIT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    **{f"GIT_{who}_{what}": "x@x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
}


def workspace(top: Path, count: int) -> Path:
    """A folder of so many files of 200 bytes, at most 50 in each folder."""
    folders = max(2, count // 50)
    for number in range(count):
        place = top / str(number % folders)
        place.mkdir(parents=True, exist_ok=True)
        (place / str(number)).write_bytes(os.urandom(200))
    return top


class Stages:
    """One workspace, and every way to get stages of it."""

    def __init__(self, folder: Path, root: StageRoot, bwrap: Bwrap, count: int) -> None:
        self.count = count
        self._folder, self._root, self._bwrap = folder, root, bwrap
        self._executor = SandboxExecutor(root, bwrap)
        self._space = workspace(folder / "space", count)
        began = time.perf_counter()
        self._baseline = self._executor.prepare(self._space)
        self.first = time.perf_counter() - began
        self._repository = Path(shutil.copytree(self._space, folder / "repository"))
        for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "x"]):
            self._git(*words)

    def turns(self, often: int) -> dict[str, tuple[Callable[[], None], int]]:
        """Every loop by its name, and how often it is done for one figure."""
        slow = often if self.count <= SIZES[0] else 1
        return {
            "ours": (lambda: self._ours(self._baseline), often),
            "looked": (lambda: self._ours(self._executor.prepare(self._space)), often),
            "bwrap": (self._boxed, often),
            "copytree": (self._copied, slow),
            "worktree": (self._worktree, slow),
        }

    def _ours(self, baseline: Baseline) -> None:
        stage = self._executor.provision(baseline)
        outputs = [Capture(self._folder / name, 1 << 20) for name in ("stdout", "stderr")]
        cancel = Cancel()
        try:
            command = Command(argv=("sh", "-c", AGENT), env=ENV, wall=60.0)
            assert self._executor.run(stage, command, outputs[0], outputs[1], cancel).exit_code == 0
        finally:
            cancel.close()
            for output in outputs:
                output.close()
        view = self._executor.view(stage)
        deltas, findings = list_changes(view, ListingBounds())
        view.close()
        assert (len(deltas), findings) == (CHANGED, [])
        assert self._executor.drop(stage) is None
        for name in ("stdout", "stderr"):
            (self._folder / name).unlink()

    def _boxed(self) -> None:
        stage = self._root.new_stage("u", "w")
        overlay = ["--overlay-src", self._baseline.path, "--overlay", f"{stage}/u", f"{stage}/w", INSIDE]
        args = arguments(overlay=overlay, env=ENV, binds=(), prompt=None, host_network=False)
        with prepared(self._bwrap, args, ("sh", "-c", AGENT), owner=self._root.owner) as (argv, options):
            subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=True, **options)
        found = [os.path.join(at, name) for at, *both in os.walk(f"{stage}/u") for names in both for name in names]
        assert len(found) == CHANGED + 2  # the folders of the change and of the deletion
        os.chmod(f"{stage}/w/work", 0o700)
        shutil.rmtree(stage)

    def _copied(self) -> None:
        place = self._folder / "copy"
        shutil.copytree(self._space, place)
        self._plain(place)
        before, after = _stats(self._space), _stats(place)
        assert len({path for path in before | after if before.get(path) != after.get(path)}) == CHANGED
        shutil.rmtree(place)

    def _worktree(self) -> None:
        place = self._folder / "tree"
        self._git("worktree", "add", "-q", "--detach", str(place))
        self._plain(place)
        said = subprocess.run(
            ["git", "status", "--porcelain", "-uall"], cwd=place, env={**ENV, **GIT}, capture_output=True, check=True
        )
        assert len(said.stdout.splitlines()) == CHANGED - 1  # git knows no folders
        self._git("worktree", "remove", "--force", str(place))

    @staticmethod
    def _plain(place: Path) -> None:
        subprocess.run(["sh", "-c", AGENT], cwd=place, stdin=subprocess.DEVNULL, capture_output=True, check=True)

    def _git(self, *words: str) -> None:
        subprocess.run(["git", *words], cwd=self._repository, env={**ENV, **GIT}, capture_output=True, check=True)


def _stats(top: Path) -> dict[str, tuple[int, int]]:
    found = {}
    for at, folders, names in os.walk(top):
        for name in folders:
            found[os.path.relpath(os.path.join(at, name), top)] = (0, 0)
        for name in names:
            info = os.lstat(os.path.join(at, name))
            found[os.path.relpath(os.path.join(at, name), top)] = (info.st_size, info.st_mtime_ns)
    return found


Figures = dict[tuple[str, int], list[float]]


def measure(made: Sequence[Stages], rounds: int, often: int) -> Figures:
    """Let everything take its turn, ``rounds`` times; seconds of one turn."""
    figures: Figures = {}
    for number in range(rounds):
        for stages in made:
            for name, (turn, count) in stages.turns(often).items():
                began = time.perf_counter()
                for _ in range(count):
                    turn()
                figures.setdefault((name, stages.count), []).append((time.perf_counter() - began) / count)
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
    return figures


def _row(name: str, values: Sequence[float], unit: str) -> str:
    spread = f"{min(values):.2f} – {max(values):.2f}"
    return f"{name:<46}{statistics.median(values):>10.2f}   {spread:<21} {unit}"


def report(made: Sequence[Stages], figures: Figures) -> None:
    """Print the table: the median of the rounds, and their least and greatest value."""
    print(f"\n{'':<46}{'median':>10}   {'min – max':<21}")
    for (name, count), values in figures.items():
        print(_row(f"{name}, {count:,} files", [value * 1000 for value in values], "ms"))
    print()
    for stages in made:
        print(f"{f'frozen for the first time, {stages.count:,} files':<46}{stages.first * 1000:>10.2f}   once, ms")
    print()
    least = SIZES[0]
    for label, over, under in (
        *((f"ours / bwrap, {count:,} files", ("ours", count), ("bwrap", count)) for count in SIZES),
        *((f"ours, {count:,} files / {least}", ("ours", count), ("ours", least)) for count in SIZES[1:]),
        *((f"looked, {count:,} files / {least}", ("looked", count), ("looked", least)) for count in SIZES[1:]),
        *((f"copytree / ours, {count:,} files", ("copytree", count), ("ours", count)) for count in SIZES),
        *((f"git worktree / ours, {count:,} files", ("worktree", count), ("ours", count)) for count in SIZES),
    ):
        print(_row(label, [a / b for a, b in zip(figures[over], figures[under], strict=True)], "×"))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7, help="how often everything takes its turn (default: 7)")
    parser.add_argument("--quick", action="store_true", help="two rounds, of fewer turns")
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"), help="where to work (default: /var/tmp)")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="rollout-benchmark-", dir=args.folder))
    folder.chmod(0o711)  # the uid that root drops to passes through it
    root = StageRoot(folder / "root")
    try:
        bwrap = find_bwrap(folder / "bin", dropped=os.geteuid() == 0)
        print(
            f"pytest-rollout {pytest_rollout.__version__}, Python {platform.python_version()}, bwrap {bwrap.version}, "
            f"Linux {platform.release()}, {os.cpu_count()} cores, {'root' if os.geteuid() == 0 else 'ordinary user'}"
        )
        made = []
        for count in SIZES:
            (folder / str(count)).mkdir()
            made.append(Stages(folder / str(count), root, bwrap, count))
        time.sleep(2.1)  # a folder that changed just now is read again
        report(made, measure(made, *((2, 5) if args.quick else (args.rounds, 20))))
    finally:
        root.close()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
