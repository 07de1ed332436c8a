"""What redacting secrets costs: captured output with a redactor beside the same capture without one.

``exact``     a capture that keeps the ends of a stream as they are: head into a file, tail in memory.
``forms``     the same, with the keys of known forms redacted.
``N values``  the same, with the values of N variables redacted as well, in all their spellings.

A stream comes in pieces of 64 KiB, as from a pipe, or of one line. ``kept`` streams fit into the limit, so every byte
is searched; of a ``long`` one the limit of 10 MiB keeps the ends, and only these are. All of them take turns in every
round. The ratios are those of one round each, and their median::

    python benchmarks/redaction.py            # about two minutes
    python benchmarks/redaction.py --quick    # a quarter of that, and rough
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

import pytest_rollout
from pytest_rollout.executors.capture import Capture
from pytest_rollout.redaction.redactor import Redactor

MIB = 1 << 20
LIMIT = 10 * MIB
PIPE, LINE = 1 << 16, 80


def learned(values: int) -> Redactor:
    """A redactor that knows so many values, of 40 characters each."""
    source = random.Random(values)
    redactor = Redactor()
    redactor.learn({f"SERVICE_{number}_API_KEY": source.randbytes(20).hex() for number in range(values)})
    return redactor


REDACTORS = {"exact": None, "forms": learned(0), "10 values": learned(10), "100 values": learned(100)}


def streams(size: int) -> dict[str, tuple[bytes, int]]:
    """What is printed, and in pieces of how many bytes."""
    source = b"".join(path.read_bytes() for path in sorted(Path(os.__file__).parent.glob("*.py")))
    text = (source * (size // len(source) + 1))[:size]
    log = b"2026-11-30 10:00:00 INFO worker-3 step 12345 of 99999: loss=0.1234 lr=1e-4 ok\n"
    return {
        "source text, kept": (text, PIPE),
        "log lines, kept": ((log * (size // len(log) + 1))[:size], PIPE),
        "log, line by line": ((log * (size // len(log) + 1))[: size // 4], LINE),
        "random bytes, kept": (random.Random(1).randbytes(size), PIPE),
        "source text, long": (text * (8 * LIMIT // size), PIPE),
    }


def captured(folder: Path, data: bytes, piece: int, redactor: Redactor | None) -> None:
    """Capture a stream."""
    path = folder / "stream"
    view = memoryview(data)
    capture = Capture(path, LIMIT, redactor)
    for start in range(0, len(data), piece):
        capture.feed(view[start : start + piece])
    assert not capture.close().dropped or len(data) > LIMIT
    path.unlink()


def record() -> dict[str, object]:
    """A record like that of a bundle with twenty changed files."""
    change = {"path": "src/package/module.py", "kind": "modified", "type": "file", "mode": "0644", "sha256": "0" * 64}
    return {"pins": {f"pin {number}": "x" * 40 for number in range(20)}, "changes": [change] * 20}


def measure(folder: Path, rounds: int, size: int) -> dict[str, dict[str, list[float]]]:
    """Seconds of every stream with every redactor, round by round."""
    given = streams(size)
    loops: dict[str, dict[str, Callable[[], None]]] = {}
    for name, (data, piece) in given.items():
        loops[name] = {
            kind: lambda data=data, piece=piece, redactor=redactor: captured(folder, data, piece, redactor)  # type: ignore[misc]
            for kind, redactor in REDACTORS.items()
        }
    made = record()
    loops["a record, encoded"] = {
        kind: lambda redactor=redactor: encoded(made, redactor)  # type: ignore[misc]
        for kind, redactor in REDACTORS.items()
    }
    seen: dict[str, dict[str, list[float]]] = {name: {kind: [] for kind in REDACTORS} for name in loops}
    for number in range(rounds + 1):
        for name, turns in loops.items():
            for kind, turn in turns.items():
                began = time.perf_counter()
                turn()
                if number:  # the first round warms up
                    seen[name][kind].append(time.perf_counter() - began)
        print(f"round {number} of {rounds}", file=sys.stderr)
    for name, (data, _) in given.items():
        speed = [len(data) / MIB / seconds for seconds in seen[name]["exact"]]
        print(row(f"{name}: exact", speed, "MiB/s"))
    return seen


def encoded(made: dict[str, object], redactor: Redactor | None) -> None:
    """Encode a record a hundred times."""
    for _ in range(100):
        msgspec.json.format(msgspec.json.encode(made if redactor is None else redactor.value(made)), indent=2)


def row(name: str, values: Sequence[float], unit: str) -> str:
    """A line with the median, the least and the greatest value."""
    return f"{name:<42}{statistics.median(values):>9.2f}   {min(values):.2f} – {max(values):.2f} {unit}"


def report(seen: dict[str, dict[str, list[float]]]) -> None:
    """Print the ratios."""
    print(f"\n{'time / that of exact':<42}{'median':>9}   min – max")
    for name, kinds in seen.items():
        for kind in list(kinds)[1:]:
            pairs = zip(kinds[kind], kinds["exact"], strict=True)
            print(row(f"{name}: {kind}", [ours / theirs for ours, theirs in pairs], "×"))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7, help="how often everything takes its turn (default: 7)")
    parser.add_argument("--quick", action="store_true", help="three rounds, of shorter streams")
    parser.add_argument("--folder", type=Path, default=Path("/dev/shm"), help="where to work (default: in memory)")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="rollout-benchmark-", dir=args.folder))
    try:
        print(
            f"pytest-rollout {pytest_rollout.__version__}, Python {platform.python_version()}, "
            f"Linux {platform.release()}, {os.cpu_count()} cores\n"
        )
        report(measure(folder, 3 if args.quick else args.rounds, 4 * MIB if args.quick else 8 * MIB))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
