"""What an attempt, and judging it, may use at most.

:class:`Limits` is what a suite writes. It keeps what it could not read as ``problems``, so that the
message can name the test that it stands on instead of pointing into an import. :class:`Resources` is
the part of it that an executor enforces on a process tree.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import msgspec

from pytest_rollout.plain import clean, nearest

__all__ = ["DEFAULT_LIMITS", "Limits", "Resources", "parse_count", "parse_duration", "parse_size"]

_DURATIONS: dict[str, int | Fraction] = {"ms": Fraction(1, 1000), "s": 1, "m": 60, "h": 3600, "": 1}
_SIZES = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_QUANTITY = re.compile(r"\s*(\d{1,30}(?:\.\d{1,30})?)\s*([A-Za-z]*)\s*", re.ASCII)
_MOST = 2**63
_MOST_COUNT = 1_000_000_000
_LEAST_MEMORY, _LEAST_FILES = 4 * 2**20, 16
_EVALUATION_MEMORY, _EVALUATION_PROCESSES = 512 * 2**20, 64


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


def parse_count(value: object) -> int:
    """A whole number above 0; raises ValueError with a text that names the value."""
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= _MOST_COUNT:
        raise ValueError(f"{_shown(value)} is not a count: write a whole number from 1 to {_MOST_COUNT}")
    return value


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


class Resources(msgspec.Struct, frozen=True, kw_only=True):
    """What one command's process tree may use; None is no limit. Bytes, seconds of processors, counts."""

    memory: int | None = None
    cpu: float | None = None
    processes: int | None = None
    open_files: int | None = None
    file_size: int | None = None
    disk: int | None = None
    files: int | None = None


@dataclass(frozen=True, slots=True, init=False)
class Limits:
    """What an attempt, and judging it, may use.

    Seconds, as a number or a text (``"5m"``): ``wall`` is time on the clock for the agent and ``cpu`` time on
    processors, over all its processes; ``evaluation`` is for one trusted evaluation (``bundle.run_tests``, ``call``,
    ``run``, ``evaluate``), ``body`` for the body of the test without those.
    Bytes, as a number or a text (``"10MiB"``): ``output`` is kept of each of stdout and stderr (half from the head,
    half from the tail; the rest is drained and counted); ``memory`` is of all the agent's processes; ``disk`` is what
    they may add to the stage, ``file_size`` the largest file.
    Counts: ``processes`` (and threads) at once, ``files`` added to the stage, ``open_files`` of a process.
    A limit that is left out comes from the enclosing class or module, then from the default.
    """

    wall: float | None
    output: int | None
    evaluation: float | None
    body: float | None
    memory: int | None
    cpu: float | None
    processes: int | None
    open_files: int | None
    file_size: int | None
    disk: int | None
    files: int | None
    problems: tuple[str, ...]

    def __init__(
        self,
        *,
        wall: float | str | None = None,
        output: int | str | None = None,
        evaluation: float | str | None = None,
        body: float | str | None = None,
        memory: int | str | None = None,
        cpu: float | str | None = None,
        processes: int | None = None,
        open_files: int | None = None,
        file_size: int | str | None = None,
        disk: int | str | None = None,
        files: int | None = None,
        **unknown: object,
    ) -> None:
        problems = [_unknown_limit(name) for name in unknown]
        given = {"wall": wall, "output": output, "evaluation": evaluation, "body": body, "memory": memory, "cpu": cpu}
        given |= {
            "processes": processes,
            "open_files": open_files,
            "file_size": file_size,
            "disk": disk,
            "files": files,
        }
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

    def of_agent(self) -> dict[str, float | None]:
        """Those that hold for the agent: wall and output, and of the others what was asked for."""
        asked = {name: getattr(self, name) for name in Resources.__struct_fields__}
        return {
            "wall": self.wall,
            "output": self.output,
            **{name: value for name, value in asked.items() if value is not None},
        }

    def resources(self) -> Resources:
        """What the agent's processes may use."""
        return Resources(**{name: getattr(self, name) for name in Resources.__struct_fields__})

    def resources_of_evaluation(self) -> Resources:
        """What one evaluation's processes may use: as the agent's, but never less than a test runner needs."""
        return Resources(
            memory=None if self.memory is None else max(self.memory, _EVALUATION_MEMORY),
            processes=None if self.processes is None else max(self.processes, _EVALUATION_PROCESSES),
            disk=self.disk,
            files=self.files,
        )


def _memory(value: object) -> int:
    return _at_least(parse_size(value), _LEAST_MEMORY, f"{_shown(value)} is less memory than a shell needs: 4MiB")


def _open_files(value: object) -> int:
    return _at_least(parse_count(value), _LEAST_FILES, f"{_shown(value)} is less than a shell needs: {_LEAST_FILES}")


def _at_least(number: int, least: int, message: str) -> int:
    if number < least:
        raise ValueError(message)
    return number


_LIMITS: dict[str, Callable[[object], float | int]] = {
    "wall": parse_duration,
    "output": parse_size,
    "evaluation": parse_duration,
    "body": parse_duration,
    "memory": _memory,
    "cpu": parse_duration,
    "processes": parse_count,
    "open_files": _open_files,
    "file_size": parse_size,
    "disk": parse_size,
    "files": parse_count,
}


def _unknown_limit(name: str) -> str:
    valid = ", ".join(map(repr, _LIMITS))
    return f"Limits({name}=…): there is no such limit; valid: {valid}.{nearest(name, _LIMITS)}"


DEFAULT_LIMITS = Limits(wall=600.0, output=10 * 2**20, evaluation=60.0, body=300.0)
