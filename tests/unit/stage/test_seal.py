"""A prepared tree that is not what it was made as is noticed, told and made again; one that is, is not read again."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_rollout.stage import baseline as module
from pytest_rollout.stage import seal as sealing
from pytest_rollout.stage.baseline import freeze
from pytest_rollout.stage.fingerprint import fingerprint, state
from pytest_rollout.stage.root import StageRoot
from pytest_rollout.stage.seal import intact, seal


@pytest.fixture
def source(tmp_path: Path) -> Path:
    top = tmp_path / "source"
    (top / "d").mkdir(parents=True)
    (top / "d/a").write_text("alpha\n")
    (top / "b").write_text("beta\n")
    (top / "link").symlink_to("b")
    return top


def later() -> int:
    return time.time_ns() + 60 * 10**9


def again(root: StageRoot) -> StageRoot:
    """Another process of this machine."""
    root.close()
    return StageRoot(root.path)


def same_stats(place: Path) -> None:
    """Another content under the same size and time of change: only the change time tells."""
    times = place.stat()
    place.write_text("".join(reversed(place.read_text())))
    os.utime(place, ns=(times.st_atime_ns, times.st_mtime_ns))


def other_target(place: Path) -> None:
    place.unlink()
    place.symlink_to("c")


ALTERATIONS: dict[str, Callable[[Path], Any]] = {
    "content": lambda top: (top / "b").write_text("other\n"),
    "content under the same stats": lambda top: same_stats(top / "b"),
    "mode": lambda top: (top / "b").chmod(0o666),
    "mode of a folder": lambda top: (top / "d").chmod(0o777),
    "mode of the top": lambda top: top.chmod(0o777),
    "a file more": lambda top: (top / "d/new").touch(),
    "a file more in the top": lambda top: (top / "new").touch(),
    "a file less": lambda top: (top / "d/a").unlink(),
    "a file that fingerprints skip": lambda top: (top / "__pycache__").mkdir(),
    "another target": lambda top: other_target(top / "link"),
    "a fifo": lambda top: os.mkfifo(top / "p"),
    "a folder less": lambda top: shutil.rmtree(top / "d"),
}
if os.geteuid() == 0:
    ALTERATIONS["owner"] = lambda top: os.chown(top / "b", 1, 1)


@pytest.mark.parametrize("alter", ALTERATIONS.values(), ids=ALTERATIONS)
@pytest.mark.parametrize("sealed", ["settled", "just now", "never"])
def test_an_altered_baseline_is_made_again(
    stage_root: StageRoot, source: Path, alter: Callable[[Path], Any], sealed: str
) -> None:
    frozen = freeze(stage_root, source)
    top, place = Path(frozen.path), stage_root.seals / Path(frozen.path).name
    if sealed == "settled":
        seal(top, place, later)
    elif sealed == "never":
        place.unlink()  # its builder was killed between the last two steps
    alter(top)
    root = again(stage_root)
    found = freeze(root, source)
    said = f"the baseline {frozen.revision[:19]}… had been altered on this machine, and was made again"
    assert (found.path, found.revision, found.note) == (frozen.path, frozen.revision, said)
    assert module._is_right(root, top, frozen.revision)
    assert [path.name for path in root.baselines.iterdir()] == [top.name]
    root = again(root)
    assert freeze(root, source) == frozen
    root.close()


def watched(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders whose content is read from here on."""
    read: list[Path] = []

    def reading(folder: Path) -> str:
        read.append(folder)
        return fingerprint(folder)

    monkeypatch.setattr(module, "fingerprint", reading)
    return read


def test_a_settled_seal_saves_the_reading(stage_root: StageRoot, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frozen = freeze(stage_root, source)
    top, place = Path(frozen.path), stage_root.seals / Path(frozen.path).name
    read = watched(monkeypatch)
    seal(top, place, lambda: state(top).newest)  # within a tick: it proves nothing
    root = again(stage_root)
    freeze(root, source)
    assert top in read
    read.clear()
    seal(top, place, later)
    root = again(root)
    freeze(root, source)
    freeze(root, source)
    assert top not in read
    os.utime(top / "b")  # touched, and still right: sealed again
    root = again(root)
    assert freeze(root, source).note == ""
    assert top in read
    root.close()


def test_a_large_tree_waits_for_the_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "_LARGE", 3)
    tree = tmp_path / "tree"
    tree.mkdir()
    for number in range(3):
        (tree / str(number)).touch()
    seal(tree, tmp_path / "seal")
    assert intact(tree, tmp_path / "seal", lambda: pytest.fail("it was read"))


def test_a_broken_seal_proves_nothing(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "seal").write_text("{")
    assert not intact(tmp_path / "tree", tmp_path / "seal", lambda: False)
    assert (tmp_path / "seal").read_text() == "{"
    assert intact(tmp_path / "tree", tmp_path / "seal", lambda: True)


def test_sessions_share_what_they_know_of_a_large_folder(
    stage_root: StageRoot, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LARGE", 3)
    frozen = freeze(stage_root, source, later)
    (known,) = (stage_root.path / "known").iterdir()
    read = watched(monkeypatch)
    module._known.clear()
    assert freeze(stage_root, source, later) == frozen
    assert read == []
    same_stats(source / "b")
    module._known.clear()
    other = freeze(stage_root, source, later)
    assert (source in read, other.revision) == (True, fingerprint(source))
    known.write_text('{"format":0}')
    module._known.clear()
    assert freeze(stage_root, source, later) == other
