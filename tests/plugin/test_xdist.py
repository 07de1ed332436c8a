"""With pytest-xdist: one run, nothing lost or doubled, a worker that dies, sessions that are refused."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.plugin.conftest import read_junit
from tests.plugin.support import (
    PLUGINS,
    SUITE,
    UNISOLATED,
    attempt,
    background,
    filled,
    journal,
    left,
    left_of_stages,
    marker,
    processes,
    refused,
    results,
    session,
    wait_for,
)

if TYPE_CHECKING:
    from tests.plugin.conftest import Suite

UNMEASURED = 75
MANY = """
    import pytest

    @pytest.mark.parametrize("number", range(15))
    @pytest.mark.rollout(agent="echo $ROLLOUT_SAMPLE > sample.txt", samples=2)
    def test_many(bundle, number, request):
        assert bundle.read_text("sample.txt") == f"{bundle.sample}\\n"
"""


@pytest.fixture
def workers() -> str:
    """Two workers, always."""
    return "-n2"


# -- one run, and all of it


def test_every_process_knows_the_one_run(suite: Suite) -> None:
    source = """
        import pytest

        @pytest.mark.parametrize("number", range(6))
        @pytest.mark.rollout(agent="sleep 0.2")
        def test_it(bundle, number):
            assert bundle.exit_code == 0
    """
    ran = suite.run(source)
    assert ran.run is not None
    name = ran.run.name
    assert [path.name for path in (suite.root / ".rollout" / "runs").iterdir()] == [name]
    assert (suite.root / ".rollout" / "latest").read_text() == f"{name}\n"
    assert json.loads((ran.run.path / "run.json").read_text())["run"] == name
    assert sorted(path.name for path in ran.run.results.iterdir()) == ["gw0.jsonl", "gw1.jsonl"]
    digits = name.rpartition("-")[2]
    assert {result.rollout.partition("-")[0] for result in ran.loaded.results} == {digits}
    assert {ran.bundle(node).identity.run for node in ran.results} == {name}
    assert {case.properties["rollout.run_id"] for case in ran.cases} == {name}
    assert ran.status == 0
    assert left_of_stages(suite) == []


@pytest.mark.slow
@pytest.mark.parametrize("distribution", ["load", "worksteal", "loadscope", "loadfile", "loadgroup"])
@pytest.mark.parametrize("number", ["-n2", "-n4"])
def test_nothing_is_lost_and_nothing_is_doubled(suite: Suite, number: str, distribution: str) -> None:
    suite.workers = number
    ran = suite.run(MANY, f"--dist={distribution}")
    expected = sorted(f"test_many[{number}-s{sample}]" for number in range(15) for sample in range(2))
    assert ran.run is not None
    assert ran.plan is not None
    assert sorted(planned.node.removeprefix(f"{SUITE}::") for planned in ran.plan.rollouts) == expected
    assert sorted(result.node.removeprefix(f"{SUITE}::") for result in journal(ran.run)) == expected
    assert sorted(case.name for case in ran.cases) == expected
    assert (ran.status, ran.counts) == (0, {"passed": 30})
    assert {result.outcome for result in ran.loaded.results} == {"passed"}
    assert left_of_stages(suite) == []


def test_plain_tests_beside_rollouts_are_left_alone(suite: Suite) -> None:
    source = """
        import pytest

        def test_passes():
            pass

        def test_fails():
            assert 1 == 2

        @pytest.mark.skip(reason="not now")
        def test_skips():
            pass

        @pytest.mark.rollout(agent="echo hi > a.txt")
        def test_rollout(bundle):
            assert bundle.read_text("a.txt") == "hi\\n"
    """
    ran = suite.run(source)
    assert (ran.status, ran.counts) == (1, {"passed": 2, "failed": 1, "skipped": 1})
    assert ran.verdicts == {"test_rollout": ("passed", None, 1.0)}
    assert {case.name: case.verdict for case in ran.cases} == {
        "test_passes": "passed",
        "test_fails": "failure",
        "test_skips": "skipped",
        "test_rollout": "passed",
    }
    plain = [case for case in ran.cases if case.name != "test_rollout"]
    assert [case.properties for case in plain] == [{}, {}, {}]


# -- a worker dies

CRASHES = """
    import os
    import pytest

    WRITES = "echo hi > a.txt"

    @pytest.fixture
    def dies_late():
        yield
        os._exit(7)

    @pytest.mark.rollout(agent=WRITES)
    def test_before(bundle):
        assert bundle.exists("a.txt")

    @pytest.mark.rollout(agent=WRITES)
    def test_dies_in_its_body(bundle):
        assert bundle.exists("a.txt")
        os._exit(7)

    @pytest.mark.rollout(agent=WRITES)
    def test_passes_and_dies(dies_late, bundle):
        assert bundle.exists("a.txt")

    @pytest.mark.rollout(agent=WRITES)
    def test_fails_and_dies(dies_late, bundle, reward):
        reward.add("half", 0.5)
        assert bundle.exists("a.txt")

    @pytest.mark.rollout(agent=WRITES)
    def test_after(bundle):
        assert bundle.exists("a.txt")

    def test_plain():
        pass
"""


@pytest.mark.slow
def test_a_worker_that_crashes(suite: Suite) -> None:
    ran = suite.run(CRASHES, "--rollout-controls=none")
    assert ran.verdicts == {
        "test_before": ("passed", None, 1.0),
        "test_dies_in_its_body": ("infra", "worker?", None),
        "test_passes_and_dies": ("passed", None, 1.0),
        "test_fails_and_dies": ("failed", None, 0.5),
        "test_after": ("passed", None, 1.0),
    }
    assert (ran.status, ran.counts) == (UNMEASURED, {"passed": 4, "failed": 1, "errors": 1})
    assert len(ran.cases) == 6
    died = ran.case("test_dies_in_its_body")
    message = ran.results["test_dies_in_its_body"].message
    assert message in {f"worker 'gw{n}' crashed while running '{SUITE}::test_dies_in_its_body'" for n in range(5)}
    assert (died.verdict, died.type, died.message) == ("error", "infra.worker", message)
    assert ran.types["test_passes_and_dies"] == ("passed", "")
    assert ran.types["test_fails_and_dies"] == ("failure", "reward")
    for test in ("test_passes_and_dies", "test_fails_and_dies"):
        (warning,) = ran.results[test].warnings
        assert warning in {
            f"worker 'gw{n}' crashed while running '{SUITE}::{test}', after it was scored" for n in range(5)
        }
        assert f"warning: {SUITE}::{test}: {warning}" in ran.block()
    assert f"  1 × worker: {message}" in ran.block()
    assert not any(line.startswith("LOST") for line in ran.block()), "it was reported"
    assert "_ ERROR at teardown of test_dies_in_its_body _" in ran.text
    folders = [ran.results[test].folder for test in ("test_passes_and_dies", "test_fails_and_dies")]
    assert all(folder is not None and (ran.run.path / folder / "score.json").exists() for folder in folders)  # type: ignore[union-attr]
    assert left_of_stages(suite) == []


@pytest.mark.slow
def test_a_worker_that_is_killed_while_its_agent_runs(suite: Suite, pytester: pytest.Pytester) -> None:
    word = marker()
    source = f"""
        import os
        import pathlib
        import pytest

        @pytest.fixture
        def tells_pid():
            pathlib.Path("worker.pid").write_text(str(os.getpid()))

        @pytest.mark.rollout(agent="setsid sleep {word} & sleep {word}")
        def test_long(tells_pid, bundle):
            assert bundle.exit_code == 0

        @pytest.mark.rollout(agent="echo hi")
        def test_short(bundle):
            assert bundle.stdout == "hi\\n"
    """
    suite.write({SUITE: source})
    with background(pytester, "-n2", "--junitxml=report.xml") as running:
        wait_for(lambda: len(processes(word)) == 2, 60, "the agent")
        os.kill(int((suite.root / "worker.pid").read_text()), signal.SIGKILL)
        wait_for(lambda: not processes(word), 20, "the end of the agent")
        assert running.wait(60) == UNMEASURED
    assert {node: (result.outcome, result.kind) for node, result in results(pytester).items()} == {
        "test_long": ("infra", "worker"),
        "test_short": ("passed", None),
    }
    (case,) = [case for case in read_junit(suite.root / "report.xml") if case.name == "test_long"]
    assert (case.verdict, case.type, case.properties["rollout.outcome"]) == ("error", "infra.worker", "infra")
    assert left_of_stages(suite) == []


@pytest.mark.slow
def test_what_workers_measured_agrees_with_the_report_of_an_internal_error(
    suite: Suite, pytester: pytest.Pytester
) -> None:
    source = """
        import pytest

        @pytest.mark.parametrize("number", range(4))
        @pytest.mark.rollout(agent="sleep 0.2")
        def test_it(bundle, number):
            assert bundle.exit_code == 0
    """
    broken = """
        import os

        def pytest_runtest_logstart(nodeid):
            if "PYTEST_XDIST_WORKER" not in os.environ:
                raise OSError("cannot send")
    """
    suite.write({SUITE: source, "conftest.py": broken})
    ran = pytester.runpytest_subprocess(*PLUGINS, "-n2", "--junitxml=report.xml", "--rollout-controls=none", timeout=60)
    assert "OSError: cannot send" in ran.stdout.str()
    found = results(pytester)
    assert {(result.outcome, result.kind) for result in found.values()} == {("infra", "worker")}
    assert len(found) == 4
    cases = read_junit(suite.root / "report.xml")
    assert len([case for case in cases if case.type == "infra.worker"]) == 4


def test_workers_that_are_not_replaced(suite: Suite) -> None:
    source = """
        import os
        import pytest

        @pytest.mark.parametrize("number", range(8))
        @pytest.mark.rollout(agent="echo hi > a.txt")
        def test_it(bundle, number):
            assert bundle.exists("a.txt")
            os._exit(7)
    """
    ran = suite.run(source, "--max-worker-restart=0")
    assert ran.status == UNMEASURED
    assert len(ran.results) == 8
    assert {(result.outcome, result.kind) for result in ran.loaded.results} == {("infra", "worker")}
    messages = [result.message for result in ran.loaded.results]
    lost = "the rollout was planned and never reported: its worker, or the session, ended before that"
    crashed = [message for message in messages if message != lost]
    assert 1 <= len(crashed) <= 2
    assert all(message.startswith("worker 'gw") for message in crashed)
    assert messages.count(lost) == 8 - len(crashed)
    assert ran.block()[0] == "8 rollouts: 0 passed, 0 failed, 8 infra"
    (line,) = [line for line in ran.block() if line.startswith("LOST: ")]
    assert line.startswith(f"LOST: {8 - len(crashed)} rollouts without a result: ")
    assert {(case.verdict, case.type) for case in ran.cases} == {("error", "infra.worker")}
    assert (len(ran.cases), ran.counts) == (8, {"errors": 8})


# -- what is refused, and what is not

EACH = "--dist each would run every agent once per worker; use --dist load"


def test_every_test_on_each_worker_is_refused(suite: Suite) -> None:
    assert attempt(suite, args=["--dist=each"]) == refused(EACH)


def test_each_is_no_concern_of_ours_without_rollouts(suite: Suite) -> None:
    ran = suite.run("def test_plain():\n    pass\n", "--dist=each")
    assert (ran.status, ran.counts, ran.errors) == (0, {"passed": 2}, "")


def test_local_workers_by_any_name(suite: Suite, pytester: pytest.Pytester) -> None:
    suite.ini(UNISOLATED)
    suite.write({SUITE: filled(suite)})
    done = session(pytester, *PLUGINS, "-d", "--tx", f"2*popen//python={sys.executable}")
    assert (done.status, done.errors) == (0, "")
    assert {node: result.outcome for node, result in done.results.items()} == {"test_it": "passed"}


@pytest.mark.slow
def test_a_worker_on_another_machine_is_refused(suite: Suite, pytester: pytest.Pytester) -> None:
    """A socket of this machine stands for it: execnet can't know where that leads."""
    suite.ini(UNISOLATED)
    suite.write({f"evals/{SUITE}": filled(suite), "evals/__init__.py": ""})
    with served_socket(pytester) as address:
        spec = f"socket={address}//chdir={suite.root}/remote"
        done = session(pytester, *PLUGINS, "-d", "--tx", spec, "--rsyncdir=evals", str(suite.root / "evals"))
    found, expected = left(suite, done), refused("the worker ")
    assert found._replace(errors="") == expected._replace(errors="")
    assert found.errors.startswith(expected.errors)
    assert found.errors.endswith(f"{spec} is not on this machine; rollouts need local workers (-n, --tx popen)")


@contextmanager
def served_socket(pytester: pytest.Pytester) -> Iterator[str]:
    """A server of execnet on the loopback interface."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"127.0.0.1:{port}"
    words = [sys.executable, "-m", "execnet.script.socketserver", address]
    server = pytester.popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: answers(port), 20, "the server of execnet")
        yield address
    finally:
        server.kill()
        server.wait()


def answers(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0
