"""Paths of the host that an agent may read, and where its program is.

An interpreter outside /usr is rarely one folder: a virtual environment names the Python that it was
made from in ``pyvenv.cfg`` and in links, and version managers put links before folders. Each of
those is bound too, at its own place, so that what the user names is enough.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from pytest_rollout.agents.protocol import DEFAULT_PATH, join_path, program_folders
from pytest_rollout.errors import ConfigError
from pytest_rollout.executors.protocol import Bind

__all__ = ["find_program", "is_below", "resolve_paths"]

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64")
_MAX_LINKS = 40
_NOT_BINDABLE = ("/", "/proc", "/dev", "/sys", "/tmp", "/etc", "/home", "/root", "/var", "/run", "/stage", "/rollout")


def is_below(path: str | os.PathLike[str], folder: str | os.PathLike[str]) -> bool:
    """Whether ``path`` is ``folder`` or inside it, after links."""
    real, real_folder = os.path.realpath(path), os.path.realpath(folder)
    return real == real_folder or real.startswith(real_folder.rstrip("/") + "/")


def resolve_paths(paths: Iterable[str], folder: Path, where: str) -> tuple[Bind, ...]:
    """The binds for these paths (``~`` expanded, relative ones below ``folder``).

    Raises ConfigError for a path that isn't there, or is too wide to be shown to an agent.
    """
    binds: dict[str, Bind] = {}
    for path in paths:
        place = os.path.normpath(folder / os.path.expanduser(path))
        if not os.path.exists(place):
            raise ConfigError(f"{where}: the path {path!r} ({place}) does not exist")
        homes = _homes(place)
        for needed in (place, *homes):
            if _is_too_wide(needed):
                what = "is" if needed == place else f"needs {needed}, which is"
                raise ConfigError(
                    f"{where}: the path {path!r} ({place}) {what} too wide to be shown to an agent",
                    hint="Name the folders of the interpreter or the program that the agent needs.",
                )
            for bind in _both_names(needed):
                binds.setdefault(bind.target, bind)
    return tuple(bind for bind in binds.values() if not _is_covered(bind, binds.values()))


def _is_too_wide(place: str) -> bool:
    """Whether it shows the machine, or the user's home."""
    return os.path.realpath(place) in _NOT_BINDABLE or is_below(os.path.expanduser("~"), place)


def _homes(place: str) -> list[str]:
    """The prefixes outside the system of the interpreters that a virtual environment needs."""
    folders = dict.fromkeys((*_folders_of_venv(place), *_folders_of_links(place)))
    homes = [os.path.dirname(folder) for folder in folders if not _in_system(folder)]
    return [home for home in homes if os.path.isdir(home)]


def _both_names(place: str) -> list[Bind]:
    """A path under the name that was given, and under its real one, where links lead there."""
    real = os.path.realpath(place)
    return [Bind(source=real, target=place), Bind(source=real, target=real)]


def _folders_of_venv(place: str) -> list[str]:
    """The folder of the interpreter that a virtual environment was made from."""
    try:
        lines = Path(place, "pyvenv.cfg").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return []
    pairs = (line.partition("=") for line in lines)
    return [value.strip() for key, _, value in pairs if key.strip() == "home"]


def _folders_of_links(place: str) -> list[str]:
    """The folder of every interpreter that ``<place>/bin/python`` leads to, link by link."""
    folders, link = [], os.path.join(place, "bin", "python")
    for _ in range(_MAX_LINKS):
        if not os.path.islink(link):
            break
        link = os.path.normpath(os.path.join(os.path.dirname(link), os.readlink(link)))
        folders.append(os.path.dirname(link))
    return folders


def _in_system(path: str) -> bool:
    return any(path == top or path.startswith(f"{top}/") for top in _SYSTEM)


def _is_covered(bind: Bind, binds: Iterable[Bind]) -> bool:
    """Whether a wider bind shows the same files at the same place already."""
    return any(
        bind.target.startswith(f"{other.target}/") and bind.source == other.source + bind.target[len(other.target) :]
        for other in binds
    )


def find_program(words: Sequence[str], binds: Sequence[Bind], folder: Path | None, where: str) -> tuple[str, ...]:
    """The command with each word that is a path of the host made absolute: one with a ``/`` in it that
    is there below ``folder``, or begins with ``~/``.

    Raises ConfigError where the program, or such a file, can't be seen or run from inside the
    sandbox. A relative path that is not below ``folder`` is left as it is: it may be in the workspace.
    """
    program = words[0]
    if "/" not in program and not any(os.access(os.path.join(at, program), os.X_OK) for at in _host_path(binds)):
        raise ConfigError(
            f"{where}: the program {program!r} is not on the agent's PATH ({join_path(binds)})",
            hint="Install it below /usr, name its 'bin' folder in 'paths', or write its whole path.",
        )
    found = tuple(_host_file(word, folder) for word in words)
    if os.path.isabs(found[0]):
        _check_runs(program, found[0], where)
    for number, (word, place) in enumerate(zip(words, found, strict=True)):
        if (number == 0 or place != word) and os.path.isabs(place) and not _is_visible(place, binds):
            what = "the program " if number == 0 else ""
            raise ConfigError(
                f"{where}: {what}{word!r} ({place}) is not visible to the agent",
                hint="Name its folder in 'paths' of the agent in rollout.toml.",
            )
    return found


def _host_file(word: str, folder: Path | None) -> str:
    """A word as it is, or as the absolute path of the file of the host that it means."""
    if word.startswith("~/"):
        return os.path.expanduser(word)
    if "/" in word and not os.path.isabs(word) and folder is not None and os.path.exists(folder / word):
        return os.path.normpath(folder / word)
    return word


def _is_visible(place: str, binds: Sequence[Bind]) -> bool:
    return _in_system(place) or any(place == bind.target or place.startswith(f"{bind.target}/") for bind in binds)


def _check_runs(program: str, place: str, where: str) -> None:
    """Raise ConfigError where a program is not there, not executable, not visible, or has no interpreter."""
    if not os.path.exists(place):
        raise ConfigError(f"{where}: the program {program!r} ({place}) does not exist")
    if not os.access(place, os.X_OK) or os.path.isdir(place):
        raise ConfigError(f"{where}: the program {program!r} ({place}) is not executable", hint=f"chmod +x {place}")
    try:
        with open(place, "rb") as file:
            first = file.readline(512)
    except OSError:
        return
    words = first[2:].split() if first.startswith(b"#!") else []
    interpreter = os.fsdecode(words[0]) if words else ""
    if first.rstrip(b"\n").endswith(b"\r") and words:
        message = f"{where}: the first line of {place} ends in a carriage return"
        raise ConfigError(message, hint="Save it with Unix line ends.")
    if interpreter and not os.path.exists(interpreter):
        raise ConfigError(f"{where}: the first line of {place} names {interpreter}, which does not exist")


def _host_path(binds: Sequence[Bind]) -> list[str]:
    """The folders of the agent's PATH, as they are on the host."""
    return [*(folder for bind in binds for folder in program_folders(bind, bind.source)), *DEFAULT_PATH.split(":")]
