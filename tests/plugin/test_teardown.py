"""What happens after the verdict changes nothing but the record, which gets a warning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.plugin.support import ALIKE

if TYPE_CHECKING:
    from tests.plugin.conftest import Suite


def test_a_teardown_that_fails_after_scoring(suite: Suite) -> None:
    ran = suite.run("""
        import pytest

        pytestmark = pytest.mark.rollout(agent="echo x > a")

        @pytest.fixture
        def breaks(bundle):
            yield
            raise RuntimeError("can't\\nclean up")

        @pytest.fixture
        def asserts():
            yield
            assert 1 == 2, "not clean"

        def test_passes(breaks, bundle):
            assert bundle.exists("a")

        def test_passes_too(asserts, bundle):
            assert bundle.exists("a")

        def test_fails(breaks, bundle):
            assert bundle.exists("b")

        def test_infra(breaks, bundle):
            raise KeyError("x")
        """)
    assert ran.verdicts == {
        "test_passes": ("passed", None, 1.0),
        "test_passes_too": ("passed", None, 1.0),
        "test_fails": ("failed", None, 0.0),
        "test_infra": ("infra", "evaluator?", None),
    }
    assert ran.types["test_passes"] == ("passed", "")
    assert ran.results["test_passes"].warnings == ("the teardown failed: test_suite.py:9: RuntimeError: can't",)
    assert ran.results["test_passes_too"].warnings == (
        "the teardown failed: test_suite.py:14: AssertionError: not clean",
    )
    assert ran.results["test_infra"].warnings == ("the teardown failed: test_suite.py:9: RuntimeError: can't",)
    assert ran.counts == {"passed": 2, "failed": 1, "errors": 1}
    assert (
        "warning: test_suite.py::test_passes: the teardown failed: test_suite.py:9: RuntimeError: can't" in ran.block()
    )
    assert ran.status == 75


@ALIKE
def test_a_reward_that_comes_after_the_verdict(suite: Suite) -> None:
    ran = suite.run("""
        import pytest

        CALLS = {
            "check": lambda reward: reward.check("late").__enter__(),
            "add": lambda reward: reward.add("late", 0),
            "set": lambda reward: reward.set(0),
            "metric": lambda reward: reward.metric("late", 0),
        }

        @pytest.fixture(params=CALLS)
        def late(bundle, reward, request):
            yield
            CALLS[request.param](reward)

        @pytest.mark.rollout(agent="echo x > a")
        def test_it(late, bundle):
            assert bundle.exists("a")
        """)
    assert set(ran.verdicts.values()) == {("passed", None, 1.0)}
    warnings = {node[8:-1]: result.warnings for node, result in ran.results.items()}
    assert warnings == {
        method: (
            f"the teardown failed: test_suite.py:{line}: pytest_rollout.errors.CheckerError: "
            f"reward.{method}('{'reward' if method == 'set' else 'late'}'): the rollout is judged already",
        )
        for line, method in enumerate(("check", "add", "set", "metric"), start=5)
    }
    assert ran.status == 0


@ALIKE
def test_a_teardown_alone_does_not_change_the_exit_status(suite: Suite) -> None:
    ran = suite.run("""
        import pytest

        @pytest.fixture
        def breaks():
            yield
            raise RuntimeError("no")

        @pytest.mark.rollout(agent="echo x > a")
        def test_passes(breaks, bundle):
            assert bundle.exists("a")
        """)
    assert ran.counts == {"passed": 1}
    assert ran.status == 0
