"""Reading evidence: exact messages for whatever is wrong with it, globs, and no blocking."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_rollout.errors import EvidenceError
from pytest_rollout.stage import reader as module
from pytest_rollout.stage.reader import StageReader
from pytest_rollout.stage.view import CopyView

if TYPE_CHECKING:
    from tests.unit.conftest import Lab

SCRIPT = """
ln -s /etc/passwd passwd; ln -s answer.txt same; ln -s folder to-folder
mkdir -p folder/below; printf ok > folder/below/file; printf fine > answer.txt
mkfifo fifo; rm old.txt; rm -r gone; echo f > replaced; rm -r linked; ln -s /etc linked
"""
BASE: dict[str, str | bytes | None] = {
    "old.txt": "old", "kept.txt": "kept", "gone/file": "x", "replaced/file": "secret of the past", "linked/hosts": "x",
}  # fmt: skip


@pytest.fixture
def reader(lab: Lab) -> StageReader:
    """A reader of a stage with something of everything."""
    trial = lab.run("rm -r replaced\n" + SCRIPT, over=BASE)
    assert trial.end == ("completed", 0, None), trial.stderr
    return trial.reader


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[tuple[StageReader, Path]]:
    """A reader of a folder that the test fills itself."""
    for name in ("copy", "base"):
        (tmp_path / name).mkdir()
    reader = StageReader(CopyView(str(tmp_path / "copy"), str(tmp_path / "base")))
    yield reader, tmp_path / "copy"
    reader.close()


def said(call: Callable[[], Any]) -> str:
    """The message of the EvidenceError that the call raises; it is an assertion of the candidate's."""
    with pytest.raises(EvidenceError) as caught:
        call()
    assert isinstance(caught.value, AssertionError)
    return str(caught.value)


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("answer.txt", b"fine"),
        ("./answer.txt", b"fine"),
        ("folder//below/./file", b"ok"),
        ("folder/below/file/", b"ok"),
        ("kept.txt", b"kept"),
    ],
)
def test_reads(reader: StageReader, path: str, content: bytes) -> None:
    assert reader.read(path) == content
    assert reader.exists(path)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("missing", "missing: there is no such file in the stage"),
        ("no/such/file", "no/such/file: there is no such file in the stage"),
        ("answer.txt/below", "answer.txt/below: there is no such file in the stage"),
        ("old.txt", "old.txt: there is no such file in the stage"),
        ("gone/file", "gone/file: there is no such file in the stage"),
        ("replaced/file", "replaced/file: there is no such file in the stage"),
        ("passwd", "passwd: is a symbolic link"),
        ("same", "same: is a symbolic link"),
        ("to-folder/below/file", "to-folder/below/file: to-folder is a symbolic link"),
        ("linked/hosts", "linked/hosts: linked is a symbolic link"),
        ("folder", "folder: is a folder, not a file"),
        ("fifo", "fifo: is a FIFO, not a file"),
        ("/etc/passwd", "'/etc/passwd' is not a path inside the stage: write it relative, without '..'"),
        ("../x", "'../x' is not a path inside the stage: write it relative, without '..'"),
        ("folder/../x", "'folder/../x' is not a path inside the stage: write it relative, without '..'"),
        ("", "'' is not a path inside the stage: write it relative, without '..'"),
        (".", "'.' is not a path inside the stage: write it relative, without '..'"),
        ("a\0b", "'a\\\\x00b' is not a path inside the stage: write it relative, without '..'"),
        ("n" * 300, f"{'n' * 300}: File name too long"),
        ("a\nb", "a\\x0ab: there is no such file in the stage"),
        ("\udcff", "\\xff: there is no such file in the stage"),
        ("\ud800", "'\\ud800' is not a path inside the stage: it can't be a name of a file"),
    ],
)  # fmt: skip
def test_every_problem_is_told(reader: StageReader, within: Callable[..., Any], path: str, message: str) -> None:
    assert within(10, lambda: said(lambda: reader.read(path))) == message


def test_a_file_beyond_the_limit_is_refused(reader: StageReader) -> None:
    assert reader.read("answer.txt", 4) == b"fine"
    assert said(lambda: reader.read("answer.txt", 3)) == "answer.txt is larger than 3 bytes, the most that is read"


def test_a_sparse_terabyte_is_refused_within_the_bound(lab: Lab, within: Callable[..., Any]) -> None:
    reader = lab.run("truncate -s 1T big").reader
    assert within(60, lambda: said(lambda: reader.read("big"))) == (
        "big is larger than 67108864 bytes, the most that is read"
    )


def test_a_socket_is_told(tree: tuple[StageReader, Path]) -> None:
    import socket

    reader, top = tree
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(top / "s"))
        assert said(lambda: reader.read("s")) == "s: is a socket, not a file"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a device")
def test_a_device_is_told(tree: tuple[StageReader, Path]) -> None:
    reader, top = tree
    os.mknod(top / "zero", 0o020666, os.makedev(1, 5))
    assert said(lambda: reader.read("zero")) == "zero: is a device, not a file"


@pytest.mark.parametrize(
    ("path", "there"),
    [
        ("answer.txt", True),
        ("folder", True),
        ("fifo", True),
        ("passwd", True),
        ("linked", True),
        ("linked/hosts", False),
        ("to-folder/below", False),
        ("old.txt", False),
        ("gone", False),
        ("gone/file", False),
        ("replaced", True),
        ("replaced/file", False),
        ("missing", False),
        ("n" * 300, False),
    ],
)
def test_exists(reader: StageReader, path: str, there: bool) -> None:
    assert reader.exists(path) is there


def test_exists_refuses_what_is_no_path_of_the_stage(reader: StageReader) -> None:
    assert said(lambda: reader.exists("../x")).startswith("'../x' is not a path inside the stage")


def test_the_baseline_is_read_beside_the_stage(reader: StageReader) -> None:
    assert reader.read_baseline(b"old.txt", 100) == b"old"
    assert reader.read_baseline(b"kept.txt", 3) is None
    assert reader.read_baseline(b"answer.txt", 100) is None
    assert reader.read_baseline(b"gone", 100) is None


GLOBS: Mapping[str, list[str]] = {
    "*.txt": ["answer.txt", "kept.txt"],
    "*": ["answer.txt", "fifo", "folder", "kept.txt", "linked", "passwd", "replaced", "same", "to-folder"],
    "folder/*": ["folder/below"],
    "folder/**": ["folder/below", "folder/below/file"],
    "**/file": ["folder/below/file"],
    "**/answer.txt": ["answer.txt"],
    "folder/**/file": ["folder/below/file"],
    "f*": ["fifo", "folder"],
    "?ame": ["same"],
    "[ps]a*": ["passwd", "same"],
    "[!a-p]*": ["replaced", "same", "to-folder"],
    "linked/*": [],
    "gone/**": [],
    "replaced/**": [],
    "old*": [],
    "missing": [],
    "": [],
}


@pytest.mark.parametrize("pattern", GLOBS)
def test_glob(reader: StageReader, pattern: str) -> None:
    assert reader.glob(pattern) == GLOBS[pattern]


def test_glob_gives_names_that_can_be_read(lab: Lab) -> None:
    reader = lab.run("printf 1 > \"$(printf 'a\\nb')\"; printf 2 > \"$(printf '\\377')\"; printf 3 > ./-rf").reader
    assert reader.glob("*") == ["-rf", "a\nb", "\udcff"]
    assert [reader.read(name) for name in reader.glob("*")] == [b"3", b"1", b"2"]


def test_glob_is_bounded(tree: tuple[StageReader, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    reader, top = tree
    for number in range(6):
        (top / str(number)).mkdir()
    monkeypatch.setattr(module, "MAX_GLOB_ENTRIES", 6)
    assert len(reader.glob("*")) == 6
    (top / "0/more").touch()
    assert said(lambda: reader.glob("*")) == "the stage holds more than 6 entries, the most that is listed"
    monkeypatch.setattr(module, "MAX_GLOB_ENTRIES", 5)
    assert said(lambda: reader.glob("*")) == "the folder . can't be listed: more than 5 entries"
    monkeypatch.setattr(module, "MAX_GLOB_ENTRIES", 50)
    (top / "1/2/3").mkdir(parents=True)
    monkeypatch.setattr(module, "MAX_DEPTH", 4)
    assert "1/2/3" in reader.glob("**")
    monkeypatch.setattr(module, "MAX_DEPTH", 3)
    assert said(lambda: reader.glob("*")) == "the stage is deeper than 3 folders"


@pytest.mark.parametrize("mode", ["000", "400", "100"])
def test_closed_files_and_folders_are_read(lab: Lab, mode: str) -> None:
    trial = lab.run(f"mkdir c; printf in > c/f; chmod 000 c/f; chmod {mode} c; printf s > s; chmod 000 s", over=BASE)
    assert len(trial.changes) == 3
    assert trial.reader.read("s") == b"s"
    assert trial.reader.read("c/f") == b"in"
    assert "c/f" in trial.reader.glob("**")
