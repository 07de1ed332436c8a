"""The names of the settings."""

from __future__ import annotations

import dataclasses

from pytest_rollout.knobs import KNOBS, TAG, TAG_FILE
from pytest_rollout.settings import Settings


def test_every_name_is_there_once_and_begins_with_rollout() -> None:
    names = [knob.name for knob in KNOBS]
    assert len(set(names)) == len(names)
    for knob in KNOBS:
        assert knob.option in (None, f"--rollout-{knob.name.replace('_', '-')}")
        assert (knob.metavar is None) == (knob.option is None or knob.flag)
        assert knob.help == knob.help.strip() != ""


def test_options_and_keys_are_those_that_are_documented() -> None:
    assert {knob.option for knob in KNOBS if knob.option} == {
        "--rollout-agent",
        "--rollout-pin",
        "--rollout-samples",
        "--rollout-executor",
        "--rollout-isolation",
        "--rollout-rung",
        "--rollout-keep",
        "--rollout-retries",
        "--rollout-retry-forgeable",
        "--rollout-max-infra",
        "--rollout-preflight",
        "--rollout-audit",
        "--rollout-controls",
        "--rollout-github",
        "--rollout-slots",
        "--rollout-dir",
        "--rollout-gate",
        "--rollout-gate-untrusted",
        "--rollout-rescore",
        "--rollout-resume",
        "--rollout-resume-changed",
        "--rollout-shard",
    }
    assert {knob.name for knob in KNOBS if knob.option is None} == {
        "stage_root",
        "config",
        "keep_runs",
        "audit_repeats",
        "pools",
        "redact",
    }
    assert [knob.name for knob in KNOBS if knob.repeated] == ["pin", "resume_changed", "pools", "gate", "redact"]
    assert [knob.name for knob in KNOBS if knob.flag] == ["retry_forgeable", "preflight", "audit", "gate_untrusted"]
    assert [knob.name for knob in KNOBS if knob.one_session] == ["rescore", "resume", "resume_changed", "shard"]
    assert [knob.name for knob in KNOBS if knob.flag and knob.one_session] == []


def test_every_knob_is_a_field_of_the_settings() -> None:
    fields = {field.name for field in dataclasses.fields(Settings)}
    assert {"pins" if knob.name == "pin" else knob.name for knob in KNOBS} <= fields


def test_the_mark_of_a_folder_of_results_is_in_its_tag_file() -> None:
    assert TAG_FILE.startswith("Signature: 8a477f597d28d172789f06886806bc55\n")
    assert TAG in TAG_FILE
