"""What a rollout costs above the work itself: our executors through real pytest, beside two bare loops.

``bare``     mkdtemp, a shell that writes one file, read it, rmtree: no isolation, no evidence.
``overlay``  the same in bubblewrap over a kernel overlay, with this package's isolation arguments, but
             written as a plain script: make the folders, start it, hold a pidfd, list the upper, read, remove.
``plain``    one parametrized test without a rollout in it (what pytest itself costs).
``local``, ``sandbox``  one rollout of the executor of that name. The figure is marginal: the time of a pytest
             session of ``many`` rollouts less that of one of ``few``, by the difference.

All of them take turns in every round, so that a machine that slows down slows all of them. The ratios are
those of one round each, and their median. Run it on a machine that does nothing else::

    python benchmarks/overhead.py            # about five minutes
    python benchmarks/overhead.py --quick    # about half a minute, and rough
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import select
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest_rollout
from pytest_rollout.executors.bwrap import INSIDE, Bwrap, arguments, find_bwrap
from pytest_rollout.executors.prelude import MAX_PROCESSES
from pytest_rollout.executors.seccomp import filter_program
from pytest_rollout.stage.root import NOBODY

AGENT = r"printf 'candidate\n' > answer.txt"
ANSWER = b"candidate\n"
SUITE = """
import pytest


@pytest.mark.rollout(agent={agent!r})
@pytest.mark.parametrize("number", range({count}))
def test_answer(bundle, number):
    assert bundle.read_text("answer.txt") == "candidate\\n"
"""
PLAIN = """
import pytest


@pytest.mark.parametrize("number", range({count}))
def test_plain(number):
    assert number >= 0
"""
# Every test of the suite is a task of its own, and new checks are tried once on the no-op: that is not measured here.
CONTROLS = "--rollout-controls=none"
EXECUTORS = {"sandbox": [CONTROLS], "local": [CONTROLS, "--rollout-isolation=none"]}


def bare(folder: Path) -> None:
    """One turn of the bare loop."""
    place = tempfile.mkdtemp(dir=folder)
    subprocess.run(["sh", "-c", AGENT], cwd=place, stdin=subprocess.DEVNULL, capture_output=True, check=True)
    with open(f"{place}/answer.txt", "rb") as file:
        assert file.read() == ANSWER
    shutil.rmtree(place)


class Overlay:
    """The bare loop over bubblewrap: no journal, no record, no capture to files, no limits but prlimit's."""

    def __init__(self, folder: Path, bwrap: Bwrap) -> None:
        self._folder, self._bwrap = folder, bwrap
        self._base = folder / "base"
        self._base.mkdir(mode=0o755)
        self._root = os.geteuid() == 0

    def turn(self) -> None:
        """One turn."""
        place = tempfile.mkdtemp(dir=self._folder)
        made = [place, f"{place}/upper", f"{place}/work"]
        for path in made[1:]:
            os.mkdir(path, 0o700)
        if self._root:
            for path in made:
                os.chown(path, NOBODY, NOBODY)
        self._run(["--overlay-src", str(self._base), "--overlay", *made[1:], INSIDE])
        assert [entry.name for entry in os.scandir(made[1])] == ["answer.txt"]
        with open(f"{made[1]}/answer.txt", "rb") as file:
            assert file.read() == ANSWER
        os.chmod(f"{place}/work/work", 0o700)
        shutil.rmtree(place)

    def _run(self, overlay: Sequence[str]) -> None:
        env = {"HOME": "/home/agent", "TMPDIR": "/tmp", "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
        args = arguments(overlay=overlay, env=env, binds=(), prompt=None, host_network=False)
        status, status_write = os.pipe()
        block_read, block = os.pipe()
        given = {"--args": _memory(b"".join(os.fsencode(arg) + b"\0" for arg in args))}
        if (program := filter_program()) is not None:
            given["--seccomp"] = _memory(program)
        given |= {"--json-status-fd": status_write, "--block-fd": block_read}
        words = [word for option, fd in given.items() for word in (option, str(fd))]
        drop = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--"] if self._root else []
        limits = ["prlimit", f"--nproc={MAX_PROCESSES}", "--core=0:0", "--"]
        process = subprocess.Popen(
            [*drop, self._bwrap.path, *words, "--", *limits, "sh", "-c", AGENT],
            env={"PATH": "/usr/bin:/bin"},
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=tuple(given.values()),
            start_new_session=True,
        )
        for fd in given.values():
            os.close(fd)
        first = b""
        while b"}" not in first:
            piece = os.read(status, 4096)
            assert piece, "bubblewrap did not start"
            first += piece
        pidfd = os.pidfd_open(json.loads(first[: first.index(b"}") + 1])["child-pid"])
        os.write(block, b"x")
        output, errors = process.communicate()
        assert (output, errors) == (b"", b""), errors
        if not select.select([pidfd], [], [], 10)[0]:
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            raise AssertionError("the sandbox did not end")
        for fd in (status, block, pidfd):
            os.close(fd)


def _memory(data: bytes) -> int:
    fd = os.memfd_create("benchmark")
    os.write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


@dataclass
class Session:
    """One run of pytest: seconds, and the peak of its resident memory in KiB."""

    seconds: float
    peak: int


def session(folder: Path, source: str, count: int, options: Sequence[str]) -> Session:
    """Run pytest on a generated suite of ``count`` tests, in a fresh folder.

    It is removed at the very end: for some seconds, ext4 looks at every inode that was just freed.
    """
    place = Path(tempfile.mkdtemp(dir=folder))
    place.chmod(0o755)
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    (place / "pytest.ini").write_text(f"[pytest]\nrollout_stage_root = {folder}/stages\n", encoding="utf-8")
    (place / "test_suite.py").write_text(source.format(agent=AGENT, count=count), encoding="utf-8")
    with open(place / "said", "w+b") as said:
        began = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options],
            cwd=place,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
        )
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        text = said.read().decode("utf-8", "replace")
    assert process.returncode == 0 and f"{count} passed" in text, text
    return Session(seconds, usage.ru_maxrss)


def per_turn(turn: Callable[[], None], count: int) -> float:
    """Seconds that one turn of a loop takes."""
    began = time.perf_counter()
    for _ in range(count):
        turn()
    return (time.perf_counter() - began) / count


@dataclass
class Figures:
    """What the rounds gave: seconds per turn or rollout, seconds per session, KiB at the peak."""

    turns: dict[str, list[float]] = field(default_factory=dict)
    sessions: dict[tuple[str, int], list[Session]] = field(default_factory=dict)


def measure(folder: Path, bwrap: Bwrap, args: argparse.Namespace) -> Figures:
    """Let everything take its turn, ``args.rounds`` times."""
    figures = Figures()
    overlay = Overlay(folder, bwrap)
    loops: dict[str, Callable[[], None]] = {"bare": lambda: bare(folder), "overlay": overlay.turn}
    kinds = {"plain": (PLAIN, []), **{name: (SUITE, options) for name, options in EXECUTORS.items()}}
    session(folder, SUITE, 1, [])  # compiles what is not yet compiled, makes the stage root
    for number in range(args.rounds):
        seen: dict[str, list[float]] = {name: [] for name in loops}
        for kind, (source, options) in kinds.items():
            for name, turn in loops.items():
                seen[name].append(per_turn(turn, args.turns))
            runs = [session(folder, source, count, options) for count in (args.few, args.many)]
            for count, run in zip((args.few, args.many), runs, strict=True):
                figures.sessions.setdefault((kind, count), []).append(run)
            marginal = (runs[1].seconds - runs[0].seconds) / (args.many - args.few)
            figures.turns.setdefault(kind, []).append(marginal)
        for name in loops:
            figures.turns.setdefault(name, []).append(statistics.median(seen[name]))
        print(f"round {number + 1} of {args.rounds}: " + _line(figures, number), file=sys.stderr)
    return figures


def _line(figures: Figures, number: int) -> str:
    return ", ".join(f"{name} {values[number] * 1000:.2f} ms" for name, values in figures.turns.items())


def _row(name: str, values: Sequence[float], unit: str, digits: int = 2) -> str:
    middle = f"{statistics.median(values):.{digits}f}"
    spread = f"{min(values):.{digits}f} – {max(values):.{digits}f}"
    return f"{name:<46}{middle:>9}   {spread:<19} {unit}"


def report(figures: Figures, args: argparse.Namespace) -> None:
    """Print the table: the median of the rounds, and their least and greatest value."""
    turns, few, many = figures.turns, args.few, args.many
    print(f"\n{'':<46}{'median':>9}   {'min – max':<19}")
    labels = {
        "bare": "bare loop, a turn",
        "overlay": "bare bwrap-overlay loop, a turn",
        "plain": "pytest without a rollout, marginal",
        "local": "executor local, marginal",
        "sandbox": "executor sandbox, marginal",
    }
    for name, label in labels.items():
        print(_row(label, [value * 1000 for value in turns[name]], "ms"))
    for (kind, count), runs in figures.sessions.items():
        print(_row(f"pytest, {kind}, {count} tests", [run.seconds for run in runs], "s"))
        print(_row("  peak resident memory", [run.peak / 1024 for run in runs], "MiB", 1))
    print()
    for label, kind, against, aim in (("sandbox", "sandbox", "overlay", 1.5), ("local", "local", "bare", 5.0)):
        ratios = [ours / theirs for ours, theirs in zip(turns[kind], turns[against], strict=True)]
        print(_row(f"{label} / {labels[against].split(',')[0]}", ratios, f"(aim: at most {aim})"))
    for kind in EXECUTORS:
        pairs = zip(figures.sessions[kind, many], figures.sessions[kind, few], strict=True)
        print(_row(f"{kind}: peak memory, {many} / {few}", [a.peak / b.peak for a, b in pairs], "(aim: flat)"))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="how often everything takes its turn (default: 5)")
    parser.add_argument("--quick", action="store_true", help="two rounds, of fewer rollouts")
    parser.add_argument("--few", type=int, default=100, help="rollouts of the small session (default: 100)")
    parser.add_argument("--many", type=int, default=1000, help="rollouts of the large session (default: 1000)")
    parser.add_argument("--turns", type=int, default=300, help="turns of a bare loop at a time (default: 300)")
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"), help="where to work (default: /var/tmp)")
    args = parser.parse_args()
    if args.quick:
        args.rounds, args.few, args.many, args.turns = 2, 20, 220, 40
    folder = Path(tempfile.mkdtemp(prefix="rollout-benchmark-", dir=args.folder))
    folder.chmod(0o711)  # the uid that root drops to passes through it
    try:
        bwrap = find_bwrap(folder / "bin", dropped=os.geteuid() == 0)
        print(
            f"pytest-rollout {pytest_rollout.__version__}, Python {platform.python_version()}, bwrap {bwrap.version}, "
            f"Linux {platform.release()}, {os.cpu_count()} cores, {'root' if os.geteuid() == 0 else 'ordinary user'}"
        )
        report(measure(folder, bwrap, args), args)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
