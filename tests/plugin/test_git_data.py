"""Git data that an agent wrote runs nothing on our side, whatever a test does with its bundle."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.plugin.support import ALIKE

if TYPE_CHECKING:
    from tests.plugin.conftest import Suite

CONFIG = """
[core]
    fsmonitor = ./planted
    hooksPath = hooks
    pager = ./planted
    sshCommand = ./planted
    attributesFile = ./attributes
[diff]
    external = ./planted
[diff "planted"]
    command = ./planted
    textconv = ./planted
[filter "planted"]
    clean = ./planted
    smudge = ./planted
    process = ./planted
    required = true
[alias]
    status = !./planted
"""
HOOKS = ("pre-commit", "post-checkout", "post-index-change", "reference-transaction", "fsmonitor-watchman")
# Plants all of that, in a repository that the workspace has already and in one of its own.
AGENT = """
for top in . inner; do
    mkdir -p $top/.git/objects $top/.git/refs $top/hooks
    cp config $top/.git/config
    echo 'ref: refs/heads/main' > $top/.git/HEAD
    echo '* diff=planted filter=planted' | tee $top/.gitattributes > $top/attributes
    printf '#!/bin/sh\\ntouch "{marker}"\\ncat\\n' > $top/planted
    chmod +x $top/planted
    for hook in {hooks}; do cp $top/planted $top/hooks/$hook; done
    cp -R $top/hooks $top/.git/hooks
done
printf 'gitdir: ../inner/.git\\n' > inner/link
echo changed > app.txt
echo 'def f(): return 5' > mod.py
"""
SUITE = """
    import pytest

    HIDDEN = {{"test_x.py": "import mod\\ndef test_f(): assert mod.f() == 5\\n"}}

    @pytest.mark.rollout(agent={agent!r}, workspace="ws", protect=[".git/hooks/**", "tests/**"], oracle="solve.sh")
    def test_it(bundle, reward):
        with reward.check("evidence"):
            assert bundle.read_text("app.txt") == "changed\\n"
            assert bundle.glob("**/planted") == ["inner/planted", "planted"]
            assert "+changed" in str(bundle.diff)
            assert len(bundle.changes) > 10
        with reward.check("call"):
            assert bundle.call("mod:f") == 5
            assert bundle.call_many("mod:f", [(), ()]) == [5, 5]
        with reward.check("run"):
            assert bundle.run(["cat", "app.txt"]).stdout == "changed\\n"
        with reward.check("evaluate"):
            assert bundle.evaluate("cat app.txt", files=HIDDEN).stdout == "changed\\n"
        with reward.check("tests"):
            assert bundle.run_tests(files=HIDDEN).passed
            assert bundle.run_tests(files=HIDDEN, proxy=["mod"]).passed
"""


def _git(folder: Path, *words: str) -> None:
    names = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "safe.directory=*"]
    subprocess.run(["git", *names, *words], cwd=folder, check=False, capture_output=True, timeout=60)


def _workspace(suite: Suite, marker: Path) -> str:
    """Write the workspace, and return what the agent does in it."""
    suite.write({"ws/app.txt": "as it was\n", "ws/mod.py": "", "ws/config": CONFIG, "ws/tests/a.txt": "a\n"})
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "one"]):
        _git(suite.root / "ws", *words)
    assert (suite.root / "ws/.git/HEAD").exists()
    agent = AGENT.replace("{marker}", str(marker)).replace("{hooks}", " ".join(HOOKS))
    suite.write({"solve.sh": agent})
    return agent


@pytest.mark.parametrize("words", [["status"], ["diff"], ["diff", "--stat"], ["add", "-A"]], ids=" ".join)
@ALIKE
def test_git_itself_runs_what_the_agent_planted(suite: Suite, tmp_path: Path, words: list[str]) -> None:
    marker = tmp_path / "ran"
    agent = _workspace(suite, marker)
    subprocess.run(["sh", "-c", agent], cwd=suite.root / "ws", check=True)
    assert not marker.exists()
    _git(suite.root / "ws", *words)
    assert marker.exists()


@pytest.mark.slow
def test_nothing_of_it_is_run_by_a_rollout_with_every_kind_of_check(suite: Suite, stage_root: Path) -> None:
    marker = stage_root.parent / f"{stage_root.name}-ran"
    agent = _workspace(suite, marker)
    try:
        ran = suite.run(SUITE.format(agent=agent), "--rollout-keep=all")
        assert ran.verdicts == {"test_it": ("passed", None, 1.0)}
        assert not os.path.lexists(marker)
    finally:
        marker.unlink(missing_ok=True)
