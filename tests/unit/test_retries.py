"""How many retries each kind has, as it is said, and what is refused."""

from __future__ import annotations

import pytest

from pytest_rollout.errors import ConfigError
from pytest_rollout.outcome import INFRA_KINDS
from pytest_rollout.retries import DEFAULT_RETRIES, NEVER_RETRIED, read_retries

OPTION, FILE = "--rollout-retries", "rollout_retries in the ini file"
KINDS = ", ".join(DEFAULT_RETRIES)
SUITE = "it comes from the test or its suite, so another run of the agent meets it again"


def test_every_kind_has_a_number_or_a_reason_for_none() -> None:
    assert {*DEFAULT_RETRIES, *NEVER_RETRIED} == set(INFRA_KINDS)
    assert not {*DEFAULT_RETRIES} & {*NEVER_RETRIED}
    assert {kind for kind, number in DEFAULT_RETRIES.items() if number} == {"stage", "host", "worker", "provider"}


@pytest.mark.parametrize(
    ("sources", "changed"),
    [
        ([], {}),
        ([("2", OPTION)], {"stage": 2, "host": 2, "worker": 2, "provider": 2}),
        ([("0", OPTION)], {"stage": 0, "host": 0, "worker": 0, "provider": 0}),
        ([("stage=3, provider=0", OPTION)], {"stage": 3, "provider": 0}),
        ([("2\nagent = 1\n\n", FILE)], {"stage": 2, "host": 2, "worker": 2, "provider": 2, "agent": 1}),
        ([("stage=3,agent=1", FILE), ("stage=0", OPTION)], {"stage": 0, "agent": 1}),
        ([("stage=3,agent=1", FILE), ("1", OPTION)], {}),
        ([("evaluator=0, vacuous=0", FILE)], {}),
    ],
)
def test_numbers(sources: list[tuple[str, str]], changed: dict[str, int]) -> None:
    assert read_retries(sources) == {**DEFAULT_RETRIES, **changed}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("three", "'three' is not a whole number from 0 to 20"),
        ("-1", "'-1' is not a whole number from 0 to 20"),
        ("21", "'21' is not a whole number from 0 to 20"),
        ("stage=x", "'x' in 'stage=x' is not a whole number from 0 to 20"),
        ("1, 2", "'1, 2' has 2 plain numbers: 1, 2"),
        ("stage=1, stage=2", "'stage=1, stage=2' has 'stage' twice"),
        (" , ", "' , ' is empty"),
        ("stag=1", f"unknown kind 'stag'; valid: {KINDS}. Did you mean 'stage'?"),
        ("cancelled=1", "infra 'cancelled' is never tried again: the session ended"),
        *[
            (
                f"{kind}=1",
                f"infra '{kind}' is never tried again: {SUITE}\n"
                "Mend the suite; the evidence that there is can be scored again.",
            )
            for kind in ("evaluator", "vacuous", "fixture")
        ],
    ],
)
def test_what_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_retries([(text, OPTION)])
    assert str(caught.value) == f"{OPTION}: {said}"
