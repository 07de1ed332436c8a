"""The body of a test ends in time, whatever a candidate wrote."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING

from tests.plugin.support import ALIKE, PLUGINS, session

if TYPE_CHECKING:
    import pytest

    from tests.plugin.conftest import Suite


@ALIKE
def test_a_body_that_does_not_end(suite: Suite) -> None:
    ran = suite.run("""
        import re
        import time

        import pytest
        from pytest_rollout import Limits

        pytestmark = pytest.mark.rollout(
            agent="printf aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa > a", limits=Limits(body="300ms")
        )

        def test_a_regular_expression(bundle):
            assert re.fullmatch("(a+)+b", bundle.read_text("a"))

        def test_in_a_check(bundle, reward):
            with reward.check("first"):
                assert bundle.exists("a")
            with reward.check("second", catch=(Exception,)):
                while bundle.exists("a"):
                    pass

        def test_catches_everything(bundle):
            while bundle.exists("a"):
                try:
                    time.sleep(60)
                except Exception:
                    pass

        def test_the_no_op_hangs_too(bundle):
            assert bundle.termination == "completed"
            time.sleep(60)

        def test_in_time(bundle):
            assert bundle.exists("a")
    """)
    assert ran.verdicts == {
        "test_a_regular_expression": ("failed", None, 0.0),
        "test_in_a_check": ("failed", None, 0.0),
        "test_catches_everything": ("failed", None, 0.0),
        "test_the_no_op_hangs_too": ("infra", "evaluator?", None),
        "test_in_time": ("passed", None, 1.0),
    }
    for node in ("test_a_regular_expression", "test_in_a_check", "test_catches_everything"):
        assert ran.types[node] == ("failure", "check_crashed")
        assert ran.score(node).message == (
            "the test raised BodyLimit: the body of the test took longer than 0.3 s, "
            "which it does not on a bundle of the evaluator's own"
        )


@ALIKE
def test_fixtures_that_read_the_evidence_count_too(suite: Suite) -> None:
    ran = suite.run("""
        import re
        import time

        import pytest
        from pytest_rollout import Limits

        AS = "printf aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa > a"

        @pytest.fixture
        def before():
            time.sleep(0.6)

        @pytest.fixture
        def parsed(before, bundle):
            return bundle.exists("a") and re.fullmatch("(a+)+b", bundle.read_text("a"))

        @pytest.fixture
        def rollout_task(rollout_task):
            limit = "400ms" if rollout_task.id.endswith("short") else "100s"
            return rollout_task.replace(limits=Limits(body=limit).over(rollout_task.limits))

        @pytest.mark.rollout(agent=AS)
        def test_short(parsed, bundle):
            assert not parsed

        @pytest.mark.rollout(agent="sleep 0.6; echo 1 > b")
        def test_in_time(before, parsed, bundle):
            assert not parsed
    """)
    assert ran.verdicts == {"test_short": ("failed", None, 0.0), "test_in_time": ("passed", None, 1.0)}
    assert ran.types["test_short"] == ("failure", "check_crashed")


@ALIKE
def test_a_limit_that_the_body_swallows_counts_all_the_same(suite: Suite) -> None:
    ran = suite.run("""
        import time

        import pytest
        from pytest_rollout import Limits

        pytestmark = pytest.mark.rollout(agent="echo 1 > a", limits=Limits(body="300ms"))

        def test_swallows(bundle):
            try:
                time.sleep(60 if bundle.exists("a") else 0)
            except BaseException:
                pass

        def test_in_a_check(bundle, reward):
            with reward.check("it", catch=(BaseException,)):
                time.sleep(60 if bundle.exists("a") else 0)
            reward.add("other", 1)
    """)
    assert ran.verdicts == {"test_swallows": ("failed", None, 0.0), "test_in_a_check": ("failed", None, 0.0)}
    message = "the test raised BodyLimit: the body of the test went on after its limit of 0.3 s"
    assert ran.score("test_swallows").message.startswith(message)


@ALIKE
def test_evaluations_do_not_count(suite: Suite) -> None:
    ran = suite.run("""
        import pytest
        from pytest_rollout import Limits

        @pytest.mark.rollout(agent="exec true", limits=Limits(body="500ms", evaluation="10s"))
        def test_waits(bundle):
            assert bundle.run("sleep 1; echo done").stdout == "done\\n"

        @pytest.mark.rollout(agent="exec true", limits=Limits(evaluation="300ms"))
        def test_waits_too_long(bundle):
            bundle.run("sleep 30; echo done")
    """)
    assert ran.verdicts == {"test_waits": ("passed", None, 1.0), "test_waits_too_long": ("failed", None, 0.0)}
    assert (
        ran.score("test_waits_too_long").message == "sh -c 'sleep 30; echo done' ended by wall_limit: 0.3 s are allowed"
    )


@ALIKE
def test_a_candidate_does_not_say_how_many_evaluations_there_are(suite: Suite) -> None:
    ran = suite.run("""
        import pytest
        from pytest_rollout import Limits

        SLOW = "for i in 1 2 3 4 5 6 7 8 9; do echo 'import time; time.sleep(60)' > m$i.py; done"

        @pytest.mark.rollout(agent=SLOW, limits=Limits(evaluation="100ms"))
        def test_each(bundle, reward):
            for path in bundle.glob("*.py") * 3:
                with reward.check(f"{path} {len(reward.checks)}"):
                    assert bundle.call(f"{path[:-3]}:f") == 1
    """)
    assert ran.verdicts == {"test_each": ("failed", None, 0.0)}
    score = ran.score("test_each")
    message = "the test raised BodyLimit: the evaluations of this rollout took longer than 1 s together"
    assert score.message.startswith(message)
    assert 0 < len(score.checks) < 27


ENDLESS = """
    import pytest
    from pytest_rollout import Limits

    pytestmark = pytest.mark.rollout(agent="echo 1 > a", limits=Limits(body="200ms"))

    def test_before(bundle):
        assert bundle.exists("a")

    def test_in_c(bundle):
        assert bundle.exists("a") and sum(range(10**15)) == 1

    def test_after(bundle):
        assert bundle.exists("a")
"""
SOON = """
    import pytest_rollout.lastresort

    pytest_rollout.lastresort._LEAST = 0.5
"""


def test_code_that_looks_at_no_signals_ends_with_its_process(suite: Suite, pytester: pytest.Pytester) -> None:
    suite.write({"test_suite.py": ENDLESS, "conftest.py": SOON})
    done = session(pytester, *PLUGINS, suite.workers)
    found = {node: (result.outcome, result.kind, result.forgeable) for node, result in done.results.items()}
    passed = ("passed", None, False)
    if suite.workers == "-n0":
        assert (done.status, found) == (-signal.SIGPROF, {"test_before": passed})
    else:
        lost = ("infra", "worker", True)
        assert (done.status, found) == (75, {"test_before": passed, "test_in_c": lost, "test_after": passed})
    assert re.search(r'test_suite\.py", line 11 in test_in_c$', done.errors, re.M)
