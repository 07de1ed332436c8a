"""From a collected test to a planned rollout: its marks, its samples, its task, its agent.

Problems are not raised where they are met, but gathered over the whole collection and told at once.
"""

from __future__ import annotations

import unittest
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pytest_rollout._marks import FIXTURES, MARKER, definitions, is_ours, marks
from pytest_rollout._reruns import refuse_reruns
from pytest_rollout.agents.config import AgentConfig
from pytest_rollout.agents.noop import NoopAgent
from pytest_rollout.agents.protocol import Agent
from pytest_rollout.errors import ConfigError
from pytest_rollout.evaluation.exposure import check_exposure, replaced_files, secrets_of, unmatched_globs
from pytest_rollout.identity import rollout_id
from pytest_rollout.marker import check_workspace, merge, read_samples, read_task
from pytest_rollout.plain import nearest
from pytest_rollout.rescoring.stored import Stored
from pytest_rollout.run import Run
from pytest_rollout.shard import OfShard
from pytest_rollout.store.records import Plan, Planned
from pytest_rollout.task import Archive, Folder, Git, Task

__all__ = [
    "Prepare",
    "RolloutItem",
    "Sampling",
    "is_own_agent",
    "is_own_task",
    "multiplied",
    "parametrize",
    "plan",
    "plan_item",
    "secrets_in_names",
]


Prepare = Callable[[Git | Archive], Folder | None]


@dataclass(frozen=True, slots=True)
class Sampling:
    """The parameter of a test: sample ``index`` of ``count``; ``marked`` is what its marker asked for."""

    index: int
    count: int
    marked: int | None


@dataclass(frozen=True, slots=True)
class RolloutItem:
    """One planned rollout. ``chosen`` is None where the suite's own ``rollout_agent`` will say.

    ``stored`` is what is scored again; then no agent runs.
    """

    task: Task
    sample: int
    chosen: AgentConfig | Agent | None
    agent_name: str
    stored: Stored | None = None


def parametrize(metafunc: pytest.Metafunc, run: Callable[[], Run]) -> None:
    """Give a test its samples; a bad marker is left alone here, and told at the end of collection."""
    try:
        merged = merge(marks(metafunc.definition))
        marked, settings, stored = read_samples(merged), run().settings, run().stored
    except ConfigError:
        return
    if stored is not None:
        task = merged.get("id")
        samples, of = stored.samples_of(metafunc.definition.nodeid, task if isinstance(task, str) else None)
        _multiply(metafunc, [Sampling(index, of, marked) for index in samples])
        return
    count = settings.samples if settings.samples_from == "command line" else marked or settings.samples
    count = 1 if settings.audit else count or 1
    _multiply(metafunc, [Sampling(index, count, marked) for index in range(count)])


def _multiply(metafunc: pytest.Metafunc, values: Sequence[Sampling]) -> None:
    ids = [pytest.HIDDEN_PARAM if value.count == 1 else f"s{value.index}" for value in values]
    metafunc.parametrize("_rollout_sample", values, ids=ids, indirect=True)


def plan_item(item: pytest.Item, run: Run, prepare: Prepare) -> RolloutItem:
    """The rollout that a test is; raises ConfigError without naming the test."""
    names = getattr(item, "fixturenames", ())
    _check_owner(item)
    if item.get_closest_marker(MARKER) is None:
        asked = "bundle" if "bundle" in names else "reward"
        raise ConfigError(f"the fixture {asked!r} needs the marker: @pytest.mark.rollout(…)")
    if issubclass(getattr(item, "cls", None) or object, unittest.TestCase):
        raise ConfigError(
            "a rollout can't be a method of a unittest.TestCase: unittest keeps its failures to itself",
            hint="Write it as a function, or in a plain class Test….",
        )
    if "bundle" not in names:
        raise ConfigError(
            "the marker 'rollout' is on a test that does not ask for the fixture 'bundle'",
            hint="Name 'bundle' as an argument of the test, or of a fixture of it; or move the marker off this test.",
        )
    _check_fixtures(item)
    refuse_reruns(item)
    merged = merge(marks(item))
    sampling = _sampling(item, merged)
    path = getattr(item, "path", Path(item.location[0]))
    default_id = _plain_id(item, sampling)
    task = read_task(merged, default_id=default_id, folder=path.parent, samples=sampling.count, prepare=prepare)
    check_workspace(task, results=run.results.path, stage_root=run.stage_root, test_file=path)
    check_exposure(task)
    for pool in task.pools:
        if pool not in run.settings.pools:
            valid = ", ".join(run.settings.pools) or "none"
            raise ConfigError(
                f"rollout(pools=…): there is no pool {pool!r}; in rollout_pools of the ini file: {valid}."
                f"{nearest(pool, run.settings.pools)}"
            )
    run.redactor.learn(task.env)
    chosen = _choose(item, merged, run, path.parent)
    return RolloutItem(task=task, sample=sampling.index, chosen=chosen, agent_name=_agent_name(item, chosen))


def secrets_in_names(item: pytest.Item, rollout: RolloutItem, run: Run) -> Iterator[str]:
    """What is wrong with a name that holds a secret: results are found by names, so they are shown as they are."""
    found = run.redactor.found(f"{item.nodeid}\0{rollout.task.id}")
    if found:
        yield str(
            ConfigError(
                f"the name of the test, or its task's id, holds a secret ({', '.join(found)}), and names are shown",
                hint="Give the parameter an id, with pytest.param(…, id=…) or ids=…, or the task another one.",
            )
        )


def _agent_name(item: pytest.Item, chosen: AgentConfig | Agent | None) -> str:
    """The agent as the plan names it; where the suite's own fixture has the last word, only that is known."""
    if chosen is None or not is_ours(item, "rollout_agent"):
        return "(fixture)"
    return chosen.name if isinstance(chosen, AgentConfig) else chosen.info.name


def _sampling(item: pytest.Item, merged: dict[str, Any]) -> Sampling:
    callspec = getattr(item, "callspec", None)
    found = callspec.params.get("_rollout_sample") if callspec is not None else None
    sampling = found if isinstance(found, Sampling) else Sampling(0, 1, None)
    if read_samples(merged) != sampling.marked:
        raise ConfigError(
            "'samples' inside pytest.param(marks=…) comes too late to multiply the test",
            hint="Put it into the marker of the function, the class or the module, or use --rollout-samples.",
        )
    return sampling


def _plain_id(item: pytest.Item, sampling: Sampling) -> str:
    """The node id without the sample, which is known: the last part, appended by this plugin."""
    parent = item.parent.nodeid if item.parent is not None else ""
    name = item.name
    if sampling.count > 1:
        last = f"s{sampling.index}]"
        name = name.removesuffix(f"[{last}") if name.endswith(f"[{last}") else name.removesuffix(f"-{last}") + "]"
    return f"{parent}::{name}"


def _choose(item: pytest.Item, merged: dict[str, Any], run: Run, folder: Path) -> AgentConfig | Agent | None:
    settings = run.settings
    if settings.audit or settings.rescore is not None:
        return NoopAgent()
    config_folder = Path(settings.config).parent
    if settings.agent is not None and (settings.agent_forced or merged.get("agent") is None):
        return run.choose(settings.agent, settings.agent_from, config_folder)
    if merged.get("agent") is not None:
        return run.choose(merged["agent"], "rollout(agent=…)", folder)
    if not is_ours(item, "rollout_agent"):
        return None
    valid = ", ".join((*run.named, "noop"))
    raise ConfigError(
        f"no agent is named for this task; in {settings.config}: {valid}",
        hint="Use --rollout-agent, the ini key rollout_agent, the marker's agent=…, or the fixture rollout_agent.",
    )


def _check_fixtures(item: pytest.Item) -> None:
    """Raise ConfigError for a fixture that is not there: pytest says so after the agent ran."""
    info = getattr(item, "_fixtureinfo", None)
    known: dict[str, Any] = getattr(info, "name2fixturedefs", {})
    given = getattr(getattr(item, "callspec", None), "params", {})
    for name in getattr(info, "names_closure", ()):
        if name not in known and name not in given and name != "request":
            raise ConfigError(f"there is no fixture {name!r}.{nearest(name, known)}")


def _check_owner(item: pytest.Item) -> None:
    for name in FIXTURES:
        if not is_ours(item, name):
            found = definitions(item, name)[-1]
            where = found.baseid or getattr(found.func, "__module__", "a plugin")
            raise ConfigError(
                f"the suite ({where}) has a fixture named {name!r} of its own, which replaces the plugin's",
                hint=f"Give it another name; it may ask for the plugin's {name!r}.",
            )


def is_own_agent(item: pytest.Item) -> bool:
    """Whether the agent of a test is the one that was chosen, and not what a fixture of the suite will say."""
    return is_ours(item, "rollout_agent")


def is_own_task(item: pytest.Item) -> bool:
    """Whether the task of a test is the one of its marker."""
    return is_ours(item, "rollout_task")


def plan(
    planned: Sequence[tuple[pytest.Item, RolloutItem]],
    run: str,
    shard: OfShard | None = None,
    notes: Sequence[str] = (),
) -> Plan:
    """The plan of a run; ``notes`` are told before those that it finds itself."""
    found = [
        Planned(
            node=item.nodeid,
            rollout=rollout_id(run, rollout.task.id, rollout.sample),
            task=rollout.task.id,
            sample=rollout.sample,
            agent=rollout.agent_name,
            tags=rollout.task.tags,
            split=rollout.task.split,
        )
        for item, rollout in planned
    ]
    return Plan(
        rollouts=tuple(found),
        multiplied=multiplied(item for item, _ in planned),
        notes=(*notes, *_of_tasks({rollout.task.id: rollout.task for _, rollout in planned}), *_collected(planned)),
        shard=shard,
    )


def _of_tasks(tasks: Mapping[str, Task]) -> Iterator[str]:
    """Globs of ``protect`` that fit nothing, each told once; hidden files that take the place of an agent's."""
    without: dict[str, list[str]] = {}
    for task in tasks.values():
        for glob in unmatched_globs(task):
            without.setdefault(glob, []).append(task.id)
    for glob, found in without.items():
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        yield f"{found[0]}{more}: protect={glob!r} fits nothing in the workspace"
    for task in tasks.values():
        for note in task.workspace.notes if task.workspace is not None else ():
            yield f"{task.id}: in the workspace {note}"
        for name in replaced_files(task)[:1]:
            yield f"{task.id}: the hidden file {name} replaces what an agent makes of the workspace's"


def _collected(planned: Sequence[tuple[pytest.Item, RolloutItem]]) -> Iterator[str]:
    """Hidden files that pytest collected as tests of the suite."""
    if not planned:
        return
    places = {item.path for item in planned[0][0].session.items}
    for secret in sorted(secrets_of(rollout.task for _, rollout in planned)):
        if any(place.is_relative_to(secret) for place in places):
            yield f"{secret} holds hidden files, and tests in it run as tests of this suite: add it to norecursedirs"


def multiplied(items: Iterable[pytest.Item]) -> dict[str, int]:
    """Classes whose marker holds for several tests, and how many agent runs that makes."""
    runs: Counter[str] = Counter()
    tests: dict[str, set[str]] = {}
    for item in items:
        for node, _ in item.iter_markers_with_node(MARKER):
            if isinstance(node, pytest.Class):
                runs[node.nodeid] += 1
                tests.setdefault(node.nodeid, set()).add(getattr(item, "originalname", item.name))
    return {node: count for node, count in runs.items() if len(tests[node]) > 1}
