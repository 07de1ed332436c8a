"""Rows as Parquet, in batches, with typed columns; through the extra ``parquet`` (pyarrow)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from pytest_rollout.errors import ConfigError
from pytest_rollout.exporting.columns import COLUMNS

__all__ = ["write_parquet"]

_BATCH = 2048  # rows


def write_parquet(rows: Iterable[Mapping[str, Any]], path: Path) -> int:
    """Write rows; returns how many. Raises ConfigError where pyarrow is missing, else OSError."""
    arrow, parquet = _modules()
    types = {
        "text": arrow.string(),
        "int": arrow.int64(),
        "float": arrow.float64(),
        "bool": arrow.bool_(),
        "texts": arrow.list_(arrow.string()),
        "json": arrow.string(),
    }
    schema = arrow.schema([arrow.field(column.name, types[column.kind]) for column in COLUMNS])
    count = 0
    with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        for batch in _batches(rows):
            writer.write_table(arrow.Table.from_pylist(batch, schema=schema))
            count += len(batch)
    return count


def _modules() -> tuple[Any, Any]:
    """pyarrow, which is heavy, and imported only here."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ConfigError(
            f"Parquet needs pyarrow, which can't be imported: {error}",
            hint="pip install 'pytest-rollout[parquet]', or use --format jsonl.",
        ) from None
    return pyarrow, pyarrow.parquet


def _batches(rows: Iterable[Mapping[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    rows = iter(rows)
    while batch := [_flat(row) for row in islice(rows, _BATCH)]:
        yield batch


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with JSON as text."""
    found = dict(row)
    for column in COLUMNS:
        if column.kind == "json" and found[column.name] is not None:
            found[column.name] = json.dumps(found[column.name], sort_keys=True)
    return found
