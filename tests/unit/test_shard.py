"""Shards: which test is in which, and what is refused."""

from __future__ import annotations

from collections import Counter

import pytest

from pytest_rollout.errors import ConfigError
from pytest_rollout.shard import Shard, read_shard

NODES = [f"evals/test_a.py::test_{number}[s{sample}]" for number in range(100) for sample in range(8)]


def test_every_test_is_in_one_shard() -> None:
    for count in (1, 2, 8, 1000):
        shards = [Shard(index, count) for index in range(1, count + 1)]
        assert {sum(shard.has(node) for shard in shards) for node in NODES[:100]} == {1}


def test_tests_and_samples_are_spread() -> None:
    sizes = Counter(next(index for index in range(1, 9) if Shard(index, 8).has(node)) for node in NODES)
    assert sum(sizes.values()) == 800
    assert min(sizes.values()) > 70
    assert max(sizes.values()) < 130


def test_a_shard_is_the_same_on_every_machine_and_python() -> None:
    nodes = (*NODES[:8], "ä.py::t[\udcff]")
    found = [next(index for index in range(1, 9) if Shard(index, 8).has(node)) for node in nodes]
    assert found == [
        4,
        4,
        3,
        3,
        6,
        7,
        3,
        3,
        1,
    ]


def test_how_a_shard_is_written() -> None:
    assert read_shard(" 3/8 ", "x") == Shard(3, 8)
    assert str(Shard(3, 8)) == "3/8"


@pytest.mark.parametrize("text", ["", "3", "0/8", "9/8", "-1/8", "1/0", "a/b", "1/10001", "1.0/2", "1/2/3", "١/٢"])
def test_what_is_no_shard(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_shard(text, "--rollout-shard")
    expected = f"--rollout-shard: {text!r} is not a shard: INDEX/COUNT with 1 <= INDEX <= COUNT <= 10000, as 3/8"
    assert str(refused.value) == expected
