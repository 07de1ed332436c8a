"""Shards: a suite split among machines that know nothing of each other.

Which shard a test is in depends on its node id alone (with its parameters and its sample): not on the order, the
selection, the machine or the version of Python. So it is the same each time, and no two shards share a test.
"""

from __future__ import annotations

import hashlib
import re

import msgspec

from pytest_rollout.errors import ConfigError

__all__ = ["MOST_SHARDS", "OfShard", "Shard", "read_shard"]

MOST_SHARDS = 10_000
_FORM = re.compile(r"([0-9]{1,5})/([0-9]{1,5})", re.ASCII)


class Shard(msgspec.Struct, frozen=True):
    """The ``index``-th, from 1, of ``count`` parts."""

    index: int
    count: int

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    def has(self, node: str) -> bool:
        """Whether the test of this node id is in it."""
        digest = hashlib.sha256(node.encode("utf-8", "surrogatepass")).digest()
        return int.from_bytes(digest[:8], "big") % self.count == self.index - 1


class OfShard(msgspec.Struct, frozen=True, kw_only=True):
    """A shard of one selection: which, ``tests`` of it of ``all_tests``, and how many rollouts the whole has."""

    index: int
    count: int
    tests: int
    all_tests: int
    all_rollouts: int

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"


def read_shard(text: str, where: str) -> Shard:
    """The shard that ``3/8`` means; raises ConfigError."""
    found = _FORM.fullmatch(text.strip())
    index, count = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 1 <= index <= count <= MOST_SHARDS:
        raise ConfigError(
            f"{where}: {text!r} is not a shard: INDEX/COUNT with 1 <= INDEX <= COUNT <= {MOST_SHARDS}, as 3/8"
        )
    return Shard(index, count)
