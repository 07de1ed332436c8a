"""The example suite does what its README says: it tells good work from bad, and passes its own audit."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

SUITE = Path(__file__).parents[2] / "example_suite"
_DROPPED = re.compile(r"PYTEST|ROLLOUT_|COV_|CI$|TOX")
_SECONDS = 300
XDIST = find_spec("xdist") is not None


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A copy of the suite without results of earlier runs."""
    ignored = shutil.ignore_patterns(".rollout", "__pycache__", ".pytest_cache")
    return Path(shutil.copytree(SUITE, tmp_path / "example_suite", ignore=ignored))


def run(suite: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the suite with this interpreter's pytest, our plugin and xdist only."""
    env = {name: value for name, value in os.environ.items() if not _DROPPED.match(name)}
    plugins = ["-p", "rollout", *(["-p", "xdist"] if XDIST else [])]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, "-p", "no:cacheprovider", str(suite), "-q", *options],
        cwd=suite.parent,
        env={**env, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "COLUMNS": "120", "PYTHONDONTWRITEBYTECODE": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )


def results(suite: Path) -> list[dict[str, Any]]:
    """The results of the newest run, in the order of its tests."""
    newest = suite / ".rollout" / "runs" / (suite / ".rollout" / "latest").read_text(encoding="utf-8").strip()
    text = (newest / "results" / "main.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def table() -> dict[str, list[str]]:
    """The README's table of agents: what each scores offline, with the orders (even, odd), and with the repair."""
    text = (SUITE / "README.md").read_text(encoding="utf-8")
    found = re.findall(r"^\| `(\w+)` \| (\S[^|]*) \| (\S[^|]*) \| (\S[^|]*) \| (\S[^|]*) \|$", text, re.MULTILINE)
    return {agent: [offline, even, odd, repair] for agent, offline, repair, even, odd in found}


def shown(result: dict[str, Any]) -> str:
    """A result as the README shows it; the exit code of an infra result is in its message."""
    if result["reward"] is not None:
        return f"{result['reward']:.4g}"
    code = re.search(r"exit code (\d+)", result["message"])
    assert code is not None, result
    return f"{result['outcome']} ({code[1]})"


@pytest.mark.slow
def test_the_agents_score_what_the_readme_says(suite: Path) -> None:
    assert list(table()) == ["good", "sloppy", "broken"]
    for agent, status in (("good", 0), ("sloppy", 1), ("broken", 75)):
        done = run(suite, "--rollout-agent", agent, "--rollout-keep=none")
        assert done.returncode == status, done.stdout + done.stderr
        assert [shown(result) for result in results(suite)] == table()[agent]


@pytest.mark.slow
def test_the_suite_passes_its_own_audit(suite: Path) -> None:
    done = run(suite, "--rollout-audit", *(["-n", "2"] if XDIST else []))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 tasks: 3 sound, 0 in-process, 0 weak, 0 unknown" in done.stdout.splitlines()
    assert not (suite / ".rollout" / "runs").exists()  # no agent ran


def test_a_weakened_task_of_it_is_caught(suite: Path) -> None:
    place = suite / "test_offline.py"
    strict = '    assert bundle.read_text("answer.txt") == "candidate\\n"\n'
    text = place.read_text(encoding="utf-8")
    assert strict in text
    place.write_text(text.replace(strict, '    assert bundle.exists("answer.txt")\n'), encoding="utf-8")
    done = run(suite, "--rollout-audit", "-k", "answer")
    assert done.returncode == 1, done.stdout + done.stderr
    (audit,) = json.loads((suite / ".rollout" / "audits" / "latest.json").read_text(encoding="utf-8"))["tasks"]
    scored = [trial["name"] for trial in audit["trials"] if not trial["good"]]
    assert (audit["verdict"], scored) == ("weak", ["empty-files", "odd-json", "truncated", "wrong"])
