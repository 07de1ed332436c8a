"""Without isolation some cases can't be held: the bundle admits it, and the rest is held all the same."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from tests.hostile.sessions import PASSED, Ends, ends, run
from tests.plugin.support import left_of_stages, processes, wait_for

if TYPE_CHECKING:
    from tests.plugin.conftest import Suite

ESCAPED = "escaped-without-isolation"
SOURCE = r"""
    import os
    import pytest
    from pytest_rollout import Limits

    def rollout(agent, **limits):
        return pytest.mark.rollout(agent=agent, workspace="space", limits=Limits(**limits))

    # Not held: it reads and reaches what the user does, and what hides its mark outlives it.
    @rollout("cat ../../../baselines/*/f0; cat {root}/pytest.ini; ln ../../../baselines/*/f0 taken; "
             "sleep 600 & kill -0 $! && echo alive; "
             "env -i setsid sh -c ': > up; while :; do sleep 60; done' {mark} >/dev/null 2>&1 & "
             "until test -e up; do sleep .01; done")
    def test_escapes(bundle):
        assert bundle.stdout.startswith("f0\n[pytest]\n") and bundle.stdout.endswith("alive\n")
        assert bundle.read_text("taken") == "f0\n"

    # Held all the same.
    @rollout("(sleep 30; echo x > late) & kill -0 $! && echo alive; sleep 99", wall=2)
    def test_would_write_late(bundle):
        assert (bundle.stdout, bundle.exists("late"), bundle.truncated) == ("alive\n", False, True)

    @rollout("ln -s /etc/passwd l; mkfifo p; truncate -s 1T big; chmod 000 .")
    def test_kinds(bundle):
        for name in ("l", "p", "big"):
            with pytest.raises(AssertionError):
                bundle.read_text(name)

    @rollout("truncate -s 1T big; mkfifo p; ln -s . l; echo 'def add(a, b): return a + b' > calc.py")
    def test_is_copied_for_a_call(bundle):
        assert bundle.call("calc:add", 2, 3) == 5

    @rollout("p=$(printf 'd/%.0s' $(seq 300)); mkdir -p $p; echo 'def add(a, b): return a + b' > calc.py")
    def test_is_too_deep_to_be_copied(bundle):
        assert bundle.call("calc:add", 2, 3) == 5
"""
OF_LOCAL: Ends = {
    "test_escapes": ("completed", ["hardlink"]),
    "test_would_write_late": ("wall_limit", []),
    "test_kinds": ("completed", ["changes.bytes", "special"]),
    "test_is_copied_for_a_call": ("completed", ["changes.bytes", "special"]),
    "test_is_too_deep_to_be_copied": ("completed", ["changes.depth"]),
}


@pytest.mark.parametrize("workers", ["-n0"], indirect=True)
def test_what_is_not_held_without_isolation_is_admitted(suite: Suite) -> None:
    source = SOURCE.replace("{root}", str(suite.root)).replace("{mark}", ESCAPED)
    try:
        ran = run(suite, source, 1, "rollout_isolation = none")
        assert processes(ESCAPED) != set()
    finally:
        for pid in processes(ESCAPED):
            os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not processes(ESCAPED), 20, "the end of what escaped")
    deep = ("failed", None, 0.0)
    assert ran.verdicts == {**dict.fromkeys(OF_LOCAL, PASSED), "test_is_too_deep_to_be_copied": deep}, ran.text
    assert ends(ran) == OF_LOCAL
    why = "what the agent left can't be copied for an evaluation: more than 200 levels of folders"
    assert ran.results["test_is_too_deep_to_be_copied"].message == why
    for node in OF_LOCAL:
        bundle = ran.bundle(node)
        assert (bundle.trusted, bundle.rung, bundle.tree_dead) == (False, None, None)
        assert bundle.controls["network"].observed == "host"
        assert bundle.controls["pid_namespace"].observed == "unknown"
        assert not ran.results[node].trusted
    assert "untrusted: the agents were not isolated" in ran.block()
    assert left_of_stages(suite) == []
