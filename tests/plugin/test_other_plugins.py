"""With plugins of pytest's taken away, with others beside it, and in other modes of pytest's."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING

import pytest

from tests.plugin.support import ALIKE, SUITE, cases, left_of_stages, marker, processes, session

if TYPE_CHECKING:
    from tests.plugin.conftest import Suite
    from tests.plugin.support import Session

UNMEASURED = 75
SOURCE = """
    import pytest

    WRITES = "echo hi > a.txt"

    @pytest.mark.rollout(agent=WRITES)
    def test_passes(bundle):
        assert bundle.read_text("a.txt") == "hi\\n"

    @pytest.mark.rollout(agent=WRITES)
    def test_fails(bundle, reward):
        reward.add("half", 0.5)

    @pytest.mark.rollout(agent=WRITES)
    def test_is_infra(bundle):
        pass

    def test_plain():
        pass
"""
JUDGED = {
    "test_passes": ("passed", None, 1.0),
    "test_fails": ("failed", None, 0.5),
    "test_is_infra": ("infra", "vacuous", None),
}


def judged(done: Session) -> dict[str, tuple[str, str | None, float | None]]:
    return {node: (result.outcome, result.kind, result.reward) for node, result in done.results.items()}


def run(suite: Suite, pytester: pytest.Pytester, *args: str, xdist: bool = True) -> Session:
    """Run the three rollouts and the plain test with these arguments."""
    suite.write({SUITE: SOURCE})
    workers = ("-p", "xdist", suite.workers) if xdist else ()
    done = session(pytester, "-p", "rollout", *workers, *args)
    assert judged(done) == JUDGED
    assert (done.status, done.errors) == (UNMEASURED, "")
    assert len(done.lines) == 3
    assert left_of_stages(suite) == []
    return done


@cases(
    "args",
    {
        "no:junitxml": (["-p", "no:junitxml"],),
        "no:cacheprovider": (["-p", "no:cacheprovider"],),
        "no:logging": (["-p", "no:logging"],),
        "no:skipping": (["-p", "no:skipping"],),
        "no:subtests": (["-p", "no:subtests"],),
        "no:exceptions": (["-p", "no:threadexception", "-p", "no:unraisableexception"],),
        "-W error": (["-W", "error"],),
        "importlib": (["--import-mode=importlib"],),
        "-s": (["-s"],),
        "--assert=plain": (["--assert=plain"],),
    },
    n2=("no:junitxml", "no:logging", "-W error"),
)
def test_modes_of_pytest(suite: Suite, pytester: pytest.Pytester, args: list[str]) -> None:
    done = run(suite, pytester, *args)
    assert "3 rollouts: 1 passed, 1 failed, 1 infra" in done.text.splitlines()
    assert pytest.RunResult.parse_summary_nouns(done.text.splitlines()) == {"passed": 2, "failed": 1, "errors": 1}


def test_without_a_terminal(suite: Suite, pytester: pytest.Pytester) -> None:
    assert run(suite, pytester, "-p", "no:terminal").text == ""


@ALIKE
def test_without_xdist(suite: Suite, pytester: pytest.Pytester) -> None:
    """As in an environment where it is not installed."""
    done = run(suite, pytester, "-p", "no:xdist", xdist=False)
    assert "3 rollouts: 1 passed, 1 failed, 1 infra" in done.text.splitlines()


def test_xdist_by_the_name_of_its_module(suite: Suite, pytester: pytest.Pytester) -> None:
    run(suite, pytester, "-p", "xdist.plugin", "-p", "xdist.looponfail", suite.workers, xdist=False)


def test_a_report_of_pytest_html(suite: Suite, pytester: pytest.Pytester) -> None:
    """It counts what failed in the call as failed, also infrastructure; its text says which it is."""
    pytest.importorskip("pytest_html")
    run(suite, pytester, "-p", "metadata", "-p", "html", "--html=report.html", "--self-contained-html")
    page = html.unescape((suite.root / "report.html").read_text(encoding="utf-8"))
    counts = re.findall(r"(\d+) (Failed|Passed|Errors)", page)
    assert {name: int(number) for number, name in counts} == {"Failed": 2, "Passed": 2, "Errors": 0}
    assert "reward 0.5 is below the threshold 1" in page
    assert "infra vacuous: the test looked at nothing of the bundle and recorded no check" in page


@ALIKE
def test_a_time_limit_of_pytest_timeout_ends_the_agent(suite: Suite, pytester: pytest.Pytester) -> None:
    pytest.importorskip("pytest_timeout")
    word = marker()
    source = f"""
        import pytest

        @pytest.mark.rollout(agent="touch begun; setsid sleep {word} & sleep {word}")
        def test_long(bundle):
            assert bundle.exit_code == 0

        @pytest.mark.rollout(agent="true; true")
        def test_short(bundle):
            assert bundle.exit_code == 0
    """
    suite.write({SUITE: source})
    done = session(pytester, "-p", "xdist", "-p", "rollout", "-p", "timeout", suite.workers, "--timeout=1.5")
    assert {node: (result.outcome, result.kind) for node, result in done.results.items()} == {
        "test_long": ("infra", "cancelled"),
        "test_short": ("passed", None),
    }
    said = "the test was ended while the agent ran: Failed: Timeout (>1.5s) from pytest-timeout."
    assert done.results["test_long"].message == said
    assert done.status == UNMEASURED
    (change,) = [path.name for path in (suite.root / ".rollout").glob("runs/*/rollouts/test-long*/s0/a1/changes/*")]
    assert change == "begun", "the agent ran"
    assert processes(word) == set()
    assert left_of_stages(suite) == []
