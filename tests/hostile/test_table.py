"""The table of hostile agents, and the page about their evidence, say what is so."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from pytest_rollout import diff, evidence
from pytest_rollout.evaluation import answers
from pytest_rollout.stage import reader
from pytest_rollout.stage.changes import ListingBounds
from pytest_rollout.stage.collect import CollectBounds
from pytest_rollout.stage.copying import MAX_DEPTH

ROOT = Path(__file__).parents[2]
ELSEWHERE = {10, 15, 16}  # retries, memory, processes: with the limits


def test_every_row_names_tests_that_are_there() -> None:
    text = (ROOT / "tests/hostile/README.md").read_text("utf-8")
    rows = {
        int(row[1]): re.findall(r"`(tests/[\w/.]+)::(\w+)`", row[2])
        for row in re.finditer(r"^\| (\d+) (.*)$", text, re.M)
    }
    assert set(rows) | ELSEWHERE == set(range(1, 31))
    for number, tests in rows.items():
        assert tests, f"row {number} names no test"
        for path, name in tests:
            tree = ast.parse((ROOT / path).read_text("utf-8"))
            assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, f"{path}::{name}"


def test_the_bounds_of_the_page_are_those_of_the_code() -> None:
    mib = 2**20
    text = (ROOT / "docs/explanation/hostile-evidence.md").read_text("utf-8")
    listing, kept = ListingBounds(), CollectBounds()
    for line in (
        f"{listing.entries:,} changed entries, {listing.depth} levels of folders, {listing.paths // mib} MiB of paths",
        f"{kept.file // mib} MiB of one changed file, {kept.total // mib} MiB of all",
        f"{reader.MAX_READ // mib} MiB of one file that is read, {reader.MAX_GLOB_ENTRIES:,} entries and "
        f"{reader.MAX_DEPTH} levels of a `glob`",
        f"JSON: {evidence._MAX_JSON_BYTES // mib} MiB, {evidence._MAX_JSON_DEPTH} levels, "
        f"{evidence.MAX_VALUES:,} values, {evidence._MAX_DIGITS:,} digits",
        f"{diff._MAX_DIFF_BYTES // mib} MiB, {diff._MAX_DIFF_LINES:,} lines of one file in a diff, "
        f"{diff._MAX_DIFF_TOTAL // mib} MiB of all",
        f"{answers.MAX_ANSWER // mib} MiB of an answer",
        f"a tree of more than {MAX_DEPTH} levels",
    ):
        assert f"| {line}" in text
