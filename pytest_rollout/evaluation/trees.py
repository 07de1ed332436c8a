"""The clean tree: what a candidate left, rebuilt for judging.

From below: the baseline, the candidate's changes, a layer that undoes those to protected paths, and
the hidden files last. Every evaluation gets a fresh stage of it, in a sandbox without network that
the agent never ran in. Nothing of it is written through a link of the candidate's.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from pytest_rollout.bundle import TRUNCATED
from pytest_rollout.errors import ConfigError, EvaluatorError, EvidenceError, InfraError, recording_error
from pytest_rollout.evaluated import Exec, exec_of
from pytest_rollout.evaluation.interpreter import own_interpreter
from pytest_rollout.executors.cancel import Cancel
from pytest_rollout.executors.capture import Capture
from pytest_rollout.executors.protocol import Command, Executor, Stage
from pytest_rollout.plain import printable
from pytest_rollout.redaction.redactor import FORMS, Redactor
from pytest_rollout.stage.changes import ListingBounds, list_changes
from pytest_rollout.stage.layers import write_restored, write_texts
from pytest_rollout.stage.view import View
from pytest_rollout.task import Task

__all__ = ["Hidden", "Trees"]
__tracebackhide__ = True  # pytest shows the suite's line, not ours

_OUTPUT = 1 << 20
_LONGEST_SOURCE = 4 << 20


class Hidden(msgspec.Struct, frozen=True, kw_only=True):
    """The evaluator's files: the layer that holds them, and the text of each Python file by its path.

    ``given`` says that a test made them, from texts that may be a candidate's.
    """

    layer: str
    sources: dict[str, str]
    given: bool = False


class Trees:
    """The trees of one attempt, made when they are first asked for. ``suite`` is the folder of the test file."""

    def __init__(
        self,
        *,
        executor: Executor,
        stage: Stage,
        view: View,
        task: Task,
        suite: Path,
        redactor: Redactor = FORMS,
    ) -> None:
        self.executor, self.task, self.suite, self.redactor = executor, task, suite, redactor
        self._stage, self._view = stage, view
        self._layers: list[str] = []
        self._restored: tuple[str, ...] | None = None
        self.limited = False  # whether a command ended by the limit of an evaluation
        self._folders: dict[Path, Hidden] = {}
        self._begins: set[bool] = set()

    @property
    def baseline_revision(self) -> str:
        """The revision of the tree that the agent started from."""
        return self._stage.baseline.revision

    # -- the evaluator's files

    def hidden(self, files: object) -> Hidden | None:
        """The files that a test names: a folder beside it, or a mapping of path to text; None is the task's.

        Raises EvaluatorError for what is neither.
        """
        if files is None:
            return None if self.task.hidden is None else self._hidden_folder(Path(self.task.hidden.path))
        if isinstance(files, Mapping):
            if not all(isinstance(text, str) for text in files.values()):
                raise EvaluatorError("files={…}: a mapping for hidden files has a text for every path", asked=True)
            try:
                layer = self.executor.layer(lambda folder: write_texts(files, folder))
            except ConfigError as error:
                raise EvaluatorError(f"files={{…}}: {error}", asked=True) from None
            self._layers.append(layer)
            sources = {path: text for path, text in files.items() if path.endswith(".py")}
            return Hidden(layer=layer, sources=sources, given=True)
        if not isinstance(files, str | os.PathLike):
            raise EvaluatorError(f"files={files!r}: it is neither a folder nor a mapping of path to text", asked=True)
        folder = Path(os.path.normpath(self.suite / os.path.expanduser(files)))
        if not folder.is_dir():
            raise EvaluatorError(f"files={os.fspath(files)!r}: the folder {folder} does not exist", asked=True)
        return self._hidden_folder(folder)

    def _hidden_folder(self, folder: Path) -> Hidden:
        if folder not in self._folders:
            try:
                frozen = Path(self.executor.prepare(folder).path)
                texts = {path.relative_to(frozen).as_posix(): path for path in sorted(frozen.rglob("*.py"))}
                sources = {name: _source(path) for name, path in texts.items() if path.is_file()}
            except (ConfigError, OSError) as error:
                raise EvaluatorError(f"the hidden files of {folder} can't be used: {error}") from None
            self._folders[folder] = Hidden(layer=str(frozen), sources=sources)
        return self._folders[folder]

    def check_unseen(self) -> None:
        """Refuse to run code of a candidate's where it could read the suite; raises EvaluatorError."""
        hidden = [Path(self.task.hidden.path)] if self.task.hidden is not None else []
        for path in (self.suite, *hidden, *([Path(self.task.oracle)] if self.task.oracle is not None else [])):
            shown = own_interpreter().shows(path) if self.executor.info.mounts else None
            if shown is not None:
                raise EvaluatorError(
                    f"{path} lies under {shown}, which an evaluation shows to the candidate's code",
                    hint="It holds the Python that runs pytest. Keep the suite, or that Python, elsewhere.",
                )

    def check_python(self, *, tests: bool) -> None:
        """Where an evaluation gave no answer: see that ours starts where no candidate was; raises EvaluatorError.

        With ``tests`` it has to find pytest too.
        """
        if tests in self._begins:
            return
        interpreter = own_interpreter()
        orders = json.dumps({"paths": interpreter.packages if tests else None})
        with self.of_baseline() as stage:
            ended = self.run(stage, interpreter.argv("begin", orders, mounted=self.executor.info.mounts))
        if ended.termination == "exit_code":
            said = ended.stderr.strip().splitlines()[-1:] or [f"exit code {ended.exit_code}"]
            raise EvaluatorError(
                f"the Python of this session, {sys.executable}, does not start in an evaluation: {printable(said[0])}",
                hint="Run pytest from a virtual environment of its own.",
            )
        self._begins.add(tests)

    # -- stages

    @contextmanager
    def of_candidate(self, hidden: Hidden | None = None) -> Iterator[Stage]:
        """A stage of the clean tree."""
        layers = (*self._restoring(), *((hidden.layer,) if hidden is not None else ()))
        with self._dropping(self.executor.above(self._stage, layers)) as stage:
            yield stage

    @contextmanager
    def of_baseline(self, hidden: Hidden | None = None) -> Iterator[Stage]:
        """A stage of the baseline, with the hidden files."""
        layers = () if hidden is None else (hidden.layer,)
        with self._dropping(self.executor.provision(self._stage.baseline, layers)) as stage:
            yield stage

    @contextmanager
    def of_hidden(self, hidden: Hidden) -> Iterator[Stage]:
        """A stage of nothing but hidden files."""
        with self._dropping(self.executor.provision(self.executor.prepare(None), (hidden.layer,))) as stage:
            yield stage

    @contextmanager
    def _dropping(self, stage: Stage) -> Iterator[Stage]:
        try:
            yield stage
        finally:
            self.executor.drop(stage)

    def _restoring(self) -> tuple[str, ...]:
        """The layer that undoes what was done to protected paths; none where nothing is protected."""
        if self._restored is None:
            self._restored = ()
            if self.task.protect:
                deltas, findings = list_changes(self._view, ListingBounds())
                if findings:
                    self._restored = None
                    raise EvidenceError(f"the protected paths can't be restored: {findings[0].message}")
                layer = self.executor.layer(
                    lambda folder: write_restored(self._view, deltas, self.task.protect, folder)
                )
                self._layers.append(layer)
                self._restored = (layer,)
        return self._restored

    # -- commands

    def run(self, stage: Stage, argv: tuple[str, ...], *, sealed: bool = False, inherit: tuple[int, ...] = ()) -> Exec:
        """Run a command in a stage within the task's limit of an evaluation; raises InfraError."""
        interpreter = own_interpreter()
        assert self.task.limits.evaluation is not None
        command = Command(
            argv=argv,
            env={"PATH": interpreter.path, "LANG": "C.UTF-8", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            binds=interpreter.binds,
            wall=self.task.limits.evaluation,
            inherit=inherit,
            sealed=sealed,
            resources=self.task.limits.resources_of_evaluation(),
        )
        cancel = Cancel()
        try:
            return self.run_command(stage, command, cancel)
        finally:
            cancel.close()

    def run_command(self, stage: Stage, command: Command, cancel: Cancel) -> Exec:
        """Run a command until it ends or is cancelled."""
        try:
            ended = self._captured(stage, command, cancel)
        except OSError as error:
            raise recording_error("what an evaluation prints", tempfile.gettempdir(), error) from error
        self.limited = self.limited or ended.termination in TRUNCATED
        return ended

    def _captured(self, stage: Stage, command: Command, cancel: Cancel) -> Exec:
        with tempfile.TemporaryDirectory(prefix="rollout-evaluation-") as folder:
            streams = [Capture(Path(folder) / name, _OUTPUT, self.redactor) for name in ("stdout", "stderr")]
            try:
                ended = self.executor.run(stage, command, streams[0], streams[1], cancel)
            finally:
                for stream in streams:
                    stream.close()
            texts = [stream.path.read_text(encoding="utf-8", errors="replace") for stream in streams]
        return exec_of(ended, *texts)

    def close(self) -> None:
        """Remove the layers; may be called twice."""
        for layer in self._layers:
            with suppress(OSError, InfraError):
                self.executor.drop_layer(layer)
        self._layers.clear()
        self._restored = None


def _source(path: Path) -> str:
    with path.open(encoding="utf-8", errors="surrogateescape") as file:
        return file.read(_LONGEST_SOURCE)
