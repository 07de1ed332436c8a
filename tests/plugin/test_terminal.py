"""What a person sees: the header, the words, the sections of a failure, the closing block."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.plugin.support import ALIKE

if TYPE_CHECKING:
    from tests.plugin.conftest import Ran, Suite

MIXED = r"""
    import pytest

    AGENT = "echo said; printf '\033[31mred' >&2; mkdir d; echo x > d/a"

    @pytest.mark.rollout(agent=AGENT)
    def test_passes(bundle):
        assert bundle.exists("d/a")

    @pytest.mark.rollout(agent=AGENT)
    def test_partial(bundle, reward):
        with reward.check("made", weight=3):
            assert bundle.exists("d/a")
        with reward.check("other"):
            assert bundle.read_text("d/a") == "y\n"

    @pytest.mark.rollout(agent=AGENT)
    def test_gate(bundle):
        assert bundle.exit_code == 1

    @pytest.mark.rollout(agent="exit 127")
    def test_infra(bundle):
        assert bundle.exists("d/a")

    @pytest.mark.rollout(agent=AGENT)
    def test_raises(bundle):
        bundle.stdout.nothing

    @pytest.mark.rollout(agent=AGENT)
    def test_raises_too(bundle):
        bundle.stdout.nothing

    @pytest.mark.rollout(agent=AGENT)
    def test_vacuous(bundle):
        pass

    def test_plain():
        pass
    """


def results_line(ran: Ran) -> str:
    assert ran.run is not None
    return f".rollout/runs/{ran.run.name}"


def closing_block_is_whole(ran: Ran) -> None:
    assert ran.block() == [
        "7 rollouts: 1 passed, 2 failed, 4 infra",
        "infra: 2 evaluator (forgeable), 1 spawn (forgeable), 1 vacuous",
        "mean reward: 0.5833 over 3 measured of 7 (4 unmeasured)",
        "with forgeable infra as 0: 0.2917 over 6",
        "  2 × evaluator: the test raised AttributeError: 'str' object has no attribute 'nothing'",
        "  1 × spawn: exit code 127: the agent's program, or one that it starts, is not found",
        "  1 × vacuous: the test looked at nothing of the bundle and recorded no check",
        f"results: {results_line(ran)}",
    ]


def no_line_of_ours_is_wider_than_80_columns_but_for_messages(ran: Ran) -> None:
    pytests = ("rootdir: ", "- generated xml file: ")
    messages = ("  1 × ", "  2 × ", "infra spawn: ")
    assert [line for line in ran.lines if len(line) > 80 and not line.startswith((*pytests, *messages))] == []


@ALIKE
def test_the_closing_block_of_a_good_run(suite: Suite) -> None:
    ran = suite.run("""
        import pytest

        @pytest.mark.rollout(agent="echo x > a", samples=3)
        def test_passes(bundle):
            assert bundle.exists("a")
        """)
    assert ran.block() == [
        "3 rollouts: 3 passed, 0 failed, 0 infra",
        "mean reward: 1 over 3 measured of 3",
        f"results: {results_line(ran)}",
    ]


@ALIKE
def test_the_closing_block_without_isolation(suite: Suite) -> None:
    ran = suite.run(
        """
        import pytest

        @pytest.mark.rollout(agent="echo x > a")
        def test_passes(bundle):
            assert bundle.exists("a")
        """,
        "--rollout-isolation=none",
    )
    assert "rollout: executor local (no isolation, untrusted)" in ran.lines
    assert ran.block() == [
        "1 rollout: 1 passed, 0 failed, 0 infra",
        "mean reward: 1 over 1 measured of 1",
        "untrusted: the agents were not isolated, or not as far as their tasks ask",
        f"results: {results_line(ran)}",
    ]


@ALIKE
def test_many_causes(suite: Suite) -> None:
    ran = suite.run("""
        import pytest

        @pytest.mark.rollout(agent="true;")
        @pytest.mark.parametrize("number", range(7))
        def test_raises(bundle, number):
            raise RuntimeError(number if number else "same")

        @pytest.mark.rollout(agent="true;")
        def test_raises_too(bundle):
            raise RuntimeError("same")
        """)
    block = ran.block()
    assert block[4] == "  2 × evaluator: the test raised RuntimeError: same"
    assert [line for line in block if " × " in line][1:] == [
        f"  1 × evaluator: the test raised RuntimeError: {number}" for number in range(1, 5)
    ]
    assert block[-2] == "  … and 2 more causes"


def header(ran: Ran) -> list[str]:
    return [line for line in ran.lines if line.startswith("rollout: ")]


def test_the_header_counts_samples_and_names_what_a_class_multiplies(suite: Suite) -> None:
    ran = suite.run("""
        import pytest

        @pytest.mark.rollout(agent="echo x > a", samples=2)
        class TestMany:
            @pytest.mark.parametrize("number", [1, 2])
            def test_one(self, bundle, number):
                assert bundle.exists("a")

            def test_two(self, bundle):
                assert bundle.exists("a")

        @pytest.mark.rollout(agent="echo x > a")
        class TestSingle:
            def test_it(self, bundle):
                assert bundle.exists("a")
        """)
    (executor,) = [line for line in header(ran) if line.startswith("rollout: executor")]
    assert re.fullmatch(r"rollout: executor sandbox \(rung 1, bwrap \d+\.\d+(\.\d+)?\)", executor)
    assert header(ran) == [
        "rollout: 7 agent runs of 4 tasks, agent echo x > a",
        executor,
        "rollout: the marker of test_suite.py::TestMany holds for every test in it: 6 agent runs",
        f"rollout: results in {results_line(ran)}",
    ]
    assert len(ran.results) == 7


@pytest.mark.parametrize(
    ("agents", "shown"),
    [
        (["echo a > a"], "agent echo a > a"),
        (["echo a > a", "echo b > a"], "agents echo a > a, echo b > a"),
        ([f"echo {'long ' * 20}", "echo b > a", "noop"], "agents echo b > a and 2 more"),
        ([f"echo {'long ' * 20}", f"echo {'wide ' * 20}"], "2 agents"),
    ],
)
@ALIKE
def test_the_header_names_agents_as_far_as_80_columns_reach(suite: Suite, agents: list[str], shown: str) -> None:
    ran = suite.run(f"""
        import pytest

        AGENTS = [pytest.param(agent, marks=pytest.mark.rollout(agent=agent)) for agent in {agents!r}]

        @pytest.mark.rollout
        class TestAgents:
            @pytest.mark.parametrize("agent", AGENTS)
            def test_it(self, bundle, agent):
                assert bundle.termination == "completed"
        """)
    number = len(agents)
    plural = "s" if number > 1 else ""
    assert header(ran)[0] == f"rollout: {number} agent run{plural} of {number} task{plural}, {shown}"
    assert len(header(ran)[0]) <= 80


@ALIKE
def test_collect_only_shows_what_would_run(suite: Suite) -> None:
    ran = suite.run(MIXED, "--collect-only")
    assert (ran.status, ran.run, ran.results) == (0, None, {})
    assert "rollouts =" not in ran.text
    assert header(ran) == ["rollout: 7 agent runs of 7 tasks, 2 agents"]


@ALIKE
def test_quiet(suite: Suite) -> None:
    ran = suite.run(MIXED, "-q")
    assert header(ran) == []
    assert ran.block()[0] == "7 rollouts: 1 passed, 2 failed, 4 infra"
    assert re.fullmatch(r"2 failed, 2 passed, 4 errors in [\d.]+s", ran.lines[-1])


@ALIKE
def test_very_quiet(suite: Suite) -> None:
    ran = suite.run(MIXED, "-qq")
    assert header(ran) == []
    assert ran.block()[0] == "7 rollouts: 1 passed, 2 failed, 4 infra"
    assert ran.block()[-1] == f"results: {results_line(ran)}"


WORDS = {
    "test_passes": "PASSED r=1",
    "test_partial": "FAILED r=0.75",
    "test_gate": "FAILED r=0",
    "test_infra": "INFRA spawn",
    "test_raises": "INFRA evaluator",
    "test_raises_too": "INFRA evaluator",
    "test_vacuous": "INFRA vacuous",
    "test_plain": "PASSED",
}


def test_verbose_has_the_reward_in_the_word(suite: Suite) -> None:
    ran = suite.run(MIXED, "-v")
    if suite.workers == "-n0":
        found = re.findall(r"^test_suite\.py::(\w+) (\S.*?) +\[ *\d+%\]$", ran.text, re.MULTILINE)
    else:
        found = re.findall(r"^\[gw\d\] \[ *\d+%\] (\S.*) test_suite\.py::(\w+) *$", ran.text, re.MULTILINE)
        found = [(node, word) for word, node in found]
    assert dict(found) == WORDS
    assert len(found) == len(WORDS)


def test_the_short_summary(suite: Suite) -> None:
    ran = suite.run(MIXED, "-rA")
    lines = re.findall(r"^(?:PASSED|FAILED|INFRA|ERROR)\b.*$", ran.section("short test summary info"), re.MULTILINE)
    assert sorted(lines) == sorted(
        [
            "PASSED r=1 test_suite.py::test_passes",
            "PASSED test_suite.py::test_plain",
            "FAILED r=0.75 test_suite.py::test_partial - reward 0.75 is below the threshold 1",
            "FAILED r=0 test_suite.py::test_gate - assert 0 == 1",
            "INFRA spawn test_suite.py::test_infra - infra spawn: exit code 127: the agent...",
            "INFRA evaluator test_suite.py::test_raises - AttributeError: 'str' object has...",
            "INFRA evaluator test_suite.py::test_raises_too - AttributeError: 'str' object...",
            "INFRA vacuous test_suite.py::test_vacuous - infra vacuous: the test looked at...",
        ]
    )


def test_the_sections_of_failures_and_the_closing_block(suite: Suite) -> None:
    ran = suite.run(MIXED)
    closing_block_is_whole(ran)
    no_line_of_ours_is_wider_than_80_columns_but_for_messages(ran)
    worker = re.compile(r"^\[gw\d\] .*\n", re.MULTILINE)
    sections = """\
------------------- rollout: agent stdout (tail of 5 bytes) --------------------
  | said
------------------- rollout: agent stderr (tail of 8 bytes) --------------------
  | \\x1b[31mred
---------------------------- rollout: changed files ----------------------------
  added     dir      d
  added     file     d/a
"""
    assert worker.sub("", ran.section("test_partial")) == (
        """\
reward 0.75 is below the threshold 1
  1  × 3  made
  0  × 1  other

other:
  | test_suite.py:15: assert 'x\\n' == 'y\\n'
  |   
  |   - y
  |   + x
"""  # noqa: W291
        + sections
    )
    assert worker.sub("", ran.section("ERROR at call of test_vacuous")) == (
        "infra vacuous: the test looked at nothing of the bundle and recorded no check\n" + sections
    )
    gate = re.sub(r"<Bundle \S+>", "<Bundle>", worker.sub("", ran.section("test_gate")))
    assert gate == (
        """
bundle = <Bundle>

    @pytest.mark.rollout(agent=AGENT)
    def test_gate(bundle):
>       assert bundle.exit_code == 1
E       assert 0 == 1
E        +  where 0 = <Bundle>.exit_code

test_suite.py:19: AssertionError
"""
        + sections
    )


@ALIKE
def test_colour(suite: Suite) -> None:
    plain = suite.run(MIXED, "--color=no")
    assert "\x1b" not in plain.text
    ran = suite.run(MIXED, "--color=yes", "-v", checked=False)
    words = re.findall(r"\x1b\[(3\dm)(?:\x1b\[1m)?(PASSED r=1|FAILED r=0\.75|INFRA vacuous)", ran.text)
    assert {(word, colour) for colour, word in words} == {
        ("PASSED r=1", "32m"),
        ("FAILED r=0.75", "31m"),
        ("INFRA vacuous", "31m"),
    }
    assert re.sub(r"\x1b\[[\d;]*m", "", ran.text).count("7 rollouts: 1 passed, 2 failed, 4 infra") == 1
