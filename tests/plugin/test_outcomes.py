"""Every row of the table of outcomes that is decided by the checks and by how the agent ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.plugin.support import ALIKE

if TYPE_CHECKING:
    from tests.plugin.conftest import Suite


def test_scores(suite: Suite) -> None:
    ran = suite.run("""
        import pytest

        WRITES = "printf 'candidate\\n' > answer.txt"

        @pytest.mark.rollout(agent=WRITES)
        def test_passes(bundle):
            assert bundle.exit_code == 0
            assert bundle.read_text("answer.txt") == "candidate\\n"

        @pytest.mark.rollout(agent=WRITES)
        def test_passes_by_checks(bundle, reward):
            with reward.check("there"):
                assert bundle.exists("answer.txt")

        @pytest.mark.rollout(agent=WRITES)
        def test_below(bundle, reward):
            with reward.check("there", weight=3):
                assert bundle.exists("answer.txt")
            with reward.check("other"):
                assert bundle.exists("other.txt")

        @pytest.mark.rollout(agent=WRITES, threshold=0.75)
        def test_reaches_its_threshold(bundle, reward):
            with reward.check("there", weight=3):
                assert bundle.exists("answer.txt")
            with reward.check("other"):
                assert bundle.exists("other.txt")

        @pytest.mark.rollout(agent=WRITES, threshold=0.76)
        def test_misses_its_threshold(bundle, reward):
            with reward.check("there", weight=3):
                assert bundle.exists("answer.txt")
            with reward.check("other"):
                assert bundle.exists("other.txt")

        @pytest.mark.rollout(agent=WRITES, threshold=0.1 + 0.2)
        def test_has_slack(bundle, reward):
            assert bundle.exists("answer.txt")
            reward.set(0.3, reason="0.1 + 0.2 is a little more")

        @pytest.mark.rollout(agent=WRITES, threshold=0)
        def test_passes_with_nothing(bundle, reward):
            reward.add("nothing", 0)

        @pytest.mark.rollout(agent=WRITES)
        def test_adds(bundle, reward):
            reward.add("half", 0.5)
            reward.add("quarter", 0.25, weight=3)

        @pytest.mark.rollout(agent=WRITES)
        def test_records_only_metrics(bundle, reward):
            reward.metric("size", len(bundle.read_bytes("answer.txt")))

        @pytest.mark.rollout(agent=WRITES)
        def test_records_only_metrics_of_nothing(bundle, reward):
            reward.metric("size", -3e9)

        @pytest.mark.rollout(agent=WRITES)
        def test_looks_at_nothing(bundle):
            assert bundle

        @pytest.mark.rollout(agent=WRITES)
        class TestClass:
            def test_of_a_class(self, bundle):
                assert bundle.exit_code == 0

            def test_fails_of_a_class(self, bundle):
                assert bundle.exit_code == 1
        """)
    assert ran.verdicts == {
        "test_passes": ("passed", None, 1.0),
        "test_passes_by_checks": ("passed", None, 1.0),
        "test_below": ("failed", None, 0.75),
        "test_reaches_its_threshold": ("passed", None, 0.75),
        "test_misses_its_threshold": ("failed", None, 0.75),
        "test_has_slack": ("passed", None, 0.3),
        "test_passes_with_nothing": ("passed", None, 0.0),
        "test_adds": ("failed", None, 0.3125),
        "test_records_only_metrics": ("passed", None, 1.0),
        "test_records_only_metrics_of_nothing": ("infra", "vacuous", None),
        "test_looks_at_nothing": ("infra", "vacuous", None),
        "TestClass::test_of_a_class": ("passed", None, 1.0),
        "TestClass::test_fails_of_a_class": ("failed", None, 0.0),
    }
    assert ran.types["test_below"] == ("failure", "reward")
    assert ran.case("test_below").message == "reward 0.75 is below the threshold 1"
    assert ran.case("test_misses_its_threshold").message == "reward 0.75 is below the threshold 0.76"
    assert ran.types["TestClass::test_fails_of_a_class"] == ("failure", "assertion")
    assert ran.types["test_looks_at_nothing"] == ("error", "infra.vacuous")
    assert ran.score("test_records_only_metrics").metrics == {"size": 10.0}
    assert ran.case("test_records_only_metrics").properties["rollout.metric.size"] == "10"
    assert ran.counts == {"passed": 7, "failed": 4, "errors": 2}
    assert ran.status == 75


@ALIKE
def test_a_plain_assertion_is_a_hard_gate(suite: Suite) -> None:
    ran = suite.run("""
        import pytest

        pytestmark = pytest.mark.rollout(agent="echo x > a; echo said;")

        def test_assertion(bundle, reward):
            with reward.check("made", weight=2):
                assert bundle.exists("a")
            with reward.check("not made"):
                assert bundle.exists("b")
            assert bundle.stdout == "nothing\\n", "it talks"
            with reward.check("never reached"):
                assert bundle.exists("a")

        def test_fail(bundle, reward):
            with reward.check("made"):
                assert bundle.exists("a")
            pytest.fail("no good")

        def test_raises(bundle):
            with pytest.raises(ValueError):
                bundle.read_text("a")

        def test_fail_in_a_check(bundle, reward):
            with reward.check("bad"):
                pytest.fail("no good")
            with reward.check("raises"):
                with pytest.raises(ValueError):
                    bundle.read_text("a")
            with reward.check("made"):
                assert bundle.exists("a")

        def test_group(bundle):
            assert bundle.exists("a")
            raise ExceptionGroup("both", [AssertionError("one"), ExceptionGroup("in", [AssertionError("two")])])

        def test_group_with_an_error(bundle):
            raise ExceptionGroup("both", [AssertionError("one"), KeyError("two")])
        """)
    assert ran.verdicts == {
        "test_assertion": ("failed", None, 0.0),
        "test_fail": ("failed", None, 0.0),
        "test_raises": ("failed", None, 0.0),
        "test_fail_in_a_check": ("failed", None, pytest.approx(1 / 3)),
        "test_group": ("failed", None, 0.0),
        "test_group_with_an_error": ("infra", "evaluator?", None),
    }
    score = ran.score("test_assertion")
    assert [(check.name, check.weight, check.value) for check in score.checks] == [
        ("made", 2.0, 1.0),
        ("not made", 1.0, 0.0),
    ]
    assert score.checks_reward == pytest.approx(2 / 3)
    assert ran.case("test_assertion").properties["rollout.check.not made"] == "0"
    assert ran.types["test_assertion"] == ("failure", "assertion")
    assert ran.case("test_assertion").message == "it talks"
    assert ran.case("test_fail").message == "no good"
    assert ran.case("test_raises").message == "DID NOT RAISE ValueError"
    assert ran.case("test_group").message == "one"
    assert "1  × 2  made" in ran.section("test_assertion")
    assert [(c.name, c.value, c.message) for c in ran.score("test_fail_in_a_check").checks] == [
        ("bad", 0.0, "test_suite.py:26: Failed: no good"),
        ("raises", 0.0, "test_suite.py:28: Failed: DID NOT RAISE ValueError"),
        ("made", 1.0, None),
    ]


@ALIKE
def test_unreadable_evidence_is_the_candidates(suite: Suite) -> None:
    ran = suite.run("""
        import pytest

        AGENT = r'''
        ln -s /etc/passwd link
        mkfifo fifo
        printf '\\377\\376' > bytes
        printf '{"a": ' > half.json
        printf '1,' > comma.json
        head -c 100000 /dev/zero | tr '\\000' '[' > deep.json
        printf '9%.0s' $(seq 5000) > digits.json
        mkdir folder
        ln -s / outside
        truncate -s 1T big
        '''
        PATHS = {
            "missing": "read_text", "link": "read_text", "fifo": "read_bytes", "bytes": "read_text",
            "half.json": "read_json", "comma.json": "read_json", "deep.json": "read_json",
            "digits.json": "read_json", "folder": "read_bytes", "outside/etc/passwd": "read_text", "big": "read_bytes",
        }

        @pytest.mark.rollout(agent=AGENT)
        @pytest.mark.parametrize("path", PATHS)
        def test_reads(bundle, path):
            assert bundle.exit_code == 0
            getattr(bundle, PATHS[path])(path)
        """)
    messages = {
        "missing": "missing: there is no such file in the stage",
        "link": "link: is a symbolic link",
        "fifo": "fifo: is a FIFO, not a file",
        "bytes": "bytes is not UTF-8: invalid start byte at byte 0",
        "half.json": "half.json is not JSON that can be read: Expecting value: line 1 column 7 (char 6)",
        "comma.json": "comma.json is not JSON that can be read: Extra data: line 1 column 2 (char 1)",
        "deep.json": "deep.json is JSON that is nested too deeply",
        "digits.json": "digits.json is not JSON that can be read: a number of 5000 digits",
        "folder": "folder: is a folder, not a file",
        "outside/etc/passwd": "outside/etc/passwd: outside is a symbolic link",
        "big": f"big is larger than {64 * 2**20} bytes, the most that is read",
    }
    assert ran.verdicts == {f"test_reads[{path}]": ("failed", None, 0.0) for path in messages}
    assert {path: ran.case(f"test_reads[{path}]").message for path in messages} == messages
    assert {ran.case(f"test_reads[{path}]").type for path in messages} == {"assertion"}
    assert ran.status == 1
    assert "root:" not in ran.text


def test_how_the_agent_ended(suite: Suite) -> None:
    ran = suite.run("""
        import pytest
        from pytest_rollout import Limits

        CODE, SIGNAL, WALL = "echo x > a; exit 3", "echo x > a; kill -9 $$", "echo x > a; sleep 60"
        AGENTS = {"code": CODE, "signal": SIGNAL, "wall": WALL}
        FACTS = {"code": (3, None, False), "signal": (137, 9, False), "wall": (None, None, True)}
        TERMINATIONS = {"code": "exit_code", "signal": "signal", "wall": "wall_limit"}

        def agents(**arguments):
            return pytest.mark.parametrize(
                "how", [pytest.param(h, marks=pytest.mark.rollout(agent=a, **arguments)) for h, a in AGENTS.items()]
            )

        @pytest.mark.rollout(limits=Limits(wall="0.4s"))
        class TestEnds:
            @agents()
            def test_any(self, bundle, reward, how):
                assert (bundle.exit_code, bundle.signal, bundle.truncated) == FACTS[how]
                assert bundle.termination == TERMINATIONS[how]
                reward.add("kept", float(bundle.read_text("a") == "x\\n"))

            @agents(score_on="any")
            def test_any_partly(self, bundle, reward, how):
                reward.add("kept", float(bundle.exists("a")))
                reward.add("other", 0)

            @agents(score_on="completed")
            def test_completed(self, bundle, reward, how):
                reward.add("kept", float(bundle.exists("a")))

            @agents(score_on="completed")
            def test_completed_by_assertions(self, bundle, how):
                assert bundle.exists("a")

            @agents()
            def test_gate(self, bundle, how):
                assert bundle.exit_code == 0
        """)
    ends = {"code": "termination.exit_code", "signal": "termination.signal", "wall": "termination.wall_limit"}
    expected: dict[str, tuple[object, ...]] = {}
    types: dict[str, tuple[str, str]] = {}
    for how, kind in ends.items():
        for name, reward in (("any_partly", 0.5), ("completed", 0.0), ("completed_by_assertions", 0.0), ("gate", 0.0)):
            expected[f"TestEnds::test_{name}[{how}]"] = ("failed", None, reward)
            types[f"TestEnds::test_{name}[{how}]"] = ("failure", kind)
        expected[f"TestEnds::test_any[{how}]"] = ("passed", None, 1.0)
        types[f"TestEnds::test_any[{how}]"] = ("passed", "")
    assert ran.verdicts == expected
    assert ran.types == types
    for how, kind in ends.items():
        assert ran.results[f"TestEnds::test_completed[{how}]"].checks_reward == 1.0
        assert ran.case(f"TestEnds::test_gate[{how}]").properties["rollout.termination"] == kind.split(".")[1]
        bundle = ran.bundle(f"TestEnds::test_any[{how}]")
        assert f"termination.{bundle.termination}" == kind
    assert ran.status == 1


@ALIKE
def test_a_completed_agent_and_score_on(suite: Suite) -> None:
    ran = suite.run("""
        import pytest

        @pytest.mark.rollout(agent="true;", score_on="completed")
        def test_completed(bundle, reward):
            reward.add("half", 0.5)

        @pytest.mark.rollout(agent="noop", score_on="completed", threshold=0.5)
        def test_noop(bundle, reward):
            reward.add("half", 0.5)
        """)
    assert ran.verdicts == {"test_completed": ("failed", None, 0.5), "test_noop": ("passed", None, 0.5)}
    assert ran.types["test_completed"] == ("failure", "reward")
