"""Durations, sizes, limits, and what makes two tasks the same."""

from __future__ import annotations

import dataclasses
from decimal import Decimal
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pytest_rollout.limits import DEFAULT_LIMITS, Limits, Resources, parse_count, parse_duration, parse_size
from pytest_rollout.task import Folder, Network, ScoreOn, Task

SECONDS = {"": Decimal(1), "ms": Decimal("0.001"), "s": Decimal(1), "m": Decimal(60), "h": Decimal(3600)}
BYTES = {"": 1, "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
VALID = (
    "'wall', 'output', 'evaluation', 'body', 'memory', 'cpu', 'processes', 'open_files', 'file_size', 'disk', 'files'"
)
NUMBERS = st.decimals(min_value=0, max_value=10**6, places=3)
BLANKS = st.sampled_from(["", " ", "\t "])


def cased(unit: str) -> st.SearchStrategy[str]:
    return st.sampled_from([unit, unit.lower(), unit.upper()])


@given(NUMBERS, st.sampled_from(sorted(SECONDS)).flatmap(lambda u: st.tuples(st.just(u), cased(u))), BLANKS)
@example(Decimal("1.5"), ("h", "H"), " ")
@example(Decimal("0.001"), ("ms", "ms"), "")
def test_a_duration_is_exact(number: Decimal, unit: tuple[str, str], blank: str) -> None:
    text = f"{blank}{number:f}{blank}{unit[1]}{blank}"
    expected = number * SECONDS[unit[0]]
    if expected == 0:
        with pytest.raises(ValueError, match="is not a duration"):
            parse_duration(text)
    else:
        assert parse_duration(text) == float(expected)


@given(NUMBERS, st.sampled_from(sorted(BYTES)).flatmap(lambda u: st.tuples(st.just(u), cased(u))), BLANKS)
@example(Decimal("34.358"), ("GB", "GB"), "")
@example(Decimal("0.1"), ("GiB", "GiB"), "")
@example(Decimal("0.5"), ("KiB", "kib"), " ")
def test_a_size_is_exact_and_whole(number: Decimal, unit: tuple[str, str], blank: str) -> None:
    text = f"{blank}{number:f}{blank}{unit[1]}{blank}"
    expected = number * BYTES[unit[0]]
    if expected == int(expected) and expected >= 1:
        assert parse_size(text) == int(expected)
    else:
        with pytest.raises(ValueError, match="is not a size"):
            parse_size(text)


@given(st.floats() | st.integers())
@example(10**400)
@example(-(10**400))
@example(5e-324)
@example(1e18)
@example(2**63 - 512)  # as a float it is 2**63
def test_a_number_is_seconds_when_it_is_above_0_and_fits(number: float) -> None:
    if 0 < number < 2**63 - 512:
        assert parse_duration(number) == float(number)
        assert type(parse_duration(number)) is float
    else:
        with pytest.raises(ValueError, match="is not a duration"):
            parse_duration(number)


@given(st.integers())
@example(2**63 - 1)
@example(2**63)
@example(10**5000)
def test_a_number_is_bytes_when_it_is_above_0_and_fits(number: int) -> None:
    if 1 <= number < 2**63:
        assert parse_size(number) == number
    else:
        with pytest.raises(ValueError, match="is not a size"):
            parse_size(number)


@given(st.text())
@example("9" * 400 + "s")
@example("9" * 5000)
@example("1e5")
@example("-1s")
@example("1 2s")
@example("٣s")
def test_any_text_parses_or_is_refused_with_its_value(text: str) -> None:
    for parse, what in ((parse_duration, "a duration: write seconds"), (parse_size, "a size: write whole bytes")):
        try:
            number: float | None = parse(text)
        except ValueError as error:
            number, message = None, str(error)
        if number is None:
            assert message.startswith(f"{text!r} is not {what}")
        else:
            assert 0 < number < 2**63


REFUSED_DURATIONS: list[Any] = [
    "", "  ", "s", "5 parsecs", "1e5", "-1s", "0", "0s", "nan", "inf", "5m5", "5,5s", ".5s", "5.s", "٣s",
    0, -1, 0.0, float("nan"), float("inf"), True, None, [], b"5s", "9" * 400 + "s", "9" * 5000,
    2**63, float(2**63), "9" * 19, "2562047788015216h",
]  # fmt: skip


@pytest.mark.parametrize("value", REFUSED_DURATIONS, ids=lambda value: repr(value)[:20])
def test_what_is_not_a_duration(value: object) -> None:
    with pytest.raises(ValueError) as caught:
        parse_duration(value)
    assert str(caught.value) == (
        f"{value!r} is not a duration: write seconds above 0, or a text like '90s', '5m', '1h'"
    )


REFUSED_SIZES: list[Any] = [
    "", "B", "5 m", "5TB", "0", "0B", "0.5B", "1.5", "1e5", "-1", 0, -1, 1.5, float("nan"), float("inf"), False,
    None, {}, b"5", 2**63, "8388608 TiB", "9" * 400, "9" * 5000 + "MB",
]  # fmt: skip


@pytest.mark.parametrize("value", REFUSED_SIZES, ids=lambda value: repr(value)[:20])
def test_what_is_not_a_size(value: object) -> None:
    with pytest.raises(ValueError) as caught:
        parse_size(value)
    assert str(caught.value) == (
        f"{value!r} is not a size: write whole bytes above 0, or a text like '500kB', '10MiB', '2GiB'"
    )


def test_a_huge_number_is_refused_without_its_digits() -> None:
    for parse in (parse_size, parse_duration):
        with pytest.raises(ValueError, match=r"^<int of 16610 bits> is not a "):
            parse(10**5000)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("90s", 90), ("5m", 300), ("1.5h", 5400), ("200ms", 0.2), ("7", 7), (7, 7), (0.25, 0.25), (" 5 M ", 300)],
)
def test_durations_by_example(value: float | str, seconds: float) -> None:
    assert parse_duration(value) == seconds
    assert type(parse_duration(value)) is float


@pytest.mark.parametrize(
    ("value", "size"),
    [("500kB", 500_000), ("10MiB", 10 * 2**20), ("2GiB", 2**31), ("1.5kib", 1536), ("9", 9), (9.0, 9), ("1b", 1)],
)
def test_sizes_by_example(value: float | str, size: int) -> None:
    assert parse_size(value) == size
    assert type(parse_size(value)) is int


# Limits


def test_limits_are_parsed_frozen_and_compared_by_value() -> None:
    limits = Limits(wall="5m", output="1KiB", evaluation="90s", body="1.5h")
    assert (limits.wall, limits.output, limits.problems) == (300.0, 1024, ())
    assert (limits.evaluation, limits.body) == (90.0, 5400.0)
    assert limits == Limits(wall=300, output=1024, evaluation=90, body=5400)
    assert hash(limits) == hash(Limits(wall=300, output=1024, evaluation=90, body=5400))
    assert Limits() == Limits(wall=None, output=None, evaluation=None, body=None)
    assert (Limits().wall, Limits().output, Limits().evaluation, Limits().body) == (None, None, None, None)
    with pytest.raises(dataclasses.FrozenInstanceError):
        limits.wall = 1.0  # type: ignore[misc]


def test_limits_keep_what_they_could_not_read() -> None:
    given: Any = "64"
    limits = Limits(wall="soon", output=0, evaluation=-1, body="5 parsecs", walls=1, memory=5, processes=given)
    assert (limits.wall, limits.output, limits.evaluation, limits.body) == (None, None, None, None)
    assert limits.problems == (
        f"Limits(walls=…): there is no such limit; valid: {VALID}. Did you mean 'wall'?",
        "Limits(wall=…): 'soon' is not a duration: write seconds above 0, or a text like '90s', '5m', '1h'",
        "Limits(output=…): 0 is not a size: write whole bytes above 0, or a text like '500kB', '10MiB', '2GiB'",
        "Limits(evaluation=…): -1 is not a duration: write seconds above 0, or a text like '90s', '5m', '1h'",
        "Limits(body=…): '5 parsecs' is not a duration: write seconds above 0, or a text like '90s', '5m', '1h'",
        "Limits(memory=…): 5 is less memory than a shell needs: 4MiB",
        "Limits(processes=…): '64' is not a count: write a whole number from 1 to 1000000000",
    )


def test_the_limits_of_an_agent_and_of_an_evaluation() -> None:
    asked = {
        "memory": "64MiB",
        "cpu": "1m",
        "processes": 2,
        "open_files": 32,
        "file_size": "1kB",
        "disk": 7,
        "files": 3,
    }
    limits = Limits(**asked).over(DEFAULT_LIMITS)  # type: ignore[arg-type]
    assert limits.problems == ()
    assert limits.resources() == Resources(
        memory=2**26, cpu=60.0, processes=2, open_files=32, file_size=1000, disk=7, files=3
    )
    assert limits.resources_of_evaluation() == Resources(memory=2**29, processes=64, disk=7, files=3)
    assert DEFAULT_LIMITS.resources() == DEFAULT_LIMITS.resources_of_evaluation() == Resources()
    assert DEFAULT_LIMITS.of_agent() == {"wall": 600.0, "output": 10 * 2**20}
    assert Limits(memory="1GiB").over(DEFAULT_LIMITS).of_agent() == {"wall": 600, "output": 10 * 2**20, "memory": 2**30}


@pytest.mark.parametrize("value", [0, -1, 1.0, True, "3", 10**10])
def test_a_count_is_a_whole_number(value: object) -> None:
    with pytest.raises(ValueError, match="is not a count: write a whole number from 1 to 1000000000"):
        parse_count(value)
    assert Limits(open_files=15).problems == ("Limits(open_files=…): 15 is less than a shell needs: 16",)


def test_a_limit_without_a_near_name_gets_no_suggestion() -> None:
    assert Limits(zzz=1).problems == (f"Limits(zzz=…): there is no such limit; valid: {VALID}.",)


@pytest.mark.parametrize(
    ("near", "far", "expected"),
    [
        (Limits(), Limits(wall=2, output=3), Limits(wall=2, output=3)),
        (Limits(wall=1), Limits(wall=2, output=3), Limits(wall=1, output=3)),
        (Limits(output=1), Limits(wall=2, output=3), Limits(wall=2, output=1)),
        (Limits(wall=1), Limits(), Limits(wall=1)),
        (Limits(evaluation=1), Limits(evaluation=2, body=3), Limits(evaluation=1, body=3)),
        (Limits(body=1), Limits(evaluation=2, body=3), Limits(evaluation=2, body=1)),
    ],
)
def test_limits_are_completed_field_by_field(near: Limits, far: Limits, expected: Limits) -> None:
    assert near.over(far) == expected


def test_completing_limits_forgets_no_problem() -> None:
    completed = Limits(wall=1, memory=2).over(Limits(output="x"))
    assert completed.problems == (*Limits(memory=2).problems, *Limits(output="x").problems)


def test_the_defaults() -> None:
    assert Limits(wall="10m", output="10MiB", evaluation="1m", body="5m") == DEFAULT_LIMITS
    task = Task(id="t")
    assert (task.prompt, task.workspace, task.limits, task.network) == ("", None, DEFAULT_LIMITS, "none")
    assert (task.env, task.samples, task.seed, task.threshold, task.score_on, task.tags) == ({}, 1, 0, 1.0, "any", ())
    assert (task.hidden, task.protect, task.oracle) == (None, (), None)
    assert (get_args(Network), get_args(ScoreOn)) == (("none", "host"), ("any", "completed"))


# Tasks


def test_a_task_is_replaced_and_not_changed() -> None:
    task = Task(id="t", env={"A": "1"})
    changed = task.replace(prompt="p", seed=4)
    assert (changed.prompt, changed.seed, changed.env, task.prompt) == ("p", 4, {"A": "1"}, "")
    with pytest.raises(AttributeError):
        task.prompt = "x"  # type: ignore[misc]
    with pytest.raises(TypeError, match="promt"):
        task.replace(promt="x")


BASE = Task(id="t", prompt="p", env={"A": "1", "B": "2"}, threshold=0.5)


@pytest.mark.parametrize(
    "changes",
    [
        {"prompt": "q"},
        {"limits": Limits(wall=1).over(DEFAULT_LIMITS)},
        {"limits": Limits(output=1).over(DEFAULT_LIMITS)},
        {"limits": Limits(memory="1GiB").over(DEFAULT_LIMITS)},
        {"network": "host"},
        {"env": {"A": "1"}},
        {"threshold": 0.6},
        {"score_on": "completed"},
        {"protect": ("tests/**",)},
    ],
    ids=str,
)
def test_what_changes_a_task_changes_its_digest(changes: dict[str, Any]) -> None:
    assert BASE.replace(**changes).digest() != BASE.digest()


@pytest.mark.parametrize(
    "changes",
    [
        {"id": "u"},
        {"samples": 4},
        {"seed": 9},
        {"tags": ("a",)},
        {"workspace": Folder(path="/w")},
        {"env": {"B": "2", "A": "1"}},
        {"limits": Limits(wall=600, output="10MiB", evaluation=60, body=300)},
        {"limits": Limits(wall="10m", output="10485760").over(DEFAULT_LIMITS)},
        {"limits": Limits(evaluation=1, body=1).over(DEFAULT_LIMITS)},
        {"hidden": Folder(path="/h")},
        {"oracle": "/solution.sh"},
    ],
    ids=str,
)
def test_what_is_recorded_elsewhere_leaves_the_digest(changes: dict[str, Any]) -> None:
    assert BASE.replace(**changes).digest() == BASE.digest()


def test_a_workspace_is_tagged_in_json() -> None:
    assert msgspec.json.decode(msgspec.json.encode(Folder(path="/w"))) == {"type": "folder", "path": "/w"}
