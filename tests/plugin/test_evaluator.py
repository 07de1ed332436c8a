"""What a suite does beside its checks: errors, skips, fixtures, teardowns, subtests, marks of xfail."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.plugin.conftest import Suite


def test_a_body_that_raises_or_skips(suite: Suite) -> None:
    ran = suite.run("""
        import pytest

        pytestmark = pytest.mark.rollout(agent="echo '[]' > a.json")

        def test_key_error(bundle):
            bundle.read_json("a.json")["answer"]

        def test_own_error(bundle, reward):
            with reward.check("made"):
                assert bundle.exists("a.json")
            raise RuntimeError("line one\\nline two")

        def test_error_in_a_check(bundle, reward):
            with reward.check("indexes"):
                assert bundle.read_json("a.json")["answer"]

        def test_caught_error_in_a_check(bundle, reward):
            with reward.check("indexes", catch=(TypeError,)):
                assert bundle.read_json("a.json")["answer"]

        def test_skips(bundle):
            assert bundle.exists("a.json")
            pytest.skip("not today")

        def test_xfails(bundle):
            assert bundle.exists("a.json")
            pytest.xfail("known")

        def test_imports_or_skips(bundle):
            assert bundle.exists("a.json")
            pytest.importorskip("no_such_module_at_all")

        def test_misuses_the_reward(bundle, reward):
            assert bundle.exists("a.json")
            reward.add("half", 1.5)

        def test_hides_its_misuse(bundle, reward):
            reward.add("whole", 1)
            try:
                reward.add("whole", 1)
            except Exception:
                pass

        def test_vacuous(bundle):
            pass

        @pytest.mark.skip(reason="never")
        def test_marked_skip(bundle):
            assert bundle.exists("a.json")

        @pytest.mark.skipif(True, reason="never")
        def test_marked_skipif(bundle):
            assert bundle.exists("a.json")
        """)
    evaluator = ("infra", "evaluator?", None)
    assert ran.verdicts == {
        "test_key_error": evaluator,
        "test_own_error": evaluator,
        "test_error_in_a_check": evaluator,
        "test_caught_error_in_a_check": ("failed", None, 0.0),
        "test_skips": evaluator,
        "test_xfails": evaluator,
        "test_imports_or_skips": evaluator,
        "test_misuses_the_reward": evaluator,
        "test_hides_its_misuse": evaluator,
        "test_vacuous": ("infra", "vacuous", None),
    }
    messages = {node: ran.case(node).message for node in ran.results}
    assert messages == {
        "test_key_error": "the test raised TypeError: list indices must be integers or slices, not str",
        "test_own_error": "the test raised RuntimeError: line one",
        "test_error_in_a_check": "the test raised TypeError: list indices must be integers or slices, not str",
        "test_caught_error_in_a_check": "reward 0 is below the threshold 1",
        "test_skips": "the test skipped after the agent ran: not today",
        "test_xfails": "the test skipped after the agent ran: known",
        "test_imports_or_skips": "the test skipped after the agent ran: could not import 'no_such_module_at_all': "
        "No module named 'no_such_module_at_all'",
        "test_misuses_the_reward": "the test raised CheckerError: reward.add('half'): 1.5 is not a number in [0, 1]",
        "test_hides_its_misuse": "the test raised CheckerError: "
        "reward.add('whole'): there is a check of this name already",
        "test_vacuous": "the test looked at nothing of the bundle and recorded no check",
    }
    assert ran.counts == {"failed": 1, "errors": 9, "skipped": 2}
    assert "10 rollouts: 0 passed, 1 failed, 9 infra; 2 not run" in ran.block()
    assert [c.value for c in ran.score("test_own_error").checks] == [1.0]
    assert "TypeError" in ran.section("ERROR at call of test_key_error")
    assert "infra evaluator: the test skipped after the agent ran: not today" in ran.section(
        "ERROR at call of test_skips"
    )
    assert {case.verdict for case in ran.cases if "rollout.rollout_id" not in case.properties} == {"skipped"}
    assert ran.status == 75


def test_fixtures_of_the_suite(suite: Suite) -> None:
    ran = suite.run("""
        import pytest
        from pathlib import Path

        pytestmark = pytest.mark.rollout(agent="echo x > a")

        def note(text):
            with open(Path(__file__).parent / "order", "a") as file:
                file.write(text)

        @pytest.fixture
        def before_error():
            raise RuntimeError("the database is down")

        @pytest.fixture
        def before_assertion():
            assert 1 == 2

        @pytest.fixture
        def before_skip():
            pytest.skip("no database here")

        @pytest.fixture
        def after_assertion(bundle):
            assert bundle.read_text("a") == "y\\n"

        @pytest.fixture
        def after_fail(bundle):
            pytest.fail("no good")

        @pytest.fixture
        def after_missing(bundle):
            return bundle.read_json("b.json")

        @pytest.fixture
        def after_error(bundle):
            return {}[bundle.read_text("a")]

        @pytest.fixture
        def after_skip(bundle):
            pytest.skip("looks bad")

        @pytest.fixture
        def looks(bundle):
            return bundle.read_text("a")

        def test_before_error(before_error, bundle):
            assert bundle.exists("a")

        def test_before_assertion(before_assertion, bundle):
            assert bundle.exists("a")

        def test_before_skip(before_skip, bundle):
            assert bundle.exists("a")

        def test_after_assertion(after_assertion):
            pass

        def test_after_fail(after_fail):
            pass

        def test_after_missing(after_missing):
            pass

        def test_after_error(after_error):
            pass

        def test_after_skip(after_skip):
            pass

        def test_looks_in_a_fixture(looks):
            assert looks == "x\\n"
        """)
    assert ran.verdicts == {
        "test_before_error": ("infra", "fixture", None),
        "test_before_assertion": ("infra", "fixture", None),
        "test_after_assertion": ("failed", None, 0.0),
        "test_after_fail": ("failed", None, 0.0),
        "test_after_missing": ("failed", None, 0.0),
        "test_after_error": ("infra", "evaluator?", None),
        "test_after_skip": ("infra", "evaluator?", None),
        "test_looks_in_a_fixture": ("passed", None, 1.0),
    }
    assert ran.case("test_before_error").message == "a fixture raised RuntimeError: the database is down"
    assert ran.results["test_before_error"].folder is None
    assert ran.types["test_before_assertion"] == ("error", "infra.fixture")
    assert ran.types["test_after_assertion"] == ("failure", "assertion")
    assert ran.case("test_after_missing").message == "b.json: there is no such file in the stage"
    assert "8 rollouts: 1 passed, 3 failed, 4 infra; 1 not run" in ran.block()
    assert ran.status == 75


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
                bundle.read_text("a").nothing

        def test_check_in_a_subtest(bundle, subtests, reward):
            with subtests.test("one"), reward.check("one"):
                assert bundle.exists("b")
            with subtests.test("two"), reward.check("two"):
                assert bundle.exists("a")

        def test_skips_a_subtest(bundle, subtests):
            assert bundle.exists("a")
            with subtests.test("skipped"):
                pytest.skip("not on this machine")

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
        "test_in_a_fixture": ("failed", None, 0.0),
    }
    assert ran.case("test_some_fail").message == "no b"
    text = ran.case("test_some_fail").text
    assert [line for line in text.splitlines() if "AssertionError: no" in line] == [
        "E               AssertionError: no b",
        "E               AssertionError: no c",
    ]
    assert len(ran.cases) == 6
    assert ran.types["test_one_errs"] == ("error", "infra.evaluator")
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
            ("SUBFAILED[in", "test_in_a_fixture"): 1,
            ("FAILED", "test_in_a_fixture"): 1,
        }
    )


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


def test_an_async_test_without_a_plugin(suite: Suite) -> None:
    ran = suite.run("""
        import pytest

        @pytest.mark.rollout(agent="echo x > a")
        async def test_async(bundle):
            assert bundle.exists("a")
        """)
    assert ran.verdicts == {"test_async": ("infra", "evaluator", None)}
    assert ran.case("test_async").message == "the test is async, and no plugin of pytest's runs it"
    assert "async def functions are not natively supported" in ran.section("ERROR at call of test_async")
