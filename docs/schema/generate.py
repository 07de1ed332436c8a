"""Write the JSON Schemas (2020-12) of what a run leaves on disk, from the records of the package.

Run it after a change of a record: ``python docs/schema/generate.py``. A test compares the files with
what it would write.
"""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import msgspec

from pytest_rollout.bundle import SCHEMA_VERSION, BundleRecord
from pytest_rollout.decisions.baseline import Baseline
from pytest_rollout.store.facts import AuditRecord
from pytest_rollout.store.heldout import Look
from pytest_rollout.store.labels import Label
from pytest_rollout.store.records import Plan, Result, RunRecord, ScoreRecord

RECORDS: dict[str, type[msgspec.Struct]] = {
    "audit": AuditRecord,
    "baseline": Baseline,
    "bundle": BundleRecord,
    "held-out": Look,
    "label": Label,
    "plan": Plan,
    "result": Result,
    "run": RunRecord,
    "score": ScoreRecord,
}


def schema(record: type[msgspec.Struct]) -> dict[str, Any]:
    """The schema of one record; it holds for this schema version and no other."""
    made = msgspec.json.schema(record)
    whole = made["$defs"][record.__name__]
    whole["properties"]["schema_version"] = {"const": SCHEMA_VERSION}
    for definition in made["$defs"].values():
        definition["description"] = inspect.cleandoc(definition["description"])  # an older msgspec does not
    whole["required"] = sorted({*whole["required"], "schema_version"})
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": record.__name__, **made}


def files() -> dict[str, str]:
    """The text of every file by its name."""
    return {
        f"{name}.schema.json": json.dumps(schema(record), indent=2, sort_keys=True, ensure_ascii=False) + "\n"
        for name, record in RECORDS.items()
    }


if __name__ == "__main__":
    for name, text in files().items():
        (Path(__file__).parent / name).write_text(text, encoding="utf-8")
