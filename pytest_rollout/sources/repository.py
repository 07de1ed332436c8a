"""Read one commit out of a git repository, near or far, without checking it out.

Only commands that read objects run in a repository that we did not make (``rev-parse``, ``ls-tree``, ``cat-file``):
they run no hook, filter or program that its configuration names. What is far away is fetched into a bare repository of
our own. What git says is taken only up to a bound, and content goes through in pieces, so no repository decides how
much memory it takes; each command has a time limit.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import msgspec

from pytest_rollout.errors import ConfigError, HostError, StageError
from pytest_rollout.plain import printable
from pytest_rollout.task import Git

__all__ = ["Exported", "Repository", "open_repository"]

MAX_BYTES = 8 * 2**30  # of all files
MAX_FILES = 200_000
MAX_LISTING = 64 * 2**20  # bytes of a listing of them
_MAX_SAID = 64 * 2**10  # bytes of what git complains of
_FETCH_SECONDS = _EXPORT_SECONDS = 600.0
_LONGEST = 4096  # bytes of a path, and of the target of a link
_PIECE = 1 << 20
_LFS = b"version https://git-lfs.github.com/spec/v1\n"
_BOUNDED = {"GIT_ALLOC_LIMIT": "1g"}  # git holds what a delta makes whole, and some bytes of it make any size
_QUIET = {
    **_BOUNDED,
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
        """Write the files of the commit below ``target``, which is empty. Raises ConfigError, StageError, HostError.

        More than 8 GiB, 200,000 files or 64 MiB of their names are refused before anything is written.
        """
        listing = _output(self.git, "ls-tree", "-r", "-l", "-z", "--full-tree", self.commit)
        count = listing.count(b"\0")
        if count > MAX_FILES:
            raise ConfigError(f"Git(…): the commit holds {count} files, which are too many")
        listed = list(_listed(listing))
        size = sum(entry.size for entry in listed)
        if size > MAX_BYTES:
            raise ConfigError(f"Git(…): the commit holds {count} files of {size} bytes, which are too many")
        submodules = tuple(os.fsdecode(entry.path) for entry in listed if entry.mode == b"160000")
        pointers = []
        with _Objects(self.git) as objects:
            for entry in listed:
                place = os.path.join(os.fsencode(target), entry.path)
                if entry.mode == b"160000":
                    os.makedirs(place, exist_ok=True)
                    continue
                os.makedirs(os.path.dirname(place), exist_ok=True)
                if entry.mode == b"120000":
                    os.symlink(objects.link(entry), place)
                    continue
                with open(place, "xb") as file:
                    head = objects.copy(entry, file.write)
                os.chmod(place, 0o755 if entry.mode == b"100755" else 0o644)
                if head.startswith(_LFS):
                    pointers.append(os.fsdecode(entry.path))
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
        done = _git(words, {**_BOUNDED, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}, _FETCH_SECONDS)
        if done.returncode == 0:
            name = "refs/rollout/it" if arguments[-1] == refspec else rev
            return Repository(git=git, commit=_commit(git, url, rev, name))
        said = said or _last_line(done.stderr)
    raise StageError(f"Git({url!r}, {rev!r}) can't be fetched: {said}")


def _git(
    words: Sequence[str], env: Mapping[str, str] = _QUIET, seconds: float = 60.0
) -> subprocess.CompletedProcess[bytes]:
    """Run git; raises ConfigError where there is none or it says too much, StageError where it takes too long."""
    with tempfile.TemporaryFile() as said, _started(words, env, subprocess.DEVNULL, said) as process:
        assert process.stdout is not None
        watch = threading.Timer(seconds, process.kill)
        watch.start()
        try:
            output = bytearray()
            while len(output) <= MAX_LISTING and (piece := process.stdout.read1(_PIECE)):  # type: ignore[attr-defined]
                output += piece
            if len(output) > MAX_LISTING:
                process.kill()
            code = process.wait()
        finally:
            late = not watch.is_alive()
            watch.cancel()
        if len(output) > MAX_LISTING:
            raise ConfigError(f"Git(…): git {_verb(words)} says more than {MAX_LISTING} bytes")
        if late:
            raise StageError(f"git {words[-1]!r} did not end within {seconds:g} s")
        said.seek(max(0, said.seek(0, os.SEEK_END) - _MAX_SAID))
        return subprocess.CompletedProcess(words, code, bytes(output), said.read())


def _verb(words: Sequence[str]) -> str:
    return next((word for word in words if not word.startswith("-")), "")


def _started(
    words: Sequence[str], env: Mapping[str, str], stdin: int, said: IO[bytes] | int
) -> subprocess.Popen[bytes]:
    try:
        process = subprocess.Popen(
            ["git", "-c", "safe.directory=*", *words],
            env={**_environment(), **env},
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=said,
        )
    except FileNotFoundError:
        raise ConfigError("Git(…): the program git is not installed") from None
    except OSError as error:
        raise HostError(f"git could not be started: {error.strerror}") from error
    return process


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


class _Entry(msgspec.Struct, frozen=True):
    """A file of a commit: its mode, its id, its bytes and its path."""

    mode: bytes
    sha: bytes
    size: int
    path: bytes


def _listed(data: bytes) -> Iterator[_Entry]:
    """The files; raises ConfigError for paths that no tree of git may hold, StageError for what is not there."""
    seen, folders = set[bytes](), set[bytes]()
    for line in data.split(b"\0")[:-1]:
        facts, _, path = line.partition(b"\t")
        if len(path) > _LONGEST:
            raise ConfigError(f"Git(…): the commit holds a path of {len(path)} bytes")
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
        mode, _, sha, size = facts.split()
        if size != b"-" and not size.isdigit():
            raise _missing(sha)
        yield _Entry(mode, sha, int(size) if size.isdigit() else 0, path)


def _missing(sha: bytes) -> StageError:
    return StageError(f"the git object {sha.decode('ascii', 'replace')} is missing: a shallow or partial clone?")


class _Objects:
    """One ``git cat-file`` that gives the content of objects; it is ended after some minutes."""

    def __init__(self, git: str) -> None:
        words = [f"--git-dir={git}", "cat-file", "--batch"]
        self._process = _started(words, _QUIET, subprocess.PIPE, subprocess.DEVNULL)
        assert self._process.stdin is not None and self._process.stdout is not None
        self._asked: IO[bytes] = self._process.stdin
        self._told: IO[bytes] = self._process.stdout
        self._watch = threading.Timer(_EXPORT_SECONDS, self._process.kill)

    def __enter__(self) -> _Objects:
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._watch.cancel()
        self._process.kill()
        self._told.close()
        try:
            self._asked.close()
        except BrokenPipeError:
            pass
        self._process.wait()

    def link(self, entry: _Entry) -> bytes:
        """The target of a link."""
        if entry.size > _LONGEST:
            raise ConfigError(f"Git(…): the link {printable(os.fsdecode(entry.path))!r} has {entry.size} bytes")
        pieces: list[bytes] = []
        self.copy(entry, pieces.append)
        return b"".join(pieces)

    def copy(self, entry: _Entry, write: Callable[[bytes], object]) -> bytes:
        """Write the content of a blob in pieces; returns the first of it. Raises StageError where it is not whole."""
        try:
            self._asked.write(entry.sha + b"\n")
            self._asked.flush()
        except BrokenPipeError:
            raise StageError("git cat-file ended, or did not end in time") from None
        head = self._told.readline(1024).split()
        if len(head) != 3 or head[2] != b"%d" % entry.size:
            raise _missing(entry.sha)
        digest = (hashlib.sha1 if len(entry.sha) == 40 else hashlib.sha256)(usedforsecurity=False)
        digest.update(b"blob %d\0" % entry.size)
        left, first = entry.size, b""
        while left and (piece := self._told.read(min(left, _PIECE))):
            first = first or piece[: len(_LFS)]
            digest.update(piece)
            write(piece)
            left -= len(piece)
        self._told.read(1)
        if left or digest.hexdigest().encode() != entry.sha:
            raise StageError(f"the git object {entry.sha.decode('ascii')} has another content than its id says")
        return first
