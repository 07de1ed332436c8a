"""A suite that overrides the fixtures ``rollout_task`` and ``rollout_agent``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.plugin.support import ALIKE

if TYPE_CHECKING:
    from tests.plugin.conftest import Suite


def test_overriding_the_task(suite: Suite) -> None:
    ran = suite.run("""
        import pytest
        from pytest_rollout import Limits

        @pytest.fixture
        def rollout_task(rollout_task, request):
            return rollout_task.replace(
                prompt=f"{rollout_task.prompt} in {request.node.name}",
                limits=Limits(wall=7),
                seed=rollout_task.seed + 1000,
                threshold=0.5,
                env={"X": "y"},
            )

        @pytest.mark.rollout(agent='cat "$ROLLOUT_PROMPT_FILE"; echo " $X $ROLLOUT_SEED"', prompt="do it", samples=2)
        def test_it(bundle, reward):
            assert bundle.stdout == f"do it in test_it[s{bundle.sample}] y {1000 + bundle.sample}\\n"
            reward.add("half", 0.5)
        """)
    assert ran.verdicts == {f"test_it[s{k}]": ("passed", None, 0.5) for k in (0, 1)}
    pins = ran.bundle("test_it[s1]").pins
    assert pins.seed == 1001
    assert pins.limits == {"wall": 7.0, "output": 10 * 2**20}
    assert ran.score("test_it[s1]").threshold == 0.5


def test_overriding_the_agent(suite: Suite) -> None:
    suite.write(
        {
            "rollout.toml": """
                [agents.writer]
                command = ["sh", "-c", "echo named > a"]
                """
        }
    )
    ran = suite.run("""
        import pytest

        def function(stage):
            seen = stage.run("cat; echo function > a; echo out; echo err >&2; exit 3")
            assert (seen.exit_code, seen.stdout, seen.stderr) == (3, "out\\n", "err\\n")

        AGENTS = {
            "callable": function, "list": ["sh", "-c", "echo list > a"], "name": "writer", "text": "echo text > a",
            "noop": "noop",
        }

        @pytest.fixture(params=AGENTS)
        def rollout_agent(request):
            return AGENTS[request.param]

        @pytest.mark.rollout
        def test_it(bundle, request):
            wanted = {"callable": "function", "name": "named"}.get(request.node.callspec.params["rollout_agent"])
            wanted = wanted or request.node.callspec.params["rollout_agent"]
            assert bundle.exit_code == 0
            if wanted == "noop":
                assert not bundle.changes
            else:
                assert bundle.read_text("a") == f"{wanted}\\n"
        """)
    assert set(ran.verdicts.values()) == {("passed", None, 1.0)}
    assert {node: result.agent for node, result in ran.results.items()} == {
        "test_it[callable]": "test_suite:function",
        "test_it[list]": "sh",
        "test_it[name]": "writer",
        "test_it[text]": "echo text > a",
        "test_it[noop]": "noop",
    }
    assert ran.plan is not None
    assert {planned.agent for planned in ran.plan.rollouts} == {"(fixture)"}
    assert ran.bundle("test_it[callable]").stdout.kept == 4


@ALIKE
def test_an_override_that_wraps_the_agent_of_the_command_line(suite: Suite) -> None:
    ran = suite.run(
        """
        import pytest

        @pytest.fixture
        def rollout_agent(rollout_agent):
            assert rollout_agent.info.name == "echo first > a"
            return ["sh", "-c", "echo second > a"]

        @pytest.mark.rollout
        def test_it(bundle):
            assert bundle.read_text("a") == "second\\n"
        """,
        "--rollout-agent=echo first > a",
    )
    assert ran.verdicts == {"test_it": ("passed", None, 1.0)}


@ALIKE
def test_overrides_that_can_not_be_used(suite: Suite) -> None:
    ran = suite.run("""
        import pytest

        class TestTask:
            @pytest.fixture
            def rollout_task(self):
                return "do it"

            @pytest.mark.rollout(agent="true;")
            def test_it(self, bundle):
                assert bundle.exit_code == 0

        class TestId:
            @pytest.fixture
            def rollout_task(self, rollout_task):
                return rollout_task.replace(id="other")

            @pytest.mark.rollout(agent="true;")
            def test_it(self, bundle):
                assert bundle.exit_code == 0

        class TestAgent:
            @pytest.fixture
            def rollout_agent(self):
                return 3

            @pytest.mark.rollout
            def test_it(self, bundle):
                assert bundle.exit_code == 0

        class TestNothing:
            @pytest.fixture
            def rollout_agent(self):
                return None

            @pytest.mark.rollout
            def test_it(self, bundle):
                assert bundle.exit_code == 0

        class TestUnknown:
            @pytest.fixture
            def rollout_agent(self):
                return "no-such-agent"

            @pytest.mark.rollout
            def test_it(self, bundle):
                assert bundle.exit_code == 0
        """)
    assert set(ran.verdicts.values()) == {("infra", "fixture", None)}
    assert len(ran.verdicts) == 5
    messages = {node.partition("::")[0]: result.message for node, result in ran.results.items()}
    command = "is not a command: a text for sh -c, or a list of words"
    assert messages["TestTask"] == "the fixture rollout_task gave 'do it', which is not a Task"
    assert messages["TestId"].startswith("the fixture rollout_task changed the id")
    assert messages["TestAgent"] == f"fixture rollout_agent: 3 {command}"
    assert messages["TestNothing"] == f"fixture rollout_agent: None {command}"
    assert messages["TestUnknown"].startswith("fixture rollout_agent: there is no agent 'no-such-agent'; valid: noop.")
    assert ran.run is not None
    assert list((ran.run.path / "rollouts").glob("*/*/*")) == []
