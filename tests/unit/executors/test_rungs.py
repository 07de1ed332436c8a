"""What each rung enforces: the data, and what is seen from inside a stage of this machine."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_rollout.executors.rungs import ALWAYS, GUARANTEES, RUNGS, enforced, unmet

if TYPE_CHECKING:
    from tests.unit.conftest import Lab

PYTHON = "/usr/bin/python3"
# Tries to break each guarantee; says how far it came: "no" means that nothing stopped it.
SCRIPT = """
import json, os, socket, sys
given = json.loads(sys.argv[1])

def may(action):
    try:
        action()
    except OSError:
        return False
    return True

def connect(family, address):
    with socket.socket(family) as own:
        own.connect(address)

found = {
    "files": "no" if may(lambda: open(given["secret"]).read()) else "yes",
    "writes": "no" if may(lambda: open(given["shared"], "a").write("x"))
    else "partly" if may(lambda: os.chmod(given["mode"], 0o600)) else "yes",
    "network": "no" if may(lambda: connect(socket.AF_INET, ("127.0.0.1", given["port"])))
    else "partly" if may(lambda: connect(socket.AF_UNIX, given["socket"])) else "yes",
    "reach": "no" if may(lambda: os.kill(given["pid"], 0)) else "yes",
    "sight": "no" if may(lambda: open(f"/proc/{given['pid']}/cmdline").read()) else "yes",
}
if may(lambda: open(f"/proc/{given['pid']}/environ").read()):
    found["reach"] = "no"
print(json.dumps(found))
"""


def observed(lab: Lab, folder: Path) -> dict[str, str]:
    """The level of each guarantee, as an agent finds it that tries to break it."""
    for name, mode in (("secret", 0o644), ("shared", 0o666), ("mode", 0o644)):
        (folder / name).write_text("x")
        (folder / name).chmod(mode)
    other = subprocess.Popen(["sleep", "600"])
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(folder / "socket"))
        (folder / "socket").chmod(0o777)
        unix.listen()
        given: dict[str, Any] = {name: str(folder / name) for name in ("secret", "shared", "mode", "socket")}
        given |= {"port": tcp.getsockname()[1], "pid": other.pid}
        try:
            trial = lab.run([PYTHON, "-c", SCRIPT, json.dumps(given)])
        finally:
            other.kill()
            other.wait()
    assert trial.end == ("completed", 0, None), trial.stderr
    return {**json.loads(trial.text), "tree": "yes" if trial.ended.tree_dead else "no"}


@pytest.mark.skipif(not os.path.exists(PYTHON), reason="the agent of this test is a script of the system's Python")
@pytest.mark.parametrize("name", ["sandbox", "rung2", "rung3", "rung4", "local"])
def test_an_agent_finds_what_the_data_say(name: str, request: pytest.FixtureRequest, private_folder: Path) -> None:
    lab: Lab = request.getfixturevalue(name)
    assert observed(lab, private_folder) == lab.executor.info.levels


def test_every_rung_says_something_of_every_guarantee() -> None:
    assert [rung.number for rung in RUNGS] == [1, 2, 3, 4, 5]
    for rung in RUNGS:
        for own_uid in (False, True):
            assert list(enforced(rung.number, own_uid=own_uid, landlock=7)) == list(GUARANTEES)


@pytest.mark.parametrize(
    ("own_uid", "landlock", "not_enforced"),
    [
        (True, 1, {"network": "partly", "sight": "no"}),
        (True, 7, {"network": "partly", "sight": "no"}),
        (False, 6, {"writes": "partly", "network": "partly", "sight": "no"}),
        (False, 5, {"writes": "partly", "network": "partly", "tree": "no", "reach": "no", "sight": "no"}),
    ],
)
def test_rung_4_depends_on_the_kernel_and_on_who_it_is(
    own_uid: bool, landlock: int, not_enforced: dict[str, str]
) -> None:
    found = enforced(4, own_uid=own_uid, landlock=landlock)
    assert {name: level for name, level in found.items() if level != "yes"} == not_enforced


def test_what_a_task_asks_for() -> None:
    everything = tuple(GUARANTEES)
    assert unmet(everything, "none") == ("files", "writes", "tree", "reach", "network")
    assert unmet(everything, "host") == ALWAYS
    assert unmet(("sight", "network"), "host") == unmet(("sight",), "none") == ()
