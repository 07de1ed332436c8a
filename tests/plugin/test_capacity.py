"""Slots and pools, as a suite uses them."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

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


@pytest.mark.parametrize(
    ("ini", "more"),
    [("rollout_slots = 1", ""), ("rollout_pools =\n    gpu = 1\n    net = 3", ', pools=["net", "gpu"]')],
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
def test_sizes_that_are_refused(suite: Suite, line: str, why: str) -> None:
    suite.ini(line)
    ran = suite.run(SOURCE.replace("{more}", ""), checked=False)
    assert ran.status == 4
    assert why in ran.text + ran.errors


def test_a_pool_that_is_not_there(suite: Suite) -> None:
    suite.ini("rollout_pools = gpu = 1")
    ran = suite.run(SOURCE.replace("{more}", ', pools=["gpus"]'), checked=False)
    assert ran.status == 4
    why = "rollout(pools=…): there is no pool 'gpus'; in rollout_pools of the ini file: gpu. Did you mean 'gpu'?"
    assert why in ran.text + ran.errors
