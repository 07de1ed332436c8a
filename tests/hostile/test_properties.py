"""Any tree that an agent makes: what the bundle lists, reads, keeps and finds is what the agent saw."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_rollout.evidence import Bundle
from pytest_rollout.plain import shown_path
from pytest_rollout.report.inert import inert_text
from pytest_rollout.report.terminal import sections
from pytest_rollout.stage.collect import CollectBounds, collect
from pytest_rollout.stage.reader import StageReader

if TYPE_CHECKING:
    from pytest_rollout.bundle import BundleRecord
    from pytest_rollout.executors.protocol import Bind
    from tests.unit.conftest import Lab

# Runs as the agent: makes what it is told to, as far as it can, and says what it then sees, in hexadecimal.
AGENT = r"""
import json, os, socket, stat, sys

def make(name, kind, content, mode):
    if kind == "file":
        with open(name, "xb") as file:
            file.write(content)
    elif kind == "sparse":
        with open(name, "xb") as file:
            file.write(content)
            file.truncate(len(content) + 3_000_000)
    elif kind == "dir":
        os.mkdir(name)
    elif kind == "fifo":
        os.mkfifo(name)
    elif kind == "socket":
        top = os.getcwdb()
        os.chdir(os.path.dirname(name) or b".")
        try:
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(os.path.basename(name))
        finally:
            os.chdir(top)
    elif kind == "device":
        os.mknod(name, 0o020666, os.makedev(0, 0))
    elif kind == "link":
        os.symlink(content or b".", name)
    elif kind == "hard":
        os.link(made_files[-1], name, follow_symlinks=False)
    elif kind == "attribute":
        os.setxattr(name, "user.overlay.opaque", b"y")
    elif kind == "delete":
        os.unlink(name)

made_files, folders, modes = [b"base"], [b""], []
for name, kind, where, content, mode in json.load(open(os.environ["ROLLOUT_PROMPT_FILE"])):
    path = os.path.join(folders[where % len(folders)], bytes.fromhex(name))
    try:
        make(path, kind, bytes.fromhex(content), mode)
    except (OSError, ValueError):
        continue
    if kind == "dir":
        folders.append(path)
    elif kind in ("file", "sparse"):
        made_files.append(path)
    if kind in ("file", "sparse", "dir"):
        modes.append((path, mode))
seen = []
for at, *both in os.walk(b"."):
    for name in both[0] + both[1]:
        path = os.path.join(at, name)[2:]
        info = os.lstat(path)
        text = b""
        if stat.S_ISREG(info.st_mode):
            text = open(path, "rb").read()
        elif stat.S_ISLNK(info.st_mode):
            text = os.readlink(path)
        seen.append([path.hex(), stat.S_IFMT(info.st_mode), text.rstrip(b"\0").hex(), len(text)])
for path, mode in reversed(modes):
    if os.path.lexists(path):
        os.chmod(path, mode)
json.dump(seen, sys.stdout)
"""

PARTS = [
    *(
        b"a",
        b"b",
        b"base",
        b"A",
        b" ",
        b"\n",
        b"\r",
        b"\t",
        b"\\",
        b"\\x0a",
        b"\x1b[2J",
        b"\x9b",
        b"\xff",
        b"\xed\xa0\x80",
    ),
    *(
        b"]]>",
        b"::error::x",
        b"##vso[x]",
        b"[[ATTACHMENT|x]]",
        b"-rf",
        b"*",
        b"?",
        b"\xe2\x80\xae",
        b"\xc3\xa9",
        b"\xcc\x81",
    ),
    *(
        b"&amp;",
        b'"',
        b"'",
        b"$(id)",
        b"%s",
        b"{x}",
        b".git",
        b"conftest.py",
        b"n" * 255,
        b"\xf0\x9f\x98\x80",
        b"~",
        b"...",
    ),
]
NAMES = st.one_of(
    st.sampled_from(PARTS),
    st.lists(st.sampled_from(PARTS), min_size=2, max_size=3).map(b"".join),
    st.binary(min_size=1, max_size=40),
).map(lambda name: name.replace(b"\0", b"0").replace(b"/", b"_")[:255])
KINDS = st.sampled_from(
    ["file", "file", "sparse", "dir", "dir", "fifo", "socket", "device", "link", "hard", "attribute", "delete"]
)
CONTENTS = st.one_of(
    st.binary(max_size=60),
    st.sampled_from([b"/etc/passwd", b"..", b"../../..", b"base", b"::error::x\n##vso[y]\r\x1b[2J", b"x\n" * 50]),
)
MODES = st.sampled_from([0o644, 0o755, 0o000, 0o4755, 0o2777, 0o1777, 0o111])
ENTRIES = st.lists(st.tuples(NAMES, KINDS, st.integers(0, 9), CONTENTS, MODES), min_size=1, max_size=60)
SPECIAL = ("fifo", "socket", "device")
_TYPES = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "dir",
    stat.S_IFLNK: "symlink",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",  # made by an agent without isolation that is root
}


def spec(entries: list[tuple[bytes, str, int, bytes, int]]) -> str:
    return json.dumps([[name.hex(), kind, where, content.hex(), mode] for name, kind, where, content, mode in entries])


def check(
    lab: Lab, base: Any, python: tuple[str, tuple[Bind, ...]], record: BundleRecord, folder: Path, entries: list[Any]
) -> None:
    stage = lab.executor.provision(base)
    trial = lab.run([python[0], "-c", AGENT], over=stage, binds=python[1], prompt=spec(entries), output=1 << 24,
                    env={"ROLLOUT_PROMPT_FILE": lab.executor.prompt_file(stage)})  # fmt: skip
    assert trial.end == ("completed", 0, None), trial.stderr
    seen = {bytes.fromhex(path): (_TYPES[kind], text, size) for path, kind, text, size in json.loads(trial.stdout)}
    view = lab.executor.view(stage)
    reader = StageReader(view)
    try:
        found = collect(view, folder, CollectBounds())
        changes = {shown_path(change.path): change for change in found.changes}
        assert len(changes) == len(found.changes)
        # What is listed is what the agent saw.
        there = {path: change for path, change in changes.items() if change.kind != "deleted"}
        assert {path: change.type for path, change in there.items()} == {
            path: kind for path, (kind, _, _) in seen.items() if path != b"base" or b"base" in there
        }
        assert {path for path, change in changes.items() if change.kind == "deleted"} == {b"base"} - set(seen)
        assert sorted(map(os.fsencode, reader.glob("**"))) == sorted(seen)
        # What is read and kept is what the agent read.
        for path, (kind, text, size) in seen.items():
            if kind == "file":
                data = reader.read(os.fsdecode(path))
                assert (len(data), data.rstrip(b"\0").hex()) == (size, text)
                if path in changes:
                    assert changes[path].sha256 == hashlib.sha256(data).hexdigest()
                    assert changes[path].stored
                    assert (Path(os.fsdecode(os.path.join(os.fsencode(folder), path)))).read_bytes() == data
            else:
                with pytest.raises(AssertionError):
                    reader.read(os.fsdecode(path))
        special = {shown_path(f.path or "") for f in found.findings if f.code == "special"}
        assert special == {path for path, (kind, _, _) in seen.items() if kind in SPECIAL}
        assert {f.code for f in found.findings} <= {"special", "hardlink", "setuid"}
        # What is written and shown of it is text that nothing obeys.
        made = msgspec.structs.replace(record, changes=found.changes, findings=found.findings)
        assert msgspec.json.decode(msgspec.json.encode(made), type=type(made)) == made
        shown = "\n".join(text for _, text in sections(folder, made, ()))
        assert inert_text(shown) == shown
        str(Bundle(made, reader, folder).diff).encode()
    finally:
        reader.close()
        assert lab.executor.drop(stage) is None


@pytest.fixture
def folders(tmp_path: Path) -> Callable[[], Path]:
    """A new place for the changes of each example."""
    numbers = iter(range(10**6))
    return lambda: tmp_path / f"changes-{next(numbers)}"


QUIET = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]


@settings(max_examples=10, deadline=None, database=None, suppress_health_check=QUIET)
@given(entries=ENTRIES)
def test_any_tree(
    lab: Lab,
    python: tuple[str, tuple[Bind, ...]],
    make_record: Callable[..., BundleRecord],
    folders: Callable[[], Path],
    entries: list[Any],
) -> None:
    base = lab.executor.prepare(lab.workspace({"base": "base\n"}))
    check(lab, base, python, make_record(), folders(), entries)


@pytest.mark.slow
@settings(max_examples=60, deadline=None, database=None, suppress_health_check=QUIET)
@given(entries=ENTRIES)
def test_any_tree_for_long(
    lab: Lab,
    python: tuple[str, tuple[Bind, ...]],
    make_record: Callable[..., BundleRecord],
    folders: Callable[[], Path],
    entries: list[Any],
) -> None:
    base = lab.executor.prepare(lab.workspace({"base": "base\n"}))
    check(lab, base, python, make_record(), folders(), entries)
