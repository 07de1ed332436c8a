"""Many hostile agents in one session: each ends as it should, and its bundle says exactly what it left.

The body of each test asserts the evidence; the verdict, the termination and the findings are asserted from outside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.hostile.sessions import PASSED, SIZES, Ends, ends, run
from tests.plugin.support import left_of_stages, processes

if TYPE_CHECKING:
    from tests.plugin.conftest import Suite

MARK = "of-a-hostile-agent"  # a word in the command line of everything that is left running

# Programs that end, hang, hide, and print.
PROCESSES = r"""
    import pytest
    from pytest_rollout import Limits

    LINGER = "sh -c 'trap \"\" HUP INT TERM; while :; do sleep 60; done' of-a-hostile-agent"
    ALIVE = 'kill -0 $! && echo alive'  # it was there, so that its end is one

    def rollout(agent, **limits):
        return pytest.mark.rollout(agent=agent, workspace="space", limits=Limits(**limits))

    # The limit is long for what comes before it, on a machine that is busy.
    @rollout(f"echo early > f; (sleep 30; echo x > late) & {LINGER} & {ALIVE}; {LINGER}", wall=2)
    def test_hangs(bundle):
        assert (bundle.stdout, bundle.read_text("f"), bundle.exists("late")) == ("alive\n", "early\n", False)
        assert [change.path for change in bundle.changes] == ["f"]
        assert (bundle.exit_code, bundle.signal, bundle.truncated) == (None, None, True)

    @rollout(f"setsid {LINGER} & {ALIVE}")
    def test_leaves_a_daemon(bundle):
        assert (bundle.stdout, bundle.duration < 30) == ("alive\n", True)

    @rollout(f"(setsid {LINGER} & {ALIVE}; setsid setsid {LINGER} &); exit 3")
    def test_forks_twice_and_fails(bundle):
        assert (bundle.stdout, bundle.exit_code) == ("alive\n", 3)

    @rollout("kill -9 $$")
    def test_kills_itself(bundle):
        assert (bundle.signal, bundle.exit_code, bundle.truncated) == (9, 137, False)

    @rollout("exit 137")
    def test_says_it_was_killed(bundle):
        assert (bundle.signal, bundle.exit_code) == (9, 137)

    @rollout("kill -9 -1; kill -9 1; echo still here")
    def test_kills_all_that_it_sees(bundle):
        assert bundle.stdout == "still here\n"

    @rollout("echo up; kill -STOP $$ -1; echo on; sleep 99", wall=2)
    def test_stops_itself(bundle):
        assert (bundle.stdout, bundle.truncated) == ("up\n", True)

    @rollout(r"printf '\377ok\000'")
    def test_prints_bytes(bundle):
        assert (bundle.stdout_bytes, bundle.stdout) == (b"\xffok\0", "\N{REPLACEMENT CHARACTER}ok\0")

    @rollout(r"printf '\342\202'; sleep .1; printf '\254'")
    def test_splits_a_character(bundle):
        assert bundle.stdout == "\N{EURO SIGN}"

    @rollout("yes 0123456 | head -c 64M; echo end >&2", output="1MiB")
    def test_prints_much(bundle):
        head, _, tail = bundle.stdout_bytes.partition(b"\n[... 66060288 bytes dropped ...]\n")
        assert (len(head), len(tail), bundle.stderr) == (2**19, 2**19, "end\n")
        assert bundle.usage.output_bytes == 2**26 + 4

    @rollout("head -c 4M /dev/zero >&2; echo ok")
    def test_prints_on_both(bundle):
        assert (bundle.stdout, len(bundle.stderr_bytes)) == ("ok\n", 2**22)

    @rollout("exec >&- 2>&-; sleep .1; echo x > f")
    def test_closes_its_output(bundle):
        assert (bundle.stdout, bundle.read_text("f")) == ("", "x\n")

    @rollout("cat; read line; echo $?")
    def test_asks(bundle):
        assert bundle.stdout == "1\n"

    @rollout("cat /proc/[0-9]*/environ /proc/1/cmdline | tr '\\0' '\\n'; ls -d /proc/[0-9]* | wc -l")
    def test_looks_around(bundle):
        said = bundle.stdout + bundle.stderr
        for secret in ("PYTEST", "secret-of-the-host", "HTTP_PROXY", "GIT_DIR", "PYTHONPATH", "LD_PRELOAD"):
            assert secret not in said
        assert "ROLLOUT_TASK=" in said
        assert int(bundle.stdout.splitlines()[-1]) < 10
"""
OF_PROCESSES: Ends = {
    "test_hangs": ("wall_limit", []),
    "test_leaves_a_daemon": ("completed", []),
    "test_forks_twice_and_fails": ("exit_code", []),
    "test_kills_itself": ("signal", []),
    "test_says_it_was_killed": ("signal", []),
    "test_kills_all_that_it_sees": ("completed", []),
    "test_stops_itself": ("wall_limit", []),
    "test_prints_bytes": ("completed", []),
    "test_splits_a_character": ("completed", []),
    "test_prints_much": ("completed", ["output.dropped"]),
    "test_prints_on_both": ("completed", []),
    "test_closes_its_output": ("completed", []),
    "test_asks": ("completed", []),
    "test_looks_around": ("completed", []),
}


@pytest.mark.parametrize("files", SIZES)
def test_processes_and_output(suite: Suite, monkeypatch: pytest.MonkeyPatch, files: int) -> None:
    for name in ("HTTP_PROXY", "PYTHONPATH", "GIT_DIR", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "secret-of-the-host")
    ran = run(suite, PROCESSES, files)
    assert ran.verdicts == dict.fromkeys(OF_PROCESSES, PASSED), ran.text
    assert ends(ran) == OF_PROCESSES
    assert all(ran.bundle(node).tree_dead for node in OF_PROCESSES)
    assert processes(MARK) == set()
    assert left_of_stages(suite) == []
