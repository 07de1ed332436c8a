"""Take over the changes of a rollout into a folder: check everything, then write everything, or nothing.

A path in the folder must be what the baseline had there, or already what the change makes of it. Everything else is a
conflict, and one conflict is enough for nothing to be written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from pytest_rollout.bundle import Change
from pytest_rollout.errors import SelectorError
from pytest_rollout.retained.compare import MODES, folded, is_after, is_before, leads_out, of_before, of_found
from pytest_rollout.retained.left import Left, Unavailable, is_git, veiled
from pytest_rollout.retained.repositories import Repositories
from pytest_rollout.retained.target import Found, Moved, Target
from pytest_rollout.stage.tree import show, unshow

__all__ = ["Conflict", "Taken", "take"]

_SPECIAL = ("fifo", "socket", "device")


class Conflict(msgspec.Struct, frozen=True, kw_only=True):
    """A path that keeps the changes from being applied, and why."""

    path: str
    reason: str


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it: changes that were made (or would be), were there already, or are left out, with the reason.

    With conflicts nothing was written.
    """

    made: tuple[Change, ...] = ()
    already: tuple[Change, ...] = ()
    left_out: tuple[Conflict, ...] = ()
    conflicts: tuple[Conflict, ...] = ()


class _Step(msgspec.Struct, kw_only=True):
    change: Change
    path: bytes
    seen: Found | None


def take(
    left: Left, folder: Path, *, patterns: Sequence[str] = (), links: bool = False, dry_run: bool = False
) -> Taken:
    """Apply the changes that the patterns select to ``folder``.

    ``links`` allows links that point out of the folder. Raises SelectorError for a selection or a folder that is
    none, and where writing fails; then everything is as it was.
    """
    selected = left.selected(patterns)
    target, done = Target(folder), False
    try:
        plan = _Plan(left, target, links=links)
        plan.look(selected)
        if not plan.conflicts:
            plan.check_content()
        if not plan.conflicts and not dry_run:
            plan.write()
            done = True
        left_out = (*plan.left_out, *(Conflict(path=show(path), reason="holds other things") for path in plan.stay))
        return Taken(
            made=tuple(step.change for step in plan.steps if step.path not in plan.stay),
            already=tuple(plan.already),
            left_out=left_out,
            conflicts=tuple(plan.conflicts),
        )
    except (Moved, Unavailable) as error:
        raise SelectorError(f"nothing was written to {folder}: {error}") from None
    except OSError as error:
        raise SelectorError(f"nothing was written to {folder}: {error.strerror or error}") from None
    finally:
        try:
            target.close(done=done)
        except (OSError, Moved) as error:
            raise SelectorError(
                f"{folder} could not be put back as it was: {error}",
                hint=f"What it held is in {folder / target.hidden}.",
            ) from None


class _Plan:
    """The steps that make the selected changes, and what is against them."""

    def __init__(self, left: Left, target: Target, *, links: bool) -> None:
        self._left, self._target, self._links = left, target, links
        self.steps: list[_Step] = []
        self.already: list[Change] = []
        self.left_out: list[Conflict] = []
        self.conflicts: list[Conflict] = []
        self.stay: set[bytes] = set()
        self._linked: set[bytes] = set()
        self._names: dict[bytes, dict[str, set[bytes]]] = {}

    def look(self, selected: Sequence[Change]) -> None:
        """Compare every selected path with what the folder has there."""
        written = (unshow(change.path) for change in self._left.bundle.changes if change.kind != "deleted")
        repositories = Repositories(written, self._exists)
        for change in self._with_folders(selected):
            path = unshow(change.path)
            if is_git(path) or repositories.hold(path):
                self.left_out.append(Conflict(path=change.path, reason="is of a repository's own data"))
                continue
            reason = self._compare(change, path)
            if reason is not None:
                self.conflicts.append(Conflict(path=change.path, reason=reason))
        removed = {step.path for step in self.steps if step.change.kind == "deleted"}
        for step in self.steps:
            for reason in (self._stands_in_the_way(step, removed), self._collision(step, removed)):
                if reason is not None:
                    self.conflicts.append(Conflict(path=step.change.path, reason=reason))

    def _exists(self, path: bytes) -> bool:
        try:
            return self._target.look(path) is not None
        except (Moved, OSError):
            return False

    def _with_folders(self, selected: Sequence[Change]) -> list[Change]:
        """The selection, and the new folders that it lies in."""
        added = {change.path: change for change in self._left.bundle.changes if change.kind == "added"}
        chosen = {change.path: change for change in selected}
        for change in selected:
            parts = change.path.split("/")
            for count in range(1, len(parts)):
                above = added.get("/".join(parts[:count]))
                if above is not None and above.type == "dir" and change.kind != "deleted":
                    chosen.setdefault(above.path, above)
        return sorted(chosen.values(), key=lambda change: unshow(change.path))

    def _compare(self, change: Change, path: bytes) -> str | None:
        """Plan the step of a change; returns what is against it."""
        if (why := veiled(change)) is not None:
            return why
        if change.kind != "deleted" and change.type in _SPECIAL:
            return f"is a {change.type}: only files, folders and links are written"
        if b".." in path.split(b"/") or b"" in path.split(b"/") or b"\0" in path:
            return "is not a path inside of a folder"
        if change.kind != "added" and change.before is None:
            return "what the baseline had is not in the record"
        target = unshow(change.target or "")
        if change.kind != "deleted" and change.type == "symlink" and not self._links and leads_out(path, target):
            return f"is a link to {show(target)!r}, out of the folder (--links allows it)"
        if change.kind == "deleted" and self._is_below_link(path):
            self.already.append(change)
            return None
        try:
            found = self._target.look(path)
            if is_after(found, change):
                self.already.append(change)
                if found is not None and found.is_link:
                    self._linked.add(path)
                return None
            if not is_before(found, change.before) and not (found is None and _swaps(change)):
                unknown = change.before is not None and change.before.type == "file" and change.before.sha256 is None
                more = " (its content is not in the record)" if unknown else ""
                return f"expected {of_before(change.before)}{more}, found {of_found(found)}"
        except Moved as error:
            return str(error)
        except OSError as error:
            return f"can't be read: {error.strerror}"
        self.steps.append(_Step(change=change, path=path, seen=found))
        return None

    def _is_below_link(self, path: bytes) -> bool:
        """Whether the folder of a path is already what the changes make of it: a link, so that nothing is below."""
        parts = path.split(b"/")
        return any(b"/".join(parts[:count]) in self._linked for count in range(1, len(parts)))

    def _stands_in_the_way(self, step: _Step, removed: set[bytes]) -> str | None:
        """A folder that becomes something else must hold nothing more than what goes."""
        becomes = step.change.kind != "deleted" and step.change.type != "dir"
        if not becomes or step.seen is None or not step.seen.is_folder:
            return None
        pending = [step.path]
        while pending:
            at = pending.pop()
            for name in self._target.names(at):
                path = at + b"/" + name
                if path not in removed:
                    return f"the folder that it replaces holds {show(path)}"
                pending.append(path)
        return None

    def _collision(self, step: _Step, removed: set[bytes]) -> str | None:
        """A new name beside one that differs from it only in case, or in how it is written."""
        if step.seen is not None or step.change.kind == "deleted":
            return None
        above, _, name = step.path.rpartition(b"/")
        if above not in self._names:
            self._names[above] = {}
            for each in self._target.names(above):
                if (above + b"/" + each if above else each) not in removed:
                    self._names[above].setdefault(folded(each), set()).add(each)
        alike = self._names[above].setdefault(folded(name), set())
        others = alike - {name}
        alike.add(name)
        return f"differs only in case from {show(min(others))!r}" if others else None

    def check_content(self) -> None:
        """See that the content of every file can be had."""
        for step in self.steps:
            if _content(step):
                try:
                    for _ in self._left.new(step.change):
                        pass
                except Unavailable as error:
                    self.conflicts.append(Conflict(path=step.change.path, reason=str(error)))

    def write(self) -> None:
        """Make every step; raises Moved, Unavailable and OSError."""
        prepared: dict[bytes, bytes] = {}
        for step in self.steps:
            if _content(step):
                prepared[step.path] = self._target.prepare(self._left.new(step.change), _new_mode(step))
            elif step.change.kind != "deleted" and step.change.type == "symlink":
                prepared[step.path] = self._target.prepare_link(unshow(step.change.target or ""))
        for step in reversed(self.steps):  # what is below a folder first
            if step.seen is not None and _goes(step):
                with _named(step):
                    self._remove(step, step.seen)
                step.seen = None
        for step in self.steps:
            with _named(step):
                if step.path in prepared:
                    self._target.place(prepared[step.path], step.path, step.seen)
                elif step.change.kind != "deleted" and step.change.type == "dir" and step.seen is None:
                    self._target.make_folder(step.path, _new_mode(step))
        for step in reversed(self.steps):
            if step.change.kind != "deleted" and step.path not in prepared:
                with _named(step):
                    self._target.set_mode(step.path, _new_mode(step))

    def _remove(self, step: _Step, seen: Found) -> None:
        if not self._target.remove(step.path, seen):
            if step.change.kind != "deleted":
                raise Moved("a folder that is not empty")
            self.stay.add(step.path)


@contextmanager
def _named(step: _Step) -> Iterator[None]:
    """Say of a failure at which path it was."""
    try:
        yield
    except Moved as error:
        raise Moved(f"{step.change.path}: {error}") from None


def _swaps(change: Change) -> bool:
    """Whether a folder takes the place of something else, or the other way round: between the two is nothing."""
    before = change.before
    return change.kind == "modified" and before is not None and (before.type == "dir") is not (change.type == "dir")


def _goes(step: _Step) -> bool:
    """Whether what is there has to go first: it is deleted, or a folder takes the place of none, or none of one."""
    if step.change.kind == "deleted":
        return True
    assert step.seen is not None
    return step.seen.is_folder is not (step.change.type == "dir")


def _content(step: _Step) -> bool:
    """Whether a step writes the content of a file, not only its mode."""
    change, before = step.change, step.change.before
    if change.kind == "deleted" or change.type != "file":
        return False
    same = before is not None and before.type == "file" and before.sha256 == change.sha256 is not None
    return not same


def _new_mode(step: _Step) -> int:
    """The mode of the change; where the change is not about the mode, the one that is there."""
    change, before = step.change, step.change.before
    if step.seen is not None and before is not None and (before.type, before.mode) == (change.type, change.mode):
        return step.seen.info.st_mode & MODES
    return int(change.mode or "0755", 8) & MODES
