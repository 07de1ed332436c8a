"""``pytest --rollout-shard 3/8``: leave the tests of the other shards out, rollouts or not."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_rollout._marks import concerns_us
from pytest_rollout.errors import ConfigError
from pytest_rollout.shard import OfShard, Shard, read_shard

__all__ = ["PLUGIN", "Sharding", "shard_line", "shard_of"]

PLUGIN = "rollout-shard"
_SENT = "rollout_shard"


def shard_line(shard: OfShard) -> str:
    """The line below «collected N items»."""
    return f"rollout: shard {shard}: {shard.tests} of {shard.all_tests} tests"


def shard_of(config: pytest.Config) -> Shard:
    """The shard that was asked for; raises UsageError."""
    try:
        return read_shard(config.getoption("rollout_shard"), "--rollout-shard")
    except ConfigError as error:
        raise pytest.UsageError(f"rollout: {error}") from None


class Sharding:
    """Registered, in every process, where a shard was asked for."""

    def __init__(self, config: pytest.Config, shard: Shard) -> None:
        self._config, self._shard = config, shard
        self.of_session: OfShard | None = None  # where tests were collected
        self._tests_of_workers = 0
        self._has_rollouts = False

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        mine: list[pytest.Item] = []
        others: list[pytest.Item] = []
        for item in items:
            (mine if self._shard.has(_node(item)) else others).append(item)
        self.of_session = OfShard(
            index=self._shard.index,
            count=self._shard.count,
            tests=len(mine),
            all_tests=len(items),
            all_rollouts=sum(map(concerns_us, items)),
        )
        self._has_rollouts = any(map(concerns_us, mine))
        sent = getattr(self._config, "workeroutput", None)
        if sent is not None:
            sent[_SENT] = len(items)
        if others:
            items[:] = mine
            self._config.hook.pytest_deselected(items=others)

    def pytest_report_collectionfinish(self) -> list[str]:
        """With rollouts, their header says it."""
        said = self.of_session is None or self._has_rollouts or self._config.get_verbosity() < 0
        return [] if said or self.of_session is None else [shard_line(self.of_session)]

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self._tests_of_workers = max(self._tests_of_workers, (getattr(node, "workeroutput", None) or {}).get(_SENT, 0))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """An empty shard is no mistake; a selection that is empty in every shard is one."""
        tests = self.of_session.all_tests if self.of_session is not None else self._tests_of_workers
        if session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and tests:
            session.exitstatus = pytest.ExitCode.OK


def _node(item: pytest.Item) -> str:
    """The node id, without the group that pytest-xdist may have put behind it."""
    return f"{item.parent.nodeid}::{item.name}" if item.parent is not None else item.nodeid
