"""How far people agree with the checks, against worked examples."""

from __future__ import annotations

import pytest

from pytest_rollout.decisions.agreement import Agreement, Pair, agreement, agreements, kappa


def verdicts(both: int, first: int, second: int, neither: int) -> list[tuple[bool, bool]]:
    return [(True, True)] * both + [(True, False)] * first + [(False, True)] * second + [(False, False)] * neither


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ((20, 5, 10, 15), 0.4),  # 50 grant proposals read by two: (0.7 - 0.5) / (1 - 0.5)
        ((45, 15, 25, 15), 0.1304),  # the same share of agreement, by other margins: (0.6 - 0.54) / 0.46
        ((25, 35, 5, 35), 0.2593),  # (0.6 - 0.46) / 0.54
        ((5, 0, 0, 5), 1.0),
        ((0, 5, 5, 0), -1.0),
        ((5, 5, 0, 0), 0.0),
        ((5, 0, 0, 0), None),
        ((0, 0, 0, 5), None),
        ((0, 0, 0, 0), None),
    ],
)
def test_cohens_kappa(table: tuple[int, int, int, int], expected: float | None) -> None:
    found = kappa(verdicts(*table))
    assert found is None if expected is None else found == pytest.approx(expected, abs=5e-5)


def test_each_person_and_all_together() -> None:
    pairs = [
        Pair(by="Bob", computed=1.0, human=0.5),
        Pair(by="Ada", computed=0.25, human=0.75, threshold=0.5),
        Pair(by="Ada", computed=1.0, human=1.0),
    ]
    ada = Agreement(by="Ada", labels=2, mean_absolute_difference=0.25, equal_verdicts=1, kappa=0.0)
    bob = Agreement(by="Bob", labels=1, mean_absolute_difference=0.5, equal_verdicts=0, kappa=0.0)
    both = Agreement(by=None, labels=3, mean_absolute_difference=1 / 3, equal_verdicts=1, kappa=-0.5)
    assert agreements(pairs) == [ada, bob, both]
    assert agreements(pairs[1:]) == [ada]


def test_no_pair_agrees_with_nothing() -> None:
    found = agreement([], None)
    assert (found.labels, found.mean_absolute_difference, found.kappa) == (0, None, None)


def test_a_threshold_has_the_slack_of_a_verdict() -> None:
    assert Pair(by="A", computed=1 - 1e-12, human=0.999).verdicts == (True, False)
