"""Control runs: what checks do on the no-op's and the oracle's bundle judges what they did on a candidate's."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.plugin.support import ALIKE

if TYPE_CHECKING:
    from tests.plugin.conftest import Ran, Suite

pytestmark = ALIKE


def notes(ran: Ran) -> list[str]:
    """What the closing block says of checks."""
    return [line for line in ran.block() if line.startswith(("check_crashed", "weak checks"))]


def test_a_body_that_crashes(suite: Suite) -> None:
    suite.write({"right.sh": "echo '{\"answer\": 3}' > o\n", "list.sh": "echo '[3]' > o\n"})
    ran = suite.run("""
        import pytest

        list_of = pytest.mark.rollout(agent="echo '[]' > o")

        @list_of
        def test_only_the_no_op(bundle):
            assert bundle.read_json("o")["answer"] == 3

        @list_of
        @pytest.mark.rollout(oracle="right.sh")
        def test_the_oracle_does_not(bundle):
            assert bundle.read_json("o")["answer"] == 3

        @list_of
        @pytest.mark.rollout(oracle="list.sh")
        def test_the_oracle_does_too(bundle):
            assert bundle.read_json("o")["answer"] == 3

        @list_of
        def test_the_no_op_does_the_same(bundle):
            assert bundle.termination == "completed"
            undefined

        @list_of
        def test_the_no_op_crashes_elsewhere(bundle):
            found = bundle.glob("*")
            if found:
                found.none
            found[0]

        @list_of
        @pytest.mark.rollout(oracle="right.sh")
        def test_skips(bundle):
            if bundle.read_text("o").startswith("["):
                pytest.skip("not for lists")
    """)
    assert ran.verdicts == {
        "test_only_the_no_op": ("failed", None, 0.0),
        "test_the_oracle_does_not": ("failed", None, 0.0),
        "test_the_oracle_does_too": ("infra", "evaluator", None),
        "test_the_no_op_does_the_same": ("infra", "evaluator?", None),
        "test_the_no_op_crashes_elsewhere": ("failed", None, 0.0),
        "test_skips": ("failed", None, 0.0),
    }
    crashed = [node for node, (_, kind) in ran.types.items() if kind == "check_crashed"]
    assert crashed == [
        "test_only_the_no_op",
        "test_the_oracle_does_not",
        "test_the_no_op_crashes_elsewhere",
        "test_skips",
    ]
    assert notes(ran) == ["check_crashed: 4 scored 0 because the test crashed on what the agent left"]
    assert ran.status == 75


def test_checks_that_a_candidate_made_the_test_leave_out(suite: Suite) -> None:
    suite.write({"right.sh": "echo 1 > a; echo 1 > b\n"})
    ran = suite.run("""
        import pytest

        def each(bundle, reward):
            for path in bundle.glob("*"):
                with reward.check(path, weight=3 if path == "a" else 1):
                    assert bundle.read_text(path) == "1\\n"

        @pytest.mark.rollout(agent="exec true")
        def test_without_an_oracle(bundle, reward):
            each(bundle, reward)

        @pytest.mark.rollout(agent="exec true", oracle="right.sh")
        def test_nothing(bundle, reward):
            each(bundle, reward)

        @pytest.mark.rollout(agent="echo 1 > b", oracle="right.sh")
        def test_one(bundle, reward):
            each(bundle, reward)

        MORE = "echo 0 > a; echo 1 > b; for i in 1 2 3 4 5 6; do echo 1 > $i; done"

        @pytest.mark.rollout(agent=MORE, oracle="right.sh")
        def test_more(bundle, reward):
            each(bundle, reward)
    """)
    assert ran.verdicts == {
        "test_without_an_oracle": ("passed", None, 1.0),
        "test_nothing": ("failed", None, 0.0),
        "test_one": ("failed", None, 0.25),
        "test_more": ("failed", None, 0.25),
    }
    assert [(check.name, check.weight, check.value) for check in ran.score("test_one").checks] == [
        ("a", 3.0, 0.0),
        ("b", 1.0, 1.0),
    ]
    assert [check.weight for check in ran.score("test_more").checks] == [3.0, 1.0, *[0.0] * 6]
    weak = "weak checks: 1 task can be passed without doing the work: test_suite.py::test_without_an_oracle"
    assert notes(ran) == [weak]
    assert ran.score("test_without_an_oracle").audit == "weak"
    assert ran.bundle("test_without_an_oracle").audit == "weak"
    assert ran.case("test_without_an_oracle").properties["rollout.audit"] == "weak"
    assert "rollout.audit" not in ran.case("test_one").properties


COUNTING = """
    import pytest

    @pytest.mark.rollout(agent="echo 1 > a", samples=3)
    def test_counts(bundle, request):
        with open(f"{request.config.rootpath}.bodies", "a") as file:  # not data of the suite
            print("agent" if bundle.exists("a") else "no-op", file=file)
        assert bundle.exists("a")
"""


def test_new_checks_are_tried_once(suite: Suite) -> None:
    def bodies() -> list[str]:
        place = suite.root.with_name(f"{suite.root.name}.bodies")
        found = place.read_text("utf-8").split()
        place.unlink()
        return sorted(found)

    first = suite.run(COUNTING)
    assert bodies() == ["agent"] * 3 + ["no-op"]
    assert {result.outcome for result in first.results.values()} == {"passed"}
    assert len({result.evaluator_revision for result in first.results.values()}) == 1
    suite.run(COUNTING)
    assert bodies() == ["agent"] * 3
    changed = suite.run(COUNTING + "    # another revision\n")
    assert bodies() == ["agent"] * 3 + ["no-op"]
    revisions = {run.loaded.results[0].evaluator_revision for run in (first, changed)}
    assert len(revisions) == 2
    suite.run(COUNTING + "    # a third one\n", "--rollout-controls=none")
    assert bodies() == ["agent"] * 3
    facts = [json.loads(path.read_text("utf-8")) for path in (suite.root / ".rollout" / "controls").glob("*.json")]
    assert [(each["oracle"], each["noop"]["end"]) for each in facts] == [(None, "assertion")] * 2


def test_what_changes_the_evaluator_revision(suite: Suite) -> None:
    source = """
        import pytest
        from helper import right

        @pytest.mark.rollout(agent="echo 1 > a", hidden="hidden")
        def test_it(bundle):
            assert right(bundle)
    """
    suite.ini("pythonpath = .", "norecursedirs = hidden")
    files = {
        "helper.py": "from deeper import NAME\n\ndef right(bundle):\n    return bundle.exists(NAME)\n",
        "deeper.py": "NAME = 'a'\n",
        "unused.py": "",
        "conftest.py": "",
        "hidden/test_a.py": "",
    }
    suite.write(files)

    def revision() -> str | None:
        ran = suite.run(source)
        assert ran.verdicts == {"test_it": ("passed", None, 1.0)}
        assert ran.bundle("test_it").pins.evaluator_revision == ran.score("test_it").evaluator_revision
        assert ran.case("test_it").properties["rollout.evaluator_revision"] == ran.score("test_it").evaluator_revision
        return ran.results["test_it"].evaluator_revision

    first = revision()
    assert first is not None
    seen = [first]
    for name in ("helper.py", "deeper.py", "conftest.py", "hidden/test_a.py"):
        suite.write({name: files[name] + "# changed\n"})
        seen.append(str(revision()))
    assert len(set(seen)) == 5
    suite.write({"unused.py": "# changed\n"})
    assert revision() == seen[-1]
    suite.write(files)
    assert revision() == first


def test_fixtures_of_a_suite_are_made_anew_for_a_control_run(suite: Suite) -> None:
    ran = suite.run("""
        import pytest

        made = []

        @pytest.fixture
        def answer(bundle, tmp_path):
            made.append(tmp_path)
            assert list(tmp_path.iterdir()) == []
            (tmp_path / "used").touch()
            return bundle.read_text("a")

        class TestIt:
            def test_it(self, answer, reward):
                assert not hasattr(self, "seen")
                self.seen = True
                with reward.check("right"):
                    assert answer == "1\\n"

            test_it = pytest.mark.rollout(agent="echo 1 > a")(test_it)
    """)
    assert ran.verdicts == {"TestIt::test_it": ("passed", None, 1.0)}
    assert ran.counts == {"passed": 1}


def test_what_a_control_run_logs_is_no_result(suite: Suite) -> None:
    ran = suite.run("""
        import pytest

        @pytest.mark.rollout(agent="echo 1 > a")
        def test_it(bundle, subtests):
            with subtests.test("there"):
                assert bundle.exists("a")
    """)
    assert ran.verdicts == {"test_it": ("passed", None, 1.0)}
    assert ran.status == 0
    assert "SUBFAIL" not in ran.text


def test_checks_that_a_right_solution_does_not_pass_measure_nothing(suite: Suite) -> None:
    suite.write({"right.sh": "echo 1 > a; echo 1 > b\n"})
    ran = suite.run("""
        import pytest

        right = pytest.mark.rollout(oracle="right.sh")

        @right
        @pytest.mark.rollout(agent="echo 1 > a")
        def test_an_assertion(bundle):
            assert bundle.read_text("mistyped") == "1\\n"

        def two(bundle, reward):
            for name in "ac":
                with reward.check(name):
                    assert bundle.exists(name)

        @right
        @pytest.mark.rollout(agent="echo 1 > a")
        def test_as_good_as_the_oracle(bundle, reward):
            two(bundle, reward)

        @right
        @pytest.mark.rollout(agent="exec true")
        def test_worse_than_the_oracle(bundle, reward):
            two(bundle, reward)

        @right
        @pytest.mark.rollout(agent="echo 1 > a; echo 1 > c")
        def test_better_than_the_oracle(bundle, reward):
            two(bundle, reward)

        @right
        @pytest.mark.rollout(agent="echo [] > a")
        def test_a_crash_of_the_candidates(bundle):
            bundle.read_json("a") == 1 or {}["a"]
            assert bundle.exists("mistyped")
    """)
    assert ran.verdicts == {
        "test_an_assertion": ("infra", "evaluator", None),
        "test_as_good_as_the_oracle": ("infra", "evaluator", None),
        "test_worse_than_the_oracle": ("failed", None, 0.0),
        "test_better_than_the_oracle": ("passed", None, 1.0),
        "test_a_crash_of_the_candidates": ("infra", "evaluator", None),
    }
    said = ran.score("test_an_assertion").message
    assert said == "the oracle does not pass these checks either: mistyped: there is no such file in the stage"
    assert ran.score("test_as_good_as_the_oracle").checks_reward == 0.5
    assert "the oracle does not pass these checks either: reward 0.5 is below the threshold 1" in ran.text


def test_what_a_candidate_made_a_test_ask_is_judged_as_any_crash(suite: Suite) -> None:
    suite.write({"right.sh": "echo 'def f(): return 1' > m.py; echo m:f > target\n"})
    ran = suite.run("""
        import pytest

        AGENT = "echo 'def f(): return 1' > m.py; echo 'm f' > target"
        odd = pytest.mark.rollout(agent=AGENT)

        @odd
        @pytest.mark.rollout(oracle="right.sh")
        def test_with_an_oracle(bundle):
            assert bundle.call(bundle.read_text("target").strip()) == 1

        @odd
        def test_without_one(bundle):
            assert bundle.call(bundle.read_text("target").strip()) == 1

        @odd
        @pytest.mark.rollout(oracle="right.sh")
        def test_of_the_test_itself(bundle):
            assert bundle.call("m.f") == 1

        @odd
        @pytest.mark.rollout(oracle="right.sh")
        def test_of_a_text(bundle):
            assert bundle.run_tests(files={"test_m.py": "def test_a(): pass\\n# " + bundle.read_text("target")}).passed

        @odd
        @pytest.mark.rollout(oracle="right.sh")
        def test_of_a_path(bundle):
            path = "x" if bundle.read_text("target") == "m:f\\n" else "d/" * 2000 + "x"
            assert bundle.evaluate("true", files={path: ""}).exit_code == 0

        @odd
        @pytest.mark.rollout(oracle="right.sh")
        def test_of_a_verdict(bundle):
            assert bundle.read_text("target") == "m:f\\n" or bundle.run("true")

        @odd
        @pytest.mark.rollout(oracle="right.sh")
        def test_that_nobody_can_bring_about(bundle):
            assert bundle.run_tests().passed
    """)
    assert ran.verdicts == {
        "test_with_an_oracle": ("failed", None, 0.0),
        "test_without_one": ("infra", "evaluator?", None),
        "test_of_the_test_itself": ("infra", "evaluator", None),
        "test_of_a_text": ("passed", None, 1.0),
        "test_of_a_path": ("failed", None, 0.0),
        "test_of_a_verdict": ("failed", None, 0.0),
        "test_that_nobody_can_bring_about": ("infra", "evaluator", None),
    }
    assert ran.types["test_with_an_oracle"] == ("failure", "check_crashed")


def test_checks_that_a_candidate_left_nothing_for_are_0(suite: Suite) -> None:
    suite.write({"right.sh": "echo one; echo two\n"})
    ran = suite.run("""
        import pytest

        @pytest.mark.rollout(agent="exec true", oracle="right.sh")
        def test_lines(bundle, reward):
            for line in (bundle.folder / "stdout").read_text().splitlines():
                reward.add(line, 1)
    """)
    assert ran.verdicts == {"test_lines": ("failed", None, 0.0)}
