"""Look at what an attempt left: run a command in a sandbox over a read-only view of its stage.

A stage that was kept is shown as it is. One that was dropped is rebuilt from its baseline and the
files of ``changes/``, where those are complete.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from pytest_rollout.agents.protocol import DEFAULT_PATH
from pytest_rollout.bundle import BundleRecord, Change
from pytest_rollout.errors import SelectorError
from pytest_rollout.executors.bwrap import INSIDE, WITH_OVERLAY, WITHOUT_OVERLAY, arguments, find_bwrap
from pytest_rollout.executors.launch import prepared
from pytest_rollout.executors.protocol import Stage
from pytest_rollout.executors.trees import InnerOverlay, OuterOverlay, Placed
from pytest_rollout.stage.baseline import Baseline
from pytest_rollout.stage.copying import copy_tree
from pytest_rollout.stage.removal import remove_tree
from pytest_rollout.stage.root import StageRoot, default_root
from pytest_rollout.stage.tree import Bound

__all__ = ["inspect", "view_arguments"]

_ESCAPED = re.compile(r"\\x[0-9a-f]{2}")
_REDACTED = "[redacted: "
_NODES = {"fifo": stat.S_IFIFO, "socket": stat.S_IFSOCK}


def inspect(attempt: Path, command: Sequence[str], *, stage_root: Path | None = None) -> int:
    """Run ``command`` in a read-only view of the stage of ``attempt``; returns its exit code.

    Standard output and error are this process's own; there is no network and no standard input.
    Raises SelectorError where the stage can't be shown, IsolationError where there is no sandbox.
    """
    try:
        bundle = msgspec.json.decode((attempt / "bundle.json").read_bytes(), type=BundleRecord)
    except OSError:
        raise SelectorError(f"{attempt} holds no bundle: the attempt ended before there was evidence") from None
    except msgspec.MsgspecError as error:
        raise SelectorError(f"{attempt / 'bundle.json'} can't be read: {error}") from None
    root = StageRoot(stage_root or _root_of(bundle) or default_root())
    try:
        with view_arguments(root, attempt, bundle) as view:
            needed = WITH_OVERLAY if "--ro-overlay" in view.arguments else WITHOUT_OVERLAY
            bwrap = find_bwrap(root.path / "bin", dropped=root.owner.uid != os.geteuid(), needed=needed)
            env = {"PATH": DEFAULT_PATH, "HOME": "/home/agent", "TMPDIR": "/tmp", "LANG": "C.UTF-8"}
            args = arguments(overlay=view.arguments, env=env, binds=(), prompt=None, host_network=False)
            with prepared(bwrap, args, command, owner=root.owner, around=view.around) as (argv, options):
                code = subprocess.run(argv, stdin=subprocess.DEVNULL, check=False, **options).returncode
    except (OSError, Bound) as error:  # shutil.Error is an OSError
        raise SelectorError(f"the stage of {bundle.identity.rollout} can't be shown: {error}") from None
    finally:
        root.close()
    return code if code >= 0 else 128 - code


def _root_of(bundle: BundleRecord) -> Path | None:
    """The stage root that a kept stage lies in."""
    return Path(bundle.stage).parent.parent if bundle.stage else None


@contextmanager
def view_arguments(root: StageRoot, attempt: Path, bundle: BundleRecord) -> Iterator[Placed]:
    """A read-only view of the stage at ``/stage`` of a sandbox."""
    revision = bundle.pins.environment_revision or ""
    baseline = root.baselines / revision.removeprefix("sha256:")
    root.hold(baseline.name)
    kept = Path(bundle.stage) if bundle.stage else None
    copy = kept / "copy" if kept is not None and (kept / "copy").is_dir() else None
    if copy is not None and root.owner.uid == os.geteuid():
        yield Placed(arguments=("--ro-bind", str(copy), INSIDE))
        return
    if copy is None and not baseline.is_dir():
        raise SelectorError(f"the baseline {revision} is not on this machine any more")
    if kept is not None and (kept / "u").is_dir():
        trees = OuterOverlay(root) if (kept / "t").is_dir() else InnerOverlay(root)
        whole = Stage(path=str(kept), baseline=Baseline(path=str(baseline), revision=revision))
        yield trees.placed(whole, INSIDE, sealed=True)
        return
    stage = root.new_stage()
    try:
        if copy is not None:  # it is root's own, and the sandbox is not
            copy_tree(str(copy), f"{stage}/tree", specials=True)
        else:
            rebuild(baseline, attempt / "changes", bundle, Path(stage) / "tree")
        root.give(*(os.path.join(at, name) for at, *names in os.walk(stage) for each in names for name in each))
        yield Placed(arguments=("--ro-bind", f"{stage}/tree", INSIDE))
    finally:
        remove_tree(stage)


def rebuild(baseline: Path, stored: Path, bundle: BundleRecord, target: Path) -> None:
    """Write the tree that an attempt left: its baseline, then its changes.

    Raises SelectorError where a bound was hit, or a name is not known byte by byte: the tree would be another one.
    """
    gaps = [finding.message for finding in bundle.findings if finding.code.startswith("changes.")]
    if any(_REDACTED in f"{change.path} {change.target or ''}" for change in bundle.changes):
        reason = "the stage was dropped, and a name in it was redacted: it holds a secret"
        raise SelectorError(reason, hint="Run again with --rollout-keep=all.")
    if gaps or any(_ESCAPED.search(f"{change.path} {change.target or ''}") for change in bundle.changes):
        reason = f"its changes were not kept whole: {gaps[0]}" if gaps else "a name in it can't be written as text"
        raise SelectorError(f"the stage was dropped, and {reason}", hint="Run again with --rollout-keep=all.")
    shutil.copytree(baseline, target, symlinks=True)
    deepest_first = sorted(bundle.changes, key=lambda change: change.path, reverse=True)
    for change in deepest_first:
        if change.kind == "deleted":
            _clear(_place(target, change.path))
    for change in reversed(deepest_first):
        if change.kind != "deleted":
            _write(_place(target, change.path), stored / change.path, change)
    for change in deepest_first:
        if change.kind != "deleted" and change.type == "dir":
            os.chmod(_place(target, change.path), int(change.mode or "755", 8) & 0o777)


def _place(target: Path, path: str) -> Path:
    """Where a path of a candidate's lies below ``target``: never through a link of the candidate's."""
    place = target
    for part in path.split("/")[:-1]:
        place = place / part
        if place.is_symlink():
            raise SelectorError(f"{path} lies behind a link, so the stage can't be rebuilt")
    return target / path


def _clear(place: Path) -> None:
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)


def _write(place: Path, stored: Path, change: Change) -> None:
    if change.type == "dir":
        if place.is_symlink() or not place.is_dir():
            _clear(place)
            place.mkdir()
        return
    _clear(place)
    if change.type == "symlink":
        place.symlink_to(change.target or "")
    elif change.type in _NODES:
        os.mknod(place, 0o600 | _NODES[change.type])
        os.chmod(place, int(change.mode or "644", 8) & 0o777)
    elif change.type == "file":
        shutil.copyfile(stored, place)
        os.chmod(place, int(change.mode or "644", 8) & 0o777)
