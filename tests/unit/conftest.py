"""Shared by the unit tests: private folders, stage roots, executors and a way to try commands in a stage."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import HealthCheck, settings

from pytest_rollout.agents.paths import resolve_paths
from pytest_rollout.bundle import (
    BundleRecord,
    Captured,
    Change,
    Control,
    Ended,
    Finding,
    Identity,
    Pins,
    Times,
    Usage,
)
from pytest_rollout.executors.bwrap import Bwrap, find_bwrap
from pytest_rollout.executors.cancel import Cancel
from pytest_rollout.executors.capture import Capture
from pytest_rollout.executors.ladder import make
from pytest_rollout.executors.local import LocalExecutor
from pytest_rollout.executors.protocol import Bind, Command, Executor, Stage
from pytest_rollout.executors.sandbox import SandboxExecutor
from pytest_rollout.stage.changes import Delta, ListingBounds, list_changes
from pytest_rollout.stage.reader import StageReader
from pytest_rollout.stage.removal import remove_tree
from pytest_rollout.stage.root import StageRoot, default_root
from pytest_rollout.stage.tree import show
from pytest_rollout.stage.view import View
from pytest_rollout.store.records import Result
from pytest_rollout.task import Network

T = TypeVar("T")
PATH = "/usr/local/bin:/usr/bin:/bin"

# Processes take their time on a busy machine, and a function's fixtures are shared by its examples on purpose.
settings.register_profile(
    "unit", database=None, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
settings.load_profile("unit")


def _within(seconds: float, function: Callable[[], T]) -> T:
    """What ``function`` gives; fails where it has not ended after ``seconds``."""
    found: list[T] = []
    failed: list[BaseException] = []

    def call() -> None:
        try:
            found.append(function())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        pytest.fail(f"{function} has not ended after {seconds} s")
    if failed:
        raise failed[0]
    return found[0]


@pytest.fixture(scope="session")
def within() -> Callable[[float, Callable[[], Any]], Any]:
    """Calls a function that has to end within some seconds."""
    return _within


def _dig(top: Path, levels: int) -> None:
    here = os.open(top, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)


@pytest.fixture(scope="session")
def dig() -> Callable[[Path, int], None]:
    """Makes folders named ``d``, one in the other, deeper than any path can be written."""
    return _dig


class Trial:
    """What one command left: how it ended, what it printed, and its stage."""

    def __init__(self, lab: Lab, stage: Stage, ended: Ended, stdout: Path, stderr: Path) -> None:
        self.lab, self.stage, self.ended = lab, stage, ended
        self.stdout, self.stderr = stdout.read_bytes(), stderr.read_bytes()

    @property
    def text(self) -> str:
        """Standard output as text."""
        return self.stdout.decode("utf-8", "replace")

    @property
    def end(self) -> tuple[str, int | None, int | None]:
        """Termination, exit code and signal."""
        return self.ended.termination, self.ended.exit_code, self.ended.signal

    @property
    def reader(self) -> StageReader:
        """A reader of the stage."""
        return StageReader(self.lab.view(self.stage))

    def deltas(self, bounds: ListingBounds | None = None) -> tuple[list[Delta], list[Finding]]:
        """What the listing of changes gives."""
        return list_changes(self.lab.view(self.stage), bounds or ListingBounds())

    @property
    def changes(self) -> dict[str, str]:
        """Kind and type by path: ``{"a.txt": "added file"}``; nothing was out of bounds."""
        deltas, findings = self.deltas()
        assert findings == []
        shown = [(show(delta.path), f"{delta.kind} {delta.type()}") for delta in deltas]
        assert len(dict(shown)) == len(shown), f"a path twice: {shown}"
        return dict(shown)


class Lab:
    """An executor on a root of its own, and what is tried in it."""

    def __init__(self, executor: Executor, root: StageRoot, folder: Path) -> None:
        self.executor, self.root, self.folder = executor, root, folder
        self._count = 0
        self._stages: list[Stage] = []
        self._views: list[View] = []

    def workspace(self, files: Mapping[str, str | bytes | None]) -> Path:
        """A new folder with these files; None is a folder."""
        self._count += 1
        top = self.folder / f"workspace-{self._count}"
        top.mkdir()
        for name, content in files.items():
            place = top / name
            place.parent.mkdir(parents=True, exist_ok=True)
            if content is None:
                place.mkdir(exist_ok=True)
            else:
                place.write_bytes(content.encode() if isinstance(content, str) else content)
        return top

    def stage(self, files: Mapping[str, str | bytes | None] | Path | None = None) -> Stage:
        """A fresh stage over a workspace."""
        source = files if isinstance(files, Path) else None if files is None else self.workspace(files)
        return self.owned(self.executor.provision(self.executor.prepare(source)))

    def above(self, stage: Stage, *layers: str) -> Stage:
        """A fresh stage over what another one holds."""
        return self.owned(self.executor.above(stage, layers))

    def owned(self, stage: Stage) -> Stage:
        """The same stage, dropped at the end."""
        self._stages.append(stage)
        return stage

    def layer(self, files: Mapping[str, str | None]) -> str:
        """A layer with these files; None is a whiteout, a text that begins with ``->`` a link."""

        def write(folder: str) -> None:
            for name, content in files.items():
                place = Path(folder, name)
                place.parent.mkdir(parents=True, exist_ok=True)
                if content is None:
                    os.mknod(place, stat.S_IFCHR, os.makedev(0, 0))
                elif content.startswith("->"):
                    place.symlink_to(content.removeprefix("->"))
                else:
                    place.write_text(content)

        return self.executor.layer(write)

    def run(
        self,
        command: str | Sequence[str],
        *,
        over: Mapping[str, str | bytes | None] | Path | Stage | None = None,
        env: Mapping[str, str] | None = None,
        binds: tuple[Bind, ...] = (),
        network: Network = "none",
        wall: float = 30.0,
        output: int = 1 << 20,
        prompt: str = "",
        cancel: Cancel | None = None,
        inherit: tuple[int, ...] = (),
        sealed: bool = False,
    ) -> Trial:
        """Run a command (a text under ``sh -c``) in a stage, a fresh one unless ``over`` is one."""
        stage = over if isinstance(over, Stage) else self.stage(over)
        self._count += 1
        paths = [self.folder / f"{self._count}-{name}" for name in ("stdout", "stderr")]
        streams = [Capture(path, output) for path in paths]
        asked = Command(
            argv=("sh", "-c", command) if isinstance(command, str) else tuple(command),
            env={"PATH": PATH, **(env or {})},
            binds=binds,
            network=network,
            wall=wall,
            prompt=prompt,
            inherit=inherit,
            sealed=sealed,
        )
        token = cancel or Cancel()
        try:
            ended = self.executor.run(stage, asked, streams[0], streams[1], token)
        finally:
            for stream in streams:
                stream.close()
            if cancel is None:
                token.close()
        return Trial(self, stage, ended, *paths)

    def view(self, stage: Stage) -> View:
        """A view of a stage, closed at the end of the test."""
        view = self.executor.view(stage)
        self._views.append(view)
        return view

    def close(self) -> None:
        """Drop every stage; nothing of it is left."""
        for view in self._views:
            view.close()
        for stage in self._stages:
            assert self.executor.drop(stage) is None
            assert not os.path.lexists(stage.path)
        self.root.close()


@pytest.fixture(scope="session")
def session_folder() -> Iterator[Path]:
    """A folder that the uid of root's agents can reach, for the whole session."""
    yield from _private_folder()


@pytest.fixture
def private_folder() -> Iterator[Path]:
    """A folder of this test's own that the uid of root's agents can reach (``tmp_path`` is not)."""
    yield from _private_folder()


def _private_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="rollout-unit-", dir=default_root().parent))
    folder.chmod(0o755)
    yield folder
    assert remove_tree(str(folder)) is None


@pytest.fixture(scope="session")
def bwrap(session_folder: Path) -> Bwrap:
    """The bubblewrap of this machine; without one these tests fail, as the plugin would."""
    return find_bwrap(session_folder / "bin", dropped=os.geteuid() == 0)


@pytest.fixture
def stage_root(private_folder: Path) -> Iterator[StageRoot]:
    """A stage root of this test's own."""
    root = StageRoot(private_folder / "root")
    yield root
    root.close()


@pytest.fixture
def sandbox(private_folder: Path, bwrap: Bwrap, tmp_path: Path) -> Iterator[Lab]:
    """The executor ``sandbox``."""
    root = StageRoot(private_folder / "sandbox")
    lab = Lab(SandboxExecutor(root, bwrap), root, tmp_path)
    yield lab
    lab.close()


@pytest.fixture
def rung2(private_folder: Path, tmp_path: Path) -> Iterator[Lab]:
    """Rung 2, with the oldest bubblewrap of this machine: the system's where there is one."""
    yield from _of_rung(2, private_folder, tmp_path)


@pytest.fixture
def rung3(private_folder: Path, tmp_path: Path) -> Iterator[Lab]:
    """Rung 3."""
    yield from _of_rung(3, private_folder, tmp_path)


@pytest.fixture
def rung4(private_folder: Path, tmp_path: Path) -> Iterator[Lab]:
    """Rung 4."""
    yield from _of_rung(4, private_folder, tmp_path)


def _of_rung(rung: int, private_folder: Path, tmp_path: Path) -> Iterator[Lab]:
    folder = tmp_path / f"rung{rung}"
    folder.mkdir()
    name = "rung, 2:" if rung == 2 else f"rung{rung}"  # a name that means something in an overlay's options
    root = StageRoot(private_folder / name)
    lab = Lab(make(root, rung), root, folder)
    yield lab
    lab.close()


@pytest.fixture
def local(private_folder: Path, tmp_path: Path) -> Iterator[Lab]:
    """The executor ``local``."""
    (tmp_path / "local").mkdir()
    root = StageRoot(private_folder / "local")
    lab = Lab(LocalExecutor(root), root, tmp_path / "local")
    yield lab
    lab.close()


@pytest.fixture(scope="session")
def python() -> tuple[str, tuple[Bind, ...]]:
    """This Python, for an agent: its program, and what has to be bound for it."""
    inside = sys.prefix == sys.base_prefix == "/usr"
    return sys.executable, () if inside else resolve_paths([sys.prefix], Path("/"), "these tests")


@pytest.fixture(params=["sandbox", "local"])
def lab(request: pytest.FixtureRequest) -> Any:
    """Each executor in its turn."""
    return request.getfixturevalue(request.param)


# Handmade records

ROLLOUT = "3f9ac01d-test-add-x-5be1a09c44-s1"


@pytest.fixture
def make_record() -> Callable[..., BundleRecord]:
    """A whole bundle record in which every field says something, with some fields changed."""

    def make(**changes: Any) -> BundleRecord:
        record = BundleRecord(
            identity=Identity(
                run="2026-11-29T22-08-01Z-3f9ac01d",
                task="test_calc.py::test_add[x]",
                sample=1,
                attempt=2,
                rollout=ROLLOUT,
                node="test_calc.py::test_add[x-s1]",
            ),
            pins=Pins(
                task_digest="sha256:00",
                agent="good",
                seed=8,
                network="none",
                executor="sandbox",
                plugin_version="0.1.0",
                environment_revision="sha256:11",
                evaluator_revision="sha256:22",
                extra={"model": "m"},
                limits={"wall": 600.0, "output": 1024.0},
            ),
            exit_code=3,
            signal=None,
            termination="exit_code",
            truncated=False,
            trusted=True,
            rung=1,
            times=Times(started="2026-11-29T22:08:02+00:00", ended="2026-11-29T22:08:04+00:00", duration=1.5),
            usage=Usage(wall=1.5, output_bytes=7, invalid_actions=2),
            controls={"network": Control(asked="none", observed="none"), "memory": Control()},
            tree_dead=True,
            changes=(
                Change(path="answer.txt", kind="added", type="file", mode="0644", size=4, sha256="ab", stored=True),
                Change(path="old.txt", kind="deleted", type="file"),
            ),
            stdout=Captured(file="stdout", kept=7, dropped=3),
            stderr=Captured(file="stderr"),
            audit="sound",
            findings=(Finding(code="link", message="a hard link", path="answer.txt"),),
            warnings=("teardown failed",),
        )
        return msgspec.structs.replace(record, **changes)

    return make


@pytest.fixture
def make_result() -> Callable[..., Result]:
    """A line of results: a passed rollout, with some fields changed."""

    def make(rollout: str = ROLLOUT, **changes: Any) -> Result:
        result = Result(
            rollout=rollout,
            task="test_calc.py::test_add[x]",
            sample=1,
            attempt=1,
            node="test_calc.py::test_add[x-s1]",
            agent="good",
            outcome="passed",
            reward=1.0,
            checks_reward=1.0,
            termination="completed",
            trusted=True,
            duration=1.5,
            folder="rollouts/test-add-x-5be1a09c44/s1/a1",
            evaluator_revision="sha256:22",
            audit="sound",
            time="2026-11-29T22:08:04+00:00",
        )
        return msgspec.structs.replace(result, **changes)

    return make
