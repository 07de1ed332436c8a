"""The error tree: who is whose child, what each carries, and that all of it survives a pickle."""

from __future__ import annotations

import copy
import errno
import os
import pickle
import re

import pytest

from pytest_rollout import errors
from pytest_rollout.errors import (
    AgentError,
    AgentFailure,
    AuthenticationError,
    Cancelled,
    CandidateError,
    CheckerError,
    ConfigError,
    EvaluatorError,
    EvidenceError,
    FixtureError,
    HostError,
    InfraError,
    IsolationError,
    ProviderError,
    RecordingError,
    RolloutError,
    SelectorError,
    SpawnError,
    StageError,
)
from pytest_rollout.outcome import INFRA_KINDS

NAMES = [name for name in errors.__all__ if name[0].isupper()]
ALL: list[type[RolloutError]] = [getattr(errors, name) for name in NAMES]
INFRA = [kind for kind in ALL if issubclass(kind, InfraError)]


def test_the_tree() -> None:
    assert {kind: kind.__bases__ for kind in ALL} == {
        RolloutError: (Exception,),
        ConfigError: (RolloutError,),
        SelectorError: (RolloutError,),
        EvidenceError: (RolloutError, AssertionError),
        CandidateError: (EvidenceError,),
        CheckerError: (RolloutError,),
        AgentFailure: (RolloutError,),
        InfraError: (RolloutError,),
        StageError: (InfraError,),
        IsolationError: (InfraError,),
        SpawnError: (InfraError,),
        AgentError: (InfraError,),
        ProviderError: (InfraError,),
        AuthenticationError: (InfraError,),
        RecordingError: (InfraError,),
        FixtureError: (InfraError,),
        HostError: (InfraError,),
        EvaluatorError: (InfraError,),
        Cancelled: (InfraError,),
    }


def test_the_tree_that_the_module_draws_is_the_tree() -> None:
    assert errors.__doc__ is not None
    drawn = re.findall(r"^    (\W*)(\w+)", errors.__doc__.split("::", 1)[1], re.MULTILINE)
    assert {name for _, name in drawn} == set(NAMES)
    parents: dict[str, str] = {}
    path: list[str] = []
    for indent, name in drawn:
        del path[len(indent) // 4 :]
        if path:
            parents[name] = path[-1]
        path.append(name)
    assert parents == {kind.__name__: kind.__bases__[0].__name__ for kind in ALL if kind is not RolloutError}


def test_every_infrastructure_error_has_a_kind_of_the_table() -> None:
    assert {kind: kind.kind for kind in INFRA if kind is not InfraError} == {
        StageError: "stage",
        IsolationError: "isolation",
        SpawnError: "spawn",
        AgentError: "agent",
        ProviderError: "provider",
        AuthenticationError: "authentication",
        RecordingError: "recording",
        FixtureError: "fixture",
        HostError: "host",
        EvaluatorError: "evaluator",
        Cancelled: "cancelled",
    }
    assert {kind.kind for kind in INFRA} <= set(INFRA_KINDS)


@pytest.mark.parametrize("kind", ALL)
def test_the_text_is_the_message_and_the_hint(kind: type[RolloutError]) -> None:
    error = kind("the value 'x' is odd", hint="Say 'y'.")
    assert (error.message, error.hint) == ("the value 'x' is odd", "Say 'y'.")
    assert str(error) == "the value 'x' is odd\nSay 'y'."
    assert error.args == ("the value 'x' is odd",)
    plain = kind("only this")
    assert (str(plain), plain.hint) == ("only this", "")


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_an_error_survives_a_pickle_with_all_that_it_carries(kind: type[RolloutError], protocol: int) -> None:
    error = kind("message", hint="hint")
    error.add_note("a note")
    back = pickle.loads(pickle.dumps(error, protocol))
    assert type(back) is kind
    assert back.__dict__ == error.__dict__
    assert (back.message, back.hint, back.args, str(back)) == ("message", "hint", ("message",), "message\nhint")
    assert back.__notes__ == ["a note"]
    assert copy.copy(error).__dict__ == error.__dict__


@pytest.mark.parametrize("kind", INFRA)
def test_what_is_forgeable_stays_forgeable(kind: type[InfraError]) -> None:
    assert kind("m").forgeable is False
    back = pickle.loads(pickle.dumps(kind("m", hint="h", forgeable=True)))
    assert (back.forgeable, back.hint, back.kind) == (True, "h", kind.kind)


def test_a_message_alone_is_positional() -> None:
    for kind in ALL:
        with pytest.raises(TypeError):
            kind("m", "h")  # type: ignore[call-arg]


def test_missing_evidence_is_an_assertion_and_a_broken_harness_is_not() -> None:
    found = [kind.__name__ for kind in ALL if issubclass(kind, AssertionError)]
    assert found == ["CandidateError", "EvidenceError"]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (errno.ENOSPC, HostError),
        (errno.EDQUOT, HostError),
        (errno.EACCES, RecordingError),
        (errno.ENOENT, RecordingError),
    ],
)
def test_what_can_not_be_written_is_ours_unless_the_disk_is_full(code: int, kind: type[InfraError]) -> None:
    error = errors.recording_error("a record", "/x/y", OSError(code, os.strerror(code)))
    assert type(error) is kind
    assert str(error) == f"a record can't be written to /x/y: {os.strerror(code)}"
    assert error.forgeable is False
