"""Agents that are one command: the words that run, the fields in them, and the digest of a definition."""

from __future__ import annotations

import re
from typing import Any, cast

import pytest

from pytest_rollout.agents.command import FIELDS, CommandAgent, check_fields
from pytest_rollout.agents.protocol import AgentInfo, Episode, LiveStage
from pytest_rollout.bundle import Captured, Ended
from pytest_rollout.errors import ConfigError
from pytest_rollout.executors.protocol import Bind
from pytest_rollout.task import Task

EPISODE = Episode(
    rollout="3f9ac01d-t-0-s2", task=Task(id="t.py::test", prompt="Say {hi} & 'bye'."), sample=2, attempt=1, seed=9
)
BRACES = "In a list, a brace that is meant is written twice: {{ or }}."
VALID = "prompt, prompt_file, task, sample, attempt, seed, rollout_id"


class FakeStage:
    """Notes what is executed in it, and ends at once."""

    episode = EPISODE
    prompt_file = "/rollout/prompt"

    def __init__(self) -> None:
        self.executed: list[tuple[list[str], dict[str, str], tuple[Bind, ...]]] = []

    def environment(self, path: str) -> dict[str, str]:
        return {"PATH": path, "ROLLOUT_ID": "3f9ac01d-t-0-s2"}

    def execute(self, argv: list[str], *, env: dict[str, str], binds: tuple[Bind, ...]) -> Ended:
        self.executed.append((argv, env, binds))
        out = Captured(file="stdout")
        return Ended(exit_code=0, termination="completed", stdout=out, stderr=out)


# The words


def test_a_text_runs_under_sh_as_it_is() -> None:
    agent = CommandAgent(name="a", command="echo {prompt} {} $HOME")
    assert agent.argv(EPISODE, "/p") == ["sh", "-c", "echo {prompt} {} $HOME"]


def test_the_fields_of_a_list_are_filled_word_by_word() -> None:
    words = tuple(f"{name}={{{name}}}" for name in FIELDS)
    assert CommandAgent(name="a", command=words).argv(EPISODE, "/rollout/prompt") == [
        "prompt=Say {hi} & 'bye'.",
        "prompt_file=/rollout/prompt",
        "task=t.py::test",
        "sample=2",
        "attempt=1",
        "seed=9",
        "rollout_id=3f9ac01d-t-0-s2",
    ]


def test_braces_that_are_meant_are_written_twice() -> None:
    agent = CommandAgent(name="a", command=("x", "{{}}", '{{"seed": {seed}}}', "{seed}{sample}"))
    assert agent.argv(EPISODE, "/p") == ["x", "{}", '{"seed": 9}', "92"]


def test_it_runs_with_its_own_variables_below_those_of_the_stage() -> None:
    bind = Bind(source="/usr", target="/opt/tools")
    agent = CommandAgent(name="a", command=("x",), env={"MODEL": "m", "ROLLOUT_ID": "forged"}, binds=(bind,))
    stage = FakeStage()
    ended = agent.run(cast(LiveStage, stage))
    assert ended.termination == "completed"
    assert stage.executed == [
        (
            ["x"],
            {"MODEL": "m", "PATH": "/opt/tools/bin:/usr/local/bin:/usr/bin:/bin", "ROLLOUT_ID": "3f9ac01d-t-0-s2"},
            (bind,),
        )
    ]


# The fields


@pytest.mark.parametrize("words", [["{prompt}"], ["a{seed}b{task}", "{{x}}"], ["plain", ""], []])
def test_words_that_are_good(words: list[str]) -> None:
    check_fields(words, "w")


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("{promt}", f"has the field 'promt'; valid: {VALID}. Did you mean 'prompt'?"),
        ("{}", f"has the field ''; valid: {VALID}."),
        ("{0}", f"has the field '0'; valid: {VALID}."),
        ("{prompt.__class__}", f"has the field 'prompt.__class__'; valid: {VALID}."),
        ("{prompt[0]}", f"has the field 'prompt[0]'; valid: {VALID}. Did you mean 'prompt'?"),
        ("{seed:05d}", f"has the field 'seed:05d'; valid: {VALID}. Did you mean 'seed'?"),
        ("{seed:{wide}}", f"has the field 'seed:{{wide}}'; valid: {VALID}."),
        ("{prompt!r}", f"has the field 'prompt!r'; valid: {VALID}. Did you mean 'prompt'?"),
        ("{ prompt }", f"has the field ' prompt '; valid: {VALID}. Did you mean 'prompt'?"),
    ],
)
def test_a_field_that_is_not_there(word: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_fields(["{prompt}", word], "[agents.a] command")
    assert str(caught.value) == f"[agents.a] command: {word!r} {message}\n{BRACES}"


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("{", "Single '{' encountered in format string"),
        ("}", "Single '}' encountered in format string"),
        ("{prompt", "expected '}' before end of string"),
    ],
)
def test_a_brace_that_stands_alone(word: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_fields([word], "w")
    assert str(caught.value) == f"w: {word!r}: {message}\n{BRACES}"


# The digest

BASE = CommandAgent(name="a", command=("x", "y"), env={"A": "1", "B": "2"}, infra_exit_codes=(75,), pins={"m": 1})


def test_what_is_recorded_of_it() -> None:
    info = CommandAgent(name="a", command="x", version="v1", pins={"model": "m"}).info
    assert isinstance(info, AgentInfo)
    assert (info.name, info.version, info.pins) == ("a", "v1", {"model": "m"})
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", info.digest or "")


@pytest.mark.parametrize(
    "changes",
    [
        {"command": ("x", "z")},
        {"command": "x y"},
        {"env": {"A": "1"}},
        {"binds": (Bind(source="/a", target="/b"),)},
        {"infra_exit_codes": ()},
    ],
    ids=str,
)
def test_what_changes_an_agent_changes_its_digest(changes: dict[str, Any]) -> None:
    changed = CommandAgent(**{**fields(), **changes})
    assert changed.info.digest != BASE.info.digest


@pytest.mark.parametrize(
    "changes",
    [{"env": {"B": "other", "A": "secret"}}, {"name": "b"}, {"version": "v2"}, {"pins": {}}, {"command": ["x", "y"]}],
    ids=str,
)
def test_values_of_variables_and_what_is_recorded_beside_it_leave_the_digest(changes: dict[str, Any]) -> None:
    changed = CommandAgent(**{**fields(), **changes})
    assert changed.info.digest == BASE.info.digest


def fields() -> dict[str, Any]:
    return {name: getattr(BASE, name) for name in BASE.__struct_fields__}
