"""``pytest-rollout doctor``: this machine, by its exit status, as text and as JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_rollout.cli import tool as cli
from pytest_rollout.errors import IsolationError
from pytest_rollout.executors import ladder
from pytest_rollout.executors.rungs import GUARANTEES
from pytest_rollout.stage.removal import remove_tree

DOCKERLIKE = Path(__file__).parents[1] / "dockerlike.py"


@pytest.fixture
def place() -> Iterator[Path]:
    """A stage root that the uid of root's agents can reach."""
    folder = Path(tempfile.mkdtemp(prefix="rollout-doctor-", dir="/var/tmp"))
    folder.chmod(0o755)
    yield folder
    assert remove_tree(str(folder)) is None


def test_a_machine_that_isolates(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor", "--stage-root", str(place / "root"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["rung"], found["required_holds"], found["rejected"]) == (1, True, [])
    assert found["guarantees"] == dict.fromkeys(GUARANTEES, "yes")
    assert found["facts"]["stage_root"] == str(place / "root")
    assert list((place / "root/stages").iterdir()) == []


def test_a_machine_that_does_not(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise IsolationError("the sandbox does not hold: there is a network")

    monkeypatch.setattr(ladder, "probe", refuse)
    assert cli.main(["doctor", "--stage-root", str(place / "root")]) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[:3] == [
        "isolation  rung 5 of 5: a copy, confined by nothing",
        "executor   local (no isolation, untrusted)",
        "required   refuses every task",
    ]
    reasons = [f"  rung {number}   the sandbox does not hold: there is a network" for number in (1, 2, 3, 4)]
    assert [line for line in said if "does not hold" in line] == reasons


def test_a_stage_root_whose_files_can_not_be_run(place: Path) -> None:
    uid, gid = os.getuid(), os.getgid()
    namespace = ["--mount"] if uid == 0 else ["--user", "--map-root-user", "--mount"]
    again = [] if uid == 0 else ["unshare", "--user", f"--map-user={uid}", f"--map-group={gid}", "--"]
    words = [*again, sys.executable, str(DOCKERLIKE), sys.executable, "-m", "pytest_rollout.cli", "doctor"]
    script = f'mount -t tmpfs -o noexec,mode=777 none {place} && exec "$@"'
    done = subprocess.run(
        ["unshare", *namespace, "--", "sh", "-c", script, "sh", *words, "--stage-root", f"{place}/root"],
        capture_output=True,
        text=True,
        check=False,
    )
    said = (
        f"pytest-rollout: no file of a stage can be run: {place}/root is mounted noexec. "
        "Set the ini key rollout_stage_root.\n"
    )
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said)


def test_a_stage_root_that_can_not_be_one(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "mine").touch()
    assert cli.main(["doctor", "--stage-root", str(place)]) == 2
    assert f"{place} is a folder with other things in it" in capsys.readouterr().err
