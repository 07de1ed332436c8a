"""Infrastructure that is tried again, a run that is ended as it meets nothing else, and a look before it begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.plugin.support import journal, left_of_stages

if TYPE_CHECKING:
    from tests.plugin.conftest import Suite

UNMEASURED = 75
AGAIN = ("--rollout-retries=agent=1", "--rollout-retry-forgeable", "--rollout-controls=none")
CONFIG = """
    [agents.breaks]
    command = "test -f m && echo ok > out; touch m; test $ROLLOUT_ATTEMPT = 2 || exit 75"
    infra_exit_codes = [75]

    [agents.ready]
    command = "echo hi > a.txt"
    preflight = ["sh", "-c", "test -n {task}"]

    [agents.unready]
    command = "echo hi > a.txt"
    preflight = "echo no quota >&2; exit 3"
"""


def test_an_agent_that_broke_starts_anew(suite: Suite) -> None:
    source = """
        import pytest
        from pytest_rollout import ProviderError

        def flaky(stage):
            stage.run("echo hi >> a.txt")
            if stage.attempt == 1:
                raise ProviderError("429 from the provider")

        @pytest.mark.rollout(agent="breaks")
        def test_breaks(bundle):
            assert bundle.exit_code == 0
            assert bundle.attempt == 2
            assert not bundle.exists("out")

        @pytest.mark.rollout(agent=flaky)
        def test_provider(bundle):
            assert bundle.read_text("a.txt") == "hi\\n"

        @pytest.mark.rollout(agent="exit 1")
        def test_model(bundle):
            assert bundle.exit_code == 0
    """
    suite.write({"rollout.toml": CONFIG})
    ran = suite.run(source, *AGAIN, "-v")
    assert ran.verdicts == {
        "test_breaks": ("passed", None, 1.0),
        "test_provider": ("passed", None, 1.0),
        "test_model": ("failed", None, 0.0),
    }
    assert (ran.status, ran.counts, len(ran.cases)) == (1, {"passed": 2, "failed": 1}, 3)
    earlier = {node: [(e.attempt, e.kind, e.forgeable) for e in r.earlier] for node, r in ran.results.items()}
    assert earlier == {
        "test_breaks": [(1, "agent", True)],
        "test_provider": [(1, "provider", False)],
        "test_model": [],
    }
    said = {node: ran.case(node).properties for node in ran.results}
    assert {node: (p["rollout.attempts"], p.get("rollout.earlier")) for node, p in said.items()} == {
        "test_breaks": ("2", "agent"),
        "test_provider": ("2", "provider"),
        "test_model": ("1", None),
    }
    assert "more than one attempt: 2 rollouts, after infra: 1 agent (forgeable), 1 provider" in ran.block()
    assert ran.run is not None
    assert len(journal(ran.run)) == 3, "a line a rollout"


CRASHES = """
    import os
    import pathlib
    import pytest

    def dies_once(name):
        if not pathlib.Path(name).exists():
            pathlib.Path(name).touch()
            os._exit(7)

    @pytest.fixture
    def early():
        dies_once("early")

    @pytest.mark.rollout(agent="echo hi > a.txt")
    def test_early(early, bundle):
        assert bundle.exit_code == 0
        assert bundle.attempt == 2

    @pytest.mark.rollout(agent="echo hi > a.txt")
    def test_other(bundle):
        assert bundle.exit_code == 0

    @pytest.mark.rollout(agent="echo hi > a.txt")
    def test_body(bundle):
        assert bundle.exit_code == 0
        dies_once("body")
        assert bundle.attempt == 2

    def test_plain():
        pass
"""


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["-n2"])
@pytest.mark.parametrize(
    ("args", "body"),
    [
        pytest.param(["--rollout-retry-forgeable"], ("passed", None, 1.0), id="forgeable"),
        pytest.param(["--dist=loadscope"], ("infra", "worker?", None), id="loadscope"),
        pytest.param(["--max-worker-restart=0"], ("infra", "worker?", None), id="without another worker"),
    ],
)
def test_a_rollout_whose_worker_died_is_begun_again(suite: Suite, args: list[str], body: tuple[object, ...]) -> None:
    ran = suite.run(CRASHES, *args, "--rollout-controls=none")
    if args == ["--max-worker-restart=0"]:
        assert ran.status == UNMEASURED
        assert ran.verdicts["test_early"] == ("infra", "worker", None)
        assert ran.results["test_early"].earlier == ()
        return
    assert ran.verdicts == {
        "test_early": ("passed", None, 1.0),
        "test_other": ("passed", None, 1.0),
        "test_body": body,
    }
    again = ["test_early", *(["test_body"] if body[0] == "passed" else [])]
    assert ran.status == (UNMEASURED if body[0] == "infra" else 0)
    assert ran.counts == ({"passed": 4} if body[0] == "passed" else {"passed": 3, "errors": 1})
    assert len(ran.cases) == 4
    for node in again:
        (earlier,) = ran.results[node].earlier
        assert (earlier.attempt, earlier.kind, earlier.forgeable) == (1, "worker", node == "test_body")
        assert earlier.message.endswith(f"crashed while running 'test_suite.py::{node}'")
        assert f"rollout: test_suite.py::{node} is begun again: {earlier.message}" in ran.lines
    assert left_of_stages(suite) == []


def test_a_run_of_nothing_but_one_failure_is_ended(suite: Suite) -> None:
    source = """
        import pytest

        @pytest.mark.parametrize("number", range(20))
        @pytest.mark.rollout(agent="no-such-program")
        def test_it(bundle, number):
            assert bundle.exit_code == 0
    """
    ran = suite.run(source.replace('"no-such', '"sh -c no-such'), "--rollout-max-infra=3", "--rollout-controls=none")
    assert ran.status == UNMEASURED
    made = len(ran.results)
    assert made == 3 if suite.workers == "-n0" else 3 <= made <= 6
    assert ran.block()[0] == f"{made} rollouts: 0 passed, 0 failed, {made} infra; {20 - made} not run"
    why = (
        "3 rollouts in a row ended by the same failure of infrastructure, spawn: "
        "exit code 127: the agent's program, or one that it starts, is not found (--rollout-max-infra)"
    )
    assert f"stopped: {why}" in ran.block()
    assert not any(line.startswith("LOST") for line in ran.block())
    assert len(ran.cases) == made


READY = """
    import pytest

    @pytest.mark.rollout(agent="{agent}", samples=2)
    def test_it(bundle):
        assert bundle.exists("a.txt")
"""


def test_a_preflight_that_fails(suite: Suite) -> None:
    suite.write({"rollout.toml": CONFIG})
    ran = suite.run(READY.replace("{agent}", "unready"), "--rollout-preflight", checked=False)
    assert (ran.status, ran.results, ran.counts) == (UNMEASURED, {}, {})
    assert ran.run is not None
    why = "the preflight command of agent 'unready' ended by exit_code 3: no quota"
    assert (
        f"rollout: the preflight failed, so nothing is run: {why} ({ran.run.path}/preflight/agent-unready)" in ran.text
    )
    assert "Traceback" not in ran.text + ran.errors
    assert not (ran.run.path / "rollouts").exists()
    assert left_of_stages(suite) == []


@pytest.mark.parametrize("workers", ["-n0"])
def test_a_preflight_that_passes_says_what_is_known_of_the_price(suite: Suite) -> None:
    suite.write({"rollout.toml": CONFIG})
    for known, suite.workers in ((False, "-n0"), (True, "-n2")):
        ran = suite.run(READY.replace("{agent}", "ready"), "--rollout-preflight", "--rollout-controls=none")
        assert ran.status == 0
        (line,) = [line for line in ran.lines if line.startswith("rollout: preflight passed in ")]
        assert line.endswith(" s: a stage, ready")
        told = [line for line in ran.lines if line.startswith("rollout: by the means of earlier runs: ")]
        assert len(told) == int(known)
        assert not known or told[0].endswith(" s of agents' time (known for 2 of 2)")
