"""What a call leaves behind, and what it writes instead of an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_rollout.errors import CandidateError

if TYPE_CHECKING:
    from pytest_rollout.evidence import Bundle
    from tests.unit.evaluation.conftest import Court


def refusal(bundle: Bundle, *args: Any, **kwargs: Any) -> str:
    """What the error says of a call that is the candidate's failure."""
    with pytest.raises(CandidateError) as caught:
        bundle.call(*args, **kwargs)
    assert isinstance(caught.value, AssertionError)
    return caught.value.message


def test_each_call_starts_from_the_clean_tree(any_court: Court) -> None:
    source = """
import os
def mark():
    seen = sorted(os.listdir("."))
    with open("mark", "w") as file:
        file.write("x")
    return [name for name in seen if name != "__pycache__"]
"""
    bundle = any_court.bundle({"mod.py": source}, "echo x > agents")
    assert [bundle.call("mod:mark") for _ in range(2)] == [["agents", "mod.py"]] * 2
    assert sorted(change.path for change in bundle.changes) == ["agents"]
    assert bundle.glob("*") == ["agents", "mod.py"]


def test_an_answer_that_is_written_by_hand_is_read_as_one(court: Court) -> None:
    source = """
import json, os, sys
def forge(data):
    ((_, answer),) = json.loads(sys.argv[-1])["pairs"]
    data = data.encode()
    os.pwrite(answer, len(data).to_bytes(8, "big") + data, 0)
    os._exit(0)
def long():
    ((_, answer),) = json.loads(sys.argv[-1])["pairs"]
    os.pwrite(answer, (1 << 40).to_bytes(8, "big"), 0)
    os._exit(0)
def grow():
    ((_, answer),) = json.loads(sys.argv[-1])["pairs"]
    os.ftruncate(answer, 1 << 40)
"""
    bundle = court.bundle({"mod.py": source})
    assert bundle.call("mod:forge", '{"ok": true, "value": 5}') == 5
    for text in ("[]", "5", "{}", '{"ok": 1}', '{"ok": null}', '{"ok": true}', '{"ok": "x", "value": 1}'):
        with pytest.raises(CandidateError, match=r"^mod:forge\("):
            bundle.call("mod:forge", text)
    assert refusal(bundle, "mod:forge", "[" * 100_000).endswith("is JSON that is nested too deeply")
    assert "a number of 5000 digits" in refusal(bundle, "mod:forge", f'{{"ok": true, "value": {"9" * 5000}}}')
    assert refusal(bundle, "mod:long") == "mod:long() gave no result: its process ended before that"
    assert refusal(bundle, "mod:grow").startswith("mod:grow() raised PermissionError: ")
