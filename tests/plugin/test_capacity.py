"""Slots and pools, as a suite uses them."""

from __future__ import annotations

import os
import signal
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from tests.plugin.support import ALIKE, SUITE, background, cases, last_run, marker, processes, results, wait_for

if TYPE_CHECKING:
    from tests.plugin.conftest import Suite

SOURCE = """
    import time
    from datetime import datetime

    import pytest

    @pytest.mark.rollout(agent="sleep 0.6", samples=4{more})
    def test_it(bundle):
        assert bundle.termination == "completed"
"""


@cases(
    "ini, more",
    {
        "slots": ("rollout_slots = 1", ""),
        "pools": ("rollout_pools =\n    gpu = 1\n    net = 3", ', pools=["net", "gpu"]'),
    },
    n0=("slots",),
    n2=("slots", "pools"),
)
def test_agents_take_turns(suite: Suite, ini: str, more: str) -> None:
    suite.ini(ini)
    ran = suite.run(SOURCE.replace("{more}", more))
    assert set(ran.verdicts.values()) == {("passed", None, 1.0)}
    times = [ran.bundle(node).times for node in ran.results]
    spans = sorted((time.started, time.ended) for time in times)
    assert all(before[1] <= after[0] for before, after in pairwise(spans)), "one at a time"
    waits = [result.waited for result in ran.loaded.results]
    assert all(wait is not None for wait in waits)
    told = [line for line in ran.block() if line.startswith("waited for places: ")]
    assert bool(told) == (suite.workers == "-n2")
    assert ran.case("test_it[s0]").properties["rollout.waited"] is not None


@ALIKE
def test_without_a_limit_nothing_is_said_of_waiting(suite: Suite) -> None:
    ran = suite.run(SOURCE.replace("{more}", "").replace("samples=4", "samples=1").replace("0.6", "0"))
    assert [result.waited for result in ran.loaded.results] == [None]
    assert "rollout.waited" not in ran.case("test_it").properties
    assert not (suite.stage_root / "slots").exists()


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("rollout_slots = 0", "rollout_slots in the ini file: '0' is not a whole number from 1 to 1000000"),
        ("rollout_pools = gpu", "rollout_pools in the ini file: 'gpu' is not of the form 'gpu = 2'"),
        ("rollout_pools = gpu = 0", "rollout_pools in the ini file: 'gpu = 0' is not of the form 'gpu = 2'"),
        ("rollout_pools = slots = 2", "rollout_pools in the ini file: the pool 'slots' is what rollout_slots is for"),
    ],
)
@ALIKE
def test_sizes_that_are_refused(suite: Suite, line: str, why: str) -> None:
    suite.ini(line)
    ran = suite.run(SOURCE.replace("{more}", ""), checked=False)
    assert ran.status == 4
    assert why in ran.text + ran.errors


@ALIKE
def test_a_pool_that_is_not_there(suite: Suite) -> None:
    suite.ini("rollout_pools = gpu = 1")
    ran = suite.run(SOURCE.replace("{more}", ', pools=["gpus"]'), checked=False)
    assert ran.status == 4
    why = "rollout(pools=…): there is no pool 'gpus'; in rollout_pools of the ini file: gpu. Did you mean 'gpu'?"
    assert why in ran.text + ran.errors


WAITS = """
    import os
    import pathlib

    import pytest

    @pytest.fixture
    def tells_pid():
        pathlib.Path("holder.pid").write_text(str(os.getpid()))

    def after(stage):
        seen = [path for path in pathlib.Path("/proc").glob("[0-9]*/cmdline") if "{word}" in text_of(path)]
        pathlib.Path("seen").write_text(repr(seen))

    def text_of(path):
        try:
            return path.read_text()
        except OSError:
            return ""

    @pytest.mark.rollout(agent="trap '' INT TERM HUP; setsid sleep {word} & sleep {word}", pools=["gpu"])
    def test_first(tells_pid, bundle):
        assert bundle.exit_code == 0

    @pytest.fixture
    def second():
        while not pathlib.Path("go").exists():
            pass

    @pytest.mark.rollout(agent=after, pools=["gpu"])
    def test_second(second, bundle):
        assert bundle.exit_code == 0
"""


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["-n2"])
def test_a_wait_is_shown_and_a_killed_holder_takes_its_agent_along(suite: Suite, pytester: pytest.Pytester) -> None:
    word = marker()
    suite.ini("rollout_pools = gpu = 1", "rollout_controls = none")
    suite.write({SUITE: WAITS.replace("{word}", word)})
    with background(pytester, suite.workers) as running:
        wait_for(lambda: len(processes(word)) == 2, 60, "the agent")
        (suite.root / "go").touch()
        holder = int((suite.root / "holder.pid").read_text())
        line = f"rollout: 1 rollout waits for 'gpu' (1 place), held by pid {holder} ("
        wait_for(lambda: line in (suite.root / "out.txt").read_text(), 60, "the line about waiting")
        assert len(processes(word)) == 2
        os.kill(holder, signal.SIGKILL)
        assert running.wait(60) == 75
    assert (suite.root / "seen").read_text() == "[]", "no process of the first agent lives when the second begins"
    found = {node: (result.outcome, result.kind) for node, result in results(pytester).items()}
    assert found == {"test_first": ("infra", "worker"), "test_second": ("passed", None)}
    assert list((last_run(pytester).path / "waiting").iterdir()) == []
