"""Where everything of a run lies, and writing it whole or not at all.

::

    <dir>/                                      .gitignore, CACHEDIR.TAG
      latest                                    the name of the newest run
      runs/<run>/
        run.json  plan.json  lock
        results/<worker>.jsonl
        claims/  stop  preflight/  preflight.json
        rollouts/<task folder>/s0/a1/           bundle.json  score.json  journal.jsonl  stdout  stderr  changes/
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Container, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
from filelock import FileLock, Timeout

from pytest_rollout.errors import ConfigError, recording_error
from pytest_rollout.identity import task_folder
from pytest_rollout.knobs import TAG_FILE
from pytest_rollout.redaction.redactor import FORMS, Redactor
from pytest_rollout.stage.removal import remove_tree

__all__ = ["ResultsFolder", "RunFolder", "kept_stages", "read_record", "write_record"]

Record = TypeVar("Record", bound=msgspec.Struct)
_STARTED = b'"event":"started"'
_RUN = re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\dZ-[0-9a-f]{8}")


def write_record(path: Path, record: Any, *, create_only: bool = False, redactor: Redactor = FORMS) -> bool:
    """Write a record as indented JSON, whole or not at all, without the secrets that ``redactor`` knows.

    With ``create_only`` the first writer wins; returns whether this one wrote. Raises RecordingError
    or HostError.
    """
    plain = redactor.value(msgspec.to_builtins(record))
    data = msgspec.json.format(msgspec.json.encode(plain), indent=2) + b"\n"
    made = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    try:
        made.write_bytes(data)
        try:
            if not create_only:
                os.replace(made, path)
                return True
            os.link(made, path)
        except FileExistsError:
            return False
        finally:
            made.unlink(missing_ok=True)
    except OSError as error:
        raise recording_error("a record", path, error) from error
    return True


def read_record(path: Path, kind: type[Record]) -> Record:
    """A record that :func:`write_record` wrote; raises OSError and msgspec.ValidationError."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except RecursionError as error:  # somebody else's file may be nested without end
        raise msgspec.ValidationError(str(error)) from None


class RunFolder:
    """The folder of one run."""

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, path.name
        self.results = path / "results"
        self._lock: FileLock | None = None
        self._found = False  # whether its mark was there before

    @property
    def plan(self) -> Path:
        return self.path / "plan.json"

    @property
    def gates(self) -> Path:
        return self.path / "gates.json"

    @property
    def record(self) -> Path:
        return self.path / "run.json"

    def made(self) -> int:
        """When its record was written, in nanoseconds; 0 where it has none."""
        try:
            return self.record.stat().st_mtime_ns
        except OSError:
            return 0

    def attempt(self, task: str, sample: int, attempt: int) -> Path:
        """The folder of one attempt, as a path; see :meth:`new_attempt`."""
        return self.path / "rollouts" / task_folder(task) / f"s{sample}" / f"a{attempt}"

    def attempts(self, task: str, sample: int) -> list[int]:
        """The numbers of the attempts that were begun, in their order."""
        with suppress(OSError):
            names = [entry.name for entry in self.attempt(task, sample, 1).parent.iterdir()]
            return sorted(int(name[1:]) for name in names if name[:1] == "a" and name[1:].isdecimal())
        return []

    def acted(self, task: str, sample: int, attempt: int) -> bool:
        """Whether an attempt's journal says that its agent was started."""
        with suppress(OSError):
            journal = self.attempt(task, sample, attempt) / "journal.jsonl"
            return any(_STARTED in line for line in journal.read_bytes().splitlines())
        return False

    def new_attempt(self, task: str, sample: int, attempt: int) -> Path:
        """Make the folder of an attempt, in a run that was opened; raises RecordingError or HostError."""
        return self._new(self.attempt(task, sample, attempt))

    def new_trial(self, task: str, sample: int, name: str) -> Path:
        """Make the folder of a trial of a task's checks, which is no rollout; raises as :meth:`new_attempt` does."""
        return self._new(self.path / "trials" / task_folder(task) / f"s{sample}" / name)

    def new_preflight(self, name: str) -> Path:
        """Make the folder of a try before the first rollout; raises as :meth:`new_attempt` does."""
        return self._new(self.path / "preflight" / name)

    def _new(self, path: Path) -> Path:
        try:
            os.stat(self.path)  # a run that somebody removed is not begun again
            path.mkdir(parents=True)
        except OSError as error:
            raise recording_error("an attempt", path, error) from error
        return path

    def reopen(self) -> None:
        """Open the folders of the results for their owner: an agent that is not isolated may have closed them."""
        for folder in (self.path.parent.parent, self.path.parent, self.path, self.results):
            with suppress(OSError):
                os.chmod(folder, os.stat(folder).st_mode & 0o7777 | 0o700)

    def stop(self, why: str) -> None:
        """Tell every process of the run that it begins no more rollouts."""
        with suppress(OSError):
            (self.path / "stop").write_text(why, encoding="utf-8")

    def stopped(self) -> str:
        """Why no more rollouts are begun, or nothing."""
        with suppress(OSError):
            return (self.path / "stop").read_text(encoding="utf-8", errors="replace")
        return ""

    def begin_again(self) -> None:
        """Forget why a session was ended, and what it tried before its first rollout: another one goes on."""
        with suppress(OSError):
            for name in ("stop", "preflight.json"):
                (self.path / name).unlink(missing_ok=True)
            if (self.path / "preflight").exists():
                remove_tree(str(self.path / "preflight"))

    def relative(self, path: Path) -> str:
        """A path of this run as it is written into records."""
        return path.relative_to(self.path).as_posix()

    def hold(self, worker: str = "", patience: float = 1.0) -> bool:
        """Mark the run as in progress, for as long as this process lives; a worker beside the session's own mark.

        Returns whether nobody else has marked it so. Somebody may be looking whether it is held, so it is tried for
        ``patience`` seconds.
        """
        place = self.path / (f"lock-{worker}" if worker else "lock")
        self._found = place.exists()
        lock = FileLock(place, thread_local=False)
        try:
            lock.acquire(timeout=patience, poll_interval=0.01)
        except (Timeout, OSError):
            return False
        self._lock = lock
        return True

    def release(self, *, ended: bool = True) -> None:
        """This process is done with the run; also where its folder is gone, or can't be written any more.

        Without ``ended`` it leaves the run as it was: one that was cut short stays marked.
        """
        if self._lock is not None:
            with suppress(OSError):
                self._lock.release()
                if ended or not self._found:
                    Path(self._lock.lock_file).unlink(missing_ok=True)
                for left in self.path.glob("lock-*") if ended else ():  # of workers that died
                    if not _is_held(left):
                        left.unlink(missing_ok=True)
            self._lock = None

    def in_progress(self) -> bool:
        """Whether a live process holds this run: its session's own, or a worker that was left alone."""
        return any(map(_is_held, (self.path / "lock", *self.path.glob("lock-*"))))

    def is_held(self) -> bool:
        """Whether the session itself is in progress, and not only a worker that it left."""
        return _is_held(self.path / "lock")

    def was_cut(self) -> bool:
        """Whether the session that made it was ended from outside: its mark is there, and nobody holds it."""
        return (self.path / "lock").exists() and not self.is_held()


def _is_held(place: Path) -> bool:
    if not place.exists():
        return False
    try:
        with FileLock(place, thread_local=False).acquire(timeout=0):
            return False
    except (Timeout, OSError):
        return True


def kept_stages(run: RunFolder) -> Iterator[Path]:
    """Where the records of a run say that stages were kept."""
    for place in run.path.glob("rollouts/*/*/*/bundle.json"):
        try:
            stage = json.loads(place.read_bytes()).get("stage")
        except (OSError, ValueError, AttributeError):
            continue
        if isinstance(stage, str) and stage:
            yield Path(stage)


class ResultsFolder:
    """The folder of all runs, or, with ``kind="audits"``, of all audits."""

    def __init__(self, path: Path, kind: Literal["runs", "audits"] = "runs") -> None:
        self.path, self.runs = path, path / kind

    def check_writable(self) -> None:
        """Raise ConfigError where a run could not be written, without leaving anything behind."""
        place = self.path
        if place.exists() and not place.is_dir():
            raise ConfigError(f"the folder of the results, {place}, is not a folder", hint="Set it with --rollout-dir.")
        while not place.exists():
            place = place.parent
        if not os.access(place, os.W_OK | os.X_OK) or not place.is_dir():
            reason = f"no right to write in {place}" if place.is_dir() else f"{place} is not a folder"
            raise ConfigError(
                f"the folder of the results, {self.path}, can't be written: {reason}",
                hint="Set another with --rollout-dir, or the ini key rollout_dir.",
            )

    def open_run(self, run: str) -> RunFolder:
        """The folder of a run, made if it isn't there; raises ConfigError when it can't be made."""
        folder = RunFolder(self.runs / run)
        try:
            folder.results.mkdir(parents=True, exist_ok=True)
            for name, text in ((".gitignore", "*\n"), ("CACHEDIR.TAG", TAG_FILE)):
                if not (self.path / name).exists():
                    (self.path / name).write_text(text, encoding="utf-8")
            if self.runs.name == "runs":
                made = self.path / f".latest-{secrets.token_hex(4)}"
                made.write_text(f"{run}\n", encoding="utf-8")
                made.replace(self.path / "latest")
        except OSError as error:
            raise ConfigError(
                f"the folder of the results, {self.path}, can't be written: {error.strerror}",
                hint="Set another with --rollout-dir, or the ini key rollout_dir.",
            ) from None
        return folder

    def all_runs(self) -> list[RunFolder]:
        """The runs, oldest first; those of one second in the order in which their records were written."""
        try:
            runs = [RunFolder(entry) for entry in self.runs.iterdir() if entry.is_dir()]
        except OSError:
            return []
        return sorted(runs, key=lambda run: (run.name.rpartition("-")[0], run.made(), run.name))

    def latest(self) -> RunFolder | None:
        """The run that was started last, or None."""
        try:
            name = (self.path / "latest").read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            name = ""
        runs = self.all_runs()
        return next((run for run in runs if run.name == name), runs[-1] if runs else None)

    def prune(self, keep: int, but: Container[str] = ()) -> list[str]:
        """Remove all but the newest ``keep`` runs, none in progress or named in ``but``; returns their names."""
        return [run.name for run in self.surplus(keep, but) if remove_tree(str(run.path)) is None]

    def surplus(self, keep: int, but: Container[str] = ()) -> list[RunFolder]:
        """The runs beyond the newest ``keep`` that nobody is making, without those named in ``but``."""
        runs = [run for run in self.all_runs() if _RUN.fullmatch(run.name)]  # other things are somebody else's
        return [run for run in runs[:-keep] if run.name not in but and not run.in_progress()]
