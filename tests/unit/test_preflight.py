"""What is tried before the first rollout: the machine, and the preflight command of each agent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_rollout.agents.config import AgentConfig
from pytest_rollout.agents.function import FunctionAgent
from pytest_rollout.agents.noop import NoopAgent
from pytest_rollout.agents.protocol import LiveStage
from pytest_rollout.executors.cancel import Cancel
from pytest_rollout.preflight import Flight, Preflight, load_preflight, preflight, preflight_once
from pytest_rollout.run import Run
from pytest_rollout.settings import resolve
from pytest_rollout.store.records import Plan
from pytest_rollout.task import Folder, Task

TASK = Task(id="test_x.py::test_x")


@pytest.fixture
def run(tmp_path: Path, private_folder: Path) -> Iterator[Run]:
    """A run of the best rung."""
    ini = {"stage_root": str(private_folder / "root")}
    settings = resolve({}, ini, root=tmp_path, invoked=tmp_path, ini_folder=tmp_path)
    made = Run(settings, "2026-11-29T22-08-01Z-3f9ac01d", "main")
    made.prepare()
    made.open(Plan(rollouts=()), {})
    yield made
    made.close()


@pytest.fixture
def cancel() -> Iterator[Cancel]:
    token = Cancel()
    yield token
    token.close()


def named(name: str, command: str | None, **more: Any) -> AgentConfig:
    return AgentConfig(name=name, command="exit 1", preflight=command, **more)


def flights(*agents: Any) -> list[Flight]:
    return [Flight(task=TASK, agent=agent) for agent in agents]


def act(stage: LiveStage) -> None:
    """An agent that names no command."""


def test_a_machine_and_agents_that_work(run: Run, cancel: Cancel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODEL_PLACE", "there")
    command = 'test "$MODEL_PLACE" = there && test -z "$OTHER" && test $ROLLOUT_TASK = preflight'
    good = named("good", command, env=("MODEL_PLACE",))
    asked = flights(good, good, named("mute", None), NoopAgent(), FunctionAgent(act), None)
    found = preflight(run, asked, cancel, iter((1.0, 3.5)).__next__)
    mute = ("(fixture)", "mute", f"{__name__}:act")
    assert found == Preflight(tried=("good",), without=tuple(sorted(mute)), seconds=2.5)
    assert sorted(path.name for path in (run.folder.path / "preflight").iterdir()) == ["agent-good", "noop"]
    assert list((run.stage_root / "stages").iterdir()) == []


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("echo one >&2; echo 'no quota' >&2; exit 3", "ended by exit_code 3: no quota"),
        ("echo out; exit 3", "ended by exit_code 3: out"),
        ("kill -9 $$", "ended by signal"),
        ("no-such-program 2> /dev/null", "ended by exit_code 127"),
    ],
)
def test_an_agent_that_does_not(run: Run, cancel: Cancel, command: str, said: str) -> None:
    found = preflight(run, flights(named("bad", command), named("later", "true")), cancel)
    folder = run.folder.path / "preflight" / "agent-bad"
    assert found.failed == f"the preflight command of agent 'bad' {said} ({folder})"
    assert found.tried == ("bad",), "it ends with the first failure"


def test_a_machine_that_does_not(run: Run, cancel: Cancel, tmp_path: Path) -> None:
    gone = [Flight(task=TASK.replace(workspace=Folder(path=str(tmp_path / "gone"))), agent=named("good", "true"))]
    found = preflight(run, gone, cancel)
    assert found.failed.startswith("infra stage: ")
    assert str(tmp_path / "gone") in found.failed
    assert found.tried == ()


def test_it_is_made_once_for_a_run(run: Run, cancel: Cancel, tmp_path: Path) -> None:
    failing = flights(named("bad", "exit 3"))
    assert load_preflight(run.folder) is None
    first = preflight_once(run, failing, cancel)
    assert first.failed
    assert preflight_once(run, failing, cancel) == first == load_preflight(run.folder)


def test_an_interrupt_is_no_finding(run: Run, cancel: Cancel) -> None:
    cancel.set()
    assert preflight_once(run, flights(named("good", "true")), cancel).failed
    assert load_preflight(run.folder) is None
