"""Make a workspace that is no folder of the suite into one, once for a machine.

::

    <cache>/<key>/tree/          the files, with a repository of one commit
    <cache>/<key>/facts.json     where they come from; written before the folder has its name
    <cache>/<key>/seal           what the stats of the files were: see :mod:`pytest_rollout.stage.seal`
    <cache>/refs/<key>           the commit that a name meant when a run began, so that all its processes agree
    <cache>/<key>.lock           held by the process that makes it

A key is that of the content, a commit or the digest of an archive, so what is there is never out of date. It is made
in a folder that is then renamed: a process that is killed leaves nothing that is taken for whole. A process that uses
one for the first time sees whether it is still as it was made; one that is not is made again, and that is noted.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from filelock import FileLock

from pytest_rollout.errors import ConfigError, HostError, StageError
from pytest_rollout.identity import canonical_digest
from pytest_rollout.sources.archive import unpack
from pytest_rollout.sources.onecommit import commit_tree
from pytest_rollout.sources.repository import Exported, Repository, open_repository
from pytest_rollout.stage.fingerprint import fingerprint
from pytest_rollout.stage.removal import remove_tree
from pytest_rollout.stage.seal import intact, seal
from pytest_rollout.task import Archive, Folder, Git

__all__ = ["prepared_source"]

_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_FULL = (28, 122)  # ENOSPC, EDQUOT


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """``facts.json``: where a tree comes from, and its fingerprint.

    ``commit`` is that of the repository it was read from.
    """

    source: str
    commit: str | None = None
    notes: tuple[str, ...] = ()
    revision: str | None = None


_looked_at: set[Path] = set()  # what this process found to be as it was made, or made itself
_altered: set[Path] = set()  # what it had to make again
_ALTERED = "what was made ready of it had been altered on this machine, and was made again"


def prepared_source(asked: Git | Archive, cache: Path, run: str, hold: Callable[[str], None]) -> Folder:
    """The folder of a workspace, made now if this machine has none; ``hold`` keeps it from being pruned.

    Raises ConfigError for what is not there or is refused, StageError or HostError where it can't be made.
    """
    try:
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        if isinstance(asked, Archive):
            return _of_archive(asked, cache, hold)
        return _of_git(asked, cache, run, hold)
    except OSError as error:
        kind = HostError if error.errno in _FULL else StageError
        raise kind(f"the workspace {asked} can't be prepared in {cache}: {error.strerror}") from error


def _of_archive(asked: Archive, cache: Path, hold: Callable[[str], None]) -> Folder:
    path = Path(asked.path)
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            while piece := file.read(1 << 20):
                digest.update(piece)
    except OSError as error:
        raise ConfigError(f"Archive({asked.path!r}): {path} can't be read: {error.strerror}") from None

    def make(tree: Path) -> Facts:
        notes = ("the repository (.git) of the archive is left out",) if unpack(path, tree) else ()
        return Facts(source=f"archive sha256:{digest.hexdigest()}", notes=notes)

    return _made(cache / f"archive-{digest.hexdigest()[:40]}", make, hold)


def _of_git(asked: Git, cache: Path, run: str, hold: Callable[[str], None]) -> Folder:
    if _COMMIT.fullmatch(asked.rev):
        final = cache / f"git-{asked.rev[:40]}"
        hold(final.name)
        if _is_ready(final):
            return _folder(final)
    with _opened(asked, cache, run, hold) as repository:

        def make(tree: Path) -> Facts:
            exported = repository.export(tree)
            commit_tree(tree)
            return Facts(source=f"git {asked.url}", commit=repository.commit, notes=tuple(_notes(exported)))

        return _made(cache / f"git-{repository.commit[:40]}", make, hold)


@contextmanager
def _opened(asked: Git, cache: Path, run: str, hold: Callable[[str], None]) -> Iterator[Repository]:
    """The repository at the commit that the revision meant when the run began; what was fetched goes at the end."""
    ref = cache / "refs" / canonical_digest([run, asked.url, asked.rev]).removeprefix("sha256:")[:32]
    ref.parent.mkdir(exist_ok=True)
    with FileLock(f"{ref}.lock"), tempfile.TemporaryDirectory(prefix=".fetch-", dir=cache) as fetched:
        rev = ref.read_text("ascii") if ref.exists() else asked.rev
        final = cache / f"git-{rev[:40]}"
        if asked.is_far and ref.exists():
            hold(final.name)
        if asked.is_far and ref.exists() and _is_ready(final):
            yield Repository(git="", commit=rev)
            return
        repository = open_repository(Git(asked.url, rev), Path(fetched))
        ref.write_text(repository.commit, "ascii")
        yield repository


def _notes(exported: Exported) -> Iterator[str]:
    for paths, what in (
        (exported.submodules, "is a submodule: its folder is empty"),
        (exported.pointers, "is a pointer of Git LFS: its content is not there"),
    ):
        if paths:
            more = f" (and {len(paths) - 1} more)" if len(paths) > 1 else ""
            yield f"{paths[0]}{more} {what}"


def _is_ready(final: Path) -> bool:
    """Whether a tree is there, and is as it was made; this process looks once."""
    if not final.is_dir():
        return False
    if final in _looked_at:
        return True
    tree = final / "tree"

    def is_right() -> bool:
        return fingerprint(tree) == _facts(final).revision

    try:
        if intact(tree, final / "seal", is_right):
            _looked_at.add(final)
            return True
    except (OSError, msgspec.MsgspecError):
        pass
    return False


def _made(final: Path, make: Callable[[Path], Facts], hold: Callable[[str], None]) -> Folder:
    hold(final.name)
    if not _is_ready(final):
        with FileLock(f"{final}.lock"):
            if not _is_ready(final):
                _make(final, make)
    return _folder(final)


def _make(final: Path, make: Callable[[Path], Facts]) -> None:
    for left in final.parent.glob(f".{final.name}-*"):  # of a process that was killed
        remove_tree(str(left))
    made = Path(tempfile.mkdtemp(prefix=f".{final.name}-", dir=final.parent))
    try:
        (made / "tree").mkdir()
        facts = make(made / "tree")
        facts = msgspec.structs.replace(facts, revision=fingerprint(made / "tree"))
        (made / "facts.json").write_bytes(msgspec.json.encode(facts))
        if final.exists():
            os.rename(final, made / "altered")
            _altered.add(final)
        os.rename(made, final)
    finally:
        if made.exists():
            remove_tree(str(made))
    seal(final / "tree", final / "seal")
    remove_tree(str(final / "altered"))
    _looked_at.add(final)


def _facts(final: Path) -> Facts:
    return msgspec.json.decode((final / "facts.json").read_bytes(), type=Facts)


def _folder(final: Path) -> Folder:
    facts = _facts(final)
    notes = (*facts.notes, _ALTERED) if final in _altered else facts.notes
    return Folder(path=str(final / "tree"), source=facts.source, commit=facts.commit, notes=notes)
