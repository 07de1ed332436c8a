"""``pytest --rollout-audit``: sound checks stand, weak ones are caught in each way, and everybody is told."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.plugin.support import ALIKE

if TYPE_CHECKING:
    from tests.plugin.conftest import Ran, Suite

# An audit is many trials: one way of running it is enough where nothing is different without workers.
WITH_WORKERS = pytest.mark.parametrize("workers", ["-n2"], indirect=True)
FILES = {
    "calc/calc.py": "def add(left, right):\n    return left - right\n\n\ndef double(value):\n    return value\n",
    "calc/tests/test_calc.py": "from calc import add\n\n\ndef test_add():\n    assert add(2, 3) == 5\n",
    "hidden/test_hidden.py": (
        "from calc import add, double\n\n\ndef test_add():\n    assert add(2, 3) == 5\n\n\n"
        "def test_double():\n    assert double(4) == 8\n"
    ),
    "right.sh": (
        "cat > calc.py <<'END'\ndef add(left, right):\n    return left + right\n\n\n"
        "def double(value):\n    return value * 2\nEND\n"
    ),
}
HEAD = """
import subprocess
import sys

import pytest

pytestmark = pytest.mark.rollout(workspace="calc", hidden="hidden", oracle="right.sh", protect=["tests/**"])
"""


def audited(suite: Suite, source: str, *args: str) -> tuple[Ran, dict[str, Any]]:
    """What an audit of these tests left, and its verdicts by the name of the test."""
    suite.ini("norecursedirs = hidden calc", "rollout_audit_repeats = 2")
    suite.write(FILES)
    ran = suite.run(HEAD + source, "--rollout-audit", *args, checked=False)
    found = json.loads((suite.root / ".rollout" / "audits" / "latest.json").read_text("utf-8"))
    return ran, {task["node"].rpartition("::")[2]: task for task in found["tasks"]}


def scored(task: dict[str, Any]) -> set[str]:
    """The trials of a task that scored where they should not."""
    return {trial["name"] for trial in task["trials"] if not trial["good"]}


@pytest.mark.slow
@WITH_WORKERS
def test_sound_and_in_process(suite: Suite) -> None:
    ran, tasks = audited(
        suite,
        """
def test_call(bundle, reward):
    with reward.check("adds"):
        assert bundle.call("calc:add", 2, 3) == 5
    with reward.check("doubles"):
        assert bundle.call_many("calc:double", [(4,), (5,)]) == [8, 10]

def test_proxy(bundle):
    assert bundle.run_tests(proxy=["calc"]).passed

def test_plain(bundle):
    assert bundle.run_tests().passed
""",
    )
    assert {name: task["verdict"] for name, task in tasks.items()} == {
        "test_call": "sound",
        "test_proxy": "sound",
        "test_plain": "in-process",
    }
    assert scored(tasks["test_call"]) == scored(tasks["test_proxy"]) == set()
    assert scored(tasks["test_plain"]) == {"always-equal", "patched", "frames"}
    names = [trial["name"] for trial in tasks["test_call"]["trials"]]
    assert names[:3] == ["oracle 1", "oracle 2", "noop"]
    assert {"conftest", "early-exit", "bytecode", "truncated: first half", "truncated: last half", "wrong"} < set(names)
    assert ran.status == 0
    assert ran.counts == {"passed": 3}
    assert ran.run is None  # an audit is no run


@pytest.mark.slow
@WITH_WORKERS
def test_weak_checks_are_caught_in_each_way(suite: Suite) -> None:
    ran, tasks = audited(
        suite,
        """
def test_accepts_nothing_done(bundle):
    assert bundle.exists("calc.py")

def test_trusts_the_tests_of_the_workspace(bundle):
    code = "import sys; sys.path.insert(0, '.'); import pytest; sys.exit(pytest.main(['tests']))"
    assert bundle.evaluate([sys.executable, "-c", code]).exit_code == 0

def test_looks_at_half(bundle):
    assert bundle.call("calc:add", 2, 3) == 5

def test_looks_at_the_diff(bundle):
    assert [change.path for change in bundle.changes] == ["calc.py"]

def test_takes_an_exit_code(bundle):
    code = "import sys; sys.path.insert(0, '.'); import calc; assert calc.add(2, 3) == 5"
    assert bundle.run([sys.executable, "-c", code]).exit_code == 0
""",
    )
    verdicts = {name: task["verdict"] for name, task in tasks.items()}
    assert set(verdicts.values()) == {"weak"}, verdicts
    assert "noop" in scored(tasks["test_accepts_nothing_done"])
    assert {"conftest", "early-exit"} <= scored(tasks["test_trusts_the_tests_of_the_workspace"])
    assert scored(tasks["test_looks_at_half"]) == {"truncated: first half"}
    assert {"wrong", "early-exit", "empty-files"} <= scored(tasks["test_looks_at_the_diff"])
    assert {"early-exit", "always-equal"} <= scored(tasks["test_takes_an_exit_code"])
    assert ran.status == 1
    assert ran.counts == {"failed": 5}


@WITH_WORKERS
def test_an_oracle_that_is_wrong_and_one_that_is_missing(suite: Suite) -> None:
    suite.write({"wrong.sh": "echo '' > calc.py\n", "cheat.sh": "echo '' > tests/test_calc.py; . ./none 2>&-; true\n"})
    ran, tasks = audited(
        suite,
        """
@pytest.mark.rollout(oracle="wrong.sh")
def test_wrong(bundle, reward):
    with reward.check("there"):
        assert bundle.exists("calc.py")
    with reward.check("adds"):
        assert bundle.call("calc:add", 2, 3) == 5

@pytest.mark.rollout(oracle="cheat.sh")
def test_protected(bundle):
    assert bundle.changes[0].path == "tests/test_calc.py"

@pytest.mark.rollout(oracle=None)
def test_missing(bundle):
    assert bundle.call("calc:add", 2, 3) == 5
""",
        "-k",
        "wrong or missing",
    )
    assert [(name, task["verdict"], task["reason"]) for name, task in tasks.items()] == [
        ("test_wrong", "unknown", "the oracle scores 0.5, not 1: reward 0.5 is below the threshold 1"),
        ("test_missing", "unknown", "the task has no oracle, so it is not known that right work scores 1"),
    ]
    assert ran.status == 1
    assert (ran.counts["failed"], ran.counts["passed"]) == (1, 1)


@pytest.mark.slow
@WITH_WORKERS
def test_an_oracle_that_changes_protected_paths(suite: Suite) -> None:
    suite.write({"cheat.sh": FILES["right.sh"] + "echo > tests/test_calc.py\n"})
    _, tasks = audited(
        suite,
        """
@pytest.mark.rollout(oracle="cheat.sh")
def test_protected(bundle):
    assert bundle.call("calc:add", 2, 3) == 5 and bundle.call("calc:double", 4) == 8
""",
    )
    assert tasks["test_protected"]["reason"] == "the oracle changes protected paths: tests/test_calc.py"
    assert (tasks["test_protected"]["verdict"], tasks["test_protected"]["failed"]) == ("unknown", True)


def test_what_is_told(suite: Suite) -> None:
    source = """
def test_exists(bundle):
    assert bundle.exists("calc.py")
"""
    ran, tasks = audited(suite, source, "-v")
    assert re.search(r"test_suite\.py::test_exists WEAK|WEAK .*test_suite\.py::test_exists", ran.text) is not None
    block = ran.text.partition(" audit =")[2].splitlines()[1:5]
    assert block[0] == "1 task: 0 sound, 0 in-process, 1 weak, 0 unknown"
    assert block[1] == "  weak        test_suite.py::test_exists"
    assert block[2].strip().startswith("these scored too: noop (1), ")
    assert block[3] == "audit: .rollout/audits/latest.json"
    (case,) = ran.cases
    assert (case.verdict, case.type) == ("failure", "audit.weak")
    assert case.message.startswith("weak: these scored too: noop (1), ")
    assert case.properties["rollout.audit"] == "weak"
    assert case.properties["rollout.trial.noop"] == "1"
    assert case.properties["rollout.evaluator_revision"] == tasks["test_exists"]["evaluator_revision"]


@ALIKE
def test_the_verdict_goes_into_later_bundles_of_the_same_checks(suite: Suite) -> None:
    source = """
def test_exists(bundle):
    assert bundle.exists("none")
"""
    _, tasks = audited(suite, source)
    assert tasks["test_exists"]["verdict"] == "unknown"
    agent = ("--rollout-agent", "touch none")
    ran = suite.run(HEAD + source, *agent)
    assert (ran.score("test_exists").audit, ran.bundle("test_exists").audit) == ("unknown", "unknown")
    assert ran.case("test_exists").properties["rollout.audit"] == "unknown"
    ran = suite.run(HEAD + source + "# changed\n", *agent)
    assert ran.score("test_exists").audit is None


@ALIKE
def test_a_skipped_task_and_a_suite_without_rollouts(suite: Suite) -> None:
    ran, tasks = audited(
        suite,
        """
@pytest.mark.skip(reason="never")
def test_skipped(bundle):
    assert bundle.exists("calc.py")

@pytest.mark.rollout
def test_without(bundle):
    assert not bundle.exists("calc.py")
""".replace("@pytest.mark.rollout\n", ""),
        "-k",
        "skipped",
    )
    assert tasks["test_skipped"]["reason"] == "the test was skipped before there was a bundle"
    assert ran.status == 0
    plain = suite.run("def test_it():\n    pass\n", "--rollout-audit", checked=False)
    assert (plain.status, plain.counts) == (0, {"passed": 1})
    assert "audit" not in plain.text
