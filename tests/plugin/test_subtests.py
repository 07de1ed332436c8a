"""Subtests belong to the verdict of their test."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.plugin.conftest import Suite


def test_subtests(suite: Suite) -> None:
    ran = suite.run("""
        import pytest

        pytestmark = pytest.mark.rollout(agent="echo x > a")

        def test_all_pass(bundle, subtests):
            for number in range(2):
                with subtests.test("number", number=number):
                    assert bundle.exists("a")

        def test_some_fail(bundle, subtests, reward):
            with reward.check("made"):
                assert bundle.exists("a")
            for name in ("a", "b", "c"):
                with subtests.test(msg=name):
                    assert bundle.exists(name), f"no {name}"

        def test_one_errs(bundle, subtests):
            with subtests.test("fails"):
                assert bundle.exists("b")
            with subtests.test("errs"):
                bundle.stdout.nothing

        def test_check_in_a_subtest(bundle, subtests, reward):
            with subtests.test("one"), reward.check("one"):
                assert bundle.exists("b")
            with subtests.test("two"), reward.check("two"):
                assert bundle.exists("a")

        def test_skips_a_subtest(bundle, subtests):
            assert bundle.exit_code == 0
            with subtests.test("skipped"):
                pytest.skip("not on this machine")

        def test_skips_at_a_find(bundle, subtests):
            with subtests.test("skipped"):
                assert bundle.exists("a")
                pytest.skip("not this one")

        @pytest.fixture
        def in_a_fixture(bundle, subtests):
            with subtests.test("in a fixture"):
                assert bundle.exists("b"), "no b"

        def test_in_a_fixture(in_a_fixture, bundle):
            assert bundle.exists("a")
        """)
    assert ran.verdicts == {
        "test_all_pass": ("passed", None, 1.0),
        "test_some_fail": ("failed", None, 0.0),
        "test_one_errs": ("infra", "evaluator?", None),
        "test_check_in_a_subtest": ("failed", None, 0.5),
        "test_skips_a_subtest": ("infra", "evaluator?", None),
        "test_skips_at_a_find": ("failed", None, 0.0),
        "test_in_a_fixture": ("failed", None, 0.0),
    }
    assert ran.case("test_some_fail").message == "no b"
    text = ran.case("test_some_fail").text
    assert [line for line in text.splitlines() if "AssertionError: no" in line] == [
        "E               AssertionError: no b",
        "E               AssertionError: no c",
    ]
    assert len(ran.cases) == 7
    assert ran.types["test_one_errs"] == ("error", "infra.evaluator")
    assert ran.types["test_skips_at_a_find"] == ("failure", "check_crashed")
    assert ran.types["test_in_a_fixture"] == ("failure", "assertion")
    assert "1  × 1  made" in ran.section("test_some_fail")
    names = re.findall(r"^(SUBFAILED\S*|FAILED|INFRA|ERROR) .*::(\w+)", ran.text, re.MULTILINE)
    assert Counter(names) == Counter(
        {
            ("SUBFAILED[b]", "test_some_fail"): 1,
            ("SUBFAILED[c]", "test_some_fail"): 1,
            ("FAILED", "test_some_fail"): 1,
            ("SUBFAILED[fails]", "test_one_errs"): 1,
            ("SUBFAILED[errs]", "test_one_errs"): 1,
            ("INFRA", "test_one_errs"): 1,
            ("FAILED", "test_check_in_a_subtest"): 1,
            ("INFRA", "test_skips_a_subtest"): 1,
            ("FAILED", "test_skips_at_a_find"): 1,
            ("SUBFAILED[in", "test_in_a_fixture"): 1,
            ("FAILED", "test_in_a_fixture"): 1,
        }
    )
