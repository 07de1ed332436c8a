"""The canary: it passes where the recipe holds, and says what does not hold where it leaks."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_rollout.errors import HostError, IsolationError, StageError
from pytest_rollout.executors import launch as launching
from pytest_rollout.executors import sandbox as module
from pytest_rollout.executors.bwrap import REMEDY, Bwrap, arguments
from pytest_rollout.executors.landlock import LandlockExecutor
from pytest_rollout.executors.probe import probe
from pytest_rollout.executors.sandbox import SandboxExecutor
from pytest_rollout.stage.root import StageRoot

if TYPE_CHECKING:
    from tests.unit.conftest import Lab

ROOT = os.geteuid() == 0


def probed(lab: Lab) -> None:
    assert isinstance(lab.executor, SandboxExecutor)
    probe(lab.executor, lab.root)


def complaint(lab: Lab) -> str:
    """What the canary says; it leaves no stage and no variable behind."""
    with pytest.raises(IsolationError) as caught:
        probed(lab)
    assert caught.value.hint == REMEDY
    assert list(lab.root.stages.iterdir()) == []
    assert "PYTEST_ROLLOUT_CANARY" not in os.environ
    return caught.value.message


@pytest.fixture
def change(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[list[str]], list[str]]], None]:
    """Changes the arguments of every sandbox."""

    def make(edit: Callable[[list[str]], list[str]]) -> None:
        monkeypatch.setattr(module, "arguments", lambda **given: edit(arguments(**given)))

    return make


def test_it_holds_here(sandbox: Lab) -> None:
    probed(sandbox)
    probed(sandbox)  # and again
    assert list(sandbox.root.stages.iterdir()) == []
    assert "PYTEST_ROLLOUT_CANARY" not in os.environ


def test_a_file_of_the_host_that_is_read(sandbox: Lab, change: Callable[..., None]) -> None:
    folder = str(sandbox.root.path)
    change(lambda args: [*args[:-6], "--ro-bind", folder, folder, *args[-6:]])
    if ROOT:
        sandbox.root.path.chmod(0o755)
    assert complaint(sandbox) == "the sandbox does not hold: a file of the host was read"


def test_an_environment_that_leaks(sandbox: Lab, change: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    class Ours(dict[str, str]):
        """The environment of this process, at the time when it is asked for."""

        def __iter__(self) -> Any:
            return iter(os.environ)

        def keys(self) -> Any:
            return os.environ.keys()

        def items(self) -> Any:
            return os.environ.items()

        def __getitem__(self, name: str) -> str:
            return os.environ[name]

    monkeypatch.setattr(launching, "_ENV", Ours())
    change(lambda args: [word for word in args if word != "--clearenv"])
    assert complaint(sandbox) == "the sandbox does not hold: the environment of the host was read"


def test_a_network_that_is_shared(sandbox: Lab, change: Callable[..., None]) -> None:
    change(lambda args: [*args, "--share-net"])
    interfaces = set(os.listdir("/sys/class/net")) - {"lo"}
    if not interfaces:
        pytest.skip("this machine has no network but lo")
    assert complaint(sandbox) == "the sandbox does not hold: there is a network"


def test_a_capability_that_is_held(sandbox: Lab, change: Callable[..., None]) -> None:
    def keep(args: list[str]) -> list[str]:
        at = args.index("--cap-drop")
        return [*args[:at], *args[at + 2 :], "--cap-add", "CAP_SYS_ADMIN"]

    change(keep)
    assert complaint(sandbox) == "the sandbox does not hold: a capability is held"


def test_an_agent_that_is_root(sandbox: Lab, change: Callable[..., None]) -> None:
    change(lambda args: [*args, "--uid", "0"])
    assert complaint(sandbox) == "the sandbox does not hold: it runs as root"


def test_an_overlay_whose_changes_are_not_on_the_host(sandbox: Lab, change: Callable[..., None]) -> None:
    def in_memory(args: list[str]) -> list[str]:
        at = args.index("--overlay")
        return [*args[:at], "--tmp-overlay", *args[at + 3 :]]

    change(in_memory)
    assert complaint(sandbox) == "the tree of the stage does not show its changes on the host"


def test_a_stage_that_can_not_be_written(sandbox: Lab, change: Callable[..., None]) -> None:
    def read_only(args: list[str]) -> list[str]:
        at = args.index("--overlay-src")
        return [*args[:at], "--ro-bind", args[at + 1], *args[at + 5 :]]

    change(read_only)
    assert complaint(sandbox).startswith("the sandbox does not hold: rm: ")


def test_a_recipe_that_can_not_be_mounted(sandbox: Lab, change: Callable[..., None]) -> None:
    change(
        lambda args: ["/no/such/baseline" if word.startswith(str(sandbox.root.baselines)) else word for word in args]
    )
    with pytest.raises(StageError, match="the stage can't be mounted"):
        probed(sandbox)
    assert list(sandbox.root.stages.iterdir()) == []


@pytest.mark.parametrize(
    ("place", "rights", "said"),
    [
        ("canary", "read", "a file of the host was read"),
        ("", "read", "a file of the host was read; a folder of the host was read"),
        ("canary-shared", "device", "a file of the host was changed"),
    ],
)
def test_a_landlock_that_lets_something_through(
    rung4: Lab, monkeypatch: pytest.MonkeyPatch, place: str, rights: str, said: str
) -> None:
    assert isinstance(rung4.executor, LandlockExecutor)
    if ROOT:
        rung4.root.path.chmod(0o755)
    probe(rung4.executor, rung4.root)
    spec = rung4.executor._spec

    def leaky(*given: Any) -> dict[str, Any]:
        found = spec(*given)
        return {**found, "rules": [*found["rules"], [str(rung4.root.path / place), rights]]}

    monkeypatch.setattr(rung4.executor, "_spec", leaky)
    with pytest.raises(IsolationError) as caught:
        probe(rung4.executor, rung4.root)
    assert caught.value.message == f"the sandbox does not hold: {said}"
    assert list(rung4.root.stages.iterdir()) == []


def test_a_bubblewrap_that_is_refused(stage_root: StageRoot, private_folder: Path) -> None:
    fake = private_folder / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2\nexit 1\n")
    fake.chmod(0o755)
    bwrap = Bwrap(path=str(fake), origin=str(fake), version="0.11.0", digest="sha256:0")
    with pytest.raises(IsolationError) as caught:
        probe(SandboxExecutor(stage_root, bwrap), stage_root)
    assert caught.value.message == "this machine refuses the sandbox: bwrap: setting up uid map: Permission denied"
    assert "--rollout-isolation=none" in caught.value.hint
    assert list(stage_root.stages.iterdir()) == []


def test_a_stage_root_that_can_not_be_written_is_no_crash(sandbox: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> Sequence[str]:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_text", full)
    with pytest.raises(HostError) as caught:
        probed(sandbox)
    assert caught.value.message == "the sandbox can't be probed: [Errno 28] No space left on device"
