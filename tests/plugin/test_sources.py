"""Workspaces out of repositories and archives, as a suite uses them."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.plugin.support import ALIKE

if TYPE_CHECKING:
    from tests.plugin.conftest import Suite

ENV = {"PATH": "/usr/bin:/bin", "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null"}


def git(folder: Path, *words: str) -> str:
    names = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "init.defaultBranch=main", "-c", "safe.directory=*"]
    done = subprocess.run(["git", *names, *words], cwd=folder, env=ENV, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def repository(suite: Suite) -> str:
    """A repository beside the test, whose first commit holds a secret; its last commit."""
    suite.write({"code/secret.txt": "42\n"})
    git(suite.root / "code", "init", "-q")
    git(suite.root / "code", "add", "-A")
    git(suite.root / "code", "commit", "-qm", "secret")
    (suite.root / "code/secret.txt").unlink()
    suite.write({"code/calc.py": "def add(a, b):\n    return a - b\n"})
    git(suite.root / "code", "add", "-A")
    git(suite.root / "code", "commit", "-qm", "start")
    return git(suite.root / "code", "rev-parse", "HEAD")


def test_an_agent_works_with_git_and_finds_no_history(suite: Suite) -> None:
    commit = repository(suite)
    ran = suite.run("""
        import pytest
        from pytest_rollout import Git

        AGENT = '''
        git log --format=%s > log; git status --porcelain > status; git rev-list --all --count > count
        sed -i s/-/+/ calc.py; git diff > diff
        git -c user.name=a -c user.email=b commit -qam done && git log --oneline | wc -l > commits
        '''

        @pytest.mark.rollout(workspace=Git("code"), agent=AGENT, samples=2)
        def test_it(bundle):
            assert bundle.read_text("log") == "Baseline\\n"
            assert bundle.read_text("status") == "?? log\\n?? status\\n" or bundle.read_text("status") == "?? log\\n"
            assert bundle.read_text("count") == "1\\n"
            assert "+    return a + b" in bundle.read_text("diff")
            assert bundle.read_text("commits").strip() == "2"
            assert bundle.call("calc:add", 2, 3) == 5
    """)
    assert set(ran.verdicts.values()) == {("passed", None, 1.0)}
    pins = ran.bundle("test_it[s1]").pins
    assert (pins.environment_commit, pins.environment_revision is not None) == (commit, True)
    assert len(list((suite.stage_root / "sources").glob("git-*/tree"))) == 1


@ALIKE
def test_an_archive(suite: Suite) -> None:
    suite.write({"code/calc.py": "def add(a, b):\n    return a - b\n"})
    with tarfile.open(suite.root / "code.tar.gz", "w:gz") as made:
        made.add(suite.root / "code", ".")
    ran = suite.run("""
        import pytest
        from pytest_rollout import Archive

        @pytest.mark.rollout(workspace=Archive("code.tar.gz"), agent="sed -i s/-/+/ calc.py")
        def test_it(bundle):
            assert bundle.call("calc:add", 2, 3) == 5
    """)
    assert ran.verdicts == {"test_it": ("passed", None, 1.0)}
    assert [change.path for change in ran.bundle("test_it").changes] == ["calc.py"]
    assert ran.bundle("test_it").pins.environment_commit is None


@ALIKE
def test_what_is_wrong_with_a_source_is_told_before_anything_runs(suite: Suite) -> None:
    repository(suite)
    suite.write({"broken.zip": "no archive"})
    ran = suite.run(
        """
        import pytest
        from pytest_rollout import Archive, Git

        @pytest.mark.rollout(workspace=Git("code", "v9"), agent="exec true")
        def test_revision(bundle):
            assert bundle

        @pytest.mark.rollout(workspace=Archive("broken.zip"), agent="exec true")
        def test_archive(bundle):
            assert bundle

        @pytest.mark.rollout(workspace=Git("file:///none/at/all.git"), agent="exec true")
        def test_far(bundle):
            assert bundle
        """,
        checked=False,
    )
    assert ran.status == 4
    told = ran.text + ran.errors
    assert "test_suite.py::test_revision: Git(" in told and "there is no commit 'v9' in it" in told
    assert "test_suite.py::test_archive: Archive(" in told and "it can't be read" in told
    assert "test_suite.py::test_far: Git('file:///none/at/all.git', 'HEAD') can't be fetched: " in told


@ALIKE
def test_to_collect_fetches_nothing(suite: Suite) -> None:
    ran = suite.run(
        """
        import pytest
        from pytest_rollout import Git

        @pytest.mark.rollout(workspace=Git("file:///none/at/all.git"), agent="exec true")
        def test_far(bundle):
            assert bundle
        """,
        "--collect-only",
        checked=False,
    )
    assert ran.status == 0
    assert not (suite.stage_root / "sources").exists()
