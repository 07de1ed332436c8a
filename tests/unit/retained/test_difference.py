"""Differences: real git takes them, and what can't be shown is told."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_rollout.retained.difference import PathDifference, differences
from pytest_rollout.retained.gitpatch import Version, file_patch
from pytest_rollout.retained.left import Left
from pytest_rollout.stage.collect import CollectBounds
from pytest_rollout.stage.removal import remove_tree
from tests.unit.retained.conftest import Work, tree
from tests.unit.retained.test_taking import COMMAND, TOKEN

ENV = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}


def git_apply(folder: Path, patch: bytes) -> None:
    """Let git apply a patch in a repository of its own."""
    subprocess.run(["git", "init", "-q", str(folder)], env=ENV, check=True)
    done = subprocess.run(["git", "apply", "-"], cwd=folder, env=ENV, input=patch, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b""), patch


def shown(left: Left, *, binary: bool = True) -> dict[str, PathDifference]:
    return {one.change.path: one for one in differences(left, left.selected(()), binary=binary)}


def whole(found: dict[str, PathDifference]) -> bytes:
    return b"".join(one.patch.data for one in found.values() if one.patch is not None)


def test_git_applies_it(work: Work) -> None:
    left = work.left(COMMAND)
    found = shown(left)
    assert [one.missing for one in found.values() if one.missing] == []
    assert {path: one.note for path, one in found.items() if one.note} == {"new/empty": "is an empty folder"}
    assert {path: (one.patch.added, one.patch.removed) for path, one in found.items() if one.patch} == {
        "a.txt": (2, 2),
        "d/e/f": (0, 1),
        "d/g": (None, None),
        "gone.txt": (0, 1),
        "link": (1, 1),
        "new/n": (1, 0),
        "new/up": (1, 0),
        "odd \\x0aÿ": (1, 1),
        "run.sh": (0, 0),
        "to-folder": (0, 1),
        "to-folder/x/y": (1, 0),
        'with "quotes" \\x5c and blank': (1, 0),
    }
    there, other = work.copy(), work.copy()
    git_apply(there, whole(found))
    from pytest_rollout.retained.taking import take

    take(left, other)
    expected = {path: said.replace("600 ", "644 ") for path, said in tree(other).items() if path != "new/empty"}
    assert tree(there) == expected


def test_the_form_of_a_difference(work: Work) -> None:
    left = work.left("sed -i 's/line 9/nine/' a.txt; rm link; printf 'a\\0' > link")
    assert whole(shown(left, binary=False)).decode() == (
        "diff --git a/a.txt b/a.txt\n--- a/a.txt\n+++ b/a.txt\n@@ -7,7 +7,7 @@\n"
        " line 6\n line 7\n line 8\n-line 9\n+nine\n line 10\n line 11\n line 12\n"
        "diff --git a/link b/link\ndeleted file mode 120000\n--- a/link\n+++ /dev/null\n"
        "@@ -1,1 +0,0 @@\n-a.txt\n\\ No newline at end of file\n"
        "diff --git a/link b/link\nnew file mode 100644\nBinary file, 0 bytes before and 2 now\n"
    )


def test_what_can_not_be_shown(work: Work) -> None:
    command = "echo x >> a.txt; rm gone.txt; head -c 2000 /dev/zero > big; mkfifo p; echo n > n; chmod 640 n run.sh"
    left = work.left(f"{command}; mkdir .git; echo x > .git/config", bounds=CollectBounds(file=1000))
    found = shown(left)
    not_kept = "its content was not kept (2000 bytes: not kept), and neither was the stage"
    assert {path: one.missing for path, one in found.items() if one.missing} == {"big": not_kept, "p": "is a fifo"}
    assert {path: one.note for path, one in found.items() if one.note} == {
        ".git": "is of a repository's own data, and left out",
        ".git/config": "is of a repository's own data, and left out",
        "run.sh": "has mode 0640, which git does not know apart",
    }
    revision = (left.bundle.pins.environment_revision or "").removeprefix("sha256:")
    assert remove_tree(str(work.lab.root.baselines / revision)) is None
    gone = "the baseline is not on this machine any more"
    found = shown(left)
    assert {path: one.missing for path, one in found.items() if one.missing == gone} == dict.fromkeys(
        ("a.txt", "gone.txt", "run.sh"), gone
    )
    assert found["n"].patch is not None


def version(data: bytes | None) -> Version | None:
    return None if data is None else Version(mode="100644", data=data)


@given(
    old=st.none() | st.text("a\r\n\0", max_size=12).map(str.encode) | st.binary(max_size=8),
    new=st.none() | st.text("a\r\n\0", max_size=12).map(str.encode) | st.binary(max_size=8),
)
def test_every_form_of_a_text_has_one(old: bytes | None, new: bytes | None) -> None:
    """By its own rules: what a patch removes and keeps is the old text, what it adds and keeps the new one."""
    patch = file_patch(b"f", version(old), version(new))
    if patch.added is None:
        assert b"GIT binary patch" in patch.data
        return
    sides: dict[str, list[bytes]] = {"-": [], "+": []}
    body = patch.data.partition(b"\n@@ ")[2].partition(b"\n")[2]
    last: list[list[bytes]] = []
    for line in body.split(b"\n")[:-1]:
        sign = line[:1].decode()
        if sign == "\\":
            for side in last:
                side[-1] = side[-1][:-1]
            continue
        last = [sides[key] for key in ("-", "+") if sign in (key, " ")]
        for side in last:
            side.append(line[1:] + b"\n")
    if (old or b"") != (new or b""):
        assert b"".join(sides["-"]) == (old or b"")
        assert b"".join(sides["+"]) == (new or b"")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (None, b""),
        (b"", None),
        (b"", b"x"),
        (b"a\n" * 30_000, b"b\n" * 30_000),
        (b"\0" * 200, os.urandom(500)),
        (b"\xff\xfe\n", b"\xff\n"),
        (b"a\r\nb\r\n", b"a\nb\r\n"),
    ],
    ids=range(7),
)
def test_git_applies_every_form(tmp_path: Path, old: bytes | None, new: bytes | None) -> None:
    name = 'a "b"\\\t\xfc é'
    place = tmp_path / name
    if old is not None:
        place.write_bytes(old)
    git_apply(tmp_path, file_patch(os.fsencode(name), version(old), version(new)).data)
    assert (place.read_bytes() if place.exists() else None) == new


def test_what_the_record_has_redacted_is_not_made_up(work: Work) -> None:
    left = work.left(f"rm link; ln -s {TOKEN} link; echo x > {TOKEN}")
    assert {path: (one.patch, one.missing) for path, one in shown(left).items()} == {
        "[redacted: github token]": (None, "its path is redacted in the record"),
        "link": (None, "where it points is redacted in the record"),
    }
