"""Which tasks of two sides are compared, and why the others are not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pytest_rollout.decisions.pairs import Contrast, NotComparable, Pairing, Side, pair
from pytest_rollout.decisions.rows import Labels, Rows, canonical
from tests.unit.decisions.pairmaking import PINS, row, side


def compared(pairing: Pairing) -> list[str]:
    return [each.task for each in pairing.pairs]


def test_tasks_are_paired_by_id() -> None:
    old = side({"a": [1, 0], "b": [1], "c": [1]}, missing={"d": 2})
    new = side({"b": [0], "a": [1, 1, None]}, name="new", missing={"e": 1, "d": 1})
    found = pair(old, new)
    assert [(each.task, len(each.old), len(each.new), each.missing) for each in found.pairs] == [
        ("a", 2, 3, (0, 0)),
        ("b", 1, 1, (0, 0)),
        ("d", 0, 0, (2, 1)),
    ]
    assert (found.only_old, found.only_new, found.changed) == (("c",), ("e",), ())
    assert found.old.share == 4 / 6
    assert found.new == Side(
        name="new",
        rollouts=6,
        measured=3,
        infra=1,
        missing=2,
        forgeable=0,
        untrusted=0,
        broken=0,
        samples=(1, 3),
        folder="/runs/a",
    )


@pytest.mark.parametrize(
    ("pins", "changes", "why"),
    [
        ({"task_digest": "t2"}, {}, "another task"),
        ({"environment_revision": "e2"}, {}, "another environment"),
        ({}, {"evaluator_revision": "c2"}, "other checks"),
        ({}, {"evaluator_revision": None}, "the revision of its checks is unknown in B"),
        ({"task_digest": "t2", "environment_revision": "e2"}, {}, "another task; another environment"),
    ],
)
def test_a_task_that_is_another_one_is_not_compared(pins: dict[str, Any], changes: dict[str, Any], why: str) -> None:
    same = row("b", 1)
    new = side({"a": [1]}, pins=pins, **changes)
    found = pair(side({"a": [1], "b": [1]}), msgspec.structs.replace(new, rows=(*new.rows, same)))
    assert compared(found) == ["b"]
    assert found.changed == (NotComparable(task="a", why=why, checks=why == "other checks"),)


def test_what_is_unknown_on_both_sides_is_not_the_same() -> None:
    unknown = side({"a": [1]}, evaluator_revision=None)
    assert [each.why for each in pair(unknown, unknown).changed] == ["the revision of its checks is unknown in A"]
    mixed = Rows(name="m", rows=(row("a", 1), row("a", 1, sample=1, evaluator_revision="other")))
    assert [each.why for each in pair(side({"a": [1]}), mixed).changed] == ["B has several revisions of its checks"]


def test_an_unmeasured_rollout_has_no_revision_to_be_compared() -> None:
    new = Rows(name="n", rows=(row("a", None, evaluator_revision=None), row("a", 1, sample=1)))
    assert compared(pair(side({"a": [1]}), new)) == ["a"]
    assert compared(pair(side({"a": [1]}), side({"a": [None]}, evaluator_revision="other"))) == ["a"]


def test_untrusted_results_are_left_out_and_counted() -> None:
    old = Rows(name="o", rows=(row("a", 1, trusted=False), row("a", 0, sample=1)))
    found = pair(old, side({"a": [1]}))
    assert [each.reward for each in found.pairs[0].old] == [0]
    assert (found.old.untrusted, found.old.rollouts) == (1, 1)
    found = pair(old, side({"a": [1]}), untrusted=True)
    assert [each.reward for each in found.pairs[0].old] == [1, 0]
    assert (found.old.untrusted, found.old.rollouts) == (1, 2)


def test_tags_and_splits_choose_tasks_by_what_either_side_knows() -> None:
    old = side({"a": [1], "b": [1]}, tags=("x", "y"), split="held-out")
    new = Rows(name="n", rows=(row("a", 1), row("b", 1), row("c", 1, tags=("x",))), missing={"a": 1})
    assert compared(pair(old, new, tags=["x", "y"])) == ["a", "b"]
    assert pair(old, new, tags=["x"]).only_new == ("c",)
    assert pair(old, new, tags=["x", "y"]).new.missing == 1
    assert pair(old, new, split="held-out").only_new == ()
    gone = msgspec.structs.replace(new, missing={"z": 2}, labels={"z": Labels(("x",), "held-out")})
    assert pair(old, gone, split="held-out").only_new == ("z",), "all of its rollouts are missing"
    assert pair(old, gone, split="held-out").new.missing == 2
    assert pair(old, new, tags=["z"]).empty
    assert pair(old, new, split="train").empty
    assert not pair(old, new).empty


def test_what_differs_on_purpose_is_named() -> None:
    old = side({"a": [1]}, pins={"model": "m1", "sampling": canonical({"temperature": 0.5, "top_p": 1})})
    new = side({"a": [1]}, pins={"model": "m2", "sampling": canonical({"top_p": 1}), "extra": canonical({"k": "v"})})
    assert pair(old, new).contrasts == (
        Contrast(what="model", old=("m1",), new=("m2",)),
        Contrast(what="k", old=(), new=("v",)),
        Contrast(what="temperature", old=("0.5",), new=()),
    )
    several = [row("a", 1, sample=n, pins=msgspec.structs.replace(PINS, agent_version=str(n))) for n in range(5)]
    found = pair(side({"a": [1]}), Rows(name="n", rows=tuple(several))).contrasts
    assert found == (Contrast(what="agent version", old=(), new=("0", "1", "2", "2 more")),)
