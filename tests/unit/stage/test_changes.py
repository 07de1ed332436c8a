"""What an attempt changed, from real overlays and from copies: every case by hand, both ways alike."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from pytest_rollout.stage.changes import ListingBounds
from pytest_rollout.stage.tree import show

if TYPE_CHECKING:
    from pytest_rollout.executors.protocol import Bind
    from tests.unit.conftest import Lab

BASE: dict[str, str | bytes | None] = {
    "a.txt": "alpha\n",
    "b.txt": "beta\n",
    "d/x": "1\n",
    "d/y": "2\n",
    "d/sub/deep": "3\n",
    "d/sub/more/low": "4\n",
    "empty": None,
}
EVERYTHING_OF_D = {
    "d/sub": "deleted dir",
    "d/sub/deep": "deleted file",
    "d/sub/more": "deleted dir",
    "d/sub/more/low": "deleted file",
    "d/x": "deleted file",
    "d/y": "deleted file",
}

CASES: dict[str, tuple[str, dict[str, str]]] = {
    "nothing": ("true", {}),
    "read only": ("cat a.txt d/x > /dev/null; ls -R > /dev/null", {}),
    "added": ("echo n > n; mkdir -p e/f; echo m > e/f/m", {
        "e": "added dir", "e/f": "added dir", "e/f/m": "added file", "n": "added file",
    }),
    "modified": ("echo more >> a.txt", {"a.txt": "modified file"}),
    "same size, other content": ("echo ALPHA > a.txt", {"a.txt": "modified file"}),
    "deleted": ("rm b.txt d/x", {"b.txt": "deleted file", "d/x": "deleted file"}),
    "touched only": ("touch a.txt d d/x; touch -d 2001-01-01 b.txt", {}),
    "written with equal content": ("echo alpha > a.txt; cp d/x t; cat t > d/x; rm t", {}),
    "replaced by an equal file": ("cp a.txt t; rm a.txt; mv t a.txt", {}),
    "mode only": ("chmod 700 a.txt; chmod 777 d", {"a.txt": "modified file", "d": "modified dir"}),
    "mode and back": ("chmod 700 a.txt; chmod 644 a.txt; chmod 700 d; chmod 755 d", {}),
    "renamed file": ("mv a.txt c.txt", {"a.txt": "deleted file", "c.txt": "added file"}),
    "renamed over another": ("mv a.txt b.txt", {"a.txt": "deleted file", "b.txt": "modified file"}),
    "renamed folder": ("mv d z", {
        "d": "deleted dir", **EVERYTHING_OF_D,
        "z": "added dir", "z/sub": "added dir", "z/sub/deep": "added file", "z/sub/more": "added dir",
        "z/sub/more/low": "added file", "z/x": "added file", "z/y": "added file",
    }),
    "renamed and back": ("mv d z; mv z d", {}),
    "folder deleted": ("rm -r d", {"d": "deleted dir", **EVERYTHING_OF_D}),
    "empty folder deleted": ("rmdir empty", {"empty": "deleted dir"}),
    "folder recreated empty": ("rm -r d; mkdir d", EVERYTHING_OF_D),
    "folder recreated with an old name": ("rm -r d; mkdir d; echo new > d/x", {
        **EVERYTHING_OF_D, "d/x": "modified file",
    }),
    "folder recreated with equal content": (
        "cp -r d $TMPDIR/d; rm -r d; mkdir d; cp -r $TMPDIR/d/. d/", {},
    ),
    "folders recreated, the lower one empty": ("rm -r d; mkdir -p d/sub", {
        key: kind for key, kind in EVERYTHING_OF_D.items() if key != "d/sub"
    }),
    "folders recreated, one file back": ("rm -r d; mkdir -p d/sub/more; echo 4 > d/sub/more/low", {
        "d/sub/deep": "deleted file", "d/x": "deleted file", "d/y": "deleted file",
    }),
    "folder recreated, a file deleted again": ("rm -r d; mkdir d; echo 1 > d/x; rm d/x", EVERYTHING_OF_D),
    "file replaced by a folder": ("rm a.txt; mkdir a.txt; echo i > a.txt/in", {
        "a.txt": "modified dir", "a.txt/in": "added file",
    }),
    "folder replaced by a file": ("rm -r d; echo f > d", {"d": "modified file", **EVERYTHING_OF_D}),
    "folder replaced by a link": ("rm -r d; ln -s /etc d", {"d": "modified symlink", **EVERYTHING_OF_D}),
    "folder replaced by a link to its equal": ("mv d real; ln -s real d", {
        "d": "modified symlink", **EVERYTHING_OF_D,
        "real": "added dir", "real/sub": "added dir", "real/sub/deep": "added file", "real/sub/more": "added dir",
        "real/sub/more/low": "added file", "real/x": "added file", "real/y": "added file",
    }),
    "file replaced by a link": ("rm a.txt; ln -s b.txt a.txt", {"a.txt": "modified symlink"}),
    "lower folder replaced, its parent kept": ("rm -r d/sub; echo f > d/sub", {
        "d/sub": "modified file", "d/sub/deep": "deleted file", "d/sub/more": "deleted dir",
        "d/sub/more/low": "deleted file",
    }),
    "links and special files": ("ln -s /etc/passwd l; ln -s nowhere m; mkfifo p", {
        "l": "added symlink", "m": "added symlink", "p": "added fifo",
    }),
    "hard links": ("ln a.txt h; ln h d/h2", {"d/h2": "added file", "h": "added file"}),
    "hard link written": ("ln a.txt h; echo x >> h", {"a.txt": "modified file", "h": "added file"}),
    "closed files and folders": (
        "echo s > s; chmod 000 s; mkdir c; echo i > c/i; chmod 000 c; mkdir r; echo j > r/j; chmod 400 r",
        {"c": "added dir", "c/i": "added file", "r": "added dir", "r/j": "added file", "s": "added file"},
    ),
    "closed file of the baseline": ("chmod 000 a.txt; chmod 000 d", {"a.txt": "modified file", "d": "modified dir"}),
    "setuid": ("cp /bin/true t; chmod 4755 t; mkdir g; chmod 2755 g", {"g": "added dir", "t": "added file"}),
    "odd names": (
        "printf 1 > \"$(printf 'a\\nb')\"; printf 2 > \"$(printf '\\377\\376')\"; printf 3 > ./-rf; printf 4 > ' '",
        {" ": "added file", "-rf": "added file", "a\\x0ab": "added file", "\\xff\\xfe": "added file"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_case(lab: Lab, name: str) -> None:
    script, changes = CASES[name]
    trial = lab.run(script, over=BASE)
    assert trial.end == ("completed", 0, None), trial.stderr
    assert trial.changes == changes


def test_marks_of_the_overlay_can_not_be_forged(sandbox: Lab, python: tuple[str, tuple[Bind, ...]]) -> None:
    script = """
import os
os.mkdir("f")
said = []
for folder in ("d", "f"):
    for name in ("user.overlay.opaque", "trusted.overlay.opaque"):
        try:
            os.setxattr(folder, name, b"y")
        except OSError as error:
            said.append(error.errno)
try:
    os.mknod("w", 0o600 | 0o020000, 0)
except OSError as error:
    said.append(error.errno)
print(len(said), sorted(os.listdir("d")))
"""
    trial = sandbox.run([python[0], "-c", script], binds=python[1], over=BASE)
    assert trial.changes == {"f": "added dir"}
    assert trial.end == ("completed", 0, None), trial.stderr
    assert int(trial.text.split()[0]) >= 3
    assert trial.text.split(" ", 1)[1] == "['sub', 'x', 'y']\n"
    assert trial.reader.glob("d/*") == ["d/sub", "d/x", "d/y"]


def test_the_listing_is_in_the_order_of_paths(lab: Lab) -> None:
    trial = lab.run("mkdir z; touch z/a z.b a; rm -r d", over=BASE)
    paths = [delta.path for delta in trial.deltas()[0]]
    assert paths == sorted(paths)
    assert len(paths) == len(EVERYTHING_OF_D) + 5


def test_changes_of_a_second_command_are_against_the_baseline(lab: Lab) -> None:
    first = lab.run("echo x > n; rm -r d", over=BASE)
    assert first.changes == {"d": "deleted dir", **EVERYTHING_OF_D, "n": "added file"}
    second = lab.run("rm n; mkdir -p d/sub; echo 1 > d/x", over=first.stage)
    assert second.changes == {key: kind for key, kind in EVERYTHING_OF_D.items() if key not in ("d/x", "d/sub")}


def test_what_is_recorded_of_each_kind(lab: Lab) -> None:
    trial = lab.run(
        "printf 12345 > f; chmod 640 f; ln f g; ln -s 'tar get' l; mkdir e; chmod 1777 e; rm a.txt; chmod 4711 b.txt",
        over=BASE,
    )
    found = {delta.path: delta.change() for delta in trial.deltas()[0]}
    assert {
        show(path): (change.kind, change.type, change.mode, change.size, change.links) for path, change in found.items()
    } == {
        "a.txt": ("deleted", "file", None, None, None),
        "b.txt": ("modified", "file", "4711", 5, 1),
        "e": ("added", "dir", "1777", None, None),
        "f": ("added", "file", "0640", 5, 2),
        "g": ("added", "file", "0640", 5, 2),
        "l": ("added", "symlink", "0777", None, None),
    }


def test_a_baseline_is_not_changed_by_an_agent(lab: Lab) -> None:
    trial = lab.run("echo x >> a.txt; rm -r d; chmod 000 b.txt; mkdir -p d/x", over=BASE)
    assert trial.changes["a.txt"] == "modified file"
    base = trial.stage.baseline.path
    assert set(os.listdir(base)) == {"a.txt", "b.txt", "d", "empty"}
    with open(f"{base}/a.txt") as file:
        assert file.read() == "alpha\n"
    assert lab.run("cat a.txt b.txt d/sub/deep; ls empty", over=lab.executor.provision(trial.stage.baseline)).text == (
        "alpha\nbeta\n3\n"
    )


def test_a_bound_of_entries_is_a_finding(lab: Lab) -> None:
    trial = lab.run("mkdir m; cd m; touch 1 2 3 4 5 6", over=BASE)
    deltas, findings = trial.deltas(ListingBounds(entries=7))
    assert [delta.path for delta in deltas] == [b"m", *(b"m/%d" % number for number in range(1, 7))]
    assert findings == []
    deltas, findings = trial.deltas(ListingBounds(entries=6))
    assert len(deltas) <= 6
    assert [(finding.code, finding.message) for finding in findings] == [
        ("changes.entries", "the listing stopped at 6 entries")
    ]


def test_a_bound_of_entries_counts_what_was_deleted(lab: Lab) -> None:
    trial = lab.run("rm -r d", over=BASE)
    assert len(trial.deltas(ListingBounds(entries=7))[0]) == 7
    deltas, findings = trial.deltas(ListingBounds(entries=6))
    assert [finding.code for finding in findings] == ["changes.entries"]
    assert len(deltas) <= 6


def test_paths_and_targets_of_links_are_bounded_in_bytes(lab: Lab) -> None:
    trial = lab.run("ln -s 0123456789 a; ln -s 01234 b; touch c")
    whole, findings = trial.deltas(ListingBounds(paths=18))
    assert ([delta.path for delta in whole], findings) == ([b"a", b"b", b"c"], [])
    some, findings = trial.deltas(ListingBounds(paths=17))
    assert len(some) == 2
    assert [(finding.code, finding.message) for finding in findings] == [
        ("changes.paths", "the listing stopped at 17 bytes of paths")
    ]


def test_a_bound_of_depth_is_a_finding_and_hides_nothing_that_is_higher_up(lab: Lab) -> None:
    trial = lab.run("mkdir -p zz/1/2/3/4/5/6; mkdir -p c/2/3; echo x > c/2/3/f; echo x > d/sub/deep", over=BASE)
    deltas, findings = trial.deltas(ListingBounds(depth=4))
    assert [(finding.code, finding.message) for finding in findings] == [
        ("changes.depth", "the listing stopped at 4 levels of folders")
    ]
    assert {"c/2/3/f", "d/sub/deep", "zz/1/2/3"} <= {show(delta.path) for delta in deltas}


def test_a_tree_deeper_than_any_path_is_bounded(lab: Lab) -> None:
    long = "/".join(["n" * 200] * 60)
    trial = lab.run(f"echo seen > first; mkdir -p {long}", over=BASE)
    assert trial.end == ("completed", 0, None), trial.stderr
    deltas, findings = trial.deltas()
    assert [(finding.code, finding.message) for finding in findings] == [
        ("changes.unreadable", "the listing stopped: File name too long")
    ]
    assert b"first" in [delta.path for delta in deltas]
    assert len(deltas) > 15


@pytest.mark.slow
def test_a_hundred_thousand_files_are_bounded(lab: Lab) -> None:
    trial = lab.run("seq -f f%.0f 1 100000 | xargs touch", over=BASE, wall=120)
    assert trial.end == ("completed", 0, None)
    deltas, findings = trial.deltas()
    assert [finding.code for finding in findings] == ["changes.entries"]
    assert len(deltas) <= 50_000
