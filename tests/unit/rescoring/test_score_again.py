"""The stage that is made again holds what the first one held, and says where it does not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_rollout.bundle import BundleRecord, Change, Finding
from pytest_rollout.errors import EvidenceError, RecordingError
from pytest_rollout.stage.baseline import frozen
from pytest_rollout.stage.collect import CollectBounds, collect
from pytest_rollout.store.folder import read_record
from tests.unit.rescoring.conftest import bundle_of

if TYPE_CHECKING:
    from pytest_rollout.attempt import Attempt
    from tests.unit.rescoring.conftest import Again

WORKSPACE = {
    "calc.py": "def add(a, b):\n    return a - b\n",
    "gone.txt": "gone\n",
    "left/alone.txt": "alone\n",
    "kept/a.txt": "a\n",
    "kept/b.txt": "b\n",
    "went/x/y.txt": "y\n",
    "anew/old.txt": "old\n",
    "folder-to-link/in.txt": "in\n",
    "file-to-folder": "file\n",
    "program.sh": "#!/bin/sh\necho ran\n",
}
ACTS = r"""
printf 'def add(a, b):\n    return a + b\n' > calc.py
rm gone.txt kept/b.txt; rm -r went
rm -r anew; mkdir anew; echo new > anew/new.txt
rm -r folder-to-link; ln -s /etc folder-to-link
rm file-to-folder; mkdir file-to-folder; echo inside > file-to-folder/inside
mkdir -p empty/deeper; mkdir closed; echo shut > closed/shut; chmod 000 closed/shut; chmod 500 closed
ln -s calc.py link; ln -s ../outside dangling; ln -s link chain
chmod 755 calc.py; chmod 640 left/alone.txt; chmod 700 kept
mkfifo pipe; echo tab > 'a	b'; printf x > "$(printf 'b\377d')"; truncate -s 1M hole
echo said; echo wrong >&2; exit 3
"""


def collected(again: Again, attempt: Attempt, folder: Path) -> tuple[Change, ...]:
    """What the stage of an attempt holds now, as its record would say it."""
    assert attempt._stage is not None
    view = again.lab.view(attempt._stage)
    return collect(view, folder, CollectBounds()).changes


@pytest.mark.parametrize("lab", ["sandbox", "rung2", "rung3", "local"], indirect=True)
def test_what_the_agent_left_is_made_again(again: Again, tmp_path: Path) -> None:
    again.over(WORKSPACE)
    first = again.act(ACTS)
    assert first.record is not None
    record = first.record
    before = bundle_of(first)
    looks = (before.glob("**"), str(before.diff), before.call("calc:add", 2, 3), before.run("cat closed/shut").output)
    assert looks[2] == 5

    second = again.again(again.stored(first))
    assert second.infra is None and second.record is not None
    after = bundle_of(second)
    assert collected(again, second, tmp_path / "again") == record.changes
    assert (
        after.glob("**"),
        str(after.diff),
        after.call("calc:add", 2, 3),
        after.run("cat closed/shut").output,
    ) == looks
    assert (after.exit_code, after.stdout, after.stderr) == (3, "said\n", "wrong\n")
    assert (after.read_text("calc.py"), after.exists("went"), after.exists("link")) == (
        "def add(a, b):\n    return a + b\n",
        False,
        True,
    )
    with pytest.raises(EvidenceError, match=r"^folder-to-link/passwd: folder-to-link is a symbolic link$"):
        after.read_text("folder-to-link/passwd")
    assert second.record.changes == record.changes
    assert (second.record.identity.run, second.record.identity.rollout) == ("second", "second-x-s0")
    assert (second.record.pins, second.record.usage, second.record.times) == (record.pins, record.usage, record.times)
    assert second.source is not None and second.source.run == "first"
    assert not Path(second.folder, "stdout").is_symlink()


def test_a_content_that_was_not_kept_is_no_score(again: Again) -> None:
    again.over({"small.txt": "old\n"})
    bounds = CollectBounds(file=4, hashed=4)
    first = again.act("echo new! > small.txt; head -c 2000000 /dev/zero > big; echo ok > ok", bounds)
    second = again.again(again.stored(first))
    bundle = bundle_of(second)
    assert (bundle.read_text("ok"), bundle.exists("small.txt"), bundle.glob("*")) == (
        "ok\n",
        True,
        ["big", "ok", "small.txt"],
    )
    with pytest.raises(EvidenceError, match=r"^big is larger than 1048576 bytes, the most that is read$"):
        second.reader.read("big", 1 << 20)  # type: ignore[union-attr]
    assert second.infra is None
    why = "its content was not kept (5 bytes: not kept)"
    message = f"the content of small.txt was not kept: {why}; so a test that looks at it can't be scored again"
    with pytest.raises(RecordingError) as raised:
        bundle.read_text("./small.txt")
    assert str(raised.value) == message
    assert second.infra is not None
    assert (second.infra.kind, second.infra.message) == ("recording", message)  # also if the test swallows it
    with pytest.raises(RecordingError, match=r"^no evaluation can be made again over what the agent left: big: "):
        bundle.run("true")


@pytest.mark.parametrize("lab", ["sandbox"], indirect=True)
def test_a_tree_that_is_not_known_whole_is_no_score(again: Again) -> None:
    stored = again.stored(again.act("echo x > x; mkdir a; echo said"))
    cut = Finding(code="changes.entries", message="the listing stopped at 1 entries")
    again.amend(stored, findings=(cut,))
    bundle = bundle_of(again.again(stored))
    assert bundle.stdout == "said\n"
    for look in (lambda: bundle.read_text("x"), lambda: bundle.exists("y"), lambda: bundle.glob("*")):
        with pytest.raises(
            RecordingError, match=r"^what the agent left is not known whole: the listing stopped at 1 e"
        ):
            look()
    with pytest.raises(EvidenceError, match="the changes can't be told"):  # as the first time
        _ = bundle.changes


@pytest.mark.parametrize("lab", ["sandbox"], indirect=True)
def test_stored_content_that_was_altered_is_no_content(again: Again) -> None:
    stored = again.stored(again.act("echo right > answer"))
    assert stored.folder is not None
    (stored.folder / "changes" / "answer").write_text("wrong\n")
    with pytest.raises(RecordingError, match=r"answer can't be read|answer is not what the record says"):
        bundle_of(again.again(stored)).read_text("answer")


@pytest.mark.parametrize("lab", ["sandbox"], indirect=True)
def test_nothing_is_written_through_a_link_or_out_of_the_stage(again: Again, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    again.over({"a": None})
    (Path(again.task.workspace.path) / "out").symlink_to(outside)  # type: ignore[union-attr]
    stored = again.stored(again.act("echo x > x"))
    assert stored.folder is not None
    (stored.folder / "changes" / "out").mkdir()
    x = read(stored.folder).changes[0]
    (stored.folder / "changes" / "out" / "x").write_text("x\n")
    up = Change(path="../up", kind="added", type="dir", mode="0755")
    through = Change(path="out/x", kind="added", type="file", mode="0644", size=2, sha256=x.sha256, stored=True)
    for change in (through, up):
        again.amend(stored, changes=(change,))
        with pytest.raises(
            RecordingError, match=f"^what the agent left is not known whole: {change.path} has no place"
        ):
            bundle_of(again.again(stored)).exists("x")
    assert os.listdir(outside) == []


def read(folder: Path) -> BundleRecord:
    return read_record(folder / "bundle.json", BundleRecord)


@pytest.mark.parametrize("lab", ["sandbox"], indirect=True)
def test_a_redacted_name_is_no_score(again: Again) -> None:
    stored = again.stored(again.act("echo x > x"))
    again.amend(stored, changes=(Change(path="[redacted: TOKEN]", kind="added", type="dir", mode="0755"),))
    infra = again.again(stored).infra
    assert infra is not None
    assert infra.kind == "recording"
    assert infra.message.endswith("is not known, so it can't be scored again: its path is redacted in the record")


@pytest.mark.parametrize("lab", ["sandbox"], indirect=True)
def test_another_workspace_needs_the_baseline_that_the_agent_had(again: Again) -> None:
    again.over({"a.txt": "old\n"})
    first = again.act("echo b > b.txt")
    assert first.record is not None
    wanted = first.record.pins.environment_revision
    stored = again.stored(first)
    assert again.task.workspace is not None
    (Path(again.task.workspace.path) / "a.txt").write_text("new\n")
    second = again.again(stored)
    assert bundle_of(second).read_text("a.txt") == "old\n"
    assert second.record is not None
    now = again.lab.executor.prepare(Path(again.task.workspace.path)).revision
    assert second.record.warnings == (
        f"test_x.py::test_x: scored over the baseline {wanted} that its agent had; the workspace is {now} now",
    )
    infra = again.again(stored, known=lambda revision: None).infra
    assert infra is not None
    assert (infra.kind, infra.forgeable) == ("stage", False)
    assert infra.message.splitlines()[0] == (
        f"the workspace is {now} now, and the agent started from {wanted}, which this machine does not have any more"
    )


@pytest.mark.parametrize("lab", ["sandbox"], indirect=True)
def test_a_baseline_that_was_altered_is_not_the_one(again: Again) -> None:
    again.over({"a.txt": "old\n"})
    first = again.act("true")
    assert first.record is not None
    wanted = first.record.pins.environment_revision or ""
    found = frozen(again.lab.root, wanted)
    assert found is not None and found.revision == wanted
    (Path(found.path) / "a.txt").write_text("altered\n")
    assert frozen(again.lab.root, wanted) is None
    assert [frozen(again.lab.root, name) for name in ("sha256:../../x", "", "sha256:" + "0" * 64)] == [None, None, None]


@pytest.mark.parametrize("lab", ["sandbox"], indirect=True)
def test_todays_protected_paths_and_the_task_of_today(again: Again) -> None:
    again.over({"tests/t.py": "1\n"})
    stored = again.stored(again.act("echo 2 > tests/t.py"))
    again.task = again.task.replace(protect=("tests/**",), threshold=0.5)
    second = again.again(stored)
    assert second.record is not None
    assert [(f.code, f.path) for f in second.record.findings] == [("protected", "tests/t.py")]
    assert second.record.usage.invalid_actions == 1
    assert [warning.partition(":: ")[0][:46] for warning in second.record.warnings] == [
        "test_x.py::test_x: the task is not as its agen"
    ]
    assert bundle_of(second).run("cat tests/t.py").output == "1\n"


@pytest.mark.parametrize(
    ("kind", "scored"),
    [("evaluator", True), ("vacuous", True), ("fixture", True), ("cancelled", False), ("host", False)],
)
@pytest.mark.parametrize("lab", ["local"], indirect=True)
def test_infrastructure_is_scored_now_where_only_the_scoring_was_broken(again: Again, kind: str, scored: bool) -> None:
    stored = again.stored(
        again.act("echo x > x"), outcome="infra", kind=kind, reward=None, forgeable=True, message="as it was"
    )
    second = again.again(stored)
    assert (second.infra is None) is scored
    if second.infra is not None:
        assert (second.infra.kind, second.infra.forgeable) == (kind, True)
        assert second.infra.message == "it measured nothing in first: as it was"


@pytest.mark.parametrize("lab", ["sandbox"], indirect=True)
def test_what_another_rollout_left_is_no_score(again: Again) -> None:
    stored = again.stored(again.act("echo x > x"), sample=1)
    infra = again.again(stored).infra
    assert infra is not None
    assert (infra.kind, "holds what another rollout left, first-x-s0" in infra.message) == ("recording", True)


@pytest.mark.parametrize("lab", ["sandbox"], indirect=True)
def test_a_record_that_no_agent_leaves_is_no_score(again: Again, tmp_path: Path) -> None:
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "key").write_text("private")
    stored = again.stored(again.act("echo x > x"))
    assert stored.folder is not None
    for path, mode in (("a\\x00b", "0644"), ("a", "zzz")):
        again.amend(stored, changes=(Change(path=path, kind="added", type="file", mode=mode, size=0),))
        infra = again.again(stored).infra
        assert infra is not None
        assert infra.kind == "recording"
    again.amend(stored, changes=())
    os.rename(stored.folder / "changes", tmp_path / "changes")
    (stored.folder / "changes").symlink_to(tmp_path / "private")
    assert not list((again.again(stored).folder).rglob("key"))
