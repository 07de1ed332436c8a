"""A failure points at the suite's line, never at the inside of the plugin."""

from __future__ import annotations

from typing import Any

SOURCE = """
import pytest

@pytest.mark.rollout(agent=["true"])
def test_missing(bundle):
    assert bundle.read_json("answer.json") == {}

@pytest.mark.rollout(agent=["true"])
def test_twice(bundle, reward):
    reward.add("one", 1)
    reward.add("one", 1)
"""


def test_tracebacks_end_in_the_suite(suite: Any) -> None:
    ran = suite.run(SOURCE)
    assert "test_suite.py:6: EvidenceError" in ran.lines
    assert "test_suite.py:11: CheckerError" in ran.lines
    inside = [name for name in ("evidence.py", "reader.py", "reward.py") if name in ran.text]
    assert inside == []
