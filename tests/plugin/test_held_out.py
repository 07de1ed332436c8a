"""Sessions that run held-out tasks are counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_rollout.store.folder import ResultsFolder
from pytest_rollout.store.heldout import add_look, looks

if TYPE_CHECKING:
    from tests.plugin.conftest import Suite

SOURCE = """
    import pytest

    @pytest.mark.rollout(agent="echo x > x", split="held-out", samples=2)
    def test_held(bundle):
        assert bundle.exists("x")

    @pytest.mark.rollout(agent="exit 127", split="held-out")
    def test_not_started(bundle):
        assert bundle.exists("x")

    @pytest.mark.rollout(agent="exit 0", split="train")
    def test_trained_on(bundle):
        assert bundle.exit_code == 0
    """


def test_a_run_of_held_out_tasks_is_counted_and_told(suite: Suite) -> None:
    ran = suite.run(SOURCE)
    assert ran.run is not None
    results = ResultsFolder(suite.root / ".rollout")
    (look,) = looks(results).looks
    assert (look.run, look.tasks) == (ran.run.name, 2)
    assert "held-out: 2 tasks; the split was run in 1 run that this folder knows" in ran.block()
    assert len((results.path / "held-out.jsonl").read_bytes().splitlines()) == 1
    add_look(results, look)  # as a session that goes on with this run would
    ran.run.plan.unlink()
    assert looks(results).looks == (look,), "it is known without the run"
