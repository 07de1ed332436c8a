"""Rows of the table of outcomes where the harness failed: nothing is measured, and the exit status is 75."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.plugin.support import ALIKE

if TYPE_CHECKING:
    from tests.plugin.conftest import Suite


@ALIKE
def test_a_stage_that_is_not_provisioned(suite: Suite) -> None:
    suite.write({"space/file": "x", "gone/file": "y"})
    ran = suite.run("""
        import shutil
        from pathlib import Path
        import pytest

        @pytest.fixture
        def removes():
            shutil.rmtree(Path(__file__).parent / "gone", ignore_errors=True)  # the control run was here before

        @pytest.mark.rollout(agent="touch /stage/started;", workspace="space")
        def test_there(bundle):
            assert bundle.exists("file")

        @pytest.mark.rollout(agent="touch /stage/started;", workspace="gone")
        def test_gone(removes, bundle):
            assert bundle.exists("file")
        """)
    assert ran.verdicts == {"test_there": ("passed", None, 1.0), "test_gone": ("infra", "stage", None)}
    assert ran.types["test_gone"] == ("error", "infra.stage")
    message = f"the workspace {suite.root}/gone can't be read: No such file or directory"
    assert ran.case("test_gone").message == message
    assert not (ran.attempt("test_gone") / "bundle.json").exists()
    assert f"  1 × stage: {message}" in ran.block()


NO_BWRAP = """
    import pytest_rollout.executors.bwrap
    import pytest_rollout.executors.landlock
    pytest_rollout.executors.bwrap._candidates = lambda search: []
    pytest_rollout.executors.landlock.landlock_version = lambda: 0
    """


def test_isolation_that_is_refused(suite: Suite) -> None:
    ran = suite.run(
        """
        import pytest

        @pytest.mark.rollout(agent="touch started;", samples=2)
        def test_refused(bundle):
            assert bundle.exists("started")
        """,
        conftest=NO_BWRAP,
    )
    assert ran.verdicts == {f"test_refused[s{k}]": ("infra", "isolation", None) for k in (0, 1)}
    assert ran.types["test_refused[s0]"] == ("error", "infra.isolation")
    assert "rollout: no executor: no bubblewrap 0.11 or newer: there is none" in ran.lines
    assert ran.block() == [
        "2 rollouts: 0 passed, 0 failed, 2 infra",
        "infra: 2 isolation",
        "mean reward: none over 0 measured of 2 (2 unmeasured)",
        "  2 × isolation: no bubblewrap 0.11 or newer: there is none",
        "    | Rung 2: no bubblewrap 0.8 or newer: there is none",
        "    | Rung 4: this kernel has no Landlock, or it is switched off",
        "    | Install bubblewrap 0.11 or newer, or the extra: pip install 'pytest-rollout[sandbox]'.",
        "    | To run without isolation (results are marked untrusted): --rollout-executor=local"
        " --rollout-isolation=none",
        ran.block()[-1],
    ]
    assert ran.run is not None
    assert not (ran.run.path / "rollouts").exists()


@ALIKE
def test_a_program_that_is_not_started(suite: Suite) -> None:
    suite.write({"space/data": "not a program\n"})
    ran = suite.run("""
        import pytest

        @pytest.mark.rollout(agent="exit 126")
        def test_126(bundle):
            assert bundle.exit_code == 126

        @pytest.mark.rollout(agent="no-such-program --now")
        def test_127(bundle):
            assert bundle.exit_code == 127

        @pytest.mark.rollout(agent=["./program"], workspace="space")
        def test_list_missing(bundle):
            assert bundle.exit_code == 127

        @pytest.mark.rollout(agent=["./data"], workspace="space")
        def test_list_not_a_program(bundle):
            assert bundle.exit_code == 126
        """)
    assert ran.verdicts == {
        "test_126": ("infra", "spawn?", None),
        "test_127": ("infra", "spawn?", None),
        "test_list_missing": ("infra", "spawn?", None),
        "test_list_not_a_program": ("infra", "spawn?", None),
    }
    assert ran.case("test_126").message == "exit code 126: the agent's program, or one that it starts, is not runnable"
    assert ran.case("test_127").message == "exit code 127: the agent's program, or one that it starts, is not found"
    assert ran.case("test_127").properties["rollout.forgeable"] == "true"
    assert ran.types["test_127"] == ("error", "infra.spawn")
    assert "no-such-program" in ran.section("ERROR at setup of test_127")
    assert ran.bundle("test_127").exit_code == 127


def test_agents_that_say_or_show_that_they_are_broken(suite: Suite) -> None:
    suite.write(
        {
            "rollout.toml": """
            [agents.declares]
            command = ["sh", "-c", "echo started > a; exit $(($ROLLOUT_SAMPLE * 75))"]
            infra_exit_codes = [75]
            """
        }
    )
    ran = suite.run("""
        import pytest
        from pytest_rollout import AgentFailure

        def raises(stage):
            stage.run("echo made > a")
            raise RuntimeError("the model has no key")

        def fails(stage):
            assert stage.run("echo made > a; exit 4").exit_code == 4
            raise AgentFailure("it gave up")

        def acts(stage):
            stage.run(["sh", "-c", "echo made > a"])

        @pytest.mark.rollout(agent=raises)
        def test_raises(bundle):
            assert bundle.exists("a")

        @pytest.mark.rollout(agent=fails)
        def test_fails(bundle, reward):
            assert (bundle.exit_code, bundle.termination) == (1, "exit_code")
            assert [finding.message for finding in bundle.findings] == ["it gave up"]
            reward.add("made", float(bundle.read_text("a") == "made\\n"))

        @pytest.mark.rollout(agent=fails, score_on="completed")
        def test_fails_completed(bundle, reward):
            reward.add("made", float(bundle.exists("a")))

        @pytest.mark.rollout(agent=acts)
        def test_acts(bundle):
            assert (bundle.exit_code, bundle.read_text("a")) == (0, "made\\n")

        @pytest.mark.rollout(agent="declares", samples=2)
        def test_declares(bundle):
            assert bundle.read_text("a") == "started\\n"
        """)
    assert ran.verdicts == {
        "test_raises": ("infra", "agent", None),
        "test_fails": ("passed", None, 1.0),
        "test_fails_completed": ("failed", None, 0.0),
        "test_acts": ("passed", None, 1.0),
        "test_declares[s0]": ("passed", None, 1.0),
        "test_declares[s1]": ("infra", "agent?", None),
    }
    assert ran.case("test_raises").message == "the agent raised RuntimeError: the model has no key"
    assert ran.types["test_raises"] == ("error", "infra.agent")
    assert ran.types["test_fails_completed"] == ("failure", "termination.exit_code")
    declared = "the agent ended with exit code 75, which it declares for infrastructure"
    assert ran.case("test_declares[s1]").message == declared
    assert [change.path for change in ran.bundle("test_declares[s1]").changes] == ["a"]
    assert "with forgeable infra as 0: 0.625 over 5" in ran.block()


@ALIKE
def test_evidence_that_is_not_recorded(suite: Suite) -> None:
    """The folder of an attempt, its changes, its score, and the journal of results: each made unwritable in turn."""
    ran = suite.run(
        """
        import pytest
        from pathlib import Path

        def run_folder():
            (found,) = (Path(__file__).parent / ".rollout" / "runs").iterdir()
            return found

        def attempt_of(name):
            (found,) = (run_folder() / "rollouts").glob(f"test-{name}-*/s0/a1")
            return found

        def blocks_changes(stage):
            stage.run("echo x > a")
            (attempt_of("changes") / "changes").write_text("a file where a folder should be")

        @pytest.mark.rollout(agent=blocks_changes)
        def test_changes(bundle):
            assert bundle.exists("a")

        @pytest.mark.rollout(agent="echo x > a")
        def test_score(bundle):
            assert bundle.exists("a")
            (bundle.folder / "score.json").mkdir()

        @pytest.mark.rollout(agent="echo x > a")
        def test_fine(bundle):
            assert bundle.exists("a")

        @pytest.fixture
        def blocks_attempts():
            place = run_folder() / "rollouts"
            place.rename(place.with_name("moved"))
            place.write_text("a file where a folder should be")
            yield
            place.unlink()
            place.with_name("moved").rename(place)

        @pytest.mark.rollout(agent="echo x > a")
        def test_attempt(blocks_attempts, bundle):
            assert bundle.exists("a")
        """,
        "--dist=loadfile",
    )
    assert ran.verdicts == {
        "test_changes": ("infra", "recording", None),
        "test_score": ("infra", "recording", None),
        "test_fine": ("passed", None, 1.0),
        "test_attempt": ("infra", "recording", None),
    }
    assert ran.types["test_score"] == ("error", "infra.recording")
    assert "can't be written" in ran.case("test_attempt").message


def test_results_that_can_not_be_recorded(suite: Suite) -> None:
    """The disk is full when the line of results is written: only the process's report tells."""
    ran = suite.run(
        """
        import os
        from pathlib import Path
        import pytest

        @pytest.mark.rollout(agent="echo x > a")
        def test_first(bundle):
            assert bundle.exists("a")

        @pytest.mark.rollout(agent="echo x > a")
        def test_unrecorded(bundle):
            assert bundle.exists("a")
            (journal,) = (bundle.folder.parents[3] / "results").glob("*.jsonl")
            os.dup2(os.open("/dev/full", os.O_WRONLY), next(fd for fd in range(3, 99) if opens(fd, journal)))

        def opens(fd, path):
            try:
                return os.readlink(f"/proc/self/fd/{fd}") == str(path)
            except OSError:
                return False
        """,
        "--dist=loadfile",
        checked=False,
    )
    recorded: dict[str, object] = {"test_first": ("passed", None, 1.0)}
    if suite.workers == "-n2":  # the controller has a journal of its own
        recorded["test_unrecorded"] = ("infra", "host", None)
    assert ran.verdicts == recorded
    (case,) = [case for case in ran.cases if case.name == "test_unrecorded"]
    assert (case.verdict, case.type) == ("error", "infra.host")
    assert case.message.endswith(".jsonl: No space left on device")
    assert "reward" not in {name.removeprefix("rollout.") for name in case.properties}
    assert "2 rollouts: 1 passed, 0 failed, 1 infra" in ran.block()
    warned = "warning: test_suite.py::test_unrecorded: its result could not be recorded" in ran.block()
    assert warned == (suite.workers == "-n0")
    assert ran.status == 75
