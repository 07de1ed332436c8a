"""Ids, slugs and digests."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from pytest_rollout.identity import attempt_id, canonical_digest, new_run_id, rollout_id, slug, task_folder

TEXTS = st.text(st.characters() | st.sampled_from("/:[].-\\\0\n \ud800ıİſẞ"))
PORTABLE = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
LONG = "test_" + "x" * 400


def test_a_run_is_named_by_its_start_in_utc_and_four_random_bytes() -> None:
    asked: list[int] = []

    def random_hex(count: int) -> str:
        asked.append(count)
        return "3f9ac01d"

    start = datetime(2026, 11, 30, 0, 8, 1, 999, tzinfo=timezone(timedelta(hours=2)))
    assert new_run_id(start, random_hex) == "2026-11-29T22-08-01Z-3f9ac01d"
    assert new_run_id(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), random_hex) == "2026-01-02T03-04-05Z-3f9ac01d"
    assert asked == [4, 4]


@given(TEXTS)
@example(LONG)
@example("::".join(["a"] * 50))
def test_a_slug_is_short_and_portable(text: str) -> None:
    made = slug(text)
    assert PORTABLE.fullmatch(made)
    assert len(made) <= 40
    assert slug(made) == made


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("test_add[x]", "test-add-x"),
        ("..", "task"),
        ("", "task"),
        ("größe", "gr-e"),
        ("A/B", "a-b"),
        ("-" + "a" * 39 + "-b", "a" * 39),
        ("CON", "con"),
    ],
)
def test_slugs_by_example(text: str, expected: str) -> None:
    assert slug(text) == expected


@given(TEXTS)
@example(LONG)
@example("t.py::test[..]")
@example("t.py::test[a/b]")
@example("con")
def test_the_folder_of_a_task_is_one_portable_name(task: str) -> None:
    folder = task_folder(task)
    assert PORTABLE.fullmatch(folder)
    assert len(folder) <= 51
    assert re.fullmatch(r".*-[0-9a-f]{10}", folder)
    assert task_folder(task) == folder


@given(TEXTS, TEXTS)
@example("t.py::test[a:b]", "t.py::test[a/b]")
@example("t.py::test[A]", "t.py::test[a]")
@example("a.py::test", "b.py::test")
@example(LONG + "1", LONG + "2")
@example("\ud800", "\ud801")
@example("\ud800", "?")
@example("\ud800", "\\ud800")
def test_two_tasks_have_two_folders_also_where_case_is_ignored(one: str, two: str) -> None:
    assume(one != two)
    assert task_folder(one).casefold() != task_folder(two).casefold()


def test_ids_of_rollouts_and_attempts() -> None:
    task = "tests/test_calc.py::test_add[x]"
    rollout = rollout_id("2026-11-29T22-08-01Z-3f9ac01d", task, 0)
    assert rollout == f"3f9ac01d-{task_folder(task)}-s0"
    assert rollout == "3f9ac01d-test-add-x-75eeb76950-s0"
    assert attempt_id(rollout, 1) == "3f9ac01d-test-add-x-75eeb76950-s0-a1"


def test_the_part_behind_the_last_colons_makes_the_slug() -> None:
    assert task_folder("a/b.py::TestC::test_d").rpartition("-")[0] == "test-d"
    assert task_folder("plain").rpartition("-")[0] == "plain"


def test_a_digest_knows_values_and_not_the_order_of_keys() -> None:
    digest = canonical_digest({"b": [1, 2.0, None], "a": "é\ud800"})
    assert digest == canonical_digest({"a": "é\ud800", "b": [1, 2.0, None]})
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", digest)
    assert digest != canonical_digest({"a": "é\ud800", "b": [2.0, 1, None]})
    assert canonical_digest({}) == "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
