"""Limits of memory, processors, processes and disk: from the marker to JUnit, with and without control groups."""

from __future__ import annotations

import pytest

from pytest_rollout.executors.cgroups import find_homes
from tests.plugin.conftest import Suite
from tests.plugin.support import cases

SOURCE = '''
    import pytest
    from pytest_rollout import Limits

    GROW = """
    import time
    kept = []
    while True:
        kept.append(b"x" * (4 << 20))
        time.sleep(0.002)
    """

    def limited(agent, **limits):
        return pytest.mark.rollout(agent=agent, limits=Limits(wall="60s", **limits))

    @limited(["python3", "-c", GROW], memory="64MiB")
    def test_memory(bundle):
        assert bundle.exit_code == 0

    @limited("while :; do :; done & while :; do :; done & wait", cpu=0.4)
    def test_cpu(bundle):
        assert bundle.exit_code == 0

    @limited("for i in $(seq 20); do sleep 50 & done; wait", processes=8)
    def test_processes(bundle):
        assert bundle.exit_code == 0

    @limited("for i in $(seq 30); do echo > $i; done", files=20)
    def test_files(bundle):
        assert bundle.exit_code == 0

    @limited("exec head -c 3000000 /dev/zero > big", file_size="1MB")
    def test_file_size(bundle):
        assert bundle.exit_code == 0

    @limited("echo x > f", memory="64MiB", cpu=9, processes=5, disk="1MB", file_size="1MB", open_files=50)
    def test_all_of_them(bundle):
        assert bundle.termination == "completed"
        assert bundle.usage.disk == 4096
        assert bundle.run("python3 -c 'x = bytearray(200 << 20); print(len(x))'").stdout == "209715200\\n"

    @limited("exit 0", memory="64MiB")
    def test_evaluation(bundle):
        bundle.run(["python3", "-c", GROW])
'''
NO_GROUPS = """
    from pytest_rollout.executors import account

    account.find_homes = dict
"""
LIMITS = {
    "test_memory": "memory_limit",
    "test_cpu": "cpu_limit",
    "test_processes": "process_limit",
    "test_files": "disk_limit",
    "test_file_size": "disk_limit",
}


@cases("groups", {"groups": (True,), "looks": (False,)}, n2=("groups",))
def test_each_limit_has_its_termination(suite: Suite, groups: bool) -> None:
    if groups and not {"memory", "pids", "cpu"} <= set(find_homes()):
        pytest.skip("this user can't make control groups here")
    ran = suite.run(SOURCE, "--rollout-controls=none", conftest=None if groups else NO_GROUPS)
    assert {node: ran.bundle(node).termination for node in LIMITS} == LIMITS
    assert {node: ran.types[node] for node in LIMITS} == {
        node: ("failure", f"termination.{limit}") for node, limit in LIMITS.items()
    }
    assert all(ran.bundle(node).truncated and ran.verdicts[node] == ("failed", None, 0.0) for node in LIMITS)
    assert ran.verdicts["test_all_of_them"] == ("passed", None, 1.0)
    assert ran.verdicts["test_evaluation"] == ("failed", None, 0.0)
    assert "ended by memory_limit" in ran.case("test_evaluation").text
    bundle = ran.bundle("test_all_of_them")
    asked = {name: control.asked for name, control in bundle.controls.items()}
    assert asked == {
        "network": "none",
        "pid_namespace": "private",
        "wall": "60 s",
        "output": "10485760 bytes",
        "memory": "67108864 bytes",
        "cpu": "9.0 s",
        "processes": "5",
        "open_files": "50",
        "file_size": "1000000 bytes",
        "disk": "1000000 bytes",
    }
    assert bundle.pins.limits == {
        "wall": 60.0,
        "output": 10485760,
        "memory": 67108864,
        "cpu": 9.0,
        "processes": 5,
        "open_files": 50,
        "file_size": 1000000,
        "disk": 1000000,
    }
    observed = {name: control.observed for name, control in bundle.controls.items()}
    assert "unknown" not in observed.values()
    assert ("cgroup" in observed["memory"], "cgroup" in observed["processes"]) == (groups, groups)
    assert (bundle.usage.peak_memory is None, bundle.usage.processes is None) == (not groups, not groups)
    assert bundle.usage.pressure is None or set(bundle.usage.pressure) == {"cpu", "memory", "io"}
