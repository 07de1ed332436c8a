"""What a suite does beside its checks: errors, skips, fixtures, async functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.plugin.support import ALIKE

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
            assert bundle.exit_code == 0
            pytest.skip("not today")

        def test_skips_at_what_it_finds(bundle):
            if bundle.exists("a.json"):
                pytest.skip("not this one")

        def test_xfails(bundle):
            assert bundle.exit_code == 0
            pytest.xfail("known")

        def test_imports_or_skips(bundle):
            assert bundle.exit_code == 0
            pytest.importorskip("no_such_module_at_all")

        def test_misuses_the_reward(bundle, reward):
            assert bundle.exit_code == 0
            reward.add("half", 1.5)

        def test_misuses_the_reward_at_what_it_finds(bundle, reward):
            reward.add("found", bundle.read_json("a.json"))

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
    evaluator, crashed = ("infra", "evaluator?", None), ("failed", None, 0.0)
    assert ran.verdicts == {
        "test_key_error": crashed,
        "test_own_error": evaluator,
        "test_error_in_a_check": crashed,
        "test_caught_error_in_a_check": ("failed", None, 0.0),
        "test_skips": evaluator,
        "test_skips_at_what_it_finds": crashed,
        "test_xfails": evaluator,
        "test_imports_or_skips": evaluator,
        "test_misuses_the_reward": evaluator,
        "test_misuses_the_reward_at_what_it_finds": crashed,
        "test_hides_its_misuse": evaluator,
        "test_vacuous": ("infra", "vacuous", None),
    }
    assert (ran.loaded.missing, len(ran.loaded.skipped)) == ((), 2)
    types = {node: ran.types[node] for node, verdict in ran.verdicts.items() if verdict == crashed}
    assert types.pop("test_caught_error_in_a_check") == ("failure", "reward")
    assert set(types.values()) == {("failure", "check_crashed")}
    not_ours = ", which it does not on a bundle of the evaluator's own"
    messages = {node: ran.case(node).message for node in ran.results}
    assert messages == {
        "test_key_error": f"the test raised TypeError: list indices must be integers or slices, not str{not_ours}",
        "test_own_error": "the test raised RuntimeError: line one",
        "test_error_in_a_check": "the test raised TypeError: "
        f"list indices must be integers or slices, not str{not_ours}",
        "test_caught_error_in_a_check": "reward 0 is below the threshold 1",
        "test_skips": "the test skipped after the agent ran: not today",
        "test_skips_at_what_it_finds": f"the test skipped after the agent ran: not this one{not_ours}",
        "test_xfails": "the test skipped after the agent ran: known",
        "test_imports_or_skips": "the test skipped after the agent ran: could not import 'no_such_module_at_all': "
        "No module named 'no_such_module_at_all'",
        "test_misuses_the_reward": "the test raised CheckerError: reward.add('half'): 1.5 is not a number in [0, 1]",
        "test_misuses_the_reward_at_what_it_finds": "the test raised CheckerError: "
        f"reward.add('found'): [] is not a number in [0, 1]{not_ours}",
        "test_hides_its_misuse": "the test raised CheckerError: "
        "reward.add('whole'): there is a check of this name already",
        "test_vacuous": "the test looked at nothing of the bundle and recorded no check",
    }
    assert ran.counts == {"failed": 5, "errors": 7, "skipped": 2}
    assert "12 rollouts: 0 passed, 5 failed, 7 infra; 2 not run" in ran.block()
    assert "check_crashed: 4 scored 0 because the test crashed on what the agent left" in ran.block()
    assert [c.value for c in ran.score("test_own_error").checks] == [1.0]
    assert "TypeError" in ran.section("test_key_error")
    assert "RuntimeError: line one" in ran.section("ERROR at call of test_own_error")
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
        def after_error_on_anything(bundle):
            return {}[bundle.exit_code]

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

        def test_after_error_on_anything(after_error_on_anything):
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
        "test_after_error": ("failed", None, 0.0),
        "test_after_error_on_anything": ("infra", "evaluator?", None),
        "test_after_skip": ("infra", "evaluator?", None),
        "test_looks_in_a_fixture": ("passed", None, 1.0),
    }
    assert ran.case("test_before_error").message == "a fixture raised RuntimeError: the database is down"
    assert ran.results["test_before_error"].folder is None
    assert ran.types["test_before_assertion"] == ("error", "infra.fixture")
    assert ran.types["test_after_assertion"] == ("failure", "assertion")
    assert ran.types["test_after_error"] == ("failure", "check_crashed")
    assert ran.case("test_after_missing").message == "b.json: there is no such file in the stage"
    assert "9 rollouts: 1 passed, 4 failed, 4 infra; 1 not run" in ran.block()
    assert ran.status == 75


@ALIKE
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


def test_warnings_of_a_body_that_is_also_run_for_control_are_told_once(suite: Suite) -> None:
    ran = suite.run("""
        import warnings
        import pytest

        pytestmark = pytest.mark.rollout(agent="echo x > a")

        @pytest.fixture
        def warns():
            warnings.warn("in the setup")
            yield
            warnings.warn("in the teardown")

        def test_warns(warns, bundle):
            warnings.warn("in the body")
            assert bundle.exists("a")

        @pytest.mark.filterwarnings("error")
        def test_warns_as_an_error(bundle):
            bundle.exists("a")
            warnings.warn("for everybody")

        @pytest.mark.filterwarnings("error")
        def test_warns_at_a_find(bundle):
            if bundle.exists("a"):
                warnings.warn("for this one")
            assert bundle.exists("a")
        """)
    assert ran.verdicts == {
        "test_warns": ("passed", None, 1.0),
        "test_warns_as_an_error": ("infra", "evaluator?", None),
        "test_warns_at_a_find": ("failed", None, 0.0),
    }
    told = ran.section("warnings summary")
    assert told.count("test_suite.py::") == 3
    for text in ("in the setup", "in the body", "in the teardown"):
        assert told.count(f"UserWarning: {text}") == 1
    assert ran.counts["warnings"] == 3
