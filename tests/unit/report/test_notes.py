"""Warnings in the closing block: all of a few, the first of many."""

from __future__ import annotations

import pytest

from pytest_rollout.report.terminal import closing_block


@pytest.mark.parametrize(("number", "shown"), [(0, 0), (1, 1), (20, 20), (21, 20), (500, 20)])
def test_many_warnings_are_counted(number: int, shown: int) -> None:
    notes = [f"note {index}" for index in range(number)]
    lines = [line for line in closing_block((), not_run=0, lost=(), folder="runs/x", notes=notes) if "warning" in line]
    left = [f"warning: … and {number - shown} more"] if number > shown else []
    assert lines == [f"warning: note {index}" for index in range(shown)] + left
