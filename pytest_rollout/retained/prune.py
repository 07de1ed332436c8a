"""Make room: what nobody needs any more goes, and nothing that a living session uses.

Old runs go by their number, with the stages that they kept. What is prepared for many (baselines, sources) goes by the
time of its last use, or, the longest unused first, where all of it takes too many bytes. Stages of dead sessions, what
they left half made, and kept stages whose results are gone always go.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from pytest_rollout.stage.holds import held_by_nobody, last_used
from pytest_rollout.stage.kept import disk_usage, is_kept_stage, is_wanted, remove_kept
from pytest_rollout.stage.removal import remove_tree
from pytest_rollout.stage.root import SOURCES, StageRoot
from pytest_rollout.store.folder import ResultsFolder, RunFolder, kept_stages

__all__ = ["Pruned", "Rules", "prune"]

_NAME = re.compile(r"[0-9a-f]{64}|(git|archive)-[0-9a-f]+")
_LEFT = re.compile(r"\.(fetch-|(git|archive)-[0-9a-f]+-)")


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """How many runs stay; for how many seconds, and how many bytes of, prepared trees stay without being used."""

    runs: int = 50
    unused: float = 30 * 86_400.0
    size: int = 20 * 2**30


class Pruned(msgspec.Struct, frozen=True, kw_only=True):
    """Something that went, or would go: what it is, where, how many bytes it held, and what kept it from going."""

    what: str
    path: str
    size: int
    problem: str | None = None


def prune(results: ResultsFolder, stages: Path, rules: Rules, *, dry_run: bool = False) -> Iterator[Pruned]:
    """Remove what the rules let go below the results and the stage root ``stages``; ``dry_run`` only tells it.

    Raises ConfigError where the stage root can't be used, and OSError.
    """
    for run in results.surplus(rules.runs):
        for stage in kept_stages(run):
            if is_kept_stage(stage) and stage.is_dir():
                yield _gone("stage of an old run", stage, remove_kept, dry_run=dry_run)
        yield _gone("run", run.path, _of_run(run), dry_run=dry_run)
    if not stages.is_dir():
        return
    root = StageRoot(stages)
    try:
        for stage in root.abandoned():
            yield Pruned(what="stage of a dead session", path=str(stage), size=disk_usage(stage))
        if not dry_run:
            root.reap()
        for stage in sorted(path for path in root.kept.iterdir() if path.is_dir() and not path.is_symlink()):
            if not is_wanted(stage):
                yield _gone("stage without results", stage, remove_kept, dry_run=dry_run)
        yield from _prepared(root, rules, dry_run=dry_run)
        if not dry_run:
            _leftovers(root, rules)
    finally:
        root.close()


def _of_run(run: RunFolder) -> Callable[[Path], str | None]:
    """Remove a run, unless somebody began to make it meanwhile."""
    return lambda path: "it is in progress" if run.in_progress() else remove_tree(str(path))


def _gone(what: str, path: Path, remove: Callable[[Path], str | None], *, dry_run: bool) -> Pruned:
    size = disk_usage(path)
    return Pruned(what=what, path=str(path), size=size, problem=None if dry_run else remove(path))


class _Tree(msgspec.Struct, frozen=True, kw_only=True):
    what: str
    path: Path
    used: float
    size: int


def _prepared(root: StageRoot, rules: Rules, *, dry_run: bool) -> Iterator[Pruned]:
    """Baselines and sources, the longest unused first, as long as they are too old or too many."""
    found = sorted(_trees(root), key=lambda tree: tree.used)
    total, now = sum(tree.size for tree in found), time.time()
    for tree in found:
        if now - tree.used < rules.unused and total <= rules.size:
            continue
        doomed = tree.path.with_name(f".{tree.path.name[:16]}-{secrets.token_hex(8)}")
        with held_by_nobody(root.path) as held:
            if tree.path.name in held:
                continue
            if not dry_run:
                os.rename(tree.path, doomed)
        total -= tree.size
        problem = None
        if not dry_run:
            problem = remove_tree(str(doomed))
            for beside in (root.seals, root.path / "used"):
                (beside / tree.path.name).unlink(missing_ok=True)
        yield Pruned(what=tree.what, path=str(tree.path), size=tree.size, problem=problem)


def _trees(root: StageRoot) -> Iterator[_Tree]:
    for what, folder in (("baseline", root.baselines), ("source", root.path / SOURCES)):
        for path in folder.iterdir() if folder.is_dir() else ():
            if not _NAME.fullmatch(path.name) or path.is_symlink() or not path.is_dir():
                continue
            used = last_used(root.path, path.name)
            yield _Tree(
                what=what,
                path=path,
                used=path.stat().st_mtime if used is None else used,
                size=disk_usage(path),
            )


def _leftovers(root: StageRoot, rules: Rules) -> None:
    """Small files: what names meant for runs of long ago, fingerprints of long ago."""
    before = time.time() - max(rules.unused, 86_400.0)
    sources = root.path / SOURCES
    for left in sources.glob(".*"):  # of a process that was killed while it fetched, or made one
        if _LEFT.match(left.name) and left.lstat().st_mtime < time.time() - 86_400.0:
            remove_tree(str(left))
    for folder in (sources / "refs", root.path / "known"):
        for path in folder.iterdir() if folder.is_dir() else ():
            if path.lstat().st_mtime < before:
                path.unlink(missing_ok=True)
