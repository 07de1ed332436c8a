"""What merging shards costs, beside reading the same bytes: runs and JUnit files, and junitparser's own merge.

``python benchmarks/merge.py`` takes a minute; ``--quick`` a tenth of the testcases. Every shard has testcases with the
properties, verdicts and output that a rollout leaves. Only the ratios carry over to another machine.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from junitparser import JUnitXml

from pytest_rollout.bundle import Pins, Usage
from pytest_rollout.identity import rollout_id
from pytest_rollout.merging.junit import merge_junit
from pytest_rollout.merging.merged import merge
from pytest_rollout.merging.shards import find_shards, read_shard
from pytest_rollout.merging.write import write
from pytest_rollout.report.properties import properties_of
from pytest_rollout.reward import Reward
from pytest_rollout.store.folder import ResultsFolder, write_record
from pytest_rollout.store.load import lines_of
from pytest_rollout.store.records import Plan, Planned, Result, RunRecord

_OUTPUT = "a line of an agent's output, as a report of pytest's has it\n" * 12


def result(run: str, shard: int, number: int, shards: int) -> Result:
    """A measured rollout."""
    task = f"evals/test_{shard}.py::test_case[{number}]"
    pins = Pins(
        task_digest="sha256:" + "1" * 64,
        environment_revision="sha256:" + "2" * 64,
        evaluator_revision="sha256:" + "3" * 64,
        agent="good",
        agent_digest="sha256:" + "4" * 64,
        seed=0,
        network="none",
        executor="sandbox",
        executor_version="bubblewrap 0.11.0",
        plugin_version="1",
    )
    return Result(
        rollout=rollout_id(run, task, 0),
        task=task,
        sample=0,
        attempt=1,
        node=task,
        agent="good",
        outcome="failed" if number % 3 else "passed",
        reward=0.5 if number % 3 else 1.0,
        checks_reward=0.5,
        termination="completed",
        trusted=True,
        rung=1,
        pins=pins,
        usage=Usage(wall=1.5, cpu=0.5, peak_memory=10_000_000, output_bytes=1000),
        metrics={"steps": 4.0},
        time="2026-11-01T00:00:00+00:00",
    )


def make(folder: Path, shards: int, size: int) -> tuple[list[Path], list[Path]]:
    """Folders of results and JUnit files of so many shards of so many rollouts."""
    runs, files = [], []
    for shard in range(shards):
        name = f"2026-11-01T00-00-00Z-{shard:08x}"
        results = ResultsFolder(folder / f"s{shard}")
        run = results.open_run(name)
        lines = [result(name, shard, number, shards) for number in range(size)]
        (run.results / "main.jsonl").write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
        planned = [
            Planned(node=line.node, rollout=line.rollout, task=line.task, sample=0, agent="good") for line in lines
        ]
        write_record(run.plan, Plan(rollouts=tuple(planned)))
        record = RunRecord(run=name, started="2026", plugin_version="1", options={}, pins={}, environment={})
        write_record(run.record, record)
        runs.append(results.path)
        files.append(folder / f"s{shard}.xml")
        files[-1].write_text(junit(name, lines), encoding="utf-8")
    return runs, files


def junit(run: str, lines: list[Result]) -> str:
    """A JUnit file of these rollouts, in pytest's form."""
    parts = ['<?xml version="1.0" encoding="utf-8"?><testsuites name="pytest tests">']
    parts.append(f'<testsuite name="pytest" errors="0" failures="0" skipped="0" tests="{len(lines)}" time="1.000"')
    parts.append(f' timestamp="2026-11-01T00:00:00+00:00" hostname="{run}">')
    for line in lines:
        pairs = properties_of(line, None, Reward(), run=run, samples=1)
        properties = "".join(f'<property name="{name}" value="{value}"/>' for name, value in pairs)
        failure = '<failure type="reward" message="below">why</failure>' if line.outcome == "failed" else ""
        parts.append(f'<testcase classname="evals.test" name="{line.task}" time="1.0">')
        parts.append(f"<properties>{properties}</properties>{failure}<system-out>{_OUTPUT}</system-out></testcase>")
    return "".join([*parts, "</testsuite></testsuites>\n"])


def seconds(action: Callable[[], object]) -> float:
    """How long an action takes."""
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def read_lines(runs: list[Path]) -> None:
    """Read every line of results, and decode it as any verb does."""
    for path in runs:
        for run in ResultsFolder(path).all_runs():
            for line in lines_of(run.results):
                msgspec.json.decode(line, type=Result)


def merge_runs(runs: list[Path], into: Path) -> None:
    """What ``pytest-rollout merge`` does."""
    shards = [read_shard(run, number) for number, run in enumerate(find_shards(runs))]
    write(merge(shards), shards, ResultsFolder(into), evidence=False)


def by_junitparser(files: list[Path], out: Path) -> None:
    """What ``junitparser merge`` does."""
    merged = JUnitXml()
    for file in files:
        merged += JUnitXml.fromfile(str(file))
    merged.write(str(out))


def measured(shards: int, size: int, *, theirs: bool) -> dict[str, float]:
    """Every figure, in seconds."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        folder = Path(name)
        runs, files = make(folder, shards, size)
        found = {
            "megabytes of JUnit": sum(file.stat().st_size for file in files) / 1e6,
            "read runs": seconds(lambda: read_lines(runs)),
            "merge runs": seconds(lambda: merge_runs(runs, folder / "merged")),
            "read bytes of JUnit": seconds(lambda: [file.read_bytes() for file in files]),
            "read JUnit by junitparser": seconds(lambda: [JUnitXml.fromfile(str(file)) for file in files]),
            "merge JUnit": seconds(lambda: merge_junit(files, folder / "out.xml", ())),
        }
        if theirs:
            found["merge JUnit by junitparser"] = seconds(lambda: by_junitparser(files, folder / "theirs.xml"))
        return found


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--one", nargs=3, type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measured(options.one[0], options.one[1], theirs=bool(options.one[2]))))
        return
    size = 100 if options.quick else 1000
    for shards, theirs in ((10, True), (20, True), (100, False)):
        words = [sys.executable, __file__, "--one", str(shards), str(size), str(int(theirs))]
        found = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
        print(f"\n{shards} shards of {size:,} testcases")
        for label, value in found.items():
            print(f"  {label:<28}{value:>9.2f}")
        print(f"  {'merge runs / read runs':<28}{found['merge runs'] / found['read runs']:>9.2f}")
        ratio = found["merge JUnit"] / found["read JUnit by junitparser"]
        print(f"  {'merge JUnit / read JUnit':<28}{ratio:>9.2f}")


if __name__ == "__main__":
    main()
