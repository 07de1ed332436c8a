"""Repositories to read from, made by git itself."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

GitCommand = Callable[..., str]
ENV = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_AUTHOR_NAME": "someone",
    "GIT_AUTHOR_EMAIL": "someone@example.org",
    "GIT_COMMITTER_NAME": "someone",
    "GIT_COMMITTER_EMAIL": "someone@example.org",
    "PATH": "/usr/bin:/bin",
    "HOME": "/nonexistent",
}


@pytest.fixture
def git() -> GitCommand:
    """Runs git in a folder and gives what it printed."""

    def run(folder: Path, *words: str, check: bool = True) -> str:
        done = subprocess.run(
            ["git", "-c", "safe.directory=*", "-c", "protocol.file.allow=always", *words],
            cwd=folder,
            env=ENV,
            capture_output=True,
            text=True,
            errors="surrogateescape",
            check=False,
        )
        assert done.returncode == 0 or not check, done.stderr
        return (done.stdout + done.stderr).strip()

    return run


@pytest.fixture
def repository(tmp_path: Path, git: GitCommand) -> Path:
    """A repository with a history: a secret that was taken out, a branch, a tag, a remote, a stash."""
    top = tmp_path / "repository"
    top.mkdir()
    git(top, "init", "-q", "-b", "trunk")
    (top / "secret.txt").write_text("the answer is 42\n")
    git(top, "add", ".")
    git(top, "commit", "-qm", "with the secret")
    (top / "secret.txt").unlink()
    (top / "calc.py").write_text("def add(a, b):\n    return a - b\n")
    (top / "pkg").mkdir()
    (top / "pkg/run.sh").write_text("#!/bin/sh\necho run\n")
    os.chmod(top / "pkg/run.sh", 0o755)
    os.symlink("../calc.py", top / "pkg/link")
    git(top, "add", "-A")
    git(top, "commit", "-qm", "without it")
    git(top, "tag", "v1")
    git(top, "checkout", "-qb", "fix")
    (top / "calc.py").write_text("def add(a, b):\n    return a + b\n")
    git(top, "commit", "-qam", "the solution")
    git(top, "checkout", "-q", "trunk")
    git(top, "remote", "add", "origin", "https://user:token@example.org/repo.git")
    return top
