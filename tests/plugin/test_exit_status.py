"""The exit status of a session: pytest's own, and 75 where anything is unmeasured."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.plugin.support import ALIKE, cases

if TYPE_CHECKING:
    from tests.plugin.conftest import Suite

PASSES = """
    import pytest

    @pytest.mark.rollout(agent="echo x > a")
    def test_passes(bundle):
        assert bundle.exists("a")
    """
FAILS = """
    @pytest.mark.rollout(agent="echo x > a")
    def test_fails(bundle):
        assert bundle.exists("b")
    """
INFRA = """
    @pytest.mark.rollout(agent="exit 127")
    def test_infra(bundle):
        assert bundle.exists("a")
    """
PLAIN = """
    def test_plain_fails():
        assert 1 == 2
    """


@cases(
    "parts, status",
    {
        "passes": ((PASSES,), 0),
        "fails": ((PASSES, FAILS), 1),
        "infra": ((PASSES, INFRA), 75),
        "infra beside a failure": ((PASSES, FAILS, INFRA), 75),
        "another test fails": ((PASSES, PLAIN), 1),
        "infra beside another test's failure": ((PASSES, INFRA, PLAIN), 75),
    },
    n2=("fails", "infra beside another test's failure"),
)
def test_statuses(suite: Suite, parts: tuple[str, ...], status: int) -> None:
    assert suite.run("".join(parts)).status == status


def test_nothing_collected_and_nothing_selected(suite: Suite) -> None:
    ran = suite.run(PASSES, "-k", "no_such_test")
    assert (ran.status, ran.run) == (5, None)
    assert not (suite.root / ".rollout").exists()
    ran = suite.run("import pytest\n")
    assert (ran.status, ran.run) == (5, None)


@ALIKE
def test_usage(suite: Suite) -> None:
    ran = suite.run(PASSES, "--rollout-samples=none")
    assert (ran.status, ran.run) == (4, None)
    assert "rollout: --rollout-samples: 'none' is not a whole number from 1 to 1000000" in ran.text + ran.errors


def test_collection_error(suite: Suite) -> None:
    """As without this plugin: pytest does not start, pytest-xdist runs what it has."""
    suite.write({"test_broken.py": "import no_such_module\n"})
    ran = suite.run(PASSES)
    status, started = {"-n0": (2, 0), "-n2": (1, 1)}[suite.workers]
    assert (ran.status, len(ran.results)) == (status, started)


MANY = """
    import pytest

    @pytest.mark.rollout(agent="echo x > a")
    @pytest.mark.parametrize("number", range(20))
    def test_many(bundle, number):
        assert bundle.exists(WANTED)
    """


@pytest.mark.parametrize("option", ["-x", "--maxfail=2"])
def test_stopping_early(suite: Suite, option: str) -> None:
    ran = suite.run(MANY.replace("WANTED", "'b'"), option, checked=False)
    assert ran.status == 1
    assert 1 <= len(ran.results) < 20
    assert {verdict[0] for verdict in ran.verdicts.values()} == {"failed"}
    (line, *_) = ran.block()
    assert line == f"{_rollouts(len(ran.results))}: 0 passed, {len(ran.results)} failed, 0 infra; " + (
        f"{20 - len(ran.results)} not run"
    )
    assert not any(line.startswith("LOST") for line in ran.block())
    assert ran.cases
    assert {case.verdict for case in ran.cases} == {"failure"}
    assert list((suite.stage_root / "stages").iterdir()) == []


def test_stopping_early_at_infra(suite: Suite) -> None:
    ran = suite.run(MANY.replace("echo x > a", "exit 127").replace("WANTED", "'b'"), "-x", checked=False)
    assert ran.status == 75
    assert {verdict[:2] for verdict in ran.verdicts.values()} == {("infra", "spawn?")}


def _rollouts(number: int) -> str:
    return f"{number} rollout" if number == 1 else f"{number} rollouts"


@ALIKE
def test_stopping_early_that_does_not_come_to_it(suite: Suite) -> None:
    ran = suite.run(MANY.replace("WANTED", "'a'").replace("range(20)", "range(4)"), "-x")
    assert (ran.status, len(ran.results)) == (0, 4)


def test_a_body_that_interrupts(suite: Suite) -> None:
    ran = suite.run(
        """
        import pytest

        @pytest.mark.rollout(agent="echo x > a")
        def test_passes(bundle):
            assert bundle.exists("a")

        @pytest.mark.rollout(agent="echo x > a")
        def test_interrupts(bundle):
            assert bundle.exists("a")
            raise KeyboardInterrupt
        """,
        "--dist=loadfile",
        checked=False,
    )
    assert ran.status == 2
    assert ran.verdicts == {"test_passes": ("passed", None, 1.0), "test_interrupts": ("infra", "cancelled", None)}
    assert ("test_passes", "passed", "") in [(case.name, case.verdict, case.type) for case in ran.cases]
    told = [(case.name, case.verdict, case.type) for case in ran.cases if case.name != "test_passes"]
    assert told == [("test_interrupts", "error", "infra.cancelled")]  # pytest itself reports nothing of it
    assert ran.results["test_interrupts"].message == "the session was interrupted"
    assert "infra: 1 cancelled" in ran.block()


def test_an_interrupt_while_agents_run(suite: Suite) -> None:
    ready = suite.root / "ready"
    os.mkfifo(ready)
    suite.write(
        {
            "test_suite.py": f"""
                import pytest

                def sleeps(stage):
                    open({str(ready)!r}, "w").close()
                    stage.run("echo x > a; sleep 300")

                @pytest.mark.rollout(agent=sleeps)
                def test_sleeps(bundle):
                    assert bundle.exists("a")
                """
        }
    )
    arguments = ["-p", "xdist", "-p", "rollout", suite.workers, "--junitxml=report.xml"]
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *arguments],
        cwd=suite.root,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        with open(ready) as started:
            started.read()
        os.killpg(process.pid, signal.SIGINT)
        text, _ = process.communicate(timeout=120)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    assert process.returncode == 2, text
    ran = suite.left(text)
    assert ran.verdicts == {"test_sleeps": ("infra", "cancelled", None)}
    assert "1 rollout: 0 passed, 0 failed, 1 infra" in ran.block()
    assert list((suite.stage_root / "stages").iterdir()) == []


@ALIKE
def test_an_interrupt_that_another_thread_takes(suite: Suite) -> None:
    """The kernel may give a signal to any thread, or to this one just before it waits: its wait goes on then."""
    ran = suite.run(
        """
        import signal
        import threading

        import pytest

        def interrupts(stage):
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)
            stage.run("echo x > a; sleep 250")

        @pytest.mark.rollout(agent=interrupts)
        def test_sleeps(bundle):
            assert bundle.exists("a")
        """,
        checked=False,
    )
    assert ran.status == 2
    assert ran.verdicts == {"test_sleeps": ("infra", "cancelled", None)}


@cases("controls", {"auto": ("auto",), "none": ("none",)}, n2=("none",))
def test_an_interrupt_while_the_thread_starts(suite: Suite, controls: str) -> None:
    """The thread of an attempt, or of a control run, may run before its start returns: cancelled and recorded."""
    ran = suite.run(
        """
        import pytest

        @pytest.mark.rollout(agent="echo x > a; sleep 300")
        def test_sleeps(bundle):
            assert bundle.exists("a")
        """,
        f"--rollout-controls={controls}",
        conftest="""
            import threading

            start = threading.Thread.start

            def interrupted(self):
                start(self)
                if self.name == "rollout":
                    raise KeyboardInterrupt

            threading.Thread.start = interrupted
            """,
        checked=False,
    )
    assert ran.status == 2
    assert ran.verdicts == {"test_sleeps": ("infra", "cancelled", None)}
    assert list((suite.stage_root / "stages").iterdir()) == []
