"""The published JSON Schemas: those of the records, and they refuse what the words do not know."""

from __future__ import annotations

import copy
import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator, ValidationError

from pytest_rollout.bundle import BundleRecord
from pytest_rollout.control import Facts
from pytest_rollout.decisions.baseline import Baseline, BaselinePins, BaselineTask
from pytest_rollout.plain import clean
from pytest_rollout.reward import Check
from pytest_rollout.store.facts import AuditRecord, TaskAudit, Trial
from pytest_rollout.store.heldout import Look
from pytest_rollout.store.labels import Label
from pytest_rollout.store.records import Plan, Planned, Result, RunRecord, ScoreRecord, Source, SourceRun

FOLDER = Path(__file__).parents[2] / "docs" / "schema"
NAMES = ("audit", "baseline", "bundle", "held-out", "label", "plan", "result", "run", "score")

Samples = dict[str, msgspec.Struct]

FACTS = Facts(
    end="passed",
    accepted=True,
    reward=1.0,
    message="m",
    where="KeyError test_x.py:3",
    checks=(Check(name="c", weight=1.0, value=1.0),),
    in_process=True,
)


@pytest.fixture(scope="module")
def generated() -> dict[str, str]:
    spec = importlib.util.spec_from_file_location("generate_schemas", FOLDER / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    files: dict[str, str] = module.files()
    return files


def published(name: str) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads((FOLDER / f"{name}.schema.json").read_text("utf-8"))
    return schema


def problems(name: str, data: Any) -> list[str]:
    """Where the published schema refuses the data, at the deepest places."""

    def places(error: ValidationError) -> list[str]:
        return [place for inner in error.context or () for place in places(inner)] or [error.json_path]

    errors = Draft202012Validator(published(name)).iter_errors(data)
    return sorted({place for error in errors for place in places(error)})


@pytest.fixture
def samples(make_record: Callable[..., BundleRecord], make_result: Callable[..., Result]) -> Samples:
    return {
        "baseline": Baseline(
            run="2026-11-29T22-08-01Z-3f9ac01d",
            pins=(BaselinePins(agent="a", sampling={"temperature": 1.0}, extra={"k": "v"}),),
            revisions={"e0": "sha256:e0"},
            tasks={"t": BaselineTask(rewards=(1.0, None), passed=(0,), pins=0, environment="e0", usage={"wall": 1.5})},
        ),
        "held-out": Look(run="r", time="2026-11-29T22:08:04+00:00", tasks=1, digest="sha256:0", agents=("a",)),
        "audit": AuditRecord(
            run="2026-11-29T22-08-01Z-3f9ac01d",
            tasks=(
                TaskAudit(
                    task="t",
                    node="n",
                    evaluator_revision="sha256:22",
                    verdict="weak",
                    reason="no-op scores 1",
                    trials=(Trial(name="noop", wanted="below 1", facts=FACTS, good=False),),
                    time="2026-11-29T22:08:04+00:00",
                ),
            ),
            missing=("other",),
        ),
        "bundle": make_record(),
        "label": Label(rollout="r", reward=0.5, by="A", reason="", time="2026-11-29T22:08:04+00:00", computed=None),
        "result": make_result(
            outcome="infra",
            kind="spawn",
            reward=None,
            warnings=("w",),
            source=Source(run="2026-11-28T22-08-01Z-00000001", rollout="o", outcome="passed", reward=1.0),
        ),
        "run": RunRecord(
            run="2026-11-29T22-08-01Z-3f9ac01d",
            started="2026-11-29T22:08:01+00:00",
            plugin_version="0.1.0",
            options=clean({"arguments": ["a"], "samples": None, "pins": {"k": Path("v")}}),
            pins={"model": "m"},
            environment={"python": "3.11.9"},
            source=SourceRun(run="2026-11-28T22-08-01Z-00000001", folder="/evals/.rollout/runs/2026"),
        ),
        "plan": Plan(rollouts=(Planned(node="n", rollout="r", task="t", sample=0, agent="a"),), multiplied={"C": 2}),
        "score": ScoreRecord(
            task="t",
            rollout="r",
            sample=0,
            attempt=1,
            outcome="failed",
            kind=None,
            forgeable=False,
            reward=0.5,
            checks_reward=0.5,
            checks=(Check(name="c", weight=1.0, value=0.5, message="m"),),
            metrics={"seconds": 1.5},
            threshold=1.0,
            termination="completed",
            message="m",
            bundle="bundle.json",
            evaluator_revision="sha256:22",
            in_process=True,
            audit="in-process",
        ),
    }


def test_the_published_files_are_those_of_the_records(generated: dict[str, str]) -> None:
    assert set(generated) == {f"{name}.schema.json" for name in NAMES}
    found = {path.name: path.read_text("utf-8") for path in FOLDER.glob("*.json")}
    assert found == generated, "run python docs/schema/generate.py"


@pytest.mark.parametrize("name", NAMES)
def test_a_schema_is_one_of_2020_12_without_an_id(name: str) -> None:
    schema = published(name)
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert "$id" not in json.dumps(schema)
    assert f"#/$defs/{schema['title']}" == schema["$ref"]
    for title, definition in schema["$defs"].items():
        assert definition["title"] == title
        assert definition["description"]
        assert set(definition["required"]) <= set(definition["properties"])


@pytest.mark.parametrize("name", NAMES)
def test_what_is_written_is_valid(name: str, samples: Samples) -> None:
    data = json.loads(msgspec.json.encode(samples[name]))
    assert problems(name, data) == []
    schema = published(name)
    assert set(data) == set(schema["$defs"][schema["title"]]["properties"])


def test_a_bundle_of_an_attempt_that_a_limit_ended_is_valid(make_record: Callable[..., BundleRecord]) -> None:
    record = make_record(exit_code=None, signal=None, termination="wall_limit", truncated=True, rung=None, findings=())
    assert problems("bundle", json.loads(msgspec.json.encode(record))) == []


@pytest.mark.parametrize("name", NAMES)
def test_what_is_required_may_not_be_missing(name: str, samples: Samples) -> None:
    whole = json.loads(msgspec.json.encode(samples[name]))
    schema = published(name)
    required = schema["$defs"][schema["title"]]["required"]
    assert "schema_version" in required
    for key in required:
        data = {other: value for other, value in whole.items() if other != key}
        assert problems(name, data) == ["$"], key


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("version", [2, 0, "1", None])
def test_another_schema_version_is_refused(name: str, version: object, samples: Samples) -> None:
    data = {**json.loads(msgspec.json.encode(samples[name])), "schema_version": version}
    assert problems(name, data) == ["$.schema_version"]


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("audit", "tasks.0.verdict", "fine"),
        ("audit", "tasks.0.trials.0.facts.end", "crashed"),
        ("audit", "tasks.0.trials.0.good", "no"),
        ("audit", "missing.0", 5),
        ("bundle", "audit", "good"),
        ("bundle", "pins.evaluator_revision", 5),
        ("bundle", "termination", "bored"),
        ("bundle", "termination", None),
        ("bundle", "exit_code", "0"),
        ("bundle", "truncated", "false"),
        ("bundle", "identity.sample", 1.5),
        ("bundle", "identity.run", None),
        ("bundle", "pins.limits", {"wall": "5m"}),
        ("bundle", "changes.0.kind", "renamed"),
        ("bundle", "changes.0.type", "pipe"),
        ("bundle", "changes.0.path", None),
        ("bundle", "controls.network.observed", None),
        ("bundle", "stdout.kept", "7"),
        ("bundle", "findings.0.code", 5),
        ("score", "outcome", "error"),
        ("score", "kind", "network"),
        ("score", "termination", "timeout"),
        ("score", "reward", "1"),
        ("score", "in_process", "no"),
        ("score", "audit", "good"),
        ("score", "checks.0.value", "1"),
        ("score", "metrics.seconds", None),
        ("result", "outcome", "skipped"),
        ("result", "kind", "spawned"),
        ("result", "termination", "killed"),
        ("result", "amends", "yes"),
        ("label", "reward", "1"),
        ("result", "audit", ""),
        ("run", "pins", {"seed": 5}),
        ("run", "started", 5),
        ("plan", "rollouts.0.sample", "0"),
        ("plan", "multiplied", {"C": "2"}),
    ],
)
def test_what_the_words_do_not_know_is_refused(name: str, path: str, value: object, samples: Samples) -> None:
    data = json.loads(msgspec.json.encode(samples[name]))
    before = copy.deepcopy(data)
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    here = data
    for part in parents:
        here = here[part]
    here[last] = value
    assert data != before
    found = problems(name, data)
    assert found
    expected = "$" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in [*parents, last])
    assert all(place.startswith(expected) for place in found), found
