"""Old against new, as values and as text."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from pytest_rollout.decisions.rescored import compare_scores
from pytest_rollout.report.rescored import rescored_lines, short_change
from pytest_rollout.store.records import Result, Source

Make = Callable[..., Result]


def again(make: Make, task: str, new: float | None, old: float | None, revision: str = "sha256:0123456789") -> Result:
    infra = {"outcome": "infra", "kind": "evaluator"} if new is None else {}
    source = Source(
        run="R",
        rollout=f"old-{task}",
        outcome="infra" if old is None else "passed",
        kind="evaluator" if old is None else None,
        reward=old,
        evaluator_revision="sha256:0123456789",
    )
    return make(f"new-{task}", task=task, reward=new, evaluator_revision=revision, source=source, **infra)


def test_each_task_that_changed_is_told(make_result: Make) -> None:
    results = [
        again(make_result, "same", 0.5, 0.5),
        again(make_result, "better", 1.0, 0.5, "sha256:9876543210"),
        again(make_result, "better", 0.75, 0.75 + 1e-12, "sha256:9876543210"),
        again(make_result, "measured now", 1.0, None),
        again(make_result, "still not", None, None),
        make_result("lost", source=None),
    ]
    found = compare_scores(results)
    assert found is not None
    assert [(task.task, task.changed, task.differs) for task in found.tasks] == [
        ("same", 0, False),
        ("better", 1, True),
        ("measured now", 1, True),
        ("still not", 0, False),
    ]
    assert (found.total.old_measured, found.total.new_measured, found.total.rollouts) == (3, 4, 5)
    assert rescored_lines("R", found) == [
        "scored again: 5 rollouts of R; mean reward 0.5625 of 3 → 0.7917 of 4; 2 of 5 scores changed",
        "  better: mean reward 0.625 → 0.875; 1 of 2 scores changed; checks sha256:01234567 → sha256:98765432",
        "  measured now: mean reward none of 0 → 1; 1 of 1 score changed; the same checks, sha256:01234567",
    ]
    assert short_change(found) == "mean reward 0.5625 of 3 → 0.7917 of 4, 2 of 5 changed"


def test_a_verdict_may_change_without_the_reward(make_result: Make) -> None:
    found = compare_scores([replace(again(make_result, "t", 0.5, 0.5), outcome="failed")])
    assert found is not None
    assert found.total.changed == 1


def test_many_tasks_are_counted(make_result: Make) -> None:
    lines = rescored_lines("R", compare_scores(again(make_result, f"t{n}", 1.0, 0.0) for n in range(23)))
    assert (len(lines), lines[-1]) == (22, "  … and 3 more tasks")


def test_a_run_whose_agents_ran_has_nothing_to_compare(make_result: Make) -> None:
    assert compare_scores([make_result()]) is None
    assert rescored_lines("R", None) == []
