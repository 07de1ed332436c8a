"""Read one commit out of a git repository, near or far, without checking it out.

Only commands that read objects run in a repository that we did not make (``rev-parse``, ``ls-tree``, ``cat-file``):
they run no hook, filter or program that its configuration names. What is far away is fetched into a bare repository of
our own.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import msgspec

from pytest_rollout.errors import ConfigError, HostError, StageError
from pytest_rollout.plain import printable
from pytest_rollout.task import Git

__all__ = ["Exported", "Repository", "open_repository"]

_FETCH_SECONDS = 600.0
_LFS = b"version https://git-lfs.github.com/spec/v1\n"
_QUIET = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "LC_ALL": "C",
}


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """What was left out of a tree, or is not what it seems: paths of submodules, and of LFS pointers."""

    submodules: tuple[str, ...] = ()
    pointers: tuple[str, ...] = ()


class Repository(msgspec.Struct, frozen=True, kw_only=True):
    """A folder of git objects, and one commit in it."""

    git: str
    commit: str

    def export(self, target: Path) -> Exported:
        """Write the files of the commit below ``target``, which is empty. Raises ConfigError, StageError, HostError."""
        listed = list(_listed(_output(self.git, "ls-tree", "-r", "-z", "--full-tree", self.commit)))
        submodules = tuple(os.fsdecode(path) for mode, _, path in listed if mode == b"160000")
        pointers = []
        with _Objects(self.git) as objects:
            for mode, sha, path in listed:
                place = os.path.join(os.fsencode(target), path)
                if mode == b"160000":
                    os.makedirs(place, exist_ok=True)
                    continue
                os.makedirs(os.path.dirname(place), exist_ok=True)
                data = objects.read(sha)
                if mode == b"120000":
                    os.symlink(data, place)
                    continue
                with open(place, "xb") as file:
                    file.write(data)
                os.chmod(place, 0o755 if mode == b"100755" else 0o644)
                if data.startswith(_LFS):
                    pointers.append(os.fsdecode(path))
        return Exported(submodules=submodules, pointers=tuple(pointers))


def open_repository(asked: Git, cache: Path) -> Repository:
    """The repository at a path or an address, at the commit that its revision means there now.

    ``cache`` is an empty folder for what has to be fetched. Raises ConfigError for a repository or a revision that
    is not there.
    """
    url, rev = asked.url, asked.rev
    if asked.is_far:
        return _fetched(url, rev, cache)
    done = _git(["-C", url, "rev-parse", "--absolute-git-dir"])
    if done.returncode:
        raise ConfigError(f"Git({url!r}): {url} is not a git repository", hint=_last_line(done.stderr))
    git = os.fsdecode(done.stdout).rstrip("\n")
    return Repository(git=git, commit=_commit(git, url, rev, rev))


def _commit(git: str, url: str, rev: str, name: str) -> str:
    done = _git([f"--git-dir={git}", "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"])
    if done.returncode:
        raise ConfigError(f"Git({url!r}, {rev!r}): there is no commit {rev!r} in it")
    return done.stdout.decode("ascii").strip()


def _fetched(url: str, rev: str, cache: Path) -> Repository:
    """Fetch one revision; where a server gives no single commit, everything."""
    git = str(cache)
    _output(git, "init", "--quiet", "--bare", "--template=", git)
    refspec = f"+{rev}:refs/rollout/it"
    tries: Sequence[Sequence[str]] = (
        ("--depth=1", "--no-tags", url, refspec),
        ("--tags", url, "+refs/heads/*:refs/heads/*", "+HEAD:refs/rollout/head"),
    )
    said = ""
    for arguments in tries:
        words = [f"--git-dir={git}", "fetch", "--quiet", "--no-write-fetch-head", "--no-recurse-submodules", *arguments]
        done = _git(words, {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}, _FETCH_SECONDS)
        if done.returncode == 0:
            name = "refs/rollout/it" if arguments[-1] == refspec else rev
            return Repository(git=git, commit=_commit(git, url, rev, name))
        said = said or _last_line(done.stderr)
    raise StageError(f"Git({url!r}, {rev!r}) can't be fetched: {said}")


def _git(
    words: Sequence[str], env: Mapping[str, str] = _QUIET, seconds: float = 60.0
) -> subprocess.CompletedProcess[bytes]:
    """Run git; raises ConfigError where there is none."""
    try:
        return subprocess.run(
            ["git", "-c", "safe.directory=*", *words],
            env={**_environment(), **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise StageError(f"git {words[-1]!r} did not end within {seconds:g} s") from None
    except FileNotFoundError:
        raise ConfigError("Git(…): the program git is not installed") from None
    except OSError as error:
        raise HostError(f"git could not be started: {error.strerror}") from error


def _environment() -> dict[str, str]:
    """Ours, without the variables of git's that name another repository, as those of a hook do."""
    kept = ("GIT_SSH", "GIT_ASKPASS", "GIT_SSL", "GIT_PROXY", "GIT_HTTP", "GIT_CONFIG_GLOBAL")
    found = {name: value for name, value in os.environ.items() if not name.startswith("GIT_") or name.startswith(kept)}
    return {**found, "GIT_NO_REPLACE_OBJECTS": "1"}


def _output(git: str, *words: str) -> bytes:
    done = _git([f"--git-dir={git}", *words])
    if done.returncode:
        raise StageError(f"git {words[0]} failed in {git}: {_last_line(done.stderr)}")
    return done.stdout


def _last_line(said: bytes) -> str:
    lines = said.decode("utf-8", "replace").strip().splitlines()
    return printable(lines[-1])[:300] if lines else "it said nothing"


def _listed(data: bytes) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Mode, id and path of each entry; raises ConfigError for paths that no tree of git may hold."""
    seen, folders = set[bytes](), set[bytes]()
    for line in data.split(b"\0")[:-1]:
        facts, _, path = line.partition(b"\t")
        parts = path.split(b"/")
        if any(part in (b"", b".", b"..") or part.lower() == b".git" for part in parts):
            raise ConfigError(f"Git(…): the commit holds the path {printable(os.fsdecode(path))!r}")
        above = {b"/".join(parts[:count]) for count in range(1, len(parts))}
        if path in seen or path in folders or seen & above:  # it would be written through a link of the commit's
            raise ConfigError(
                f"Git(…): the commit holds {printable(os.fsdecode(path))!r} twice, or a file for its folder"
            )
        seen.add(path)
        folders |= above
        mode, _, sha = facts.split(b" ")
        yield mode, sha, path


class _Objects:
    """One ``git cat-file`` that gives the content of objects."""

    def __init__(self, git: str) -> None:
        words = ["git", "-c", "safe.directory=*", f"--git-dir={git}", "cat-file", "--batch"]
        env = {**_environment(), **_QUIET}
        self._process = subprocess.Popen(words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdin is not None and self._process.stdout is not None
        self._asked: IO[bytes] = self._process.stdin
        self._told: IO[bytes] = self._process.stdout

    def __enter__(self) -> _Objects:
        return self

    def __exit__(self, *_: object) -> None:
        self._asked.close()
        self._told.close()
        self._process.wait()

    def read(self, sha: bytes) -> bytes:
        """The content of a blob; raises StageError for one that is not there."""
        self._asked.write(sha + b"\n")
        self._asked.flush()
        head = self._told.readline().split()
        if len(head) != 3:
            raise StageError(f"the git object {sha.decode('ascii', 'replace')} is missing: a shallow or partial clone?")
        data = self._told.read(int(head[2]))
        self._told.read(1)
        digest = hashlib.sha1 if len(sha) == 40 else hashlib.sha256
        if digest(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest().encode() != sha:
            raise StageError(f"the git object {sha.decode('ascii')} has another content than its id says")
        return data
