"""What goes and what stays: by age, by size, and never what a living session uses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_rollout.retained.prune import Rules, prune
from pytest_rollout.stage.baseline import freeze
from pytest_rollout.stage.holds import Holds, held_by_nobody
from pytest_rollout.stage.kept import name_keeper
from pytest_rollout.stage.root import StageRoot
from pytest_rollout.store.folder import ResultsFolder

DAY = 86_400.0


@pytest.fixture
def results(tmp_path: Path) -> ResultsFolder:
    return ResultsFolder(tmp_path / "results")


@pytest.fixture
def stages(private_folder: Path) -> Path:
    return private_folder / "root"


def frozen(stages: Path, space: Path, days: float) -> Path:
    """A baseline that no process holds and that was last used some days ago."""
    root = StageRoot(stages)
    made = Path(freeze(root, space).path)
    root.close()
    used = (stages / "used" / made.name).stat().st_mtime - days * DAY
    os.utime(stages / "used" / made.name, (used, used))
    return made


def space(tmp_path: Path, name: str, size: int = 10) -> Path:
    made = tmp_path / name
    made.mkdir()
    (made / "file").write_bytes(os.urandom(size))
    return made


def gone(results: ResultsFolder, stages: Path, *, dry_run: bool = False, **rules: object) -> list[tuple[str, str]]:
    found = list(prune(results, stages, Rules(**rules), dry_run=dry_run))  # type: ignore[arg-type]
    assert [each.problem for each in found if each.problem] == []
    return [(each.what, os.path.basename(each.path)) for each in found]


def test_by_the_time_of_the_last_use(results: ResultsFolder, stages: Path, tmp_path: Path) -> None:
    old, new = frozen(stages, space(tmp_path, "a"), 31), frozen(stages, space(tmp_path, "b"), 29)
    source = stages / "sources" / "git-1"
    (source / "tree").mkdir(parents=True)
    os.utime(source, (1, 1))
    expected = [("source", "git-1"), ("baseline", old.name)]
    assert gone(results, stages, dry_run=True) == expected
    assert old.is_dir()
    assert gone(results, stages) == expected
    assert (old.exists(), new.exists(), source.exists()) == (False, True, False)
    assert sorted(os.listdir(stages / "baselines")) == [new.name]
    assert os.listdir(stages / "seals") == os.listdir(stages / "used") == [new.name]
    assert gone(results, stages) == []


def test_by_size_the_longest_unused_first(results: ResultsFolder, stages: Path, tmp_path: Path) -> None:
    made = [frozen(stages, space(tmp_path, name, 1 << 20), days) for name, days in (("a", 2), ("b", 3), ("c", 1))]
    assert gone(results, stages, size=(5 << 20) // 2) == [("baseline", made[1].name)]
    assert gone(results, stages, size=1 << 19) == [("baseline", made[0].name), ("baseline", made[2].name)]


SESSION = """
import sys
from pathlib import Path
from pytest_rollout.stage.baseline import freeze
from pytest_rollout.stage.holds import Holds
from pytest_rollout.stage.root import StageRoot
root = StageRoot(Path(sys.argv[1]))
print(freeze(root, Path(sys.argv[2])).path, flush=True)
stage = root.new_stage()
holds = Holds(root.path)
holds.hold("git-1")
print(stage, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def session(stages: Path, tmp_path: Path) -> Iterator[Callable[[Path], tuple[subprocess.Popen[str], Path, Path]]]:
    """Starts a process that uses a baseline, a source and a stage until it is killed."""
    started: list[subprocess.Popen[str]] = []

    def start(workspace: Path) -> tuple[subprocess.Popen[str], Path, Path]:
        process = subprocess.Popen(
            [sys.executable, "-c", SESSION, str(stages), str(workspace)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        baseline, stage = (Path(process.stdout.readline().strip()) for _ in range(2))
        return process, baseline, stage

    yield start
    for process in started:
        with process:
            process.kill()


def test_nothing_of_a_living_session_goes(
    results: ResultsFolder,
    stages: Path,
    tmp_path: Path,
    session: Callable[[Path], tuple[subprocess.Popen[str], Path, Path]],
) -> None:
    process, baseline, stage = session(space(tmp_path, "a"))
    source = stages / "sources" / "git-1"
    (source / "tree").mkdir(parents=True)
    for path in (baseline, source):
        os.utime(stages / "used" / path.name, (1, 1))
    half = stages / "baselines" / f".{'0' * 16}-half"
    half.mkdir()
    assert gone(results, stages, size=1) == [("stage of a dead session", half.name)]
    assert (baseline.is_dir(), source.is_dir(), stage.is_dir(), half.exists()) == (True, True, True, False)
    process.kill()
    process.wait(10)
    expected = [("stage of a dead session", stage.name), ("baseline", baseline.name), ("source", "git-1")]
    assert sorted(gone(results, stages, size=1)) == sorted(expected)
    assert (baseline.exists(), source.exists(), stage.exists()) == (False, False, False)
    assert os.listdir(stages / "leases") == []
    assert os.listdir(stages / "holds") == ["gate"]


def test_a_pruned_baseline_is_made_again(results: ResultsFolder, stages: Path, tmp_path: Path) -> None:
    workspace = space(tmp_path, "a")
    made = frozen(stages, workspace, 31)
    root = StageRoot(stages)
    assert gone(results, stages) == [("baseline", made.name)]
    assert freeze(root, workspace).path == str(made)
    assert made.is_dir()
    assert gone(results, stages, size=1) == []
    root.close()


def test_holds_end_with_their_process(stages: Path) -> None:
    stages.mkdir()
    first, second = Holds(stages), Holds(stages)
    first.hold("a")
    second.hold("a")
    second.hold("b")
    with held_by_nobody(stages) as held:
        assert held == {"a", "b"}
    second.close()
    second.close()
    with held_by_nobody(stages) as held:
        assert held == {"a"}
    first.close()


def test_kept_stages(results: ResultsFolder, stages: Path) -> None:
    root = StageRoot(stages)
    runs = [results.open_run(f"2026-01-01T00-00-0{number}Z-0000000{number}") for number in range(3)]
    kept = []
    for run in runs:
        attempt = run.new_attempt("t", 0, 1)
        stage = root.keep(root.new_stage("u"))
        (attempt / "bundle.json").write_text(json.dumps({"stage": stage}))
        name_keeper(stage, attempt)
        kept.append(Path(stage))
    unknown = Path(root.keep(root.new_stage("u")))
    root.close()
    (runs[2].path / "rollouts").rename(runs[2].path / "elsewhere")  # somebody removed its results by hand
    runs[0].hold()
    assert gone(results, stages, runs=1) == [
        ("stage of an old run", kept[1].name),
        ("run", runs[1].name),
        ("stage without results", kept[2].name),
    ]
    runs[0].release()
    assert sorted((stages / "kept").iterdir()) == sorted([kept[0], unknown])
    assert os.listdir(stages / "keepers") == [kept[0].name]


def test_without_a_stage_root(results: ResultsFolder, stages: Path) -> None:
    assert gone(results, stages) == []
    assert not stages.exists()


def test_what_is_somebody_elses_stays(results: ResultsFolder, stages: Path) -> None:
    StageRoot(stages).close()
    for name in ("linux", ".git", "git-tools", ".git-1-x"):
        (stages / "sources" / name).mkdir(parents=True)
        os.utime(stages / "sources" / name, (1, 1))
    assert gone(results, stages) == []
    assert sorted(os.listdir(stages / "sources")) == [".git", "git-tools", "linux"]


def test_a_kept_stage_waits_for_results_that_may_have_moved(results: ResultsFolder, stages: Path) -> None:
    root = StageRoot(stages)
    run = results.open_run("2026-01-01T00-00-00Z-00000000")
    attempt = run.new_attempt("t", 0, 1)
    stage = Path(root.keep(root.new_stage("u")))
    name_keeper(str(stage), attempt)
    root.close()
    (attempt / "bundle.json").write_text(json.dumps({"stage": str(stage)}))
    results.path.rename(results.path.with_name("moved"))
    elsewhere = ResultsFolder(results.path.with_name("none"))
    assert gone(elsewhere, stages) == []
    os.utime(stages / "keepers" / stage.name, (1, 1))
    assert gone(elsewhere, stages) == [("stage without results", stage.name)]
