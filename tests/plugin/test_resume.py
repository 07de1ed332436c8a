"""Sessions that go on with a run, shards of a suite, and JUnit out of records, each beside what pytest says itself."""

from __future__ import annotations

import os
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from pytest_rollout.report.rebuilt import write_report
from pytest_rollout.store.folder import RunFolder, read_record
from pytest_rollout.store.load import load_results
from pytest_rollout.store.records import RunRecord
from tests.plugin.conftest import Case, read_junit
from tests.plugin.support import UNISOLATED, USAGE, background, children, last_run, marker, processes, wait_for

if TYPE_CHECKING:
    from tests.plugin.conftest import Suite

SUITE = r"""
    import pytest

    @pytest.mark.rollout(agent="echo x > a", samples=2, tags=["t"])
    def test_passes(bundle, reward):
        with reward.check("there"):
            assert bundle.exists("a")
        reward.metric("lines", 1)

    @pytest.mark.rollout(agent="exit 3")
    def test_fails(bundle):
        assert bundle.exit_code == 0, "too bad\nand more"

    @pytest.mark.rollout(agent="true; true")
    @pytest.mark.xfail(reason="known")
    def test_xfails(bundle):
        assert bundle.exists("a")

    @pytest.mark.rollout(agent="true; true")
    @pytest.mark.xfail(strict=True, reason="it was")
    def test_xpasses(bundle):
        assert bundle.exit_code == 0

    @pytest.mark.rollout(agent="true; true")
    def test_infra(bundle):
        raise KeyError("broken")

    @pytest.mark.rollout(agent="test $ROLLOUT_ATTEMPT != 1 || exec sleep {marker}", samples=2)
    def test_waits(bundle):
        assert bundle.exit_code == 0

    def test_plain():
        pass
"""
MEASURED = ["test_fails", "test_passes[s0]", "test_passes[s1]", "test_xfails", "test_xpasses"]
ALL = [*MEASURED, "test_infra", "test_waits[s0]", "test_waits[s1]"]
NOT_JUDGED = "gates: not judged over a part of the suite: merge the shards, and judge that by pytest-rollout gate"


def shown(cases: list[Case]) -> dict[str, tuple[str, ...]]:
    """What of the testcases of rollouts is the same in a live report and in a rebuilt one."""
    return {
        case.name: (case.classname, case.verdict, case.type, case.message, str(sorted(case.properties.items())))
        for case in cases
        if case.properties
    }


def rebuilt(run: RunFolder) -> list[Case]:
    write_report(run, run.path / "rebuilt.xml")
    return read_junit(run.path / "rebuilt.xml")


def kill(session: subprocess.Popen[bytes], word: str) -> None:
    """Kill the controller of a session and its workers, and see that nothing of it lives."""
    assert len(children(session.pid)) >= 2
    os.killpg(session.pid, signal.SIGKILL)
    session.wait()
    wait_for(lambda: not processes(word), 30, "the end of the agents")


def begun(pytester: pytest.Pytester) -> int:
    """How many agents the last run has started: each attempt has a folder of its own."""
    return len(list(last_run(pytester).path.glob("rollouts/*/*/a*/journal.jsonl")))


@pytest.fixture
def workers() -> str:
    return "-n2"


def test_a_session_that_was_killed_is_gone_on_with(suite: Suite, pytester: pytest.Pytester) -> None:
    word = marker()
    suite.ini("rollout_controls = none")
    suite.write({"test_suite.py": SUITE.replace("{marker}", word)})
    with background(pytester, "-n2") as session:
        wait_for(lambda: len(processes(word)) >= 2 and begun(pytester) == 8, 60, "the agents that wait")
        kill(session, word)
    run = last_run(pytester)
    cut = load_results(run)
    assert sorted(result.node.partition("::")[2] for result in cut.results) == sorted([*MEASURED, "test_infra"])
    assert len(cut.missing) == 2
    assert {case.name: (case.verdict, case.type) for case in rebuilt(run) if case.name.startswith("test_waits")} == {
        "test_waits[s0]": ("error", "infra.missing"),
        "test_waits[s1]": ("error", "infra.missing"),
    }
    with open(run.results / "gw0.jsonl", "ab") as journal:
        journal.write(b'{"rollout": "half a li')

    ran = suite.run(None, "--rollout-resume=last", checked=False)
    assert RunFolder(run.path).name == last_run(pytester).name
    assert ran.run is None  # no other run was begun
    assert begun(pytester) == 8 + 3
    loaded = load_results(run)
    assert (len(loaded.results), loaded.missing, loaded.broken) == (8, (), 1)
    attempts = {
        r.node.partition("::")[2]: (r.attempt, [(e.attempt, e.kind, e.forgeable) for e in r.earlier])
        for r in loaded.results
    }
    assert attempts == {
        **dict.fromkeys(MEASURED, (1, [])),
        "test_infra": (2, [(1, "evaluator", True)]),
        **dict.fromkeys(("test_waits[s0]", "test_waits[s1]"), (2, [(1, "worker", True)])),
    }
    assert "rollout: 3 agent runs of 2 tasks, " in ran.text
    assert f"rollout: goes on with {run.name}: 5 rollouts of 8 measured before" in ran.lines
    assert ran.block()[0] == "8 rollouts: 5 passed, 2 failed, 1 infra"
    assert "5 rollouts measured before, in the same run" in ran.block()
    assert ran.status == 75
    assert sorted(case.name for case in ran.cases) == sorted([*ALL, "test_plain"])
    assert shown(ran.cases) == shown(rebuilt(run))
    assert not run.was_cut()
    (resumed,) = read_record(run.record, RunRecord).resumed
    assert (resumed.rollouts, resumed.measured, resumed.changed) == (3, 5, {})


@pytest.mark.parametrize("workers", ["-n0"])
def test_what_may_go_on_with_a_run_and_what_may_not(suite: Suite, workers: str) -> None:
    suite.ini(UNISOLATED, "rollout_controls = none")
    source = """
        import os
        import pytest

        @pytest.mark.parametrize("name", ["a", "b"])
        @pytest.mark.rollout(agent="echo $ROLLOUT_SAMPLE $ROLLOUT_ATTEMPT > f", prompt="first")
        def test_it(bundle, name):
            if name == "b" and "BROKEN" in os.environ:
                raise KeyError("broken")
            assert bundle.read_text("f").split()[0] == "0"
    """
    os.environ["BROKEN"] = "1"
    try:
        first = suite.run(source)
    finally:
        del os.environ["BROKEN"]
    run = first.run
    assert run is not None
    suite.write({"other/test_other.py": SUITE})
    live = shown(first.cases)
    assert live == shown(rebuilt(run))
    (run.path / "rebuilt.xml").unlink()
    files = {path: path.read_bytes() for path in (run.plan, run.record, *run.results.iterdir())}

    refused = suite.run(source, "test_suite.py", "--rollout-resume=last", "--rollout-pin=model=other", checked=False)
    message = (
        f"ERROR: rollout: --rollout-resume: what the run {run.name} measured is not comparable with what would be made "
        "now: model: none → other\nStart a new run, or allow it: --rollout-resume-changed=model."
    )
    assert (refused.status, refused.errors.strip()) == (USAGE, message)
    other = suite.run(None, "--rollout-resume=last", "other", checked=False)
    assert (other.status, "is of another suite: none of its 2 rollouts" in other.errors) == (USAGE, True)
    holder = RunFolder(run.path)
    assert holder.hold("gw7")
    assert run.hold()
    busy = suite.run(None, "--rollout-resume=last", "test_suite.py", checked=False)
    assert (busy.status, f"the run {run.name} is in progress" in busy.errors) == (USAGE, True)
    run.release()
    holder.release()
    assert files == {path: path.read_bytes() for path in files}

    more = suite.run(
        None,
        *("--rollout-resume=last", "--rollout-samples=2", "--rollout-pin=model=other"),
        *("--rollout-resume-changed=model", "-k", "test_it"),
        checked=False,
    )
    loaded = load_results(run)
    assert [(r.node.partition("::")[2], r.outcome, r.attempt) for r in loaded.results] == [
        ("test_it[a]", "passed", 1),
        ("test_it[b-s0]", "passed", 2),
        ("test_it[a-s1]", "failed", 1),
        ("test_it[b-s1]", "failed", 1),
    ]
    assert "rollout: 2 rollouts more than it had planned" in more.lines
    assert sorted(case.name for case in more.cases) == sorted(f"test_it[{n}-s{k}]" for n in "ab" for k in range(2))
    assert shown(more.cases) == shown(rebuilt(run))
    (resumed,) = read_record(run.record, RunRecord).resumed
    assert resumed.changed == {"model": [("none", "other")]}

    same = ("--rollout-resume=last", "--rollout-pin=model=other", "--rollout-samples=2", "test_suite.py")
    rest = suite.run(None, *same, checked=False)
    done = suite.run(None, *same, "--rollout-resume-changed=model", checked=False)
    assert (rest.status, done.status, done.block()[0]) == (USAGE, 1, "4 rollouts: 2 passed, 2 failed, 0 infra")
    assert "rollout: 0 agent runs" not in done.text
    assert shown(done.cases) == shown(more.cases)


def test_shards_are_parts_of_the_suite(suite: Suite) -> None:
    source = """
        import pytest

        @pytest.mark.parametrize("number", range(3))
        @pytest.mark.rollout(agent="echo x > a", samples=2)
        def test_it(bundle, number):
            assert bundle.exists("a")

        def test_plain():
            pass
    """
    suite.ini(UNISOLATED, "rollout_controls = none")
    found: list[str] = []
    for workers, shard in (("-n0", "1/2"), ("-n2", "2/2")):
        suite.workers = workers
        ran = suite.run(source, f"--rollout-shard={shard}", "--rollout-gate=pass@3 >= 0.5")
        assert (ran.status, [line for line in ran.lines if line.startswith("gate")]) == (0, [NOT_JUDGED])
        assert ran.plan is not None and ran.plan.shard is not None and ran.run is not None
        assert read_record(ran.run.record, RunRecord).shard == ran.plan.shard
        of = ran.plan.shard
        assert (str(of), of.tests, of.all_tests, of.all_rollouts) == (shard, len(ran.cases), 7, 6)
        assert f"rollout: shard {shard}: {of.tests} of 7 tests" in ran.lines
        found += [case.name for case in ran.cases]
    assert sorted(found) == sorted([*(f"test_it[{n}-s{k}]" for n in range(3) for k in range(2)), "test_plain"])
    without = f"--rollout-shard={_without('test_suite.py::test_one')}"
    empty = suite.run("def test_one():\n    pass\n", without, "--rollout-gate=pass@3 >= 0.5")
    nothing = suite.run(None, "--rollout-shard=1/2", "-k", "no_such_test")
    assert (empty.status, nothing.status) == (0, 5)


def _without(node: str) -> str:
    """A shard of two that this test is not in."""
    from pytest_rollout.shard import Shard

    return "2/2" if Shard(1, 2).has(node) else "1/2"
