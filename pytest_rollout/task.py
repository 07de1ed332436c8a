"""A task: what is asked of an agent, as a frozen value.

:class:`Limits` is what a suite writes; it keeps what it could not read as ``problems``, so that the
message can name the test that it stands on instead of pointing into an import.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import msgspec

from pytest_rollout.identity import canonical_digest
from pytest_rollout.plain import clean, nearest

__all__ = ["DEFAULT_LIMITS", "Archive", "Folder", "Git", "Limits", "Task", "parse_duration", "parse_size"]

Network = Literal["none", "host"]
ScoreOn = Literal["any", "completed"]

_DURATIONS: dict[str, int | Fraction] = {"ms": Fraction(1, 1000), "s": 1, "m": 60, "h": 3600, "": 1}
_SIZES = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_QUANTITY = re.compile(r"\s*(\d{1,30}(?:\.\d{1,30})?)\s*([A-Za-z]*)\s*", re.ASCII)
_MOST = 2**63
_ADDRESS = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://|[^/@]+@[^/:]+:")
_LATER_LIMITS = ("cpu", "disk", "memory", "open_files", "processes", "file_size")


def parse_duration(value: object) -> float:
    """Seconds, from a number of seconds or a text such as ``"90s"``, ``"5m"``, ``"1.5h"``, ``"200ms"``.

    Raises ValueError with a text that names the value.
    """
    seconds = float(_quantity(value, _DURATIONS))
    if not 0 < seconds < _MOST:
        raise ValueError(f"{_shown(value)} is not a duration: write seconds above 0, or a text like '90s', '5m', '1h'")
    return seconds


def parse_size(value: object) -> int:
    """Bytes, from a number of bytes or a text such as ``"10MiB"``, ``"2GiB"``, ``"500kB"``.

    Raises ValueError with a text that names the value.
    """
    number = _quantity(value, _SIZES)
    if not 1 <= number < _MOST or number != int(number):
        raise ValueError(
            f"{_shown(value)} is not a size: write whole bytes above 0, or a text like '500kB', '10MiB', '2GiB'"
        )
    return int(number)


def _quantity(value: object, units: Mapping[str, int | Fraction]) -> float | Fraction:
    """The number that ``value`` means, exactly; 0 where it means none, which is valid nowhere."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value if abs(value) < _MOST else 0
    match = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
    return Fraction(match[1]) * units.get(match[2].lower(), 0) if match else 0


def _shown(value: object) -> str:
    try:
        return repr(value)
    except ValueError:  # an int of more digits than Python writes
        return str(clean(value))


@dataclass(frozen=True, slots=True, init=False)
class Limits:
    """What an attempt, and judging it, may use.

    ``wall`` is time on the clock for the agent, ``evaluation`` for one trusted evaluation
    (``bundle.run_tests``, ``call``, ``run``, ``evaluate``), ``body`` for the body of the test without
    those; all in seconds. ``output`` is how many bytes are kept of each of stdout and stderr (half from
    the head, half from the tail; the rest is drained and counted). Each takes a number or a text
    (``"5m"``, ``"10MiB"``). A limit that is left out comes from the enclosing class or module, then
    from the default.
    """

    wall: float | None
    output: int | None
    evaluation: float | None
    body: float | None
    problems: tuple[str, ...]

    def __init__(
        self,
        *,
        wall: float | str | None = None,
        output: int | str | None = None,
        evaluation: float | str | None = None,
        body: float | str | None = None,
        **unknown: object,
    ) -> None:
        problems = [_unknown_limit(name) for name in unknown]
        given = {"wall": wall, "output": output, "evaluation": evaluation, "body": body}
        for name, value in given.items():
            parsed = None
            if value is not None:
                try:
                    parsed = _LIMITS[name](value)
                except ValueError as error:
                    problems.append(f"Limits({name}=…): {error}")
            object.__setattr__(self, name, parsed)
        object.__setattr__(self, "problems", tuple(problems))

    def over(self, other: Limits) -> Limits:
        """These limits, completed by ``other`` where they say nothing."""
        values: dict[str, Any] = {name: getattr(self, name) for name in _LIMITS}
        completed = Limits(**{name: getattr(other, name) if value is None else value for name, value in values.items()})
        object.__setattr__(completed, "problems", (*self.problems, *other.problems))
        return completed


_LIMITS: dict[str, Callable[[object], float | int]] = {
    "wall": parse_duration,
    "output": parse_size,
    "evaluation": parse_duration,
    "body": parse_duration,
}


def _unknown_limit(name: str) -> str:
    valid = ", ".join(map(repr, _LIMITS))
    if name in _LATER_LIMITS:
        return f"Limits({name}=…) is not enforced by this version, so it is refused; valid: {valid}"
    return f"Limits({name}=…): there is no such limit; valid: {valid}.{nearest(name, _LIMITS)}"


DEFAULT_LIMITS = Limits(wall=600.0, output=10 * 2**20, evaluation=60.0, body=300.0)


class Folder(msgspec.Struct, frozen=True, kw_only=True, tag="folder", omit_defaults=True):
    """A folder: a workspace, hidden files; ``path`` is absolute.

    Of one that was made from a repository or an archive, ``source`` says from which, and ``commit`` from which commit;
    ``notes`` are what an author should know of it.
    """

    path: str
    source: str | None = None
    commit: str | None = None
    notes: tuple[str, ...] = ()


class Git(msgspec.Struct, frozen=True, tag="git"):
    """A workspace from a repository: ``url`` is a folder beside the test file, or an address.

    ``rev`` is what git takes for a revision.
    The agent gets the files of that commit, in a repository with one commit of its own and nothing else: no history, no
    other branch, no remote.
    """

    url: str
    rev: str = "HEAD"

    @property
    def is_far(self) -> bool:
        """Whether this is an address, and not the path of a folder."""
        return _ADDRESS.match(self.url) is not None


class Archive(msgspec.Struct, frozen=True, tag="archive"):
    """A workspace from a tar or zip file beside the test file."""

    path: str


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked: the prompt, the workspace, the limits, the network; and what the evaluator has for it.

    ``limits`` is complete (no ``None``). ``workspace=None`` is an empty stage. ``seed`` is that of
    sample 0; sample k gets ``seed + k``. ``hidden`` is the evaluator's files, ``protect`` globs of
    paths that the agent may not change, ``oracle`` the path of a solution, which no agent sees.
    ``pools`` are the names of pools of which a rollout takes a place while its agent runs.
    """

    id: str
    prompt: str = ""
    workspace: Folder | None = None
    limits: Limits = DEFAULT_LIMITS
    network: Network = "none"
    env: dict[str, str] = msgspec.field(default_factory=dict)
    samples: int = 1
    seed: int = 0
    threshold: float = 1.0
    score_on: ScoreOn = "any"
    tags: tuple[str, ...] = ()
    hidden: Folder | None = None
    protect: tuple[str, ...] = ()
    oracle: str | None = None
    pools: tuple[str, ...] = ()

    def replace(self, **changes: Any) -> Task:
        """A copy with some fields changed, for a suite that overrides the fixture ``rollout_task``."""
        return msgspec.structs.replace(self, **changes)

    def digest(self) -> str:
        """What two results must share to be of the same task; workspace and checks have revisions of their own."""
        return canonical_digest(
            {
                "prompt": self.prompt,
                "limits": {"wall": self.limits.wall, "output": self.limits.output},
                "network": self.network,
                "env": self.env,
                "threshold": self.threshold,
                "score_on": self.score_on,
                "protect": list(self.protect),
            }
        )
