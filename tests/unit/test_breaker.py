"""When a run ends that meets one failure of infrastructure after the other."""

from __future__ import annotations

import pytest

from pytest_rollout.breaker import Breaker, same_cause


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("no room", "no room", True),
        ("no room", "no rooms", False),
        ("429 after 0.2 s", "429 after 13.7 s", True),
        ("stage /var/tmp/x/3fa9c01d2e gone", "stage /var/tmp/x/00b1f2 gone", True),
        ("worker 'gw0' crashed while running 'test_a[1]'", "worker 'gw12' crashed while running 'test_b[x]'", True),
        ("no room\nin a", "no room\nin b", True),
        ("the facade broke", "the decade broke", False),
    ],
)
def test_causes_that_are_the_same(one: str, other: str, *, same: bool) -> None:
    names = ("test_a[1]", "test_b[x]")
    assert (same_cause("stage", one, names) == same_cause("stage", other, names)) is same
    assert same_cause("stage", one) != same_cause("host", one)


def said(limit: int, kinds: str) -> list[int]:
    """At which rollouts a breaker ends a run: ``s`` is a stage, ``h`` a host, ``c`` cancelled, ``.`` a measured one."""
    breaker = Breaker(limit)
    kind = {"s": "stage", "h": "host", "c": "cancelled", ".": None}
    return [number for number, each in enumerate(kinds, 1) if breaker.note(kind[each], "no")]


@pytest.mark.parametrize(
    ("limit", "kinds", "at"),
    [
        (3, "sss", [3]),
        (3, "ss.ss", []),
        (3, "sshsshh", []),
        (3, "sshhh", [5]),
        (3, "sscs", [4]),
        (1, ".s", [2]),
        (0, "s" * 50, []),
    ],
)
def test_so_many_in_a_row(limit: int, kinds: str, at: list[int]) -> None:
    assert said(limit, kinds) == at


def test_what_it_says() -> None:
    breaker = Breaker(2)
    assert breaker.note("provider", "401 for run 17\nmore") == ""
    assert breaker.note("provider", "401 for run 18\nmore") == (
        "2 rollouts in a row ended by the same failure of infrastructure, provider: 401 for run 18 "
        "(--rollout-max-infra)"
    )
