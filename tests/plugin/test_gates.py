"""Gates over real sessions: the exit status, the lines of the block, JUnit, and what is refused before anything runs.

What a gate means is tested in tests/unit/decisions/test_gates.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from lxml import etree

if TYPE_CHECKING:
    from tests.plugin.conftest import Ran, Suite

ALONE = pytest.mark.parametrize("workers", ["-n0"], indirect=True)
SUITE = """
    import pytest

    @pytest.mark.rollout(agent="test $ROLLOUT_SAMPLE = 0 || echo x > a", samples=4, tags=["smoke"])
    @pytest.mark.parametrize("number", [0, 1])
    def test_writes(bundle, number):
        assert bundle.exists("a")

    @pytest.mark.rollout(agent="exit 127")
    def test_infra(bundle):
        assert bundle.exists("a")

    def test_plain(pytestconfig):
        assert not pytestconfig.inicfg.get("console_output_style")
    """


def gates(ran: Ran) -> list[str]:
    return [line for line in ran.block() if line.startswith("gate")]


def in_junit(ran: Ran) -> list[str]:
    """The gates of the testsuite's properties, in their order."""
    found = etree.parse(ran.root / "report.xml").getroot().iterfind("testsuite/properties/property")
    return [item.get("value") for item in found if item.get("name").startswith("rollout.gate.")]


def test_gates_decide_the_status_in_place_of_single_rollouts(suite: Suite) -> None:
    suite.ini("rollout_controls = none", "rollout_gate = mean_reward >= 0.7 for tag:smoke")
    ran = suite.run(SUITE, checked=False)
    held = [
        "gate mean_reward >= 0.7 for tag:smoke: holds; 0.75; 8 measured of 8",
        "gate measured >= 0.95 for tag:smoke (implied): holds; 1; 8 of 8",
    ]
    assert (ran.status, gates(ran), in_junit(ran)) == (0, held, held)
    assert len(ran.results) == 9

    ran = suite.run(SUITE, "--rollout-gate=pass@4 >= 1", "--rollout-gate=regression(last) < 0", checked=False)
    assert ran.status == 76
    assert gates(ran) == [
        "gate pass@4 >= 1: holds; 1; 2 of 3 tasks",
        "gate regression(last) < 0: holds; +0.0000, at most +0.0000 (95 %), on the mean of 2 common tasks",
        "gate measured >= 0.95 (implied): does not hold; 0.8889; 8 of 9, 1 infra",
    ]
    assert in_junit(ran) == gates(ran)


@ALONE
def test_other_tests_that_fail_keep_their_status(suite: Suite) -> None:
    suite.ini("rollout_controls = none", "console_output_style = classic")
    arguments = ("--rollout-isolation=none", "--rollout-gate-untrusted", "-k", "plain or writes")
    ran = suite.run(SUITE, *arguments, "--rollout-gate=mean_reward >= 0.7", checked=False)
    assert (ran.status, gates(ran)[0]) == (1, "gate mean_reward >= 0.7: holds; 0.75; 8 measured of 8")
    ran = suite.run(SUITE, *arguments, "--rollout-gate=mean_reward >= 0.8", checked=False)
    assert ran.status == 76


@ALONE
def test_where_nothing_was_measured_or_selected(suite: Suite) -> None:
    suite.ini("rollout_controls = none", "rollout_gate = measured >= 1")
    gate = "--rollout-gate=mean_reward >= 0.5"
    ran = suite.run(SUITE, gate, "-k", "infra", checked=False)
    assert (ran.status, gates(ran)[0]) == (75, "gate mean_reward >= 0.5: undecided; nothing was measured")
    ran = suite.run(SUITE, gate, "-k", "plain")
    assert (ran.status, ran.run) == (75, None)
    assert "gate mean_reward >= 0.5: undecided; no rollout was selected" in ran.lines
    assert suite.run(SUITE, gate, "-k", "nothing").status == 5
    assert suite.run(SUITE, "-k", "plain").status == 0  # a gate of the ini file is about rollouts, where there are some


@ALONE
def test_an_interrupt_and_a_broken_collection_keep_their_status(suite: Suite) -> None:
    suite.ini("rollout_controls = none", "rollout_gate = mean_reward >= 0")
    suite.write({"test_z.py": "def test_z():\n    raise KeyboardInterrupt\n"})
    ran = suite.run(SUITE, "-k", "writes or test_z", checked=False)
    assert (ran.status, ran.block()[-2]) == (2, "gates: not judged, because the session ended with status 2")
    suite.write({"test_broken.py": "import no_such_module\n"})
    ran = suite.run(SUITE, "-k", "writes")
    assert (ran.status, ran.run) == (2, None)
    ran = suite.run(SUITE, "-k", "writes", "--continue-on-collection-errors", checked=False)
    assert (ran.status, gates(ran)[0]) == (1, "gate mean_reward >= 0: holds; 0.75; 8 measured of 8")


@ALONE
def test_a_run_that_goes_on_is_not_held_against_itself(suite: Suite) -> None:
    suite.ini("rollout_controls = none")
    arguments = ("--rollout-isolation=none", "--rollout-gate-untrusted", "-k", "writes")
    ran = suite.run(SUITE, *arguments)
    assert ran.run is not None
    last = "--rollout-gate=regression(last) < 0.02"
    again = suite.run(SUITE, *arguments, "--rollout-resume=last", last)
    assert (again.status, "there is no finished run in " in again.errors) == (4, True)
    again = suite.run(SUITE, *arguments, "--rollout-resume=last", last.replace("last", ran.run.name))
    assert (again.status, "it can't be held against itself" in again.errors) == (4, True)


def test_a_gate_that_is_wrong_is_refused_before_anything_runs(suite: Suite) -> None:
    ran = suite.run(SUITE, "--rollout-gate=mean_rewrd >= 0.5")
    assert (ran.status, ran.run) == (4, None)
    assert "rollout: --rollout-gate: 'mean_rewrd >= 0.5': unknown figure 'mean_rewrd'; valid: " in ran.errors
    assert "Did you mean 'mean_reward'?" in ran.errors


@ALONE
def test_a_base_that_is_missing_is_refused_before_anything_runs(suite: Suite) -> None:
    suite.ini("rollout_gate = regression(sub/base.json) < 0.02")
    ran = suite.run(SUITE)
    assert (ran.status, ran.run) == (4, None)
    assert "rollout_gate in the ini file: 'regression(sub/base.json) < 0.02': " in ran.errors
    ran = suite.run(SUITE, "--rollout-gate=regression(last) < 0.02")
    assert (ran.status, ran.run) == (4, None)
    assert "there is no finished run in " in ran.errors
    suite.write({"sub/base.json": "{}"})
    assert "base.json is not a baseline: " in suite.run(SUITE).errors
    assert suite.run(SUITE, "--collect-only").status == 0
    assert suite.run(SUITE, "--markers").status == 0
