"""The errors of pytest-rollout.

::

    RolloutError
    ├── ConfigError              the user's mistake: an option, a marker, rollout.toml, a folder
    ├── SelectorError            the console tool was asked for a rollout that is not there
    ├── EvidenceError            (AssertionError) evidence of the candidate's is missing or unreadable
    │   └── CandidateError       the candidate's code raised, hung, or gave what can't be taken
    ├── CheckerError             the checks of a suite misuse the reward
    ├── AgentFailure             raised by a callable agent: the agent failed, the harness did not
    └── InfraError               the harness failed; ``kind`` says where
        ├── StageError           stage       the stage could not be provisioned
        ├── IsolationError       isolation   the machine refused to isolate
        ├── SpawnError           spawn       the agent's program was not started
        ├── AgentError           agent       the agent says, or shows, that it is broken itself
        ├── ProviderError        provider    a model's provider failed, not the model: a callable agent raises it
        ├── AuthenticationError  authentication  the provider refused the credentials; likewise
        ├── FixtureError         fixture     a fixture of the suite gave what can't be used
        ├── RecordingError       recording   evidence could not be recorded
        ├── HostError            host        the machine ran out of something
        ├── EvaluatorError       evaluator   the checks can't be run as they are written
        └── Cancelled            cancelled   the session ended first

Every error carries a message, an optional hint (what to do about it) and pickles.
"""

from __future__ import annotations

import errno
import os
from typing import Any, ClassVar

__all__ = [
    "AgentError",
    "AgentFailure",
    "AuthenticationError",
    "Cancelled",
    "CandidateError",
    "CheckerError",
    "ConfigError",
    "EvaluatorError",
    "EvidenceError",
    "FixtureError",
    "HostError",
    "InfraError",
    "IsolationError",
    "ProviderError",
    "RecordingError",
    "RolloutError",
    "SelectorError",
    "SpawnError",
    "StageError",
]


class RolloutError(Exception):
    """The root of the tree.

    ``message`` says what is wrong and names the value; ``hint`` says what to do, or is empty.
    """

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.__dict__.copy())


def _rebuild(cls: type[RolloutError], message: str, state: dict[str, Any]) -> RolloutError:
    error = cls(message)
    error.__dict__.update(state)
    return error


class ConfigError(RolloutError):
    """The user said something that can't be used."""


class SelectorError(RolloutError):
    """No rollout, or more than one, fits a selector."""


class EvidenceError(RolloutError, AssertionError):
    """The candidate's evidence is missing or unreadable: an assertion, so the candidate's failure."""


class CandidateError(EvidenceError):
    """The candidate's code was run for a check, and raised, ended, hung, or gave what can't be taken."""


class CheckerError(RolloutError):
    """A check was recorded that can't be scored: infrastructure, kind ``evaluator``."""


class AgentFailure(RolloutError):
    """Raise it from a callable agent when the agent, not the harness, failed."""


class InfraError(RolloutError):
    """The harness failed, so nothing was measured.

    ``kind`` is one of the kinds of :data:`pytest_rollout.outcome.INFRA_KINDS`. ``forgeable`` is true
    where the candidate could have brought the event about itself. ``earlier`` are the attempts before it.
    """

    kind: ClassVar[str] = "stage"
    earlier: tuple[Any, ...] = ()

    def __init__(self, message: str, *, hint: str = "", forgeable: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.forgeable = forgeable


class StageError(InfraError):
    """The stage could not be provisioned."""

    kind = "stage"


class IsolationError(InfraError):
    """The isolation that was asked for is refused by this machine."""

    kind = "isolation"


class SpawnError(InfraError):
    """The agent's program is missing or was not started."""

    kind = "spawn"


class AgentError(InfraError):
    """The agent is broken: it raised, or ended with an exit code that it declared for that."""

    kind = "agent"


class ProviderError(InfraError):
    """Raise it from a callable agent when the provider of its model failed: it is down, or limits the rate."""

    kind = "provider"


class AuthenticationError(InfraError):
    """Raise it from a callable agent when a provider refused its credentials."""

    kind = "authentication"


class FixtureError(InfraError):
    """A fixture of the suite gave a task or an agent that can't be used."""

    kind = "fixture"


class RecordingError(InfraError):
    """The evidence could not be recorded."""

    kind = "recording"


class HostError(InfraError):
    """The machine ran out of memory, disk, processes or descriptors."""

    kind = "host"


class EvaluatorError(InfraError):
    """A trusted evaluation can't be made as the test asks for it.

    ``asked`` says that it is about a value that the test passed, which may have come from what the candidate wrote.
    """

    kind = "evaluator"

    def __init__(self, message: str, *, hint: str = "", forgeable: bool = False, asked: bool = False) -> None:
        super().__init__(message, hint=hint, forgeable=forgeable)
        self.asked = asked


class Cancelled(InfraError):
    """The session ended before the rollout did."""

    kind = "cancelled"


def recording_error(what: str, path: str | os.PathLike[str], error: OSError) -> RecordingError | HostError:
    """Our own folder failed: recording, or host where the disk is full."""
    kind = HostError if error.errno in (errno.ENOSPC, errno.EDQUOT) else RecordingError
    return kind(f"{what} can't be written to {os.fspath(path)}: {error.strerror}")
