"""The tables of the ladder and of what each rung enforces say what the code's data say."""

from __future__ import annotations

import re
from pathlib import Path

from pytest_rollout.executors.rungs import GUARANTEES, RUNGS, enforced
from pytest_rollout.executors.uids import UIDS

EXPLANATION = Path(__file__).parents[2] / "docs" / "explanation"
LANDLOCK = 6  # the version from which on the table holds for an ordinary user


def table(page: str, heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, its head first."""
    text = (EXPLANATION / page).read_text(encoding="utf-8").split(f"\n{heading}\n", 1)[1]
    match = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert match is not None
    lines = [line for line in match[0].splitlines() if not re.fullmatch(r"[|-]+", line)]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_what_each_rung_enforces() -> None:
    columns = {
        "1, 2, 3": enforced(1),
        "4, root": enforced(4, own_uid=True),
        "4, ordinary user": enforced(4, landlock=LANDLOCK),
        "5": enforced(5),
    }
    assert enforced(1) == enforced(2) == enforced(3)
    head, *rows = table("security.md", "## What each rung enforces")
    assert head == ["guarantee", *columns]
    assert rows == [
        [f"`{name}`: {text}", *(levels[name] for levels in columns.values())] for name, text in GUARANTEES.items()
    ]


def test_the_ladder() -> None:
    _, *rows = table("isolation.md", "## The ladder")
    assert [row[:3] for row in rows] == [[str(rung.number), rung.tree, rung.confined] for rung in RUNGS]


def test_the_range_of_uids() -> None:
    assert f"({UIDS.start} to {UIDS.stop - 1}, " in (EXPLANATION / "isolation.md").read_text(encoding="utf-8")
