"""The stage root: a private per-user folder that holds baselines and stages, and outlives nobody.

::

    <root>/                   0700; as root 0711, so that the dropped uid passes through
      baselines/<digest>/     frozen trees, shared by all sessions of this user
      leases/<name>           locked by the process that owns the stages named <name>-…
      stages/<lease>-<opaque>/  one attempt each
      kept/<opaque>/          stages that the user asked to keep
      sources/<key>/          workspaces that came from repositories and archives
      seals/  known/          what the stats of baselines and of workspaces were
      holds/  used/           what living processes use of baselines and sources

A lease that nobody holds belonged to a process that died: its stages are removed at the next start.
Names are opaque, because the agent can read them in ``/proc/self/mountinfo``.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
from filelock import BaseFileLock, FileLock, Timeout

from pytest_rollout.errors import ConfigError, HostError, StageError
from pytest_rollout.knobs import TAG_FILE
from pytest_rollout.stage.holds import Holds
from pytest_rollout.stage.leftovers import is_over, kill_marked
from pytest_rollout.stage.removal import remove_tree

__all__ = ["NOBODY", "SOURCES", "Owner", "StageRoot", "default_root", "is_full"]

NOBODY = 65534
SOURCES = "sources"
_PATIENCE = 5.0  # seconds for killed processes to end
_FULL = {errno.ENOSPC, errno.EDQUOT}
_TAG = "CACHEDIR.TAG"
_FIRST = {"leases", "seals", "slots", "holds", "used", SOURCES, _TAG}  # what may be there before a tag is
_SHORT = 16  # digits that name a baseline in the names of its lock and of its unfinished folder


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """The uid and gid that agents run as, which own every file of a baseline and a stage."""

    uid: int
    gid: int

    @classmethod
    def of_this_process(cls) -> Owner:
        """Root's agents run as nobody (65534); an ordinary user's run as that user."""
        if os.geteuid() == 0:
            return cls(uid=NOBODY, gid=NOBODY)
        return cls(uid=os.getuid(), gid=os.getgid())


def is_full(path: str) -> bool:
    """Whether nothing more can be written where a stage lies; False where that can't be told."""
    try:
        disk = os.statvfs(path)
    except OSError:
        return False
    return disk.f_bavail == 0 or (disk.f_favail == 0 and disk.f_files > 0)


def default_root() -> Path:
    """Outside every home folder, on a disk rather than in memory where there is one."""
    parent = Path("/var/tmp")
    if not os.access(parent, os.W_OK):
        parent = Path(tempfile.gettempdir())
    return parent / f"pytest-rollout-{os.geteuid()}"


class StageRoot:
    """One process's hold on the stage root.

    Raises ConfigError where the folder can't be used; the message names it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.owner = Owner.of_this_process()
        self.baselines, self.stages, self.kept = path / "baselines", path / "stages", path / "kept"
        self.seals = path / "seals"
        self.verified: set[str] = set()  # baselines that this process looked at
        self.rebuilt: dict[str, str] = {}  # and what it has to say of them
        self._holds = Holds(path)
        self._prepare()
        self._lease_name, self._lease = self._take_lease()

    def _prepare(self) -> None:
        mode = 0o711 if self.owner.uid != os.geteuid() else 0o700
        self._check_reachable()  # before anything is made
        try:
            self.path.mkdir(mode=mode, parents=True, exist_ok=True)
            info = os.lstat(self.path)
            if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid():
                raise ConfigError(
                    f"rollout_stage_root: {self.path} is not a folder of this user's own",
                    hint="Remove it, or set the ini key rollout_stage_root to another folder.",
                )
            if not self._is_ours(set(os.listdir(self.path))):
                raise ConfigError(
                    f"rollout_stage_root: {self.path} is a folder with other things in it",
                    hint="Name a folder that is empty, or not there yet: it becomes a private one.",
                )
            os.chmod(self.path, mode)
            for private in (self.path / "leases", self.seals):
                private.mkdir(mode=0o700, exist_ok=True)
            if self._tag() != TAG_FILE:
                (self.path / _TAG).write_text(TAG_FILE, encoding="utf-8")  # kept stages are never collected
            for folder, its_mode in ((self.baselines, mode), (self.stages, mode), (self.kept, mode)):
                folder.mkdir(mode=its_mode, exist_ok=True)
                os.chmod(folder, its_mode)
        except OSError as error:
            raise ConfigError(
                f"rollout_stage_root: the folder {self.path} can't be written: {error.strerror}",
                hint="Set the ini key rollout_stage_root to a folder that this user can write.",
            ) from None
        self._check_reachable()

    def reopen(self, stage: str) -> None:
        """Open the folders down to a stage for their owner: an agent with the same uid may have closed them."""
        if self.owner.uid == os.geteuid() != 0:
            for folder in (self.path, self.baselines, self.stages, self.path / "leases", Path(stage)):
                with suppress(OSError):
                    os.chmod(folder, 0o700)

    def _is_ours(self, found: set[str]) -> bool:
        """Whether a folder is a stage root, or becomes one: what is in it is removed, so no one else's may be."""
        return found <= _FIRST or (found >= {"leases", _TAG} and self._tag() in ("", TAG_FILE))

    def _tag(self) -> str:
        try:
            return (self.path / _TAG).read_text("utf-8", "replace")
        except FileNotFoundError:
            return ""

    def _take_lease(self) -> tuple[str, BaseFileLock]:
        """A locked lease of our own; once more where another start cleaned it up before it was locked."""
        for _ in range(100):
            name = secrets.token_hex(6)
            lock = FileLock(self.path / "leases" / name, thread_local=False)
            lock.acquire(timeout=5)
            if (self.path / "leases" / name).exists():
                return name, lock
            lock.release()
        raise ConfigError(f"rollout_stage_root: no lease can be held in {self.path}")

    def _check_reachable(self) -> None:
        """The uid that is dropped to must be able to pass through every folder above a stage."""
        if self.owner.uid == os.geteuid():
            return
        for folder in self.path.resolve().parents:
            if folder.exists() and not folder.stat().st_mode & stat.S_IXOTH:
                raise ConfigError(
                    f"rollout_stage_root: {self.path} lies below {folder}, which uid {self.owner.uid} can't enter",
                    hint="Agents of root run as that uid. Set rollout_stage_root to a folder outside it.",
                )

    def new_stage(self, *folders: str, ours: bool = False) -> str:
        """A new private stage folder with these folders in it, owned by the agent's uid (``ours``: by this one).

        Raises StageError, or HostError when the disk is full.
        """
        path = str(self.stages / f"{self._lease_name}-{secrets.token_hex(6)}")
        try:
            os.mkdir(path, 0o700)
            for name in folders:
                os.mkdir(f"{path}/{name}", 0o700)
            if not ours:
                self.give(path, *(f"{path}/{name}" for name in folders))
        except OSError as error:
            kind = HostError if error.errno in _FULL else StageError
            raise kind(f"no stage can be made in {self.stages}: {error.strerror}") from error
        return path

    def new_layer(self, write: Callable[[str], None]) -> str:
        """A folder that ``write`` fills, for the agent's uid to read as a layer of stages.

        Raises StageError, or HostError when the disk is full.
        """
        path = self.new_stage("l", ours=True)
        layer = f"{path}/l"
        try:
            write(layer)
            self.give(
                path, layer, *(os.path.join(at, name) for at, *both in os.walk(layer) for n in both for name in n)
            )
        except OSError as error:
            remove_tree(path)
            kind = HostError if error.errno in _FULL else StageError
            raise kind(f"a layer can't be made in {self.stages}: {error.strerror}") from error
        except BaseException:
            remove_tree(path)
            raise
        return layer

    def drop_layer(self, layer: str) -> None:
        """Remove a layer; what is left of it goes with the lease."""
        remove_tree(os.path.dirname(layer))

    def give(self, *paths: str) -> None:
        """Make the agent's uid the owner of these paths."""
        if self.owner.uid != os.geteuid():
            for path in paths:
                os.chown(path, self.owner.uid, self.owner.gid, follow_symlinks=False)

    def hold(self, name: str) -> None:
        """Keep a baseline from being pruned as long as this process uses the root. Raises OSError."""
        self._holds.hold(name)

    def lock_baseline(self, digest: str) -> FileLock:
        """The lock of the one who makes a baseline."""
        return FileLock(self.path / f"baselines-{digest[:_SHORT]}.lock", thread_local=False)

    def unfinished(self, digest: str) -> Path:
        """Where a baseline is made, before it has its name."""
        return self.baselines / f".{digest[:_SHORT]}-{secrets.token_hex(8)}"

    def remove_unfinished(self, digest: str) -> None:
        """Remove what builders of a baseline left that were killed; its lock is held."""
        for made in self.baselines.glob(f".{digest[:_SHORT]}-*"):
            remove_tree(str(made))

    def keep(self, stage: str) -> str:
        """Move a stage out of reach of the clean-up; returns where it is now."""
        target = str(self.kept / secrets.token_hex(8))
        os.rename(stage, target)
        return target

    def abandoned(self) -> list[Path]:
        """What :meth:`reap` removes: the stages of processes that died, and the baselines that they left half made."""
        living = {lease.name for lease in (self.path / "leases").iterdir() if not self._is_dead(lease)}
        stages = [stage for stage in self.stages.iterdir() if _lease_of(stage) not in living]
        return sorted(stages) + sorted(made for made in self.baselines.glob(".*") if self._is_dead(self._lock_of(made)))

    def _lock_of(self, made: Path) -> Path:
        return Path(self.lock_baseline(made.name[1:]).lock_file)

    def _is_dead(self, lock: Path) -> bool:
        """Whether nobody holds a lock; our own lease is held."""
        if lock.name == self._lease_name:
            return False
        try:
            with FileLock(lock, thread_local=False).acquire(timeout=0):
                return True
        except Timeout:
            return False

    def reap(self) -> int:
        """End what processes that died left running, remove their stages and the baselines left unfinished.

        Returns how many stages there were.
        """
        removed = 0
        for made in self.baselines.glob(".*"):
            try:
                with self.lock_baseline(made.name[1:]).acquire(timeout=0):
                    remove_tree(str(made))
            except Timeout:
                continue
        for lease in sorted((self.path / "leases").iterdir()):
            if lease.name == self._lease_name:
                continue
            lock = FileLock(lease, thread_local=False)
            try:
                lock.acquire(timeout=0)
            except Timeout:
                continue
            try:
                kill_marked(lambda mark, lease=lease.name: mark.rpartition("-")[0] == lease)  # type: ignore[misc]
                removed += self._remove_stages(lease.name)
                lease.unlink(missing_ok=True)
            finally:
                lock.release()
        owners = {_lease_of(stage) for stage in self.stages.iterdir()}  # a lease is there before its stages
        orphans = owners.difference(os.listdir(self.path / "leases"))
        return removed + sum(self._remove_stages(lease) for lease in orphans)

    def _remove_stages(self, lease: str) -> int:
        """Remove the stages of a lease that nobody uses, and say how many; one whose processes don't end stays."""
        found = [str(entry) for entry in self.stages.iterdir() if _lease_of(entry) == lease]
        until = time.monotonic() + _PATIENCE
        return sum(_ended(stage, until) and remove_tree(stage) is None for stage in found)

    def close(self) -> None:
        """Give the lease and the holds back; whatever stage is left is removed."""
        self._holds.close()
        self._remove_stages(self._lease_name)
        self._lease.release()
        (self.path / "leases" / self._lease_name).unlink(missing_ok=True)


def _lease_of(stage: Path) -> str:
    return stage.name.rpartition("-")[0]


def _ended(stage: str, until: float) -> bool:
    """Whether every process of a stage has ended, by a time on the monotonic clock."""
    while not (over := is_over(stage)) and time.monotonic() < until:
        time.sleep(0.02)
    return over
