"""The verbs that retain or discard, over real runs; what they decide is tried in ``tests/unit/retained``."""

from __future__ import annotations

import hashlib
import json
import os
import pty
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_rollout.bundle import BundleRecord
from pytest_rollout.stage.removal import remove_tree
from pytest_rollout.stage.root import StageRoot
from pytest_rollout.store.folder import read_record
from tests.cli.conftest import Tool

ODD = "##vso[x]"


@pytest.fixture
def space(real: Path, tmp_path: Path) -> Path:
    """A copy of the workspace of the real run."""
    return Path(shutil.copytree(real / "space", tmp_path / "copy"))


@pytest.fixture
def private() -> Iterator[Path]:
    """A folder that the uid of root's agents can reach."""
    folder = Path(tempfile.mkdtemp(prefix="rollout-tests-", dir="/var/tmp"))
    folder.chmod(0o755)
    yield folder
    assert remove_tree(str(folder)) is None


def stage_of(tool: Tool, test: str) -> str | None:
    return read_record(tool.folder(test) / "bundle.json", BundleRecord).stage


def test_diff_for_a_pipe(tool: Tool, stages: str) -> None:
    rollout = tool.of("test_passes[s0]").rollout
    assert tool("diff", rollout, "--stage-root", stages) == (
        0,
        "diff --git a/new/file b/new/file\nnew file mode 100644\n--- /dev/null\n+++ b/new/file\n@@ -0,0 +1,1 @@\n+y\n"
        "diff --git a/old b/old\ndeleted file mode 100644\n--- a/old\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-old\n",
        "",
    )
    code, text, errors = tool("diff", rollout, "--stage-root", "/no/such", "--path", "o*", "--path", "new")
    assert (code, text.count("diff --git")) == (1, 1)
    assert errors == (
        "pytest-rollout: old can't be shown: the baseline is not on this machine any more\n"
        "pytest-rollout: the difference is not whole\n"
    )


def test_diff_counts(tool: Tool, stages: str) -> None:
    rollout = tool.of("test_passes[s0]").rollout
    assert tool.said("diff", rollout, "--stat", "--stage-root", stages) == [
        "added     dir      new  a folder",
        "added     file     new/file  +1 -0",
        "deleted   file     old  +0 -1",
    ]
    code, text, _ = tool("diff", tool.of("test_fails").rollout, "--json", "--stage-root", stages)
    assert code == 1
    assert [json.loads(line) for line in text.splitlines()] == [
        {"path": ODD, "kind": "added", "type": "file", "added": 0, "removed": 0, "missing": None, "note": None},
        {
            "path": "p",
            "kind": "added",
            "type": "fifo",
            "added": None,
            "removed": None,
            "missing": "is a fifo",
            "note": None,
        },
    ]


def test_diff_on_a_terminal_is_inert(tool: Tool) -> None:
    folder = tool.folder("test_passes[s0]")
    text = "\x1b[31m::error::x\n::error::y\n"
    (folder / "changes/new/file").write_text(text)
    record = json.loads((folder / "bundle.json").read_bytes())
    for change in record["changes"]:
        if change["path"] == "new/file":
            change.update(size=len(text), sha256=hashlib.sha256(text.encode()).hexdigest())
    (folder / "bundle.json").write_text(json.dumps(record))
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "pytest_rollout.cli", "--dir", str(tool.results.path), "diff"]
    words += [tool.of("test_passes[s0]").rollout, "--path", "new/**"]
    shown = {}
    for raw in ((), ("--raw",)):
        with subprocess.Popen([*words, *raw], stdout=theirs, stdin=subprocess.DEVNULL) as process:
            assert process.wait() == 0
        shown[raw] = os.read(ours, 1 << 16).replace(b"\r\n", b"\n").decode()
    os.close(ours)
    os.close(theirs)
    assert "\n+\\x1b[31m::error::x\n+::error::y\n" in shown[()]
    assert f"\n+{text[:5]}" in shown["--raw",]


def test_apply(tool: Tool, space: Path) -> None:
    rollout = tool.of("test_passes[s0]").rollout
    lines = ["added     dir      new", "added     file     new/file", "deleted   file     old"]
    code, text, errors = tool("apply", rollout, "--to", str(space), "--dry-run")
    assert (code, text.splitlines(), errors) == (0, lines, "pytest-rollout: nothing was written: --dry-run\n")
    assert os.listdir(space) == ["old"]
    assert tool.said("apply", rollout, "--to", str(space)) == lines
    assert (os.listdir(space), (space / "new/file").read_text()) == (["new"], "y\n")
    assert tool.said("apply", rollout, "--to", str(space)) == ["3 paths there already"]
    (space / "new/file").write_text("mine\n")
    code, text, errors = tool("apply", rollout, "--to", str(space), "--path", "new/*")
    assert (code, text) == (1, "")
    assert errors == (
        f"pytest-rollout: nothing was written to {space}: 1 conflict\n"
        "  new/file: expected nothing, found a file of 5 bytes\n"
    )


def test_mistakes(tool: Tool, tmp_path: Path) -> None:
    rollout = tool.of("test_passes[s0]").rollout
    assert tool.refused("apply", rollout, "--to", f"{tmp_path}/none") == (
        f"--to {tmp_path}/none: the folder can't be opened: No such file or directory"
    )
    assert tool.refused("diff", rollout, "--path", "x*") == f"--path 'x*' fits no change of {rollout}"
    code, _, errors = tool("prune", "--older-than", "never")
    assert (code, errors.splitlines()[-1].partition("error: ")[2]) == (
        2,
        "argument --older-than: 'never' is not a duration: write seconds above 0, or a text like '90s', '5m', '1h'",
    )
    assert "'0' is not a number of runs: at least 1" in tool("prune", "--keep-runs", "0")[2]


def test_drop(tool: Tool, stages: str) -> None:
    stage = stage_of(tool, "test_fails")
    assert stage is not None
    aside = f"{stage}.aside"
    shutil.copytree(stage, aside, symlinks=True, ignore=lambda at, names: {"p", "work"} & set(names))
    selectors = [tool.of("test_fails").rollout, tool.of("test_passes[s0]").rollout]
    try:
        assert tool.refused("drop", selectors[0], "nobody").startswith("no rollout begins with 'nobody'")
        assert Path(stage).is_dir()
        first, second = tool.said("drop", *selectors)
        assert first.startswith(f"{selectors[0]}: ")
        assert first.endswith(" freed")
        assert second == f"{selectors[1]}: no stage was kept"
        assert not Path(stage).exists()
        assert not (Path(stages) / "keepers" / Path(stage).name).exists()
    finally:
        os.rename(aside, stage)  # other tests want it
    assert stage_of(tool, "test_fails") is None
    events = [json.loads(line) for line in (tool.folder("test_fails") / "journal.jsonl").read_bytes().splitlines()]
    assert [event["position"] for event in events] == list(range(len(events)))
    assert (events[-2]["event"], events[-1]["event"]) == ("kept", "dropped")
    assert (tool.folder("test_fails") / "changes").is_dir()
    assert tool.said("drop", selectors[0]) == [f"{selectors[0]}: no stage was kept"]


@pytest.mark.parametrize("place", ["kept/0123456789abcdef", "leases/0123456789abcdef", "kept/../0123456789abcdef"])
def test_drop_removes_nothing_but_stages(tool: Tool, tmp_path: Path, place: str) -> None:
    victim = tmp_path / place
    (tmp_path / "kept").mkdir()
    victim.mkdir(parents=True)
    folder = tool.folder("test_fails")
    record = json.loads((folder / "bundle.json").read_bytes())
    (folder / "bundle.json").write_text(json.dumps({**record, "stage": str(victim)}))
    said = tool.refused("drop", tool.of("test_fails").rollout)
    assert said == f"{folder}/bundle.json names {victim}, which is no kept stage of this user: nothing was removed"
    assert victim.is_dir()


def test_prune(tool: Tool, private: Path) -> None:
    root = StageRoot(private / "root")
    stage = root.keep(root.new_stage("u"))
    root.close()
    for test in ("test_fails", "test_spawn"):  # the stages of the real run stay
        place = tool.folder(test) / "bundle.json"
        named = stage if test == "test_fails" else None
        place.write_text(json.dumps({**json.loads(place.read_bytes()), "stage": named}))
    first = tool.run
    second = tool.results.open_run("2099-01-01T00-00-00Z-00000002")
    words = ["prune", "--stage-root", str(root.path), "--keep-runs", "1"]
    for dry in (["--dry-run"], []):
        lines = tool.said(*words, *dry)
        assert [(line[:24].strip(), line.split()[-1]) for line in lines[:-1]] == [
            ("stage of an old run", stage),
            ("run", str(first.path)),
        ]
        assert lines[-1].endswith(" would be freed" if dry else " freed")
        assert (Path(stage).exists(), first.path.exists()) == (bool(dry), bool(dry))
    assert tool.said(*words) == ["0 bytes freed"]
    assert second.path.is_dir()
