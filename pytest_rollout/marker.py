"""The marker ``rollout``: which arguments it takes, and the task that they make.

Arguments are merged from the module, the class and the function: the nearest wins, one by one;
``limits`` and ``env`` are merged by field. An argument of the design that this version does not
enforce is refused by name: one that is accepted and does nothing would be a lie.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pytest_rollout.agents.paths import is_below
from pytest_rollout.errors import ConfigError
from pytest_rollout.limits import DEFAULT_LIMITS, Limits
from pytest_rollout.plain import clean_text, nearest
from pytest_rollout.task import Archive, Folder, Git, Task

__all__ = ["ARGUMENTS", "LATER", "check_workspace", "checked_task", "merge", "read_samples", "read_task"]

ARGUMENTS = (
    "agent",
    "prompt",
    "workspace",
    "limits",
    "network",
    "env",
    "samples",
    "seed",
    "threshold",
    "score_on",
    "tags",
    "id",
    "hidden",
    "protect",
    "oracle",
    "pools",
    "split",
)
LATER: tuple[str, ...] = ()
_RESERVED = "ROLLOUT_"
_SPLIT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_OF_A_TASK = (
    "prompt",
    "workspace",
    "limits",
    "network",
    "env",
    "seed",
    "threshold",
    "score_on",
    "tags",
    "hidden",
    "protect",
    "oracle",
    "pools",
    "split",
)


def merge(marks: Sequence[tuple[tuple[Any, ...], Mapping[str, Any]]]) -> dict[str, Any]:
    """One set of arguments out of the marks of a test, the nearest first.

    Raises ConfigError for positional, unknown and refused arguments.
    """
    merged: dict[str, Any] = {}
    for positional, given in marks:
        if positional:
            raise ConfigError(f"rollout takes named arguments only, got {positional[0]!r}")
        for name, value in given.items():
            _check_name(name)
            if name not in merged:
                merged[name] = value
            elif name == "limits" and isinstance(value, Limits) and isinstance(merged[name], Limits):
                _check_limits(merged[name])
                _check_limits(value)
                merged[name] = merged[name].over(value)
            elif name == "env" and isinstance(value, dict) and isinstance(merged[name], dict):
                merged[name] = {**value, **merged[name]}
    return merged


def _check_name(name: str) -> None:
    if name in LATER:
        raise ConfigError(f"rollout({name}=…) is not enforced by this version, so it is refused")
    if name not in ARGUMENTS:
        raise ConfigError(f"rollout has no argument {name!r}; valid: {', '.join(ARGUMENTS)}.{nearest(name, ARGUMENTS)}")


def _check_limits(limits: Limits) -> None:
    if limits.problems:
        raise ConfigError("; ".join(limits.problems))


def read_samples(merged: Mapping[str, Any]) -> int | None:
    """``samples`` of the marker, or None; raises ConfigError."""
    value = merged.get("samples")
    if value is None:
        return None
    if type(value) is not int or not 1 <= value <= 1_000_000:
        raise ConfigError(f"rollout(samples={value!r}): it is not a whole number from 1 to 1000000")
    return value


def read_task(
    merged: Mapping[str, Any],
    *,
    default_id: str,
    folder: Path,
    samples: int,
    prepare: Callable[[Git | Archive], Folder | None],
) -> Task:
    """The task of these arguments; ``folder`` is that of the test file. Raises ConfigError.

    ``prepare`` makes the folder of a workspace that is none yet.
    """
    limits = merged.get("limits", Limits())
    if not isinstance(limits, Limits):
        raise ConfigError(f"rollout(limits={limits!r}): it is not a Limits, such as Limits(wall='5m')")
    _check_limits(limits)
    return Task(
        id=_id(merged, default_id),
        prompt=_text(merged, "prompt"),
        workspace=_workspace(merged, folder, prepare),
        limits=limits.over(DEFAULT_LIMITS),
        network=_choice(merged, "network", ("none", "host")),
        env=_env(merged),
        samples=samples,
        seed=_seed(merged),
        threshold=_threshold(merged),
        score_on=_choice(merged, "score_on", ("any", "completed")),
        tags=_names(merged, "tags"),
        hidden=_folder(merged, "hidden", folder),
        protect=_protect(merged),
        oracle=_oracle(merged, folder),
        pools=_names(merged, "pools"),
        split=_split(merged),
    )


def _split(merged: Mapping[str, Any]) -> str | None:
    value = merged.get("split")
    if value is not None and not (isinstance(value, str) and _SPLIT.fullmatch(value)):
        raise ConfigError(f"rollout(split={value!r}): it is not a name, such as 'train' or 'held-out'")
    return value


def _text(merged: Mapping[str, Any], name: str) -> str:
    value = merged.get(name, "")
    if not isinstance(value, str) or "\0" in value:
        raise ConfigError(f"rollout({name}={value!r}): it is not a text without NUL")
    return clean_text(value)


def _id(merged: Mapping[str, Any], default: str) -> str:
    if "id" not in merged:
        return clean_text(default)
    value = _text(merged, "id").strip()
    if not value or len(value) > 500:
        raise ConfigError(f"rollout(id={merged['id']!r}): it is empty or longer than 500 characters")
    return value


def _workspace(
    merged: Mapping[str, Any], folder: Path, prepare: Callable[[Git | Archive], Folder | None]
) -> Folder | None:
    asked = merged.get("workspace")
    if isinstance(asked, Folder) and asked.source is not None:  # it was made before
        return asked
    if isinstance(asked, Archive):
        path = _path({"workspace": asked.path}, "workspace", folder, "the archive ")
        return prepare(Archive(path=str(path)))
    if isinstance(asked, Git):
        texts = isinstance(asked.url, str) and isinstance(asked.rev, str) and "\0" not in asked.url + asked.rev
        if not texts or not asked.url or not asked.rev or asked.rev.startswith("-"):
            raise ConfigError(f"rollout(workspace={asked!r}): it is not Git(path or address, revision)")
        if asked.is_far:
            return prepare(asked)
        return prepare(Git(str(_path({"workspace": asked.url}, "workspace", folder, "the repository ")), asked.rev))
    return _folder(merged, "workspace", folder)


def _folder(merged: Mapping[str, Any], name: str, folder: Path) -> Folder | None:
    path = _path(merged, name, folder, "the folder ")
    if path is None:
        return None
    if not path.is_dir():
        raise ConfigError(f"rollout({name}={os.fspath(merged[name])!r}): {path} is not a folder")
    return Folder(path=str(path))


def _oracle(merged: Mapping[str, Any], folder: Path) -> str | None:
    path = _path(merged, "oracle", folder, "")
    if path is None:
        return None
    if path.is_dir() and not any(path.iterdir()):
        raise ConfigError(f"rollout(oracle={os.fspath(merged['oracle'])!r}): the folder {path} is empty")
    return str(path)


def _path(merged: Mapping[str, Any], name: str, folder: Path, what: str) -> Path | None:
    """A path beside the test file, where something is; raises ConfigError."""
    value = merged.get(name)
    if value is None:
        return None
    if not isinstance(value, str | os.PathLike) or "\0" in os.fspath(value):
        raise ConfigError(f"rollout({name}={value!r}): it is not a path{' of a folder' if what else ''}")
    path = Path(os.path.abspath(folder / os.path.expanduser(value)))
    if not path.exists():
        raise ConfigError(f"rollout({name}={os.fspath(value)!r}): {what}{path} does not exist")
    return path


def _protect(merged: Mapping[str, Any]) -> tuple[str, ...]:
    value = merged.get("protect", ())
    patterns = [value] if isinstance(value, str) else value
    if not isinstance(patterns, Sequence | set | frozenset) or not all(isinstance(each, str) for each in patterns):
        raise ConfigError(f"rollout(protect={value!r}): it is not a list of globs, such as ['tests/**']")
    for pattern in patterns:
        if not pattern or pattern.startswith("/") or pattern.endswith("/") or ".." in pattern.split("/"):
            hint = "Write paths of the workspace: 'setup.cfg', 'tests/**', '**/conftest.py'."
            raise ConfigError(f"rollout(protect=…): {pattern!r} is not a glob inside the workspace", hint=hint)
    return tuple(sorted({clean_text(pattern.removeprefix("./")) for pattern in patterns}))


def checked_task(task: object, planned: Task, folder: Path, prepare: Callable[[Git | Archive], Folder | None]) -> Task:
    """A task that a suite's own ``rollout_task`` gave, under the rules of the marker; raises ConfigError."""
    where = "the fixture rollout_task"
    if not isinstance(task, Task):
        raise ConfigError(f"{where} gave {task!r}, which is not a Task")
    if (task.id, task.samples) != (planned.id, planned.samples):
        raise ConfigError(f"{where} changed the id or the number of samples, which are fixed when tests are collected")
    given = {name: getattr(task, name) for name in _OF_A_TASK}
    for name in ("workspace", "hidden"):
        if isinstance(given[name], Folder) and given[name].source is None:
            given[name] = given[name].path
    if isinstance(task.limits, Limits) and not task.limits.problems:
        given["limits"] = task.limits.over(planned.limits)
    try:
        return read_task(
            {**given, "id": planned.id},
            default_id=planned.id,
            folder=folder,
            samples=planned.samples,
            prepare=prepare,
        )
    except ConfigError as error:
        raise ConfigError(f"{where}: {error.message}", hint=error.hint) from None


def check_workspace(task: Task, *, results: Path, stage_root: Path, test_file: Path) -> None:
    """Refuse a workspace that holds what an agent must not see; raises ConfigError."""
    if task.workspace is None:
        return
    inside = (
        (results, "the results"),
        (stage_root, "the stages"),
        (test_file, "the test itself"),
    )
    for path, what in inside:
        if is_below(path, task.workspace.path):
            raise ConfigError(
                f"the workspace {task.workspace.path} holds {what} ({path})",
                hint="Move the workspace to a folder of its own.",
            )


def _choice(merged: Mapping[str, Any], name: str, valid: tuple[str, ...]) -> Any:
    value = merged.get(name, valid[0])
    if name == "network" and value == "gateway":
        raise ConfigError("rollout(network='gateway') is not enforced by this version, so it is refused")
    if value not in valid:
        close = nearest(value, valid) if isinstance(value, str) else ""
        raise ConfigError(f"rollout({name}={value!r}): valid: {', '.join(map(repr, valid))}.{close}")
    return value


def _env(merged: Mapping[str, Any]) -> dict[str, str]:
    value = merged.get("env", {})
    if not isinstance(value, dict) or not all(isinstance(k, str) and isinstance(v, str) for k, v in value.items()):
        raise ConfigError(f"rollout(env={value!r}): it is not a dict of texts")
    for name, text in value.items():
        if not name or "=" in name or "\0" in name + text:
            raise ConfigError(f"rollout(env=…): {name!r} is not a name of a variable, or its value has a NUL")
        if name.startswith(_RESERVED):
            raise ConfigError(f"rollout(env=…): {name!r} begins with {_RESERVED}, which is set by the plugin")
    return {clean_text(name): clean_text(text) for name, text in value.items()}


def _seed(merged: Mapping[str, Any]) -> int:
    value = merged.get("seed", 0)
    if type(value) is not int or not 0 <= value < 2**62:
        raise ConfigError(f"rollout(seed={value!r}): it is not a whole number from 0 up")
    return value


def _threshold(merged: Mapping[str, Any]) -> float:
    value = merged.get("threshold", 1.0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ConfigError(f"rollout(threshold={value!r}): it is not a number from 0 to 1")
    return float(value)


def _names(merged: Mapping[str, Any], argument: Literal["tags", "pools"]) -> tuple[str, ...]:
    value = merged.get(argument, ())
    if isinstance(value, str) or not isinstance(value, Sequence | set | frozenset):
        raise ConfigError(f"rollout({argument}={value!r}): it is not a list of texts")
    if not all(isinstance(name, str) and name.strip() for name in value):
        raise ConfigError(f"rollout({argument}={value!r}): a {argument[:-1]} is a text that is not empty")
    return tuple(sorted({clean_text(name.strip()) for name in value}))
