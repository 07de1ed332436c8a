"""Which agent and how many samples: the command line wins over the marker, the marker over the ini file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.plugin.support import ALIKE, cases

if TYPE_CHECKING:
    from tests.plugin.conftest import Suite

SOURCE = """
    import pytest

    @pytest.mark.rollout(agent="echo marker > a")
    def test_marked(bundle):
        assert bundle.exists("a")

    @pytest.mark.rollout
    def test_unmarked(bundle):
        assert bundle.exists("a")
    """
AGENTS = """
    [agents.line]
    command = "echo line > a"
    [agents.ini]
    command = "echo ini > a"
    """


@cases(
    "ini, options, marked, unmarked",
    {
        "line": ((), ("--rollout-agent=line",), "line", "line"),
        "ini": (("rollout_agent = ini",), (), "marker", "ini"),
        "line and ini": (("rollout_agent = ini",), ("--rollout-agent=line",), "line", "line"),
        "a command": ((), ("--rollout-agent=echo other > a",), "other", "other"),
    },
    n2=("line and ini",),
)
def test_agents(suite: Suite, ini: tuple[str, ...], options: tuple[str, ...], marked: str, unmarked: str) -> None:
    suite.write({"rollout.toml": AGENTS})
    suite.ini(*ini)
    ran = suite.run(SOURCE, *options)
    assert ran.status == 0
    wrote = {node: (ran.attempt(node) / "changes" / "a").read_text() for node in ran.results}
    assert wrote == {"test_marked": f"{marked}\n", "test_unmarked": f"{unmarked}\n"}


@ALIKE
def test_no_agent_at_all(suite: Suite) -> None:
    suite.write({"rollout.toml": AGENTS})
    ran = suite.run(SOURCE)
    assert (ran.status, ran.results) == (4, {})
    assert "no agent is named for this task; in " in ran.text + ran.errors


@cases(
    "ini, options, marked, unmarked",
    {
        "marker": ((), (), 2, 1),
        "ini": (("rollout_samples = 3",), (), 2, 3),
        "line": (("rollout_samples = 3",), ("--rollout-samples=4",), 4, 4),
        "line says one": ((), ("--rollout-samples=1",), 1, 1),
    },
    n2=("line",),
)
def test_samples(suite: Suite, ini: tuple[str, ...], options: tuple[str, ...], marked: int, unmarked: int) -> None:
    suite.ini("rollout_agent = echo x > a", *ini)
    ran = suite.run(SOURCE.replace('agent="echo marker > a"', "samples=2"), *options)
    assert ran.status == 0
    found = [result.task.rpartition("::")[2] for result in ran.loaded.results]
    assert {name: found.count(name) for name in set(found)} == {"test_marked": marked, "test_unmarked": unmarked}


def test_pins_of_the_ini_file_the_agent_and_the_command_line(suite: Suite) -> None:
    suite.write(
        {
            "rollout.toml": """
                [agents.pinned]
                command = "echo x > a"
                pins = { model = "small", temperature = 0.5, policy = "candidate-17", build = "agent" }
                """
        }
    )
    suite.ini("rollout_pin =", "    model = medium", "    host = lab")
    ran = suite.run(SOURCE, "--rollout-agent=pinned", "--rollout-pin=model=large", "--rollout-pin", "run = 7")
    pins = ran.bundle("test_marked").pins
    assert (pins.model, pins.policy_revision, pins.sampling) == ("large", "candidate-17", {"temperature": 0.5})
    assert pins.extra == {"build": "agent", "host": "lab", "run": "7"}
