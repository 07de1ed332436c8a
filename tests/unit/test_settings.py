"""Every setting from each of its sources, and every refusal with its words."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from pytest_rollout.errors import ConfigError
from pytest_rollout.knobs import KNOBS
from pytest_rollout.retries import DEFAULT_RETRIES
from pytest_rollout.settings import CHANGEABLE, Settings, resolve

ROOT, INVOKED, INI = Path("/proj"), Path("/proj/here"), Path("/proj/ini")


def settings(options: dict[str, Any] | None = None, ini: dict[str, Any] | None = None) -> Settings:
    return resolve(options or {}, ini or {}, root=ROOT, invoked=INVOKED, ini_folder=INI)


def refusal(options: dict[str, Any] | None = None, ini: dict[str, Any] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        settings(options, ini)
    return str(caught.value)


def test_the_defaults() -> None:
    assert settings() == Settings(
        agent=None,
        agent_from="",
        samples=None,
        samples_from="default",
        agent_forced=False,
        pins={},
        executor="sandbox",
        isolation="required",
        keep="failed",
        dir="/proj/.rollout",
        stage_root=None,
        config="/proj/ini/rollout.toml",
        config_given=False,
        keep_runs=50,
        root="/proj",
        audit=False,
        audit_repeats=3,
        controls="auto",
    )


def test_what_pytest_gives_for_nothing_is_nothing() -> None:
    options = {knob.name: None for knob in KNOBS if knob.option}
    assert settings(options, {knob.name: "" for knob in KNOBS}) == settings()


# name, how the command line and the ini file write it, and the fields that each makes
FROM_OPTION: list[tuple[str, Any, dict[str, Any]]] = [
    ("agent", "good", {"agent": "good", "agent_from": "--rollout-agent", "agent_forced": True}),
    ("pin", ["a=1", "b = x=y "], {"pins": {"a": "1", "b": "x=y"}}),
    ("samples", "4", {"samples": 4, "samples_from": "command line"}),
    ("isolation", "none", {"isolation": "none", "executor": "local"}),
    ("isolation", "required", {}),
    ("isolation", "preferred", {"isolation": "preferred"}),
    ("executor", "sandbox", {}),
    ("rung", "2", {"rung": 2}),
    ("keep", "all", {"keep": "all"}),
    ("keep", "none", {"keep": "none"}),
    ("dir", "out", {"dir": "/proj/here/out"}),
    ("dir", "../out/./x", {"dir": "/proj/out/x"}),
    ("dir", "/abs", {"dir": "/abs"}),
    ("audit", True, {"audit": True}),
    ("audit", False, {}),
    ("controls", "none", {"controls": "none"}),
    ("controls", "auto", {}),
    ("github", "none", {"github": "none"}),
    ("slots", "8", {"slots": 8}),
    (
        "gate",
        ["measured > 0.9", " a for tag:b"],
        {"gate": ["measured > 0.9", "a for tag:b"], "gate_from": "command line"},
    ),
    ("gate_untrusted", True, {"gate_untrusted": True}),
    ("rescore", "last", {"rescore": "last"}),
    ("retries", "0, agent=2", {"retries": {**dict.fromkeys(DEFAULT_RETRIES, 0), "agent": 2}}),
    ("retry_forgeable", True, {"retry_forgeable": True}),
    ("max_infra", "0", {"max_infra": 0}),
    ("preflight", True, {"preflight": True}),
    ("resume", " last ", {"resume": "last"}),
    ("resume_changed", [], {}),
    ("shard", "3/8", {"shard": "3/8"}),
]
FROM_INI: list[tuple[str, Any, dict[str, Any]]] = [
    ("agent", "good", {"agent": "good", "agent_from": "rollout_agent in the ini file"}),
    ("pin", ["a=1", "", "  b = x=y "], {"pins": {"a": "1", "b": "x=y"}}),
    ("samples", " 4 ", {"samples": 4, "samples_from": "ini"}),
    ("isolation", "none", {"isolation": "none", "executor": "local"}),
    ("executor", "sandbox", {}),
    ("rung", " 4 ", {"rung": 4}),
    ("keep", "all", {"keep": "all"}),
    ("dir", "out", {"dir": "/proj/ini/out"}),
    ("stage_root", "../s", {"stage_root": "/proj/s"}),
    ("config", "agents.toml", {"config": "/proj/ini/agents.toml", "config_given": True}),
    ("config", "rollout.toml", {"config_given": True}),
    ("keep_runs", "3", {"keep_runs": 3}),
    ("audit_repeats", "5", {"audit_repeats": 5}),
    ("controls", "none", {"controls": "none"}),
    ("github", "none", {"github": "none"}),
    ("slots", "8", {"slots": 8}),
    ("retries", "stage = 3\nprovider=0", {"retries": {**DEFAULT_RETRIES, "stage": 3, "provider": 0}}),
    ("max_infra", "25", {"max_infra": 25}),
    ("pools", ["gpu = 2", "a-b_1=1"], {"pools": {"gpu": 2, "a-b_1": 1}}),
    ("gate", ["measured > 0.9", "", " a "], {"gate": ["measured > 0.9", "a"]}),
    ("redact", ["MY_ID", " OTHER  THIRD", "MY_ID"], {"redact": ["MY_ID", "OTHER", "THIRD"]}),
]


@pytest.mark.parametrize(("name", "value", "fields"), FROM_OPTION)
def test_from_the_command_line(name: str, value: Any, fields: dict[str, Any]) -> None:
    assert settings({name: value}) == dataclasses.replace(settings(), **fields)


@pytest.mark.parametrize(("name", "value", "fields"), FROM_INI)
def test_from_the_ini_file(name: str, value: Any, fields: dict[str, Any]) -> None:
    assert settings(ini={name: value}) == dataclasses.replace(settings(), **fields)


@pytest.mark.parametrize(
    ("name", "value"),
    [("agent", "good"), ("samples", "2"), ("pin", ["a=1"]), ("audit", True), ("slots", "2")],
)
def test_what_is_about_agents_is_refused_where_none_runs(name: str, value: Any) -> None:
    assert refusal({"rescore": "last", name: value}) == (
        f"--rollout-rescore: it can't be used with --rollout-{name}: no agent runs, and samples and pins are those of "
        "the stored run"
    )


def test_an_agent_of_the_ini_file_does_not_run_where_none_does() -> None:
    assert settings({"rescore": " 3f9a "}, {"agent": "good", "samples": "4"}).rescore == "3f9a"
    assert refusal({"rescore": ""}) == "--rollout-rescore: the value is empty"


def test_every_knob_is_tried_from_each_of_its_sources() -> None:
    assert {name for name, _, _ in FROM_OPTION} == {knob.name for knob in KNOBS if knob.option}
    assert {name for name, _, _ in FROM_INI} == {knob.name for knob in KNOBS if knob.ini}


def test_pins_that_may_change_are_named_beside_the_run_that_is_resumed() -> None:
    named = settings({"resume": "last", "resume_changed": ["model", "rung", "model"]})
    assert (named.resume, named.resume_changed) == ("last", ["model", "rung"])
    assert settings({"resume": "last", "resume_changed": ["all"]}).resume_changed == ["all"]
    assert refusal({"resume": "last", "resume_changed": ["modell"]}) == (
        f"--rollout-resume-changed: unknown pin 'modell'; valid: {', '.join(CHANGEABLE)}. Did you mean 'model'?"
    )
    alone = refusal({"resume_changed": ["model"]})
    assert alone == "--rollout-resume-changed says something only beside --rollout-resume"
    assert refusal({"resume": ""}) == "--rollout-resume: the value is empty"
    for name, value in (("audit", True), ("rescore", "last")):
        message = f"--rollout-resume does not go together with --rollout-{name}, which runs no agent"
        assert refusal({"resume": "last", name: value}) == message


@pytest.mark.parametrize(
    ("name", "option", "ini", "field", "expected"),
    [
        ("agent", "cli", "file", "agent", "cli"),
        ("samples", "2", "3", "samples", 2),
        ("keep", "all", "none", "keep", "all"),
        ("controls", "auto", "none", "controls", "auto"),
        ("dir", "/cli", "/file", "dir", "/cli"),
        ("max_infra", "3", "4", "max_infra", 3),
        ("retries", "1", "7, agent=2", "retries", dict(DEFAULT_RETRIES)),
        ("isolation", "none", "required", "isolation", "none"),
        ("isolation", "required", "none", "isolation", "required"),
        ("gate", ["a"], ["b", "c"], "gate", ["a"]),
    ],
)
def test_the_command_line_wins(name: str, option: str, ini: str, field: str, expected: object) -> None:
    assert getattr(settings({name: option}, {name: ini}), field) == expected


def test_the_command_line_wins_over_an_executor_of_the_ini_file() -> None:
    chosen = settings({"executor": "sandbox", "isolation": "none"}, {"executor": "local"})
    assert (chosen.executor, chosen.isolation) == ("sandbox", "none")
    assert settings({"executor": "local"}, {"isolation": "none"}).executor == "local"


def test_a_rung_decides_where_agents_run() -> None:
    for isolation in ("preferred", "none"):
        assert settings({"rung": "5", "isolation": isolation}).executor == "local"
        assert settings({"rung": "4", "isolation": isolation}).executor == "sandbox"
    assert settings({"executor": "local", "isolation": "preferred"}).executor == "local"


def test_pins_of_both_are_merged_key_by_key() -> None:
    assert settings({"pin": ["b=cli", "c=1", "c=2"]}, {"pin": ["a=ini", "b=ini"]}).pins == {
        "a": "ini",
        "b": "cli",
        "c": "2",
    }
    assert settings({"pin": ["k="]}).pins == {"k": ""}
    assert settings({"pin": ["k\udcff=\ud800"]}).pins == {"k\\udcff": "\\ud800"}


def test_a_home_folder_is_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert settings({"dir": "~/r"}).dir == "/home/me/r"
    assert settings(ini={"stage_root": "~/s", "config": "~/c.toml"}).stage_root == "/home/me/s"


@pytest.mark.parametrize(
    ("options", "ini", "message"),
    [
        ({}, {"redact": ["GOOD", "A=b"]}, "rollout_redact in the ini file: 'A=b' is not the name of a variable"),
        ({"agent": ""}, {}, "--rollout-agent: the value is empty"),
        ({"gate": ["a", " "]}, {}, "--rollout-gate: the value is empty"),
        ({"agent": ""}, {"agent": "good"}, "--rollout-agent: the value is empty"),
        ({"agent": " "}, {}, "--rollout-agent: ' ' is empty"),
        ({}, {"agent": " "}, "rollout_agent in the ini file: ' ' is empty"),
        ({"dir": ""}, {}, "--rollout-dir: the value is empty"),
        (
            {"executor": "docker"},
            {},
            "--rollout-executor: unknown executor 'docker'; valid: sandbox, local.",
        ),
        (
            {},
            {"executor": "sandbx"},
            "rollout_executor in the ini file: unknown executor 'sandbx'; valid: sandbox, local. "
            "Did you mean 'sandbox'?",
        ),
        (
            {"isolation": "require"},
            {},
            "--rollout-isolation: unknown isolation 'require'; valid: required, preferred, none. "
            "Did you mean 'required'?",
        ),
        ({"keep": "ALL"}, {}, "--rollout-keep: unknown keep 'ALL'; valid: failed, all, none."),
        (
            {},
            {"keep": "al"},
            "rollout_keep in the ini file: unknown keep 'al'; valid: failed, all, none. Did you mean 'all'?",
        ),
        (
            {"executor": "local"},
            {},
            "--rollout-executor: the executor 'local' does not isolate the agent\n"
            "Allow it with --rollout-isolation=none; its results are then marked untrusted.",
        ),
        (
            {"isolation": "required"},
            {"executor": "local", "isolation": "none"},
            "rollout_executor in the ini file: the executor 'local' does not isolate the agent\n"
            "Allow it with --rollout-isolation=none; its results are then marked untrusted.",
        ),
        ({"rung": "6"}, {}, "--rollout-rung: unknown rung '6'; valid: 1, 2, 3, 4, 5."),
        (
            {},
            {"rung": "5"},
            "rollout_rung in the ini file: rung 5 does not isolate the agent\n"
            "Allow it with --rollout-isolation=none; its results are then marked untrusted.",
        ),
        (
            {"rung": "3", "isolation": "preferred"},
            {"executor": "local"},
            "--rollout-rung: the executor 'local' (rollout_executor in the ini file) does not have rung 3",
        ),
        (
            {"rung": "5", "isolation": "none", "executor": "sandbox"},
            {},
            "--rollout-rung: the executor 'sandbox' (--rollout-executor) does not have rung 5",
        ),
        ({"samples": "0"}, {}, "--rollout-samples: '0' is not a whole number from 1 to 1000000"),
        ({"samples": "-1"}, {}, "--rollout-samples: '-1' is not a whole number from 1 to 1000000"),
        ({"samples": "2.0"}, {}, "--rollout-samples: '2.0' is not a whole number from 1 to 1000000"),
        ({"samples": "٣"}, {}, "--rollout-samples: '٣' is not a whole number from 1 to 1000000"),
        ({"samples": "1000001"}, {}, "--rollout-samples: '1000001' is not a whole number from 1 to 1000000"),
        ({"samples": "9" * 5000}, {}, f"--rollout-samples: '{'9' * 5000}' is not a whole number from 1 to 1000000"),
        ({}, {"samples": "four"}, "rollout_samples in the ini file: 'four' is not a whole number from 1 to 1000000"),
        ({}, {"keep_runs": "0"}, "rollout_keep_runs in the ini file: '0' is not a whole number from 1 to 1000000"),
        (
            {},
            {"audit_repeats": "0"},
            "rollout_audit_repeats in the ini file: '0' is not a whole number from 1 to 1000000",
        ),
        ({"github": "yes"}, {}, "--rollout-github: unknown github 'yes'; valid: auto, none."),
        ({"controls": "off"}, {}, "--rollout-controls: unknown controls 'off'; valid: auto, none."),
        (
            {},
            {"controls": "nome"},
            "rollout_controls in the ini file: unknown controls 'nome'; valid: auto, none. Did you mean 'none'?",
        ),
        ({"pin": ["novalue"]}, {}, "--rollout-pin: 'novalue' is not KEY=VALUE"),
        ({"pin": [" =x"]}, {}, "--rollout-pin: ' =x' is not KEY=VALUE"),
        ({}, {"pin": ["a=1", "b"]}, "rollout_pin in the ini file: 'b' is not KEY=VALUE"),
    ],
)
def test_what_is_refused(options: dict[str, Any], ini: dict[str, Any], message: str) -> None:
    assert refusal(options, ini) == message


@pytest.mark.parametrize("number", [1, 1_000_000])
def test_the_edges_of_a_count_are_taken(number: int) -> None:
    assert settings({"samples": str(number)}).samples == number
    assert settings(ini={"keep_runs": str(number)}).keep_runs == number


def test_settings_go_to_a_worker_and_back() -> None:
    chosen = settings(
        {"pin": ["a=1"], "samples": "2", "audit": True, "controls": "none"}, {"agent": "good", "stage_root": "/s"}
    )
    sent = json.loads(json.dumps(chosen.to_json()))
    assert Settings(**sent) == chosen


def test_settings_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings().keep = "all"  # type: ignore[misc]
