"""The repository of one commit that we write: git takes it for its own, and equal trees are equal bytes."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_rollout.sources.onecommit import commit_tree
from tests.unit.sources.conftest import GitCommand

FILES = {
    "a.txt": b"hello\n",
    "b/c.py": b"x = 1\n",
    "b/d/e": b"",
    "b-x": b"before b/ in the order of trees",
    "b.y": b"behind",
    "large": b"0123456789" * 30_000,
    "umlaut \u00e4": b"\xff\0",
}


def fill(top: Path) -> None:
    for name, data in FILES.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_bytes(data)
    (top / os.fsdecode(b"odd \xff\xfe")).write_bytes(b"odd")
    os.chmod(top / "b/c.py", 0o755)
    os.symlink("a.txt", top / "link")
    os.symlink("b", top / "link of a folder")
    (top / "empty").mkdir()


def test_git_finds_nothing_wrong_and_works_with_it(tmp_path: Path, git: GitCommand) -> None:
    fill(tmp_path)
    commit = commit_tree(tmp_path)
    assert git(tmp_path, "fsck", "--full", "--strict") == ""
    assert git(tmp_path, "rev-parse", "HEAD") == commit
    assert git(tmp_path, "status", "--porcelain") == ""
    assert git(tmp_path, "log", "--format=%an <%ae> %aI %s %D") == (
        "Baseline <baseline@localhost> 2000-01-01T00:00:00+00:00 Baseline HEAD -> main"
    )
    listed = git(tmp_path, "ls-tree", "-r", "HEAD").splitlines()
    assert len(listed) == len(FILES) + 3
    assert [line.split()[0] for line in listed if line.endswith(("link", "b/c.py", "a.txt"))] == [
        "100644",
        "100755",
        "120000",
    ]
    (tmp_path / "a.txt").write_bytes(b"bye\n")
    assert "-hello\n+bye" in git(tmp_path, "diff")
    git(tmp_path, "commit", "-qam", "work")
    git(tmp_path, "gc", "-q")
    assert git(tmp_path, "fsck", "--full", "--strict") == ""
    assert git(tmp_path, "show", f"{commit}:large") == FILES["large"].decode()


def test_git_gives_the_same_ids(tmp_path: Path, git: GitCommand) -> None:
    fill(tmp_path)
    commit_tree(tmp_path)
    ours = git(tmp_path, "rev-parse", "HEAD^{tree}")
    shutil.rmtree(tmp_path / ".git")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    assert git(tmp_path, "write-tree") == ours


def test_equal_trees_are_equal_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        fill(tmp_path / name)
        commit_tree(tmp_path / name)
    found = [
        {
            path.relative_to(tmp_path / name): path.read_bytes()
            for path in (tmp_path / name / ".git").rglob("*")
            if path.is_file()
        }
        for name in ("one", "two")
    ]
    assert found[0] == found[1]
    assert len(found[0]) == 6


def test_nothing_but_one_commit_is_in_it(tmp_path: Path, git: GitCommand) -> None:
    fill(tmp_path)
    commit_tree(tmp_path)
    assert git(tmp_path, "for-each-ref", "--format=%(refname)") == "refs/heads/main"
    assert git(tmp_path, "rev-list", "--all", "--count") == "1"
    assert git(tmp_path, "remote") == git(tmp_path, "reflog") == git(tmp_path, "stash", "list") == ""
    assert {path.name for path in (tmp_path / ".git").iterdir()} == {"HEAD", "config", "index", "objects", "refs"}


def test_an_empty_tree(tmp_path: Path, git: GitCommand) -> None:
    commit_tree(tmp_path)
    assert git(tmp_path, "fsck", "--full", "--strict") == ""
    assert git(tmp_path, "ls-tree", "-r", "HEAD") == git(tmp_path, "status", "--porcelain") == ""


NAMES = st.binary(min_size=1, max_size=12).filter(
    lambda n: not {b"/"[0], 0} & set(n) and n.lower() not in (b".", b"..", b".git")
)


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.dictionaries(st.lists(NAMES, min_size=1, max_size=3).map(tuple), st.binary(max_size=300), max_size=8))
def test_any_names(
    tmp_path_factory: pytest.TempPathFactory, git: GitCommand, files: dict[tuple[bytes, ...], bytes]
) -> None:
    top = tmp_path_factory.mktemp("tree")
    for parts, data in files.items():
        place = Path(os.fsdecode(os.path.join(os.fsencode(top), *parts)))
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            continue
    commit_tree(top)
    git(top, "fsck", "--full")
    assert git(top, "status", "--porcelain") == ""
