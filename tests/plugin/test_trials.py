"""What control runs depend on, and what they keep out of: other plugins, other samples, the suite's own data."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.plugin.support import ALIKE

if TYPE_CHECKING:
    from tests.plugin.conftest import Suite

SQUARES = {
    "work/m.py": "def sq(a):\n    return None\n",
    "right/m.py": "def sq(a):\n    return a * a\n",
}
RIGHT = "echo 'def sq(a): return a*a' > m.py"


@ALIKE
def test_names_of_checks_that_come_from_data_beside_the_test(suite: Suite) -> None:
    source = f"""
        import json
        import pathlib

        import pytest

        CASES = json.loads(pathlib.Path(__file__).with_name("cases.json").read_text())

        @pytest.mark.rollout(workspace="work", oracle="right", agent="{RIGHT}")
        def test_it(bundle, reward):
            for number in CASES:
                with reward.check(f"square of {{number}}"):
                    assert bundle.call("m:sq", number) == number * number
    """
    suite.write(SQUARES)
    for cases in ([1, 2], [2, 3], [1, 2]):
        suite.write({"cases.json": json.dumps(cases)})
        ran = suite.run(source)
        assert ran.verdicts == {"test_it": ("passed", None, 1.0)}
        checks = [(check.name, check.value) for check in ran.score("test_it").checks]
        assert checks == [(f"square of {number}", 1.0) for number in cases]


def test_names_of_checks_that_come_from_the_seed(suite: Suite) -> None:
    suite.write(SQUARES)
    source = f"""
        import pytest

        @pytest.mark.rollout(workspace="work", oracle="right", agent="{RIGHT}", samples=3, seed=5)
        def test_right(bundle, reward):
            with reward.check(f"square of {{bundle.seed}}"):
                assert bundle.call("m:sq", bundle.seed) == bundle.seed ** 2

        @pytest.mark.rollout(workspace="work", oracle="right", agent="exec true", samples=2)
        def test_left_out(bundle, reward):
            if bundle.call("m:sq", 2) == 4:
                with reward.check(f"square of {{bundle.seed}}"):
                    assert bundle.call("m:sq", bundle.seed) == bundle.seed ** 2
    """
    for _ in range(2):
        ran = suite.run(source)
        assert ran.verdicts == {
            **{f"test_right[s{sample}]": ("passed", None, 1.0) for sample in range(3)},
            **{f"test_left_out[s{sample}]": ("failed", None, 0.0) for sample in range(2)},
        }
        assert [check.name for check in ran.score("test_left_out[s1]").checks] == ["square of 1"]
    facts = sorted((suite.root / ".rollout" / "controls").glob("*.json"))
    assert len(facts) == 3 + 1 + 2 + 1, (
        "nothing was tried again"
    )  # one for each seed, and one that says that they differ


@ALIKE
def test_a_crash_with_one_seed_is_tried_with_that_seed(suite: Suite) -> None:
    suite.write(SQUARES)
    ran = suite.run(f"""
        import pytest

        @pytest.mark.rollout(workspace="work", oracle="right", agent="{RIGHT}", samples=2)
        def test_it(bundle):
            number = [3][bundle.sample]
            assert bundle.call("m:sq", number) == 9
    """)
    assert ran.verdicts == {"test_it[s0]": ("passed", None, 1.0), "test_it[s1]": ("infra", "evaluator", None)}


@ALIKE
def test_facts_that_a_limit_made_are_neither_used_nor_kept(suite: Suite) -> None:
    suite.write({"right.sh": "echo right > a\n"})
    source = """
        import os
        import time

        import pytest
        from pytest_rollout import Limits

        @pytest.mark.rollout(agent="echo [] > a", oracle="right.sh", limits=Limits(body="400ms"))
        def test_it(bundle):
            text = bundle.read_text("a")
            if text == "right\\n" and not os.path.exists("QUICK"):
                time.sleep(60)
            assert text == "right\\n" or {}["b"]
    """.replace("QUICK", f"{suite.stage_root}.quick")
    slow = suite.run(source)
    assert slow.verdicts == {"test_it": ("failed", None, 0.0)}  # by the no-op: it does not crash
    assert list((suite.root / ".rollout" / "controls").glob("*.json")) == []
    quick = suite.stage_root.with_name(f"{suite.stage_root.name}.quick")
    quick.touch()
    suite.run(source)
    (found,) = (suite.root / ".rollout" / "controls").glob("*.json")
    assert json.loads(found.read_text("utf-8"))["oracle"]["end"] == "passed"


@ALIKE
def test_a_limit_of_pytest_timeout_is_that_of_the_test_alone(suite: Suite) -> None:
    suite.write({"right.sh": "echo 1 > a\n"})
    ran = suite.run(
        """
        import time

        import pytest

        @pytest.mark.rollout(agent="echo 1 > a", oracle="right.sh")
        def test_slow_enough(bundle):
            time.sleep(0.7)  # three times, with its control runs
            assert bundle.exists("a")

        @pytest.mark.rollout(agent="echo [] > a", oracle="right.sh")
        def test_crashes(bundle):
            assert bundle.read_json("a") == 1 or {}["a"]
        """,
        *("-p", "pytest_timeout", "--timeout=1.8"),
    )
    assert ran.verdicts == {"test_slow_enough": ("passed", None, 1.0), "test_crashes": ("failed", None, 0.0)}


@ALIKE
def test_a_control_run_that_pytest_timeout_ended_shows_nothing(suite: Suite) -> None:
    ran = suite.run(
        """
        import os
        import time

        import pytest

        @pytest.mark.rollout(agent="exec true")
        def test_it(bundle):
            if bundle.termination == "completed" and not os.path.exists("TRIED"):
                open("TRIED", "x").close()  # this is the control run
                time.sleep(60)
            assert bundle.glob("*")[0]
        """.replace("TRIED", f"{suite.root}.tried"),
        *("-p", "pytest_timeout", "--timeout=0.5", "--timeout-method=signal", "-o", "timeout_func_only=true"),
    )
    assert ran.verdicts == {"test_it": ("infra", "evaluator?", None)}


INCREMENTAL = """
    import pytest

    _failed = {}

    def pytest_runtest_makereport(item, call):
        if "incremental" in item.keywords and call.excinfo is not None:
            _failed[item.cls] = item.name

    def pytest_runtest_setup(item):
        if "incremental" in item.keywords and item.cls in _failed:
            pytest.xfail(f"previous test failed ({_failed[item.cls]})")
"""


@ALIKE
def test_hooks_of_the_suite_hear_nothing_of_a_control_run(suite: Suite) -> None:
    source = """
        import pytest

        @pytest.mark.incremental
        class TestSteps:
            @pytest.mark.rollout(agent="echo hi > a")
            def test_one(self, bundle, subtests):
                with subtests.test("there"):
                    assert bundle.read_text("a") == "hi\\n"

            @pytest.mark.rollout(agent="echo hi > b")
            def test_two(self, bundle):
                assert bundle.read_text("b") == "hi\\n"
    """
    suite.ini("markers = incremental: the steps of one thing")
    ran = suite.run(source, conftest=INCREMENTAL)
    assert ran.verdicts == {f"TestSteps::test_{name}": ("passed", None, 1.0) for name in ("one", "two")}
    assert ran.status == 0


@ALIKE
def test_what_a_test_does_to_itself_in_a_control_run_stays_there(suite: Suite) -> None:
    ran = suite.run("""
        import pytest

        @pytest.fixture(params=["x"])
        def known_gap(request, bundle):
            request.node.callspec.params["seen"] = bundle.glob("*")
            if not bundle.exists("feature"):
                request.node.add_marker(pytest.mark.xfail(reason="no feature, nothing to see"))
                request.node.keywords["without"] = True

        @pytest.mark.rollout(agent="echo hi > feature")
        def test_marked(known_gap, bundle, request):
            assert request.node.get_closest_marker("xfail") is None
            assert "without" not in request.node.keywords
            assert request.node.callspec.params["seen"] == ["feature"]
            assert bundle.exists("feature")
    """)
    assert ran.verdicts == {"test_marked[x]": ("passed", None, 1.0)}
    assert ran.counts == {"passed": 1}


@ALIKE
def test_properties_of_the_whole_suite_are_those_of_the_tests(suite: Suite) -> None:
    suite.run("""
        import pytest

        @pytest.mark.rollout(agent="echo hi > a")
        def test_it(bundle, record_testsuite_property, record_xml_attribute):
            record_testsuite_property("files", len(bundle.glob("*")))
            if not bundle.glob("*"):
                record_xml_attribute("empty", "yes")
            assert bundle.exists("a")
    """)
    report = (suite.root / "report.xml").read_text("utf-8")
    assert report.count('name="files"') == 1
    assert '<property name="files" value="1" />' in report or '<property name="files" value="1"/>' in report
    assert 'empty="yes"' not in report


@ALIKE
def test_a_method_of_unittest_is_refused(suite: Suite) -> None:
    ran = suite.run(
        """
        import unittest

        import pytest

        @pytest.mark.rollout(agent="echo hi > a")
        class TestIt(unittest.TestCase):
            @pytest.fixture(autouse=True)
            def _taken(self, bundle):
                self.bundle = bundle

            def test_it(self):
                assert self.bundle.read_text("a") == "x"
        """,
        checked=False,
    )
    assert ran.status == 4
    assert "a rollout can't be a method of a unittest.TestCase" in ran.errors + ran.text
