"""Stored bundles scored again: no agent, today's checks, the old scores where nothing changed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_rollout.store.folder import read_record
from pytest_rollout.store.records import RunRecord, SourceRun

if TYPE_CHECKING:
    from tests.plugin.conftest import Suite

SUITE = """
    import pytest
    from pathlib import Path

    RAN = Path(__file__).parent / "ran"

    def works(stage):
        with RAN.open("a") as file:
            file.write("ran\\n")
        stage.run(["sh", "-c", '''
            printf 'def add(a, b):\\\\n    return a + b\\\\n' > calc.py; chmod 755 calc.py; rm -r old
            ln -s calc.py link; mkdir -p empty/deeper; echo $ROLLOUT_SAMPLE > sample; echo said'''])

    @pytest.mark.rollout(agent=works, workspace="space", hidden="hidden", samples=3, threshold=0.5)
    def test_calc(bundle, reward):
        with reward.check("hidden tests", weight=3):
            assert bundle.run_tests(expect=["test_calc.py::test_add"]).passed
        reward.add("call", bundle.call("calc:add", 2, 3) == 5)
        reward.add("mode", bundle.run("stat -c %a calc.py").output == "755\\n")
        reward.add("gone", not bundle.exists("old/file"))
        reward.add("tree", bundle.glob("**") == ["calc.py", "empty", "empty/deeper", "link", "sample"])
        reward.add("lines", bundle.diff.lines_changed == 4)
        reward.add("sample", int(bundle.read_text("sample")) / 4)
        reward.add("said", bundle.stdout == "said\\n" and bundle.exit_code == 0)

    @pytest.mark.rollout(agent="exit 127")
    def test_spawn(bundle):
        assert bundle.exit_code == 0

    @pytest.mark.rollout(agent="echo x > x")
    def test_crashes(bundle):
        raise KeyError(bundle.read_text("x"))

    @pytest.mark.rollout(agent="echo x > x")
    def test_removed(bundle):
        assert bundle.exists("x")
"""
FILES = {
    "space/calc.py": "def add(a, b):\n    return a - b\n",
    "space/old/file": "old\n",
    "hidden/test_calc.py": "from calc import add\n\n\ndef test_add():\n    assert add(2, 3) == 5\n",
}
INI = "norecursedirs = hidden space"


def ran(suite: Suite) -> int:
    """How often the agent acted."""
    return len((suite.root / "ran").read_text().splitlines())


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file of a run, with its time."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink()]
    return {str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def test_a_run_is_scored_again(suite: Suite) -> None:
    suite.ini(INI)
    suite.write(FILES)
    first = suite.run(SUITE, "--rollout-controls=none")
    assert first.run is not None
    assert [first.results[f"test_calc[s{n}]"].reward for n in range(3)] == pytest.approx([0.9, 0.925, 0.95])
    acted, before = ran(suite), snapshot(first.run.path)
    assert acted == 3

    suite.ini(INI, "rollout_agent = noop", "rollout_samples = 2")  # of what is stored nothing is asked
    same = suite.run(None, "--rollout-rescore=last", "--rollout-controls=none")
    assert same.run is not None
    assert same.verdicts == first.verdicts
    assert (ran(suite), snapshot(first.run.path)) == (acted, before)
    record = read_record(same.run.record, RunRecord)
    assert record.source == SourceRun(run=first.run.name, folder=str(first.run.path))
    source = same.results["test_calc[s1]"].source
    assert source is not None
    assert (source.run, source.rollout, source.reward) == (
        first.run.name,
        first.results["test_calc[s1]"].rollout,
        first.results["test_calc[s1]"].reward,
    )
    assert same.case("test_calc[s1]").properties["rollout.source"] == source.rollout
    assert same.bundle("test_calc[s1]").changes == first.bundle("test_calc[s1]").changes
    assert same.results["test_calc[s1]"].agent == first.results["test_calc[s1]"].agent
    assert "mean reward 0.9625 of 4 → 0.9625 of 4; 0 of 6 scores changed" in "\n".join(same.block())

    better = SUITE.replace("/ 4", "/ 2").replace("raise KeyError(bundle.read_text", "assert (bundle.exists")
    again = suite.run(better.replace("test_removed", "test_new"), f"--rollout-rescore={first.run.path}")
    assert again.run is not None
    assert [again.results[f"test_calc[s{n}]"].reward for n in range(3)] == pytest.approx([0.9, 0.95, 1.0])
    assert again.verdicts["test_crashes"] == ("passed", None, 1.0)
    assert again.verdicts["test_spawn"] == ("infra", "spawn?", None)
    assert f"it measured nothing in {first.run.name}: exit code 127" in again.case("test_spawn").message
    assert ran(suite) == acted
    assert again.plan is not None
    assert again.plan.notes == (
        f"left out, because {first.run.name} has no rollout of them: test_suite.py::test_new",
        f"not scored again, because no selected test is theirs: {first.results['test_removed'].rollout}",
    )
    assert "rollout: no agent runs: 5 stored bundles of 3 tasks" in again.text
    told = [line for line in again.block() if line.startswith(("scored again", "  test_suite"))]
    assert [text.partition("; checks ")[0] for text in told] == [
        f"scored again: 5 rollouts of {first.run.name}; mean reward 0.925 of 3 → 0.975 of 4; 3 of 5 scores changed",
        "  test_suite.py::test_calc: mean reward 0.925 → 0.95; 2 of 3 scores changed",
        "  test_suite.py::test_crashes: mean reward none of 0 → 1; 1 of 1 score changed",
    ]


@pytest.mark.parametrize("workers", ["-n0"], indirect=True)
def test_what_can_not_be_scored_again(suite: Suite) -> None:
    suite.write({"space/a.txt": "old\n"})
    source = """
        import pytest

        @pytest.mark.rollout(agent="echo new > b.txt", workspace="space")
        def test_it(bundle):
            try:
                assert bundle.read_text("b.txt") == "new\\n"
            except Exception:
                pass
    """
    first = suite.run(source, "--rollout-controls=none", "--rollout-keep=none")
    assert first.run is not None and first.verdicts == {"test_it": ("passed", None, 1.0)}
    wanted = first.bundle("test_it").pins.environment_revision or ""
    (first.attempt("test_it") / "changes" / "b.txt").unlink()
    lost = suite.run(None, "--rollout-rescore=last", "--rollout-controls=none")
    assert lost.verdicts == {"test_it": ("infra", "recording", None)}  # and the body swallowed it
    assert "the content of b.txt was not kept" in lost.case("test_it").message

    suite.write({"space/a.txt": "new\n"})
    baseline = suite.stage_root / "baselines" / wanted.removeprefix("sha256:")
    baseline.rename(suite.stage_root / "elsewhere")
    changed = suite.run(None, f"--rollout-rescore={first.run.name[-8:]}", "--rollout-controls=none")
    assert changed.verdicts == {"test_it": ("infra", "stage", None)}
    message = changed.results["test_it"].message
    assert f"and the agent started from {wanted}, which this machine does not have any more" in message
    assert "the workspace is sha256:" in message

    for words, said in (
        (("--rollout-rescore=nothing",), "--rollout-rescore: no run begins with 'nothing'"),
        (("--rollout-rescore=last", "--rollout-agent=noop"), "it can't be used with --rollout-agent: no agent runs"),
    ):
        refused = suite.run(None, *words)
        assert (refused.status, refused.run) == (4, None)
        assert said in refused.errors
    other = suite.run(source.replace("test_it", "test_other"), "--rollout-rescore=last")
    assert (other.status, other.run) == (4, None)
    assert "--rollout-rescore: no test that is selected has a rollout in " in other.errors
