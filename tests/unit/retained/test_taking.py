"""Taking changes over: everything is checked first, nothing is followed, and a failure leaves all as it was."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_rollout.errors import SelectorError
from pytest_rollout.retained.left import Left, is_git
from pytest_rollout.retained.taking import take
from pytest_rollout.retained.target import Target
from pytest_rollout.stage.changes import ListingBounds
from pytest_rollout.stage.collect import CollectBounds
from pytest_rollout.stage.removal import remove_tree
from tests.unit.retained.conftest import Work, replaced, tree

COMMAND = """
umask 022
sed -i 's/line 3/LINE 3/; s/line 15/LINE 15/' a.txt
chmod 755 run.sh; rm gone.txt; rm -r d/e; printf '\\1\\0other' > d/g
ln -sfn run.sh link; rm to-folder; mkdir -p to-folder/x; echo y > to-folder/x/y
mkdir -p new/empty; echo n > new/n; chmod 600 new/n; ln -s ../a.txt new/up
echo odd2 > 'with "quotes" \\ and blank'; printf more >> "$(ls -d odd*)"
"""


def conflicts(left: Left, there: Path, **options: object) -> dict[str, str]:
    """The conflicts of a take-over that writes nothing."""
    before = tree(there)
    taken = take(left, there, **options)  # type: ignore[arg-type]
    assert tree(there) == before
    assert taken.conflicts
    return {conflict.path: conflict.reason for conflict in taken.conflicts}


@pytest.fixture
def left(work: Work) -> Left:
    return work.left(COMMAND)


def test_what_the_agent_made_is_in_the_folder_then(work: Work, left: Left) -> None:
    there = work.copy()
    before = tree(there)
    plan = take(left, there, dry_run=True)
    assert tree(there) == before
    taken = take(left, there)
    assert (taken.conflicts, taken.left_out, taken.already, taken.made) == ((), (), (), plan.made)
    after = {path: said for path, said in before.items() if path not in ("gone.txt", "d/e", "d/e/f")}
    text = (work.space / "a.txt").read_text()
    changed = text.replace("line 3\n", "LINE 3\n").replace("line 15", "LINE 15")
    assert tree(there) == after | {
        "a.txt": f"644 {changed.encode()!r}",
        "run.sh": "755 b'echo\\n'",
        "d/g": f"644 {b'1'!r}".replace("'1'", "'\\x01\\x00other'"),
        "link": "-> run.sh",
        "to-folder": "folder 755",
        "to-folder/x": "folder 755",
        "to-folder/x/y": "644 b'y\\n'",
        "new": "folder 755",
        "new/empty": "folder 755",
        "new/n": "600 b'n\\n'",
        "new/up": "-> ../a.txt",
        'with "quotes" \\ and blank': "644 b'odd2\\n'",
        "odd \n\xff": "644 b'oddmore'",
    }
    again = take(left, there)
    assert (again.made, again.conflicts) == ((), ())
    assert {change.path for change in again.already} == {change.path for change in taken.made}


def test_a_selection(work: Work, left: Left) -> None:
    there = work.copy()
    taken = take(left, there, patterns=["new/n", "d/**"])
    assert [change.path for change in taken.made] == ["d/e", "d/e/f", "d/g", "new", "new/n"]
    assert "new/empty" not in tree(there)
    with pytest.raises(SelectorError) as caught:
        take(left, there, patterns=["nothing*"])
    assert str(caught.value) == "--path 'nothing*' fits no change of 3f9ac01d-t-s0"


def test_every_conflict_is_told_and_nothing_written(work: Work, left: Left) -> None:
    there = work.copy()
    (there / "a.txt").write_text("mine\n")
    (there / "run.sh").unlink()
    (there / "new").write_text("a file\n")
    (there / "link").unlink()
    (there / "link").symlink_to("elsewhere")
    (there / "gone.txt").chmod(0o755)
    assert conflicts(left, there) == {
        "a.txt": "expected the file of 150 bytes that the baseline had, found a file of 5 bytes",
        "run.sh": "expected the file of 5 bytes that the baseline had, found nothing",
        "new": "expected nothing, found a file of 7 bytes",
        "link": "expected a link to 'a.txt', found a link to 'elsewhere'",
        "gone.txt": "expected the file of 5 bytes that the baseline had, found an executable file of 5 bytes",
    }
    assert take(left, there, patterns=["d"]).conflicts == ()


def test_modes_and_what_is_not_about_them(work: Work) -> None:
    left = work.left("echo new > a.txt; chmod 4755 run.sh; echo x > s; chmod 6711 s; mkdir t; chmod 1777 t")
    there = work.copy()
    (there / "a.txt").chmod(0o640)
    assert take(left, there).conflicts == ()
    modes = {name: stat.S_IMODE((there / name).stat().st_mode) for name in ("a.txt", "run.sh", "s", "t")}
    assert modes == {"a.txt": 0o640, "run.sh": 0o755, "s": 0o711, "t": 0o777}
    if os.geteuid() == 0:
        os.chown(there / "a.txt", 1, 2)
        take(work.left("echo newer > a.txt"), work.copy())
        (there / "a.txt").write_text((work.space / "a.txt").read_text())
        take(left, there)
        assert ((there / "a.txt").stat().st_uid, (there / "s").stat().st_uid) == (1, there.stat().st_uid)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (".git/config", True),
        ("a/.GIT/x", True),
        ("a/.git", True),
        (".git./x", True),
        ("GIT~1/x", True),
        (".g\u200cit/x", True),
        (".git::$INDEX_ALLOCATION/x", True),
        (".gitignore", False),
        ("git/x", False),
        ("a.git/x", False),
    ],
)
def test_the_data_of_a_repository(name: str, expected: bool) -> None:
    assert is_git(name.encode()) is expected


def test_nothing_is_written_to_a_repository(work: Work) -> None:
    left = work.left("mkdir -p .git/hooks sub; echo x > .git/hooks/post-commit; echo x > sub/.GIT; echo x > sub/ok")
    there = work.copy()
    (there / ".git").mkdir()
    taken = take(left, there)
    assert os.listdir(there / ".git") == []
    assert os.listdir(there / "sub") == ["ok"]
    assert [(one.path, one.reason) for one in taken.left_out] == [
        (path, "is of a repository's own data") for path in (".git", ".git/hooks", ".git/hooks/post-commit", "sub/.GIT")
    ]
    with pytest.raises(SelectorError, match="a repository's own data lies there, and nothing is written to it"):
        take(left, there / ".git")


@pytest.mark.parametrize("target", ["/etc/passwd", "../x", "d/../../x", ".git/hooks", "d/.."])
def test_links_that_lead_out(work: Work, target: str) -> None:
    left = work.left(f"ln -s {target} out; ln -s e/f d/in")
    there = work.copy()
    assert conflicts(left, there) == {"out": f"is a link to {target!r}, out of the folder (--links allows it)"}
    assert take(left, there, links=True).conflicts == ()
    assert (os.readlink(there / "out"), os.readlink(there / "d/in")) == (target, "e/f")


def test_nothing_goes_through_a_link(work: Work, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "e").mkdir(parents=True)
    there = work.copy()
    os.rename(there / "d", there / "real")
    (there / "d").symlink_to(outside)
    assert set(conflicts(work.left("echo x > d/e/new; echo y > d/h"), there).values()) == {
        "a part of the path is a link, or another file system"
    }
    assert tree(outside) == {"e": "folder 755"}


def test_special_files_and_case(work: Work) -> None:
    left = work.left("mkfifo p; echo x > A.TXT; echo 1 > readme; echo 2 > README; echo 3 > d/g2")
    assert conflicts(left, work.copy()) == {
        "p": "is a fifo: only files, folders and links are written",
        "A.TXT": "differs only in case from 'a.txt'",
        "readme": "differs only in case from 'README'",
    }
    renamed = work.left("mv gone.txt GONE.txt")
    assert take(renamed, work.copy()).conflicts == ()


def test_a_folder_that_holds_more(work: Work) -> None:
    there = work.copy()
    (there / "d/e/mine").write_text("mine\n")
    gone = work.left("rm -r d/e")
    assert [(one.path, one.reason) for one in take(gone, there).left_out] == [("d/e", "holds other things")]
    assert os.listdir(there / "d/e") == ["mine"]
    replaces = work.left("rm -r d/e; echo x > d/e")
    assert conflicts(replaces, there) == {"d/e": "the folder that it replaces holds d/e/mine"}
    (there / "d/e/mine").unlink()
    assert take(replaces, there).conflicts == ()
    assert (there / "d/e").read_text() == "x\n"


def test_what_was_not_kept(work: Work) -> None:
    command = "head -c 3000 /dev/zero > big; echo s > small"
    left = work.left(command, bounds=CollectBounds(file=1000))
    expected = "its content was not kept (3000 bytes: not kept), and neither was the stage"
    assert conflicts(left, work.copy()) == {"big": expected}
    assert take(left, work.copy(), patterns=["small"]).conflicts == ()
    kept = work.left(command, keep=True, bounds=CollectBounds(file=1000))
    there = work.copy()
    try:
        assert take(kept, there).conflicts == ()
        assert (there / "big").read_bytes() == bytes(3000)
        assert kept.bundle.stage is not None
        with open(f"{kept.bundle.stage}/u/big", "r+b") as file:
            file.write(b"x")
        ((path, reason),) = conflicts(kept, work.copy()).items()
        assert (path, reason.endswith("/u/big is not what the record says")) == ("big", True)
    finally:
        assert kept.bundle.stage is not None
        assert remove_tree(kept.bundle.stage) is None


def test_a_listing_that_was_cut_short(work: Work) -> None:
    bounds = CollectBounds(listing=ListingBounds(paths=4))
    left = work.left("echo 1 > x1; echo 2 > x2; echo 3 > x3", bounds=bounds)
    for patterns in ([], ["x*"], ["x1", "x9"]):
        with pytest.raises(SelectorError) as caught:
            take(left, work.copy(), patterns=patterns)
        assert caught.value.message == (
            "the changes of 3f9ac01d-t-s0 are not known to their end: the listing stopped at 4 bytes of paths"
        )
    assert [change.path for change in take(left, work.copy(), patterns=["x1", "x2"]).made] == ["x1", "x2"]


TOKEN = "ghp_" + "0123456789abcdefghijABCDEFGHIJ012345"


def test_what_the_record_has_redacted_is_not_made_up(work: Work) -> None:
    (work.space / f"{TOKEN}.old").write_text("old")
    left = work.left(f"rm link; ln -s {TOKEN} link; mkdir {TOKEN}; rm {TOKEN}.old; echo x > x")
    why = "its path is redacted in the record"
    assert conflicts(left, work.copy()) == {
        "[redacted: github token]": why,
        "link": "where it points is redacted in the record",
        "[redacted: github token].old": why,
    }
    assert [change.path for change in take(left, work.copy(), patterns=["x"]).made] == ["x"]


def test_a_folder_that_became_a_link_a_second_time(work: Work) -> None:
    left, there = work.left("rm -r d; ln -s new d; mkdir new; echo f > new/g"), work.copy()
    take(left, there)
    again = take(left, there)
    assert (again.made, again.conflicts) == ((), ())
    (there / "d").unlink()
    (there / "d").symlink_to("elsewhere")
    assert "d/e/f" in conflicts(left, there)


def test_evidence_that_was_altered(work: Work, left: Left) -> None:
    (left.folder / "changes/new/n").write_text("m\n")
    ((path, reason),) = conflicts(left, work.copy()).items()
    assert (path, reason) == ("new/n", f"{left.folder}/changes/new/n is not what the record says")
    older = work.edited(left, replaced("a.txt", before=None))
    assert conflicts(older, work.copy())["a.txt"] == "what the baseline had is not in the record"
    odd = work.edited(left, replaced("new/n", path="../n"))
    assert conflicts(odd, work.copy(), patterns=["../n"]) == {"../n": "is not a path inside of a folder"}


STEPS = ("place", "remove", "make_folder", "set_mode")


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_puts_everything_back(
    work: Work, left: Left, monkeypatch: pytest.MonkeyPatch, step: str, error: BaseException
) -> None:
    there = work.copy()
    before = tree(there)
    count = 0
    real: Callable[..., object] = getattr(Target, step)

    def failing(self: Target, *args: object) -> object:
        nonlocal count
        count += 1
        if count == 2:
            monkeypatch.setattr(Target, step, real)
            raise error
        return real(self, *args)

    monkeypatch.setattr(Target, step, failing)
    with pytest.raises((SelectorError, KeyboardInterrupt)):
        take(left, there)
    assert count == 2
    assert tree(there) == before


@pytest.mark.parametrize(("call", "at"), [("rename", 1), ("rename", 3), ("rmdir", 1), ("mkdir", 2), ("chmod", 1)])
def test_an_interrupt_within_a_step_puts_everything_back(
    work: Work, left: Left, monkeypatch: pytest.MonkeyPatch, call: str, at: int
) -> None:
    there = work.copy()
    before = tree(there)
    count = 0
    real: Callable[..., object] = getattr(os, call)

    def interrupted(*args: object, **more: object) -> object:
        nonlocal count
        count += 1
        done = real(*args, **more)
        if count in (at, at + 2):  # the second one comes while all is put back, or one step later
            signal.raise_signal(signal.SIGINT)
        return done

    monkeypatch.setattr(os, call, interrupted)
    with pytest.raises(KeyboardInterrupt):
        take(left, there)
    monkeypatch.undo()
    assert tree(there) == before


def test_what_can_not_be_put_back_keeps_nothing_else_from_it(
    work: Work, left: Left, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = work.copy()
    before = tree(there)

    def failing(self: Target, path: bytes, mode: int) -> None:
        (there / "new/mine").write_text("mine\n")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Target, "set_mode", failing)
    with pytest.raises(SelectorError) as caught:
        take(left, there)
    assert "could not be put back as it was" in str(caught.value)
    now = {path: said for path, said in tree(there).items() if not path.startswith(".rollout-apply-")}
    assert now == before | {"new": "folder 755", "new/mine": "644 b'mine\\n'"}


def test_what_changes_between_looking_and_writing(work: Work, left: Left, monkeypatch: pytest.MonkeyPatch) -> None:
    there = work.copy()
    real = Target.prepare_link

    def meanwhile(self: Target, target: bytes) -> bytes:
        (there / "new").mkdir(exist_ok=True)
        (there / "a.txt").write_text("mine\n")
        return real(self, target)

    monkeypatch.setattr(Target, "prepare_link", meanwhile)
    with pytest.raises(SelectorError) as caught:
        take(left, there)
    assert str(caught.value) == f"nothing was written to {there}: a.txt: it changed meanwhile"
    assert (there / "a.txt").read_text() == "mine\n"
    assert (there / "gone.txt").exists()
    assert [name for name in os.listdir(there) if name.startswith(".rollout")] == []


KILLED = """
import os, signal, sys
from pathlib import Path
from pytest_rollout.retained.left import Left
from pytest_rollout.retained.taking import take
from pytest_rollout.retained.target import Target
step, at = sys.argv[3], int(sys.argv[4])
real, count = getattr(Target, step), 0
def killed(self, *args):
    global count
    count += 1
    if count == at:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(self, *args)
setattr(Target, step, killed)
take(Left(Path(sys.argv[1])), Path(sys.argv[2]))
"""


@pytest.mark.parametrize(("step", "at"), [("prepare", 2), ("remove", 2), ("place", 3), ("set_mode", 1)])
def test_after_a_sigkill_the_same_command_goes_on(work: Work, left: Left, step: str, at: int) -> None:
    there, other = work.copy(), work.copy()
    before = tree(there)
    take(left, other)
    after = tree(other)
    words = [sys.executable, "-c", KILLED, str(left.folder), str(there), step, str(at)]
    assert subprocess.run(words, check=False).returncode == -signal.SIGKILL
    now = {path: said for path, said in tree(there).items() if not path.startswith(".rollout-apply-")}
    for path in before.keys() | after.keys() | now.keys():
        assert now.get(path) in (before.get(path), after.get(path)) or (path, now.get(path)) == ("to-folder", None)
    assert take(left, there).conflicts == ()
    (hidden,) = there.glob(".rollout-apply-*")
    assert remove_tree(str(hidden)) is None
    assert tree(there) == after


def test_nothing_is_written_into_a_bare_repository(work: Work) -> None:
    """Neither into one that lies there, nor one that the candidate made, nor one that both make together."""
    into = work.copy()
    for folder in ("there/objects", "there/refs", "half/refs"):
        (into / folder).mkdir(parents=True)
    (into / "there" / "HEAD").write_text("ref: refs/heads/main\n")
    left = work.left(
        "mkdir -p there/hooks made/objects made/refs half/objects; echo x > there/hooks/post-commit; "
        "echo x > made/HEAD; echo x > made/config; echo x > half/HEAD; echo x > half/config; echo x > plain"
    )
    taken = take(left, into)
    assert taken.conflicts == ()
    assert {conflict.path.split("/")[0] for conflict in taken.left_out} == {"there", "made", "half"}
    assert (into / "plain").read_text() == "x\n"
    for path in ("there/hooks/post-commit", "made/config", "half/config"):
        assert not (into / path).exists()
    (into / "there" / "hooks").mkdir()
    with pytest.raises(SelectorError, match="a repository's own data lies there, and nothing is written to it"):
        take(left, into / "there" / "hooks")
