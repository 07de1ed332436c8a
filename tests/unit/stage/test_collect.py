"""What is kept of an attempt: contents and hashes within bounds, in plain files of ours."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_rollout.bundle import Before, Change, Finding
from pytest_rollout.errors import HostError, RecordingError
from pytest_rollout.stage.changes import ListingBounds
from pytest_rollout.stage.collect import CollectBounds, Collected, collect

if TYPE_CHECKING:
    from tests.unit.conftest import Lab, Trial

BASE: dict[str, str | bytes | None] = {"a": "alpha\n", "b": "beta\n", "d/x": "1\n"}


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """The folder ``changes`` of an attempt; it is made when first needed."""
    return tmp_path / "changes"


def gather(trial: Trial, folder: Path, **bounds: Any) -> tuple[dict[str, Change], list[Finding]]:
    """The collected changes by path, and the findings."""
    found: Collected = collect(trial.lab.view(trial.stage), folder, CollectBounds(**bounds))
    return {change.path: change for change in found.changes}, list(found.findings)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_changed_files_are_kept_with_their_hashes(lab: Lab, kept: Path) -> None:
    trial = lab.run("echo more >> a; mkdir -p n/m; printf 123 > n/m/f; rm b; : > empty", over=BASE)
    changes, findings = gather(trial, kept)
    assert findings == []
    assert {path: (change.kind, change.stored, change.sha256) for path, change in changes.items()} == {
        "a": ("modified", True, digest(b"alpha\nmore\n")),
        "b": ("deleted", False, None),
        "empty": ("added", True, digest(b"")),
        "n": ("added", False, None),
        "n/m": ("added", False, None),
        "n/m/f": ("added", True, digest(b"123")),
    }
    files = sorted(str(path.relative_to(kept)) for path in kept.rglob("*") if path.is_file())
    assert files == ["a", "empty", "n/m/f"]
    assert (kept / "a").read_bytes() == b"alpha\nmore\n"
    assert (kept / "n/m/f").read_bytes() == b"123"


def test_what_the_baseline_had_is_recorded(lab: Lab, tmp_path: Path, kept: Path) -> None:
    space = lab.workspace({**BASE, "e/f": "2\n"})
    (space / "a").chmod(0o755)
    (space / "link").symlink_to("a")
    trial = lab.run("echo more >> a; rm -r e link b; echo new > link; mkdir b; chmod 700 d; echo x > n", over=space)
    changes, findings = gather(trial, kept)
    assert findings == []
    assert {path: change.before for path, change in changes.items()} == {
        "a": Before(type="file", mode="0755", size=6, sha256=digest(b"alpha\n")),
        "b": Before(type="file", mode="0644", size=5, sha256=digest(b"beta\n")),
        "d": Before(type="dir", mode="0755"),
        "e": Before(type="dir", mode="0755"),
        "e/f": Before(type="file", mode="0644", size=2, sha256=digest(b"2\n")),
        "link": Before(type="symlink", mode="0777", target="a"),
        "n": None,
    }
    changes, findings = gather(trial, kept.parent / "other", hashed=7)
    assert [changes[path].before for path in ("b", "e/f")] == [
        Before(type="file", mode="0644", size=5),
        Before(type="file", mode="0644", size=2),
    ]
    assert [(finding.code, finding.message) for finding in findings] == [
        ("before.bytes", "what 2 paths held before is not known: more than 7 bytes to read")
    ]


def test_nothing_is_made_where_nothing_changed(lab: Lab, kept: Path) -> None:
    assert gather(lab.run("touch a; rm b; mkdir n", over=BASE), kept)[1] == []
    assert not kept.exists()


def test_what_is_kept_is_ours_and_plain(lab: Lab, kept: Path) -> None:
    trial = lab.run("cp /bin/true t; chmod 6755 t; echo s > s; chmod 000 s; mkdir c; echo i > c/i; chmod 000 c")
    changes, findings = gather(trial, kept)
    assert [(finding.code, finding.path, finding.message) for finding in findings] == [("setuid", "t", "mode 6755")]
    assert {path: change.mode for path, change in changes.items()} == {
        "c": "0000", "c/i": "0644", "s": "0000", "t": "6755",
    }  # fmt: skip
    assert (kept / "c/i").read_text() == "i\n"
    for path in (kept / "t", kept / "s", kept / "c/i"):
        info = path.stat()
        assert stat.S_IMODE(info.st_mode) == 0o600
        assert (info.st_uid, info.st_gid) == (os.geteuid(), os.getegid())
    assert stat.S_IMODE(kept.stat().st_mode) == 0o700


def test_links_are_recorded_and_never_followed(lab: Lab, kept: Path) -> None:
    trial = lab.run("ln -s /etc/passwd l; ln -s a m; ln -s \"$(printf 'x\\ny')\" o; rm -r d; ln -s /etc d", over=BASE)
    changes, findings = gather(trial, kept)
    assert findings == []
    assert {path: (change.type, change.target, change.stored) for path, change in changes.items()} == {
        "d": ("symlink", "/etc", False),
        "d/x": ("file", None, False),
        "l": ("symlink", "/etc/passwd", False),
        "m": ("symlink", "a", False),
        "o": ("symlink", "x\\x0ay", False),
    }
    assert not kept.exists()


def test_special_files_are_findings_and_are_not_opened(lab: Lab, kept: Path, within: Callable[..., Any]) -> None:
    trial = lab.run("mkfifo p", over=BASE)
    changes, findings = within(20, lambda: gather(trial, kept))
    assert findings == [Finding(code="special", message="a fifo, not a file", path="p")]
    assert not changes["p"].stored


def test_hard_links_are_findings(lab: Lab, kept: Path) -> None:
    changes, findings = gather(lab.run("echo x > h; ln h i; ln h j", over=BASE), kept)
    assert findings == [Finding(code="hardlink", message="3 hard links", path=path) for path in "hij"]
    assert [changes[path].stored for path in "hij"] == [True, True, True]


def test_a_file_beyond_the_bound_is_listed_and_not_kept(lab: Lab, kept: Path) -> None:
    trial = lab.run("printf 12345 > f; printf 123456 > g")
    changes, findings = gather(trial, kept, file=5)
    assert findings == [Finding(code="changes.bytes", message="6 bytes: not kept", path="g")]
    assert (changes["f"].stored, changes["g"].stored) == (True, False)
    assert (changes["g"].size, changes["g"].sha256) == (6, digest(b"123456"))
    assert gather(trial, kept.parent / "other", file=5, hashed=5)[0]["g"].sha256 is None
    assert [path.name for path in kept.iterdir()] == ["f"]


def test_all_files_together_are_bounded(lab: Lab, kept: Path) -> None:
    trial = lab.run("printf 123 > f; printf 123 > g; printf 12 > h; printf 1 > i; : > j")
    changes, findings = gather(trial, kept, total=6)
    assert {path: change.stored for path, change in changes.items()} == {
        "f": True, "g": True, "h": False, "i": False, "j": True,
    }  # fmt: skip
    assert [finding.path for finding in findings] == ["h", "i"]


def test_a_sparse_terabyte_is_a_finding(lab: Lab, kept: Path, within: Callable[..., Any]) -> None:
    trial = lab.run("truncate -s 1T big; echo x > small")
    changes, findings = within(20, lambda: gather(trial, kept))
    assert findings == [Finding(code="changes.bytes", message="1099511627776 bytes: not kept", path="big")]
    assert (changes["big"].size, changes["small"].stored) == (1 << 40, True)


def test_a_hole_is_hashed_and_takes_no_room(lab: Lab, kept: Path) -> None:
    script = (
        "printf head > f; truncate -s 8M f; printf middle >> f; truncate -s 9M f; truncate -s 3000001 hole; chmod 0 f"
    )
    trial = lab.run(script, over={"hole": "x"})
    changes, findings = gather(trial, kept)
    assert findings == []
    data = (b"head".ljust(8 << 20, b"\0") + b"middle").ljust(9 << 20, b"\0")
    assert (changes["f"].sha256, changes["f"].size) == (digest(data), 9 << 20)
    assert changes["hole"].sha256 == digest(b"x".ljust(3000001, b"\0"))
    assert (kept / "f").read_bytes() == data
    assert (kept / "hole").stat().st_size == 3000001
    assert sum((kept / name).stat().st_blocks for name in changes) * 512 < 1 << 20


def test_a_file_that_ends_early_is_hashed_as_it_is_kept(lab: Lab, kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = lab.run("printf 12345 > f")
    with monkeypatch.context() as patch:  # somebody outside of the attempt cuts it while it is read
        patch.setattr("pytest_rollout.stage.collect.data_ranges", lambda fd, size: [(0, 5), (5, 9)])
        changes, _ = gather(trial, kept)
    assert changes["f"].sha256 == digest(b"12345")
    assert (kept / "f").read_bytes() == b"12345"


def test_a_bound_of_the_listing_is_a_finding(lab: Lab, kept: Path) -> None:
    trial = lab.run("mkdir m; touch m/1 m/2 m/3")
    changes, findings = gather(trial, kept, listing=ListingBounds(entries=2))
    assert [finding.code for finding in findings] == ["changes.entries"]
    assert len(changes) <= 2


@pytest.mark.parametrize(
    ("printed", "name", "shown"),
    [("a\\nb", b"a\nb", "a\\x0ab"), ("\\377\\376", b"\xff\xfe", "\\xff\\xfe"), ("-rf", b"-rf", "-rf")],
)
def test_odd_names_are_kept(lab: Lab, kept: Path, printed: str, name: bytes, shown: str) -> None:
    trial = lab.run(f'f=$(printf -- \'{printed}\'); mkdir -- "$f"; printf odd > "./$f/$f"')
    changes, _ = gather(trial, kept)
    assert list(changes) == [shown, f"{shown}/{shown}"]
    with open(os.path.join(os.fsencode(kept), name, name), "rb") as file:
        assert file.read() == b"odd"


def test_a_path_too_long_to_be_kept_is_the_agents_and_no_failure_of_ours(lab: Lab, kept: Path) -> None:
    long = "/".join(["n" * 200] * 20)
    trial = lab.run(f"echo x > first; mkdir -p {long}; cd {long}; echo x > {'f' * 70}", over=BASE)
    assert trial.end == ("completed", 0, None), trial.stderr
    changes, findings = gather(trial, kept)
    path = f"{long}/{'f' * 70}"
    assert findings == [Finding(code="changes.path", message="the path is too long to be kept", path=path)]
    assert (changes["first"].stored, changes[path].stored) == (True, False)


def full(*_: Any, **__: Any) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_is_the_hosts_failure(lab: Lab, kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = lab.run("echo x > f")
    with monkeypatch.context() as patch:
        patch.setattr("os.pwrite", full)
        with pytest.raises(HostError) as caught:
            gather(trial, kept)
    assert str(caught.value) == f"a changed file can't be written to {kept}: No space left on device"


def test_a_folder_that_vanished_is_a_failure_to_record(lab: Lab, tmp_path: Path) -> None:
    trial = lab.run("echo x > f")
    with pytest.raises(RecordingError) as caught:
        gather(trial, tmp_path / "gone/changes")
    assert str(caught.value) == f"a changed file can't be written to {tmp_path}/gone/changes: No such file or directory"
    assert not (tmp_path / "gone").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_can_not_be_written_is_a_failure_to_record(lab: Lab, tmp_path: Path) -> None:
    trial = lab.run("echo x > f")
    (tmp_path / "closed").mkdir(mode=0o500)
    with pytest.raises(RecordingError) as caught:
        gather(trial, tmp_path / "closed/changes")
    assert str(caught.value) == f"a changed file can't be written to {tmp_path}/closed/changes: Permission denied"


def test_no_descriptor_is_left_open(lab: Lab, kept: Path) -> None:
    trial = lab.run("mkdir n; echo x > n/f; ln -s f l; mkfifo p; chmod 000 n/f; truncate -s 1T big", over=BASE)
    view = lab.view(trial.stage)
    before = len(os.listdir("/proc/self/fd"))
    collect(view, kept, CollectBounds())
    assert len(os.listdir("/proc/self/fd")) == before
