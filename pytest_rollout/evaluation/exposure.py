"""See that no agent is shown what belongs to the evaluator: hidden files and oracles.

A workspace must not lie around them, hold a copy of one, nor keep one in the git objects of a
repository in it. A hidden file that equals the workspace's file of the same path is no secret: laying it on
again is how a suite restores what an agent may have edited.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from pytest_rollout.agents.paths import is_below
from pytest_rollout.errors import ConfigError
from pytest_rollout.stage.layers import protected
from pytest_rollout.task import Task

__all__ = ["check_exposure", "replaced_files", "secrets_of", "unmatched_globs"]

_TESTS = re.compile(r"test_.*|.*_test\.py|conftest\.py")
_LEAST = 16  # bytes: what is shorter (an empty __init__.py) tells nothing
_GIT_ENV = {
    "PATH": "/usr/bin:/bin",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_NO_LAZY_FETCH": "1",
    "LC_ALL": "C",
}


def check_exposure(task: Task) -> None:
    """Raise ConfigError where the agent of a task could see its hidden files or its oracle."""
    if task.workspace is None:
        return
    for place, what in ((task.hidden.path if task.hidden else None, "hidden"), (task.oracle, "oracle")):
        if place is None:
            continue
        if is_below(place, task.workspace.path):
            raise ConfigError(
                f"rollout({what}=…): {place} lies in the workspace {task.workspace.path}, which the agent sees",
                hint="Move it to a folder of its own.",
            )
        found = _copy_in(Path(place), Path(task.workspace.path))
        if found is not None:
            raise ConfigError(
                f"rollout({what}=…): {found[0]} is in the workspace {task.workspace.path} too: {found[1]}",
                hint="Take it out of there: the agent sees it.",
            )


def secrets_of(tasks: Iterable[Task]) -> set[Path]:
    """Where the hidden files and the oracles of these tasks lie."""
    hidden = {Path(task.hidden.path) for task in tasks if task.hidden is not None}
    return hidden | {Path(task.oracle) for task in tasks if task.oracle is not None}


def replaced_files(task: Task) -> tuple[str, ...]:
    """Hidden files, other than tests, that differ from the workspace's at their place: they replace an agent's work."""
    if task.hidden is None or task.workspace is None:
        return ()
    return _replaced(Path(task.hidden.path), Path(task.workspace.path), task.protect)


@lru_cache(maxsize=1000)
def _replaced(hidden: Path, workspace: Path, protect: tuple[str, ...]) -> tuple[str, ...]:
    found = []
    for path in _files(hidden):
        name = path.relative_to(hidden).as_posix()
        other = workspace / name
        if _TESTS.fullmatch(path.name) or protected([name], protect) or not other.is_file():
            continue
        if path.read_bytes() != other.read_bytes():
            found.append(name)
    return tuple(sorted(found))


def unmatched_globs(task: Task) -> tuple[str, ...]:
    """The globs of ``protect`` that fit nothing in the workspace: mistyped, or about files that are not there yet."""
    return _unmatched(task.workspace.path if task.workspace is not None else None, task.protect)


@lru_cache(maxsize=1000)
def _unmatched(workspace: str | None, globs: tuple[str, ...]) -> tuple[str, ...]:
    paths: list[str] = []
    if workspace is not None and globs:
        for at, folders, names in os.walk(workspace):
            paths += [os.path.relpath(os.path.join(at, name), workspace) for name in (*folders, *names)]
    return tuple(glob for glob in globs if not protected(paths, (glob,)))


@lru_cache(maxsize=1000)
def _copy_in(secret: Path, workspace: Path) -> tuple[str, str] | None:
    """A secret file that the workspace holds elsewhere, and where; None where there is none."""
    secrets = {path: data for path in _files(secret) if len(data := path.read_bytes()) >= _LEAST}
    sizes = {len(data) for data in secrets.values()}
    by_content: dict[bytes, list[str]] = {}
    for path in _files(workspace):
        if path.lstat().st_size in sizes and ".git" not in path.relative_to(workspace).parts:
            by_content.setdefault(path.read_bytes(), []).append(path.relative_to(workspace).as_posix())
    blobs = {}
    for path, data in secrets.items():
        name = path.relative_to(secret).as_posix() if secret.is_dir() else ""
        places = by_content.get(data, [])
        if name in places:
            continue
        if places:
            return str(path), places[0]
        named = b"blob %d\0" % len(data) + data
        blobs[hashlib.sha1(named, usedforsecurity=False).hexdigest()] = str(path)
        blobs[hashlib.sha256(named).hexdigest()] = str(path)
    for repository in _repositories(workspace) if blobs else ():
        known = _known_to_git(repository, list(blobs))
        if known:
            return blobs[known[0]], f"among the objects of {repository.relative_to(workspace).as_posix() or '.'}"
    return None


def _repositories(workspace: Path) -> Iterator[Path]:
    """The git folders in a workspace: its ``.git``, those of submodules, and bare ones."""
    for at, folders, names in os.walk(workspace):
        if "HEAD" in names and {"objects", "refs"} <= set(folders):
            yield Path(at)


def _files(top: Path) -> Iterator[Path]:
    if not top.is_dir():
        yield top
        return
    for at, folders, names in os.walk(top):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in names:
            path = Path(at, name)
            if path.is_file() and not path.is_symlink():
                yield path


def _known_to_git(repository: Path, blobs: list[str]) -> list[str]:
    """Which of these blobs a repository has, reachable or not."""
    try:
        done = subprocess.run(
            ["git", "-c", "safe.directory=*", f"--git-dir={repository}", "cat-file", "--batch-check=%(objectname)"],
            cwd="/",
            env=_GIT_ENV,
            input="\n".join(blobs).encode(),
            capture_output=True,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return [blob for blob in blobs if (repository / "objects" / blob[:2] / blob[2:]).exists()]
    return [line for line in done.stdout.decode("ascii", "replace").split("\n") if line in blobs]
