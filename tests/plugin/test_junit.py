"""The JUnit report of real sessions: one verdict a rollout, its properties, strict XML whatever was written."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from junitparser import JUnitXml, Properties, Property
from lxml import etree

from tests.plugin.support import ALIKE, cases

if TYPE_CHECKING:
    from tests.plugin.conftest import Suite


def test_the_properties_of_a_rollout(suite: Suite) -> None:
    suite.write({"space/file": "x"})
    ran = suite.run("""
        import pytest

        @pytest.mark.rollout(agent="echo y > file; exit 3", workspace="space", samples=2, seed=40, threshold=0.5)
        def test_it(bundle, reward, record_property):
            record_property("mine", 7)
            with reward.check("changed", weight=3):
                assert bundle.read_text("file") == "y\\n"
            reward.add("close", 1 / 3)
            reward.metric("lines", 1)

        @pytest.mark.rollout(agent="exit 127")
        def test_infra(bundle):
            assert bundle.exists("file")
        """)
    assert ran.run is not None
    ident = ran.results["test_it[s1]"].rollout
    assert re.fullmatch(r"[0-9a-f]{8}-test-it-[0-9a-f]{10}-s1", ident)
    assert ran.case("test_it[s1]").properties == {
        "mine": "7",
        "rollout.rollout_id": ident,
        "rollout.run_id": ran.run.name,
        "rollout.task": "test_suite.py::test_it",
        "rollout.sample": "1",
        "rollout.samples": "2",
        "rollout.attempts": "1",
        "rollout.agent": "echo y > file; exit 3",
        "rollout.outcome": "passed",
        "rollout.reward": "0.8333333333",
        "rollout.checks_reward": "0.8333333333",
        "rollout.termination": "exit_code",
        "rollout.trusted": "true",
        "rollout.seed": "41",
        "rollout.environment_revision": ran.bundle("test_it[s1]").pins.environment_revision,
        "rollout.evaluator_revision": ran.bundle("test_it[s1]").pins.evaluator_revision,
        "rollout.folder": ran.results["test_it[s1]"].folder,
        "rollout.check.changed": "1",
        "rollout.check.close": "0.3333333333",
        "rollout.metric.lines": "1",
    }
    infra = ran.case("test_infra").properties
    assert (infra["rollout.outcome"], infra["rollout.kind"], infra["rollout.forgeable"]) == ("infra", "spawn", "true")
    assert "rollout.reward" not in infra
    assert (ran.case("test_it[s1]").classname, ran.case("test_it[s1]").name) == ("test_suite", "test_it[s1]")


def test_counts_beside_other_tests(suite: Suite) -> None:
    """The helper compares the counts with the elements of every report; here they are compared with a known suite."""
    ran = suite.run("""
        import pytest

        rollout = pytest.mark.rollout(agent="echo x > a")

        @rollout
        def test_passes(bundle):
            assert bundle.exists("a")

        @rollout
        def test_fails(bundle):
            assert bundle.exists("b")

        @rollout
        def test_infra(bundle):
            raise KeyError("x")

        @rollout
        @pytest.mark.skip
        def test_skipped(bundle):
            pass

        def test_plain(): pass
        def test_plain_fails(): assert 0
        def test_plain_skips(): pytest.skip("x")

        @pytest.fixture
        def broken():
            yield
            raise KeyError("plain teardown")

        def test_plain_teardown(broken): pass
        def test_plain_fails_twice(broken): assert 0
        """)
    root = etree.parse(suite.root / "report.xml").getroot()
    (element,) = root.iter("testsuite")
    counts = {name: int(element.get(name, "")) for name in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": 9, "failures": 3, "errors": 2, "skipped": 2}
    assert {case.name: (case.verdict, case.type) for case in ran.cases} == {
        "test_passes": ("passed", ""),
        "test_fails": ("failure", "assertion"),
        "test_infra": ("error", "infra.evaluator"),
        "test_skipped": ("skipped", "pytest.skip"),
        "test_plain": ("passed", ""),
        "test_plain_fails": ("failure", ""),
        "test_plain_skips": ("skipped", "pytest.skip"),
        "test_plain_teardown": ("error", ""),
        "test_plain_fails_twice": ("failure", ""),
    }


HOSTILE = r"""
    import pytest

    AGENT = (
        r"printf '\000\010\033[31m]]>&<\377\355\240\200\n[[ATTACHMENT|/etc/passwd]]\n';"
        r"printf x > $(printf 'b\010d')"
    )
    pytestmark = pytest.mark.rollout(agent=AGENT)
    BAD = "a\x00b\x08c\x1bd\ud800e\ufffef]]>&<\"'"

    def test_assertion(bundle):
        assert bundle.stdout == ""

    def test_message(bundle):
        assert bundle.stdout == "", BAD

    def test_message_of_the_agent(bundle):
        raise AssertionError(bundle.stdout_bytes.decode("utf-8", "surrogateescape"))

    def test_error(bundle):
        raise RuntimeError(BAD + bundle.stdout)

    def test_checks(bundle, reward):
        with reward.check(BAD):
            assert bundle.stdout == BAD
        reward.add("\x00", 0.5)
        reward.metric("\x08", 1)

    def test_properties(bundle, record_property):
        record_property(BAD, BAD)
        record_property("value", BAD)
        assert bundle.exit_code == 0

    def test_attributes(bundle, record_xml_attribute):
        record_xml_attribute("plain", BAD)
        record_xml_attribute(BAD, "x")
        record_xml_attribute("a b", "y")
        assert bundle.exit_code == 0

    def test_prints(bundle, capsys):
        print(BAD.encode("utf-8", "replace").decode(), bundle.stdout)
        assert bundle.exit_code == 1

    @pytest.mark.parametrize("value", [BAD, "ok\x7f\x85\u2028"])
    def test_ids(bundle, value):
        assert bundle.exit_code == 0
    """


@cases("family", {"xunit1": ("xunit1",), "xunit2": ("xunit2",)}, n0=("xunit1",), n2=("xunit2",))
def test_strict_xml_whatever_is_written(suite: Suite, family: str) -> None:
    suite.ini(
        f"junit_family = {family}",
        "junit_logging = all",
        "junit_log_passing_tests = true",
        "filterwarnings = ignore::pytest.PytestWarning",
    )
    ran = suite.run(HOSTILE)
    assert {node: verdict[:2] for node, verdict in ran.verdicts.items()} == {
        "test_assertion": ("failed", None),
        "test_message": ("failed", None),
        "test_message_of_the_agent": ("failed", None),
        "test_error": ("infra", "evaluator?"),
        "test_checks": ("failed", None),
        "test_properties": ("passed", None),
        "test_attributes": ("passed", None),
        "test_prints": ("failed", None),
        **{node: ("passed", None) for node in ran.results if node.startswith("test_ids[")},
    }
    assert len(ran.results) == 10
    escaped = r"a\x00b\x08c\x1bd\ud800e\ufffef]]>&<" + "\"'"
    checks = {name for name in ran.case("test_checks").properties if name.startswith("rollout.check.")}
    assert checks == {f"rollout.check.{escaped}", r"rollout.check.\x00"}
    assert ran.case("test_checks").properties[r"rollout.metric.\x08"] == "1"
    assert escaped in ran.case("test_properties").properties
    if (suite.workers, family) == ("-n0", "xunit1"):  # elsewhere pytest records no attributes
        attributes = ran.case("test_attributes").attributes
        assert {"x", "y"} <= set(attributes.values())
        assert "]]>&<" in attributes["plain"]
        assert attributes["a_b"] == "y"
    assert r"\x08" in ran.case("test_error").text
    assert "[[ATTACHMENT|" not in (suite.root / "report.xml").read_text(encoding="utf-8")
    assert [(change.path, change.kind) for change in ran.bundle("test_assertion").changes] == [(r"b\x08d", "added")]


@ALIKE
def test_junitparser_edits_and_reads_back(suite: Suite) -> None:
    ran = suite.run(HOSTILE)
    report: Any = JUnitXml.fromfile(str(suite.root / "report.xml"))
    for tests in report:
        for case in tests:
            block = case.child(Properties)
            block.add_property(Property("reviewed", "yes"))
        tests.update_statistics()
    report.update_statistics()
    place = suite.root / "edited.xml"
    report.write(str(place))
    again: Any = JUnitXml.fromfile(str(place))
    cases = [case for tests in again for case in tests]
    assert len(cases) == len(ran.cases) == 10
    for case in cases:
        found = {item.name: item.value for item in case.child(Properties)}
        assert found["reviewed"] == "yes"
        assert found["rollout.rollout_id"] in {result.rollout for result in ran.loaded.results}
    assert (again.tests, again.failures, again.errors) == (10, 5, 1)


SAME = """
    import pytest
    from pytest_rollout import Limits

    @pytest.mark.rollout(agent='echo $ROLLOUT_SEED > a; [ $ROLLOUT_SAMPLE = 1 ] || echo more > b', samples=4, seed=7)
    @pytest.mark.xdist_group("one")
    def test_samples(bundle, reward):
        reward.add("seed", (int(bundle.read_text("a")) - 7) / 4)
        with reward.check("b"):
            assert bundle.exists("b")

    @pytest.mark.rollout(agent="echo x > a")
    class TestClass:
        @pytest.mark.parametrize("path", ["a", "b", "a@b"])
        @pytest.mark.xdist_group("two")
        def test_paths(self, bundle, path):
            assert bundle.exists(path)

        def test_raises(self, bundle):
            raise KeyError("x")

    @pytest.mark.rollout(agent="exit 127")
    def test_infra(bundle):
        assert bundle.exists("a")

    @pytest.mark.rollout(agent="sleep 60", limits=Limits(wall=0.3))
    def test_limit(bundle):
        assert not bundle.truncated

    def test_plain(): pass
    """
SAME_RESULTS = {
    ("test_suite.py::test_samples", 0): ("failed", None, 0.5, "reward"),
    ("test_suite.py::test_samples", 1): ("failed", None, 0.125, "reward"),
    ("test_suite.py::test_samples", 2): ("failed", None, 0.75, "reward"),
    ("test_suite.py::test_samples", 3): ("failed", None, 0.875, "reward"),
    ("test_suite.py::TestClass::test_paths[a]", 0): ("passed", None, 1.0, ""),
    ("test_suite.py::TestClass::test_paths[b]", 0): ("failed", None, 0.0, "assertion"),
    ("test_suite.py::TestClass::test_paths[a@b]", 0): ("failed", None, 0.0, "assertion"),
    ("test_suite.py::TestClass::test_raises", 0): ("infra", "evaluator", None, "infra.evaluator"),
    ("test_suite.py::test_infra", 0): ("infra", "spawn", None, "infra.spawn"),
    ("test_suite.py::test_limit", 0): ("failed", None, 0.0, "termination.wall_limit"),
}


@pytest.mark.parametrize(
    ("workers", "options"),
    [
        pytest.param("-n0", (), id="n0"),
        pytest.param("-n2", ("--dist=load",), id="n2 load"),
        pytest.param("-n4", ("--dist=worksteal",), id="n4 worksteal"),
        pytest.param("-n2", ("--dist=loadscope",), id="n2 loadscope"),
        pytest.param("-n2", ("--dist=loadfile",), id="n2 loadfile"),
        pytest.param("-n2", ("--dist=loadgroup",), id="n2 loadgroup"),
        pytest.param("-n2", ("--maxprocesses=1",), id="one worker"),
    ],
)
def test_the_same_outcomes_however_they_are_distributed(suite: Suite, options: tuple[str, ...]) -> None:
    suite.ini("markers = xdist_group")
    ran = suite.run(SAME, *options)
    found = {(r.task, r.sample): (r.outcome, r.kind, r.reward, r.type) for r in ran.loaded.results}
    assert found == SAME_RESULTS
    cases = [case for case in ran.cases if "rollout.task" in case.properties]
    told = {
        (case.properties["rollout.task"], int(case.properties["rollout.sample"])): (
            case.properties["rollout.outcome"],
            case.properties.get("rollout.kind"),
            float(case.properties["rollout.reward"]) if "rollout.reward" in case.properties else None,
            case.type,
        )
        for case in cases
    }
    assert told == SAME_RESULTS
    assert len(cases) == len(SAME_RESULTS)
    assert len(ran.cases) == len(SAME_RESULTS) + 1
    assert ran.status == 75
