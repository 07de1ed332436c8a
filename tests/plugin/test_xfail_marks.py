"""Marks of xfail: pytest's word changes, the outcome of the rollout does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.plugin.support import ALIKE

if TYPE_CHECKING:
    from tests.plugin.conftest import Suite


def test_marks_of_xfail(suite: Suite) -> None:
    ran = suite.run("""
        import pytest

        pytestmark = pytest.mark.rollout(agent="echo x > a")

        @pytest.mark.xfail(reason="known")
        def test_fails(bundle):
            assert bundle.exists("b")

        @pytest.mark.xfail(reason="known")
        def test_below(bundle, reward):
            reward.add("half", 0.5)

        @pytest.mark.xfail(reason="known", raises=AssertionError)
        def test_below_raises(bundle, reward):
            reward.add("half", 0.5)

        @pytest.mark.xfail(reason="known", strict=False)
        def test_passes(bundle):
            assert bundle.exists("a")

        @pytest.mark.xfail(reason="known", strict=True)
        def test_passes_strictly(bundle):
            assert bundle.exists("a")

        @pytest.mark.xfail(reason="known")
        def test_infra(bundle):
            raise KeyError("x")

        @pytest.mark.xfail(reason="known")
        @pytest.mark.rollout(agent="exit 127")
        def test_infra_in_setup(bundle):
            assert bundle.exists("a")

        @pytest.mark.xfail(reason="known", run=False)
        def test_not_run(bundle):
            assert bundle.exists("a")
        """)
    assert ran.verdicts == {
        "test_fails": ("failed", None, 0.0),
        "test_below": ("failed", None, 0.5),
        "test_below_raises": ("failed", None, 0.5),
        "test_passes": ("passed", None, 1.0),
        "test_passes_strictly": ("passed", None, 1.0),
        "test_infra": ("infra", "evaluator?", None),
        "test_infra_in_setup": ("infra", "spawn?", None),
    }
    assert {node: ran.case(node).verdict for node in ran.results} == {
        "test_fails": "skipped",
        "test_below": "skipped",
        "test_below_raises": "skipped",
        "test_passes": "passed",
        "test_passes_strictly": "failure",
        "test_infra": "error",
        "test_infra_in_setup": "error",
    }
    assert ran.types["test_fails"] == ("skipped", "pytest.xfail")
    assert ran.types["test_passes_strictly"] == ("failure", "pytest")
    assert ran.case("test_passes_strictly").message == "[XPASS(strict)] known"
    assert ran.counts == {"failed": 1, "xfailed": 4, "xpassed": 1, "errors": 2}
    assert "7 rollouts: 2 passed, 3 failed, 2 infra; 1 not run" in ran.block()
    assert ran.status == 75


@ALIKE
def test_marks_of_xfail_alone_do_not_change_the_exit_status(suite: Suite) -> None:
    ran = suite.run("""
        import pytest

        @pytest.mark.xfail(reason="known")
        @pytest.mark.rollout(agent="echo x > a")
        def test_fails(bundle):
            assert bundle.exists("b")
        """)
    assert ran.verdicts == {"test_fails": ("failed", None, 0.0)}
    assert ran.status == 0
