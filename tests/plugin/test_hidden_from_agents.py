"""What belongs to the evaluator is refused where an agent could see it, before anything runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.plugin.support import ALIKE, SUITE, attempt, probe, refused

if TYPE_CHECKING:
    from tests.plugin.conftest import Suite

ROOT = os.geteuid() == 0
ELSEWHERE = "Move it elsewhere, or bind a narrower folder."
WIDE = '[agents.wide]\ncommand = "echo started >> \'{probe}\'"\npaths = ["{path}"]\n'
SECRET = "def test_add():\n    assert add(2, 3) == 5\n"
SOURCE = """
    import pytest

    @pytest.mark.rollout(agent="echo started >> '{probe}'", workspace="ws", {arguments})
    def test_it(bundle):
        assert bundle.run_tests().passed
"""


def written(suite: Suite, arguments: str) -> str:
    """A suite whose task has these arguments, over a workspace with one file."""
    suite.write({"ws/app.py": "app = 1\n"})
    return SOURCE.replace("{arguments}", arguments)


@pytest.mark.slow
def test_hidden_files_and_an_oracle_in_the_workspace(suite: Suite) -> None:
    suite.write({"ws/hidden/test_x.py": SECRET, "ws/solve.sh": "true\n"})
    moved = "Move it to a folder of its own."
    for name, place in (("hidden", "ws/hidden"), ("oracle", "ws/solve.sh")):
        where = f"{suite.root}/{place} lies in the workspace {suite.root}/ws, which the agent sees"
        left = attempt(suite, written(suite, f"{name}={place!r}"))
        assert left == refused(f"{SUITE}::test_it: rollout({name}=…): {where}\n{moved}")


@ALIKE
def test_a_copy_of_a_hidden_file_among_the_objects_of_git(suite: Suite) -> None:
    source = written(suite, "hidden='hidden'")
    suite.write({"hidden/test_x.py": SECRET, "ws/gone.py": SECRET})
    names = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    for words in (["init", "-q"], ["add", "-A"], [*names, "commit", "-qm", "one"], ["rm", "-qf", "gone.py"]):
        subprocess.run(["git", *words], cwd=suite.root / "ws", check=True)
    where = f"{suite.root}/hidden/test_x.py is in the workspace {suite.root}/ws too: among the objects of .git"
    assert attempt(suite, source) == refused(
        f"{SUITE}::test_it: rollout(hidden=…): {where}\nTake it out of there: the agent sees it."
    )


@pytest.mark.parametrize(("argument", "place"), [("hidden", "tools/hidden"), ("oracle", "tools/solve.sh")])
@ALIKE
def test_secrets_under_a_path_that_an_agent_names(suite: Suite, argument: str, place: str) -> None:
    source = written(suite, f"{argument}={place!r}").replace("agent=\"echo started >> '{probe}'\", ", "")
    toml = WIDE.replace("{probe}", str(probe(suite))).replace("{path}", "tools")
    suite.write({"tools/hidden/test_x.py": SECRET, "tools/solve.sh": "true\n", "rollout.toml": toml})
    left = attempt(suite, source, ["--rollout-agent=wide"], ini=[])
    tools = suite.root / "tools"
    assert left == refused(
        f"what the evaluator keeps hidden ({suite.root}/{place}) lies under {tools}, which an agent could read:"
        f" agent 'wide' names it in 'paths'\n{ELSEWHERE}"
    )


@pytest.mark.skipif(not ROOT, reason="only root can write below /usr")
@pytest.mark.parametrize("argument", ["hidden", "oracle"])
@ALIKE
def test_secrets_below_usr(suite: Suite, argument: str) -> None:
    folder = Path(tempfile.mkdtemp(prefix="rollout-tests-", dir="/usr/src"))
    try:
        (folder / "test_x.py").write_text(SECRET)
        left = attempt(suite, written(suite, f"{argument}={str(folder)!r}"), ini=[])
        assert left == refused(
            f"what the evaluator keeps hidden ({folder}) lies under /usr, which an agent could read:"
            f" the sandbox shows it to every agent\n{ELSEWHERE}"
        )
    finally:
        shutil.rmtree(folder)


def test_what_a_suites_author_should_look_at_is_noted(suite: Suite) -> None:
    suite.write({"ws/app.py": "app = 1\n", "hidden/app.py": "app = 2\n", "hidden/test_x.py": "def test_x(): pass\n"})
    source = """
        import pytest

        @pytest.mark.rollout(agent="exec true", workspace="ws", hidden="hidden", protect=["tests/**"])
        def test_it(bundle):
            assert bundle.exists("app.py")
    """
    glob = "rollout: warning: test_suite.py::test_it: protect='tests/**' fits nothing in the workspace"
    replaced = "test_suite.py::test_it: the hidden file app.py replaces what an agent makes of the workspace's"
    collected = f"{suite.root / 'hidden'} holds hidden files, and tests in it run as tests of this suite"
    notes = [line for line in suite.run(source).lines if line.startswith("rollout: warning")]
    assert notes == [glob, f"rollout: warning: {replaced}", f"rollout: warning: {collected}: add it to norecursedirs"]
    suite.ini("norecursedirs = hidden")
    notes = [line for line in suite.run(source).lines if line.startswith("rollout: warning")]
    assert notes == [glob, f"rollout: warning: {replaced}"]
