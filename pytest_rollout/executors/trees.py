"""How the tree of a stage is made: the ladder's first half. How a command is confined to it is the executor's.

============  =========================================================  ==========================
kind          made by                                                    needs
============  =========================================================  ==========================
InnerOverlay  bubblewrap, inside its own namespaces                      bubblewrap 0.11
OuterOverlay  ``mount`` in a user namespace around bubblewrap            bubblewrap 0.8, unshare
Copies        a copy of the baseline                                     time and room for the copy
============  =========================================================  ==========================

In the first two the stage holds an overlay's upper layer in ``u``, in the third the whole tree in ``copy``.
"""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from pytest_rollout.errors import EvidenceError, HostError, InfraError, StageError
from pytest_rollout.executors.protocol import Stage
from pytest_rollout.stage.baseline import Baseline
from pytest_rollout.stage.copying import copy_tree
from pytest_rollout.stage.layers import merge_layer
from pytest_rollout.stage.removal import remove_tree
from pytest_rollout.stage.root import StageRoot
from pytest_rollout.stage.tree import Bound
from pytest_rollout.stage.view import CopyView, OverlayView, View

__all__ = ["Copies", "InnerOverlay", "OuterOverlay", "Placed", "Trees", "give_tree"]

__tracebackhide__ = True  # pytest shows the suite's line, not ours

_FULL = (errno.ENOSPC, errno.EDQUOT)
_UNCOPIED = "what the agent left can't be copied for an evaluation"
_OVERLAY = (
    'cd "$1" && mount -n -t overlay -o "$2" overlay "$3" || { echo "the overlay of the stage can\'t be mounted" >&2; '
    'exit 125; }; cd / && shift 3 && exec "$@"'
)


class Placed(msgspec.Struct, frozen=True, kw_only=True):
    """How a sandbox finds the tree: bubblewrap's arguments, and the words that start it inside a mount."""

    arguments: tuple[str, ...]
    around: tuple[str, ...] = ()


class Trees(Protocol):
    """Makes the trees of stages, places them in a sandbox, and shows what they hold."""

    def provision(self, baseline: Baseline, layers: Sequence[str]) -> Stage:
        """A fresh stage over a baseline."""
        ...

    def above(self, stage: Stage, layers: Sequence[str]) -> Stage:
        """A fresh stage over what another one holds."""
        ...

    def placed(self, stage: Stage, inside: str, *, sealed: bool) -> Placed:
        """The tree at the path ``inside`` of a sandbox, writable or not."""
        ...

    def view(self, stage: Stage) -> View:
        """What the tree holds now."""
        ...

    def ready_to_drop(self, stage: Stage) -> None:
        """Undo what would stop the stage's removal."""
        ...


class InnerOverlay:
    """An overlay that bubblewrap makes. Nothing is copied; the kernel's ``work`` folder is closed afterwards."""

    def __init__(self, root: StageRoot) -> None:
        self._root = root

    def provision(self, baseline: Baseline, layers: Sequence[str]) -> Stage:
        return Stage(path=self._root.new_stage("u", "w"), baseline=baseline, layers=tuple(layers))

    def above(self, stage: Stage, layers: Sequence[str]) -> Stage:
        return self.provision(stage.baseline, (*stage.layers, f"{stage.path}/u", *layers))

    def placed(self, stage: Stage, inside: str, *, sealed: bool) -> Placed:
        lower = [word for layer in (stage.baseline.path, *stage.layers) for word in ("--overlay-src", layer)]
        if sealed:
            return Placed(arguments=(*lower, "--overlay-src", f"{stage.path}/u", "--ro-overlay", inside))
        return Placed(arguments=(*lower, "--overlay", f"{stage.path}/u", f"{stage.path}/w", inside))

    def view(self, stage: Stage) -> View:
        return OverlayView(f"{stage.path}/u", stage.baseline.path)

    def ready_to_drop(self, stage: Stage) -> None:
        try:
            os.chmod(f"{stage.path}/w/work", 0o700)  # the kernel leaves it with mode 000
        except OSError:
            pass


class OuterOverlay(InnerOverlay):
    """The same overlay, mounted in a user namespace around a bubblewrap that can't make one.

    The paths of the layers are relative to the stage root, where every name is made of plain characters:
    an overlay's options know commas and colons.
    """

    def provision(self, baseline: Baseline, layers: Sequence[str]) -> Stage:
        return Stage(path=self._root.new_stage("u", "w", "t"), baseline=baseline, layers=tuple(layers))

    def placed(self, stage: Stage, inside: str, *, sealed: bool) -> Placed:
        top = self._root.path
        upper, work, tree, *lower = (
            os.path.relpath(path, top)
            for path in (
                *(f"{stage.path}/{name}" for name in ("u", "w", "t")),
                *reversed((stage.baseline.path, *stage.layers)),
            )
        )
        if sealed:
            options = f"ro,userxattr,lowerdir={':'.join((upper, *lower))}"
        else:
            options = f"userxattr,lowerdir={':'.join(lower)},upperdir={upper},workdir={work}"
        around = ("unshare", "--user", "--map-root-user", "--mount", "--propagation", "private", "--")
        return Placed(
            arguments=("--ro-bind" if sealed else "--bind", f"{stage.path}/t", inside),
            around=(*around, "sh", "-c", _OVERLAY, "sh", str(top), options, tree),
        )


class Copies:
    """A copy of the baseline in the stage, with the layers merged into it.

    ``give`` makes a finished stage the agent's; ``folders`` are made beside the copy, of this process's own.
    """

    def __init__(self, root: StageRoot, *folders: str, give: Callable[[str], None] | None = None) -> None:
        self._root, self._folders, self._give = root, folders, give

    def provision(self, baseline: Baseline, layers: Sequence[str]) -> Stage:
        return self._made(baseline, layers, lambda copy: _run("cp", "-RPp", "--", baseline.path, copy))

    def above(self, stage: Stage, layers: Sequence[str]) -> Stage:
        opening = ["chmod", "-R", "u+rwX", "--", f"{stage.path}/copy"]  # what the agent closed, it closed for itself
        subprocess.run(opening, capture_output=True, check=False)
        try:
            return self._made(stage.baseline, layers, lambda copy: copy_tree(f"{stage.path}/copy", copy))
        except Bound as bound:
            what = "levels of folders" if bound.what == "depth" else bound.what
            raise EvidenceError(f"{_UNCOPIED}: more than {bound.limit} {what}") from None
        except InfraError as error:
            if isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.ENAMETOOLONG:
                raise EvidenceError(f"{_UNCOPIED}: a path is too long") from None
            error.forgeable = True  # the agent may have filled the disk, say
            raise

    def _made(self, baseline: Baseline, layers: Sequence[str], copy: Callable[[str], None]) -> Stage:
        path = self._root.new_stage(*self._folders, ours=True)
        try:
            copy(f"{path}/copy")
            for layer in layers:
                merge_layer(layer, f"{path}/copy")
            if self._give is not None:
                self._give(path)
        except OSError as error:
            remove_tree(path)
            full = error.errno in _FULL or any(os.strerror(number) in str(error) for number in _FULL)
            raise (HostError if full else StageError)(f"the stage can't be made: {error}") from error
        except BaseException:
            remove_tree(path)
            raise
        return Stage(path=path, baseline=baseline)

    def placed(self, stage: Stage, inside: str, *, sealed: bool) -> Placed:
        return Placed(arguments=("--ro-bind" if sealed else "--bind", f"{stage.path}/copy", inside))

    def view(self, stage: Stage) -> View:
        return CopyView(f"{stage.path}/copy", stage.baseline.path)

    def ready_to_drop(self, stage: Stage) -> None:
        pass


def give_tree(uid: int, gid: int, *paths: str) -> None:
    """Make a uid and a gid the owners of trees, links themselves included. Raises OSError."""
    _run("chown", "-Rh", f"{uid}:{gid}", "--", *paths)


def _run(*words: str) -> None:
    """Run a program on trees, which does it faster and deeper than Python; raises OSError with what it says first."""
    done = subprocess.run(words, capture_output=True, check=False, env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"})
    if done.returncode != 0:
        said = os.fsdecode(done.stderr).strip().splitlines()
        raise OSError(said[0][:300] if said else f"{words[0]} ended with {done.returncode}")
