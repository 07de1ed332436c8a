"""Rows of an export: what each column holds, what is left out, and both formats read back."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from pytest_rollout.errors import ConfigError
from pytest_rollout.exporting.columns import COLUMNS
from pytest_rollout.exporting.parquet import write_parquet
from pytest_rollout.exporting.rows import index_of, rows_of
from pytest_rollout.store.folder import RunFolder
from pytest_rollout.store.labels import Label, add_label
from tests.unit.exporting.conftest import RUN

TYPES: dict[str, Any] = {
    "text": str,
    "int": int,
    "float": float,
    "bool": bool,
    "texts": list,
    "json": (dict, list),
}


def rows(run: RunFolder, **options: Any) -> dict[str, dict[str, Any]]:
    return {row["rollout"]: row for row in rows_of(index_of(run, **options))}


def test_a_row_has_every_column_with_its_type(run: RunFolder) -> None:
    for row in rows(run, untrusted=True).values():
        assert list(row) == [column.name for column in COLUMNS]
        for column in COLUMNS:
            value = row[column.name]
            assert value is None or isinstance(value, TYPES[column.kind]), column.name
            assert type(value) is not bool or column.kind == "bool", column.name


def test_what_a_measured_row_holds(run: RunFolder) -> None:
    row = rows(run)["r0"]
    known = {name: value for name, value in row.items() if value is not None}
    assert known == {
        "run": RUN,
        "task": "t",
        "sample": 0,
        "rollout": "r0",
        "attempt": "r0-a2",
        "attempts": 2,
        "group": f"{RUN}/t-e3b98a4da3",
        "group_size": 4,
        "group_measured": 1,
        "reward": 1.0,
        "checks_reward": 0.5,
        "outcome": "passed",
        "forgeable": False,
        "termination": "completed",
        "trusted": True,
        "rung": 1,
        "in_process": False,
        "tags": ["x", "y"],
        "agent": "a",
        "policy_revision": "p7",
        "model": "m",
        "sampling": {"temperature": 0.5},
        "pins": {"team": "x"},
        "seed": 3,
        "task_digest": "sha256:1",
        "environment_revision": "sha256:2",
        "limits": {"wall": 60.0},
        "network": "none",
        "executor": "sandbox",
        "plugin_version": "1",
        "metrics": {"m": 2.0},
        "usage_wall": 1.0,
        "usage_tokens": 7,
        "earlier_cost": 0.25,
        "node": "t[0]",
    }


def test_null_stays_null(run: RunFolder) -> None:
    row = rows(run)["r1"]
    unknown = (
        "reward",
        "checks_reward",
        "termination",
        "trusted",
        "rung",
        "seed",
        "model",
        "usage_wall",
        "earlier_cost",
    )
    assert {row[name] for name in unknown} == {None}
    assert (row["outcome"], row["kind"], row["message"]) == ("infra", "spawn", "gone")


def test_untrusted_rows_are_left_out_unless_asked_for(run: RunFolder) -> None:
    index = index_of(run)
    assert [line.rollout for line in index.lines] == ["r0", "r1", "u0"]
    assert (index.untrusted, index.missing, index.broken, index.groups["t"]) == (1, 1, 1, (4, 1))
    index = index_of(run, untrusted=True)
    assert [line.rollout for line in index.lines] == ["r0", "r1", "r2", "u0"]
    assert (index.untrusted, index.groups["t"]) == (0, (4, 2))


def test_a_split_alone(run: RunFolder) -> None:
    index = index_of(run, split="held-out")
    assert ([line.rollout for line in index.lines], index.untrusted, index.missing) == (["u0"], 0, 0)


def test_paths_are_those_that_are_there(run: RunFolder) -> None:
    row = rows(run)["u0"]
    paths = {name: value for name, value in row.items() if name.startswith("path_") and value is not None}
    assert paths == {"path_stdout": "rollouts/u/s0/a1/stdout", "path_changes": "rollouts/u/s0/a1/changes"}
    assert row["folder"] == "rollouts/u/s0/a1"


def test_labels_stand_beside_the_reward(run: RunFolder) -> None:
    for number, (by, reward) in enumerate((("bob", 1.0), ("ann", 0.2), ("ann", 0.7))):
        add_label(run, Label(rollout="u0", reward=reward, by=by, reason="fine", time=str(number)))
    with (run.path / "labels.jsonl").open("a") as file:
        file.write('{"rollout": ')
    found = rows(run)["u0"]
    assert (found["reward"], [(each["by"], each["reward"]) for each in found["labels"]]) == (
        0.0,
        [("bob", 1), ("ann", 0.7)],
    )


def test_parquet_has_typed_columns_and_nulls(run: RunFolder, tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    assert write_parquet(rows_of(index_of(run)), path) == 3
    table = pyarrow.parquet.read_table(path)
    assert table.column_names == [column.name for column in COLUMNS]
    arrow = {"text": "string", "int": "int64", "float": "double", "bool": "bool", "json": "string"}
    assert [str(field.type) for field in table.schema if not str(field.type).startswith("list<")] == [
        arrow[column.kind] for column in COLUMNS if column.kind != "texts"
    ]
    assert table["reward"].to_pylist() == [1.0, None, 0.0]
    assert table["reward"].null_count == 1
    expected = list(rows(run).values())
    for row, read in zip(expected, table.to_pylist(), strict=True):
        for column in COLUMNS:
            value = read[column.name]
            parsed = json.loads(value) if column.kind == "json" and value is not None else value
            assert parsed == row[column.name], column.name


def test_parquet_of_nothing_has_the_columns(tmp_path: Path) -> None:
    assert write_parquet([], tmp_path / "rows.parquet") == 0
    assert pyarrow.parquet.read_table(tmp_path / "rows.parquet").num_columns == len(COLUMNS)


def test_without_pyarrow_parquet_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match=r"^Parquet needs pyarrow, which can't be imported: .*\npip install 'pytest"):
        write_parquet([], tmp_path / "rows.parquet")
    assert not (tmp_path / "rows.parquet").exists()
