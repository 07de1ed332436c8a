"""The reward: named weighted checks, and their weighted mean in [0, 1].

A check that fails does not end the test, so several failures show together. A mistake of the suite
(a duplicate name, a weight that is not above 0, a value outside [0, 1]) raises
:class:`~pytest_rollout.errors.CheckerError`, which is infrastructure, never a low score.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from types import TracebackType
from typing import Any, Literal

import msgspec

from pytest_rollout.errors import CheckerError
from pytest_rollout.plain import clean_text

__all__ = ["Check", "Reward"]
__tracebackhide__ = True  # pytest shows the suite's line, not ours


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded check; ``message`` tells why it is below 1, where it does."""

    name: str
    weight: float
    value: float
    message: str | None = None


class Reward:
    """What the fixture ``reward`` gives.

    ``failures`` are the exception types that fail a check (AssertionError is always one), but for
    those in ``through``, which end the test; ``render`` turns one into the message that is kept.
    ``held`` are the checks as a control run fixes them, where there was one.
    """

    def __init__(
        self,
        *,
        failures: tuple[type[BaseException], ...] = (),
        through: tuple[type[BaseException], ...] = (),
        render: Callable[[BaseException], str] = str,
    ) -> None:
        self._failures = (AssertionError, *failures)
        self._through: tuple[type[BaseException], ...] = (CheckerError, *through)
        self._render = render
        self._open: set[str] = set()
        self.checks: list[Check] = []
        self.metrics: dict[str, float] = {}
        self.direct: Check | None = None
        self.held: tuple[Check, ...] | None = None
        self.problem: CheckerError | None = None
        self.judged = False

    def check(self, name: str, weight: float = 1, catch: tuple[type[BaseException], ...] = ()) -> _Checking:
        """A block whose assertions decide one check: 1 when it ends, 0 when an assertion fails in it.

        ``catch`` names further exception types that mean 0. Raises CheckerError for a name that was
        used before and for a weight that is not a finite number above 0.
        """
        types: Any = catch if isinstance(catch, tuple) else (catch,)
        if not all(isinstance(item, type) and issubclass(item, BaseException) for item in types):
            raise self._mistake(f"reward.check({name!r}): catch={catch!r} is not a tuple of exception types")
        clean_name = self._claim("check", name)
        return _Checking(self, clean_name, self._weight("check", name, weight), self._failures + types)

    def add(self, name: str, value: float, weight: float = 1) -> None:
        """Record a check with a value in [0, 1]. Raises CheckerError as :meth:`check` does."""
        clean_name = self._claim("add", name)
        self._record(clean_name, self._weight("add", name, weight), self._value("add", name, value))

    def set(self, value: float, *, reason: str | None = None) -> None:
        """Set the reward itself, once, in a test that records no check beside it."""
        self._name("set", "reward")
        if self.direct is not None or self.checks or self._open:
            raise self._mistake("reward.set(): the reward was set before, or checks are recorded beside it")
        self.direct = Check(
            name="reward",
            weight=1.0,
            value=self._value("set", "reward", value),
            message=None if reason is None else clean_text(str(reason)),
        )

    def metric(self, name: str, number: float) -> None:
        """Record a finite number that is not part of the reward (seconds, tokens, a distance)."""
        key = self._name("metric", name)
        if key in self.metrics:
            raise self._mistake(f"reward.metric({name!r}): there is a metric of this name already")
        value = self._number(number)
        if value is None:
            raise self._mistake(f"reward.metric({name!r}): {number!r} is not a finite number")
        self.metrics[key] = value

    @property
    def recorded(self) -> bool:
        """Whether the test recorded anything that makes a reward."""
        return bool(self.checks or self.direct or self._open)

    @property
    def all_checks(self) -> tuple[Check, ...]:
        """The checks as recorded and held, or the reward that was set, as one."""
        if self.direct is not None:
            return (self.direct,)
        return tuple(self.checks) if self.held is None else self.held

    @property
    def value(self) -> float | None:
        """The weighted mean of the checks, the value that was set, or ``None``."""
        checks = self.all_checks
        if not checks:
            return None
        heaviest = max(check.weight for check in checks)
        weights = [check.weight / heaviest for check in checks]
        return math.fsum(check.value * weight for check, weight in zip(checks, weights, strict=True)) / math.fsum(
            weights
        )

    def _claim(self, method: str, name: object) -> str:
        key = self._name(method, name)
        if self.direct is not None:
            raise self._mistake(f"reward.{method}({name!r}): the reward was set with reward.set() already")
        if key in self._open or any(check.name == key for check in self.checks):
            raise self._mistake(f"reward.{method}({name!r}): there is a check of this name already")
        return key

    def _name(self, method: str, name: object) -> str:
        if self.judged:
            raise self._mistake(f"reward.{method}({name!r}): the rollout is judged already")
        if not isinstance(name, str) or not name.strip():
            raise self._mistake(f"reward.{method}({name!r}): a name is a text that is not empty")
        return clean_text(str(name))

    def _weight(self, method: str, name: object, weight: object) -> float:
        number = self._number(weight)
        if number is None or number <= 0 or isinstance(weight, bool):
            raise self._mistake(f"reward.{method}({name!r}): weight {weight!r} is not a finite number above 0")
        return number

    def _value(self, method: str, name: object, value: object) -> float:
        number = self._number(value)
        if number is None or not 0 <= number <= 1:
            raise self._mistake(f"reward.{method}({name!r}): {value!r} is not a number in [0, 1]")
        return number

    @staticmethod
    def _number(value: object) -> float | None:
        if not isinstance(value, numbers.Real):
            return None
        try:
            number = float(value)
        except (OverflowError, ValueError):
            return None
        return number if math.isfinite(number) else None

    def _record(self, name: str, weight: float, value: float, message: str | None = None) -> None:
        self.checks.append(Check(name=name, weight=weight, value=value, message=message))

    def _mistake(self, message: str) -> CheckerError:
        self.problem = CheckerError(clean_text(message))
        return self.problem


class _Checking:
    """The context manager of one check."""

    def __init__(self, reward: Reward, name: str, weight: float, failures: tuple[type[BaseException], ...]) -> None:
        self._reward, self._name, self._weight, self._failures = reward, name, weight, failures

    def __enter__(self) -> None:
        self._reward._open.add(self._reward._claim("check", self._name))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False] | bool:
        reward = self._reward
        reward._open.discard(self._name)
        if error is None:
            reward._record(self._name, self._weight, 1.0)
            return False
        if isinstance(error, reward._through) or not isinstance(error, self._failures):
            return False
        reward._record(self._name, self._weight, 0.0, clean_text(reward._render(error)))
        return True
