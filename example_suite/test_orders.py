"""A data task with partial credit and two samples: a table of totals and an SQLite database from a messy CSV file."""

import csv
import re
import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from pytest_rollout import Limits

PROMPT = """\
The file orders.csv is the export of an order system, and NOTES.md tells what is wrong with it. Clean it, and write:

totals.tsv: one line for each customer that has an order which counts: the name, a tab, and the sum in cents as a whole
number. The largest sum comes first; equal sums are sorted by name. No head line.

orders.db: an SQLite database with one table, orders (id INTEGER PRIMARY KEY, customer TEXT, amount_cents INTEGER),
with one row for each order that counts.

There is no network. Shell, awk and sort are here, and sqlite3 as a program or as Python's module.
"""
EXPORT = Path(__file__).parent / "workspaces" / "orders" / "orders.csv"
MOST_ROWS = 1_000
MOST_STEPS = 1_000_000

Row = tuple[object, ...]


def clean_orders() -> list[Row]:
    """The right rows (id, customer, cents), from the suite's own copy of the export."""
    orders: dict[int, Row] = {}
    with EXPORT.open(newline="", encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            order = int(row["id"])
            orders.pop(order, None)
            if row["status"].strip().lower() != "cancelled":
                euros, _, cents = row["amount"].replace(" ", "").partition(".")
                orders[order] = (order, row["customer"].strip(), int(euros) * 100 + int(cents.ljust(2, "0")))
    return sorted(orders.values())


def sum_orders(orders: Sequence[Row]) -> list[Row]:
    """The right totals (customer, cents), the largest first."""
    totals: Counter[str] = Counter()
    for _, customer, cents in orders:
        totals[str(customer)] += int(str(cents))
    return sorted(totals.items(), key=lambda total: (-total[1], total[0]))


def parse_totals(text: str) -> list[Row]:
    """The candidate's lines; one that isn't a name, a tab and a whole number is an assertion."""
    totals: list[Row] = []
    for line in text.removesuffix("\n").split("\n")[:MOST_ROWS]:
        match = re.fullmatch(r"([^\t]+)\t([0-9]{1,12})", line)
        assert match, f"not a name, a tab and a whole number: {line[:80]!r}"
        totals.append((match[1], int(match[2])))
    return totals


def read_orders(data: bytes, folder: Path) -> list[Row]:
    """The rows of the candidate's database; one that cannot be read, or only at great length, is an assertion."""
    copy = folder / "orders.db"
    copy.write_bytes(data)
    try:
        # Immutable: no journal or lock file of the candidate's plays a part.
        with closing(sqlite3.connect(f"{copy.as_uri()}?mode=ro&immutable=1", uri=True)) as database:
            database.set_progress_handler(lambda: 1, MOST_STEPS)  # ends a statement at its first call
            database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 1_000_000)
            database.execute("PRAGMA trusted_schema = OFF")
            database.execute("PRAGMA cell_size_check = ON")
            assert database.execute("PRAGMA quick_check(1)").fetchall() == [("ok",)], "orders.db is damaged"
            kinds = database.execute("SELECT type FROM sqlite_master WHERE name = 'orders'").fetchmany(MOST_ROWS)
            assert kinds == [("table",)], "orders.db has no table orders"
            return database.execute("SELECT id, customer, amount_cents FROM orders").fetchmany(MOST_ROWS)
    except sqlite3.Error as error:
        raise AssertionError(f"orders.db cannot be read: {error}") from None


def overlap(found: Sequence[Row], right: Sequence[Row]) -> float:
    """The share of right rows in [0, 1]; rows too many count against it as rows too few do."""
    return len(set(found) & set(right)) / max(len(found), len(right))


@pytest.mark.rollout(
    prompt=PROMPT,
    workspace="workspaces/orders",
    oracle="solutions/orders.sh",
    limits=Limits(wall="1m", output="1MiB"),
    samples=2,
    tags=["data"],
)
def test_cleans_the_orders(bundle, reward, tmp_path):
    right_rows = clean_orders()
    right_totals = sum_orders(right_rows)

    totals: list[Row] = []
    with reward.check("totals.tsv is well formed"):
        totals = parse_totals(bundle.read_text("totals.tsv"))
    reward.add("totals", overlap(totals, right_totals), weight=3)
    with reward.check("totals in order"):
        assert [name for name, _ in totals] == [name for name, _ in right_totals]

    rows: list[Row] = []
    with reward.check("orders.db opens"):
        rows = read_orders(bundle.read_bytes("orders.db"), tmp_path)
    reward.add("rows", overlap(rows, right_rows), weight=4)

    reward.metric("rows_found", len(rows))
    reward.metric("rows_expected", len(right_rows))
