"""A disk that is full: a small one of the test's own, where the stages, the results, or the temporary files lie."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.plugin.support import PLUGINS, SUITE

if TYPE_CHECKING:
    from tests.plugin.conftest import Suite

UNMEASURED = 75
SOURCE = """
    import os
    from pathlib import Path

    import pytest

    @pytest.mark.rollout(agent="echo hi > a.txt")
    def test_first(bundle):
        assert bundle.exists("a.txt")

    @pytest.fixture
    def full():
        place = Path(os.environ["SMALL"]) / "fill"
        fd = os.open(place, os.O_WRONLY | os.O_CREAT)
        for size in (4096, 1):
            try:
                while os.write(fd, b"x" * size):
                    pass
            except OSError:
                pass
        os.close(fd)
        yield
        place.unlink()

    @pytest.mark.rollout(agent="echo hi > a.txt; head -c 50000 /dev/zero")
    def test_full(full, bundle):
        assert bundle.exists("a.txt")

    @pytest.mark.rollout(agent="head -c 900000 /dev/zero > big; echo hi > a.txt")
    def test_fills(bundle):
        assert bundle.exists("a.txt")

    @pytest.mark.rollout(agent="echo hi > a.txt")
    def test_last(bundle):
        assert bundle.exists("a.txt")
"""
# As an ordinary user: a namespace in which that user may mount, and in it one where it is itself again.
SCRIPT = """
mount -t tmpfs -o size=600k none "$SMALL" || exit 99
uid=$1 gid=$2; shift 2
[ "$uid" = 0 ] || set -- unshare --user --map-user="$uid" --map-group="$gid" -- "$@"
exec "$@"
"""
INSIDE = """
import os, subprocess, sys
from pytest_rollout.cli.tool import main
done = subprocess.run([sys.executable, "-m", "pytest", *sys.argv[1:]])
print("status", done.returncode, "stages", os.listdir(os.environ["STAGES"]), flush=True)
main(["--dir", "results/r", "list", "last"])
"""
PASSED, HOST, FORGEABLE = ("passed", "1"), ("infra", "host"), ("infra", "host (forgeable)")
LOST = ("no result", "–")


@pytest.mark.parametrize("workers", ["-n0"])
@pytest.mark.parametrize(
    ("place", "found"),
    [
        # what the agent wrote is gone with its stage
        ("stages", {"first": PASSED, "full": HOST, "fills": FORGEABLE, "last": PASSED}),
        # the changes that were copied stay
        ("results", {"first": PASSED, "full": HOST, "fills": FORGEABLE, "last": HOST}),
        # nothing of ours lies there
        ("temporary", {"first": PASSED, "full": PASSED, "fills": PASSED, "last": PASSED}),
    ],
)
def test_a_full_disk(suite: Suite, place: str, found: dict[str, tuple[str, str]]) -> None:
    small = {"stages": suite.stage_root, "results": suite.root / "results", "temporary": suite.root / "tmp"}[place]
    small.mkdir(exist_ok=True)
    root = small / "root"
    suite.write({SUITE: SOURCE, "inside.py": INSIDE})
    root = root if place == "stages" else suite.stage_root
    (suite.root / "pytest.ini").write_text(f"[pytest]\nrollout_stage_root = {root}\nrollout_dir = results/r\n")
    words = [sys.executable, "inside.py", *PLUGINS, suite.workers, "--rollout-controls=none"]
    namespace = ["--mount"] if os.geteuid() == 0 else ["--user", "--map-root-user", "--mount"]
    temporary = {"TMPDIR": str(small)} if place == "temporary" else {}
    done = subprocess.run(
        ["unshare", *namespace, "--", "sh", "-c", SCRIPT, "sh", str(os.getuid()), str(os.getgid()), *words],
        cwd=suite.root,
        env={**os.environ, "SMALL": str(small), "STAGES": str(root / "stages"), **temporary},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stderr == ""
    status = 0 if set(found.values()) == {PASSED} else UNMEASURED
    shown, _, listed = done.stdout.partition(f"status {status} stages []\n")
    assert " rollouts =" in shown
    assert "Traceback" not in shown
    lines = [re.fullmatch(r"(.+?) {2,}(\S+)  \S+?-test-(\w+)-\S+(?:  (.+))?", line) for line in listed.splitlines()]
    told = {line[3]: (line[1], line[4] or line[2]) for line in lines if line is not None}
    assert list(told) == list(found)
    if place == "results" and told["last"] == LOST:  # its line may still fit into what is left of a page
        told["last"] = found["last"]
    assert told == found
