"""The README's first two console blocks, in a fresh clone with a virtual environment of its own.

The first is run as it stands. Of the second, which runs all tests and so this one, the program is run
on a few of them. It needs git, the network of ``pip``, and a ``python3`` of 3.11 or newer.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_DROPPED = re.compile(r"PYTEST|ROLLOUT_|COV_|VIRTUAL_ENV|PYTHON|TOX|GIT_")
_SECONDS = 900
_FEW = "-m 'not slow' tests/unit/test_identity.py"


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command as a user would at a terminal, this environment's programs apart."""
    env = {name: value for name, value in os.environ.items() if not _DROPPED.match(name)}
    ours = os.path.dirname(sys.executable)
    env["PATH"] = os.pathsep.join(part for part in env.get("PATH", os.defpath).split(os.pathsep) if part != ours)
    return subprocess.run(
        ["sh", "-e", "-c", command],
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )


def quickstart(readme: str) -> dict[str, str]:
    """The blocks by the name in their directive."""
    found = re.findall(r"^<!-- quickstart: (\w+) -->\n```console\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    return dict(found)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone of what is committed here."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("this is not a checkout of git")
    folder = tmp_path / "clone"
    done = run(f"git -c safe.directory='*' clone -q --no-hardlinks '{ROOT}' '{folder}'", tmp_path)
    assert done.returncode == 0, done.stderr
    if not quickstart((folder / "README.md").read_text(encoding="utf-8")):
        pytest.skip("the README is not committed yet")
    return folder


def require_network(folder: Path) -> None:
    """Skip where there is no python3 that is new enough, or no index of packages."""
    version = run("python3 -c 'import sys; print(sys.version_info >= (3, 11))'", folder)
    if version.stdout.strip() != "True":
        pytest.skip("python3 is missing or older than 3.11")
    assert run("python3 -m venv probe", folder).returncode == 0
    asked = run("probe/bin/pip download -q --no-deps --retries 0 --timeout 20 -d downloads iniconfig", folder)
    if asked.returncode != 0:
        pytest.skip(f"no network: {asked.stderr.strip().splitlines()[-1:]}")


@pytest.mark.slow
def test_the_quickstart_works_in_a_fresh_clone(clone: Path, tmp_path: Path) -> None:
    require_network(tmp_path)
    blocks = quickstart((clone / "README.md").read_text(encoding="utf-8"))

    first = run(blocks["example"], clone)
    assert first.returncode == 0, first.stdout + first.stderr
    assert "4 rollouts: 4 passed, 0 failed, 0 infra" in first.stdout.splitlines()
    assert "executor sandbox" in first.stdout

    second = run(f"{blocks['tests'].strip()} {_FEW}", clone)
    assert second.returncode == 0, second.stdout + second.stderr
    assert re.search(r"\b[1-9]\d* passed", second.stdout)
