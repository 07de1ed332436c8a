"""A view shows what the kernel shows: overlays and copies agree, for any sequence of file operations."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_rollout.executors.protocol import Stage
from pytest_rollout.stage.reader import StageReader
from pytest_rollout.stage.view import OverlayView

if TYPE_CHECKING:
    from tests.unit.conftest import Lab

BASE: dict[str, str | bytes | None] = {"a": "alpha\n", "b": "beta\n", "d/x": "1\n", "d/e/y": "2\n", "d/e/f/z": "3\n"}
NAMES = ("a", "b", "c", "d", "d/x", "d/e", "d/e/y", "d/e/f", "d/e/f/z", "d/n", "g", "g/h", "g/h/i")

names = st.sampled_from(NAMES)
contents = st.sampled_from(("alpha", "1", "2", "new", ""))
modes = st.sampled_from(("700", "755", "644", "777"))  # root needs no bit; what an owner needs is given
operations = st.one_of(
    st.builds(lambda name, text: f"test -p {name} || echo {shlex.quote(text)} > {name}", names, contents),
    st.builds(lambda name, text: f"test -p {name} || echo {shlex.quote(text)} >> {name}", names, contents),
    st.builds(lambda name: f"rm -r {name}", names),
    st.builds(lambda name: f"rm -r {name}; mkdir {name}", names),
    st.builds(lambda name: f"mkdir -p {name}", names),
    st.builds(lambda name, other: f"mv -T {name} {other}", names, names),
    st.builds(lambda name, other: f"test -f {name} && cp -RT --remove-destination {name} {other}", names, names),
    st.builds(lambda name, other: f"ln -sT {other} {name}", names, names),
    st.builds(lambda name, other: f"ln {other} {name}", names, names),
    st.builds(lambda name, mode: f"test ! -d {name} -o {mode} != 644 && chmod {mode} {name}", names, modes),
    st.builds(lambda name: f"touch {name}", names),
    st.builds(lambda name: f"mkfifo {name}", names),
)


@pytest.fixture
def views(sandbox: Lab) -> Iterator[list[OverlayView]]:
    """Views that are closed at the end."""
    found: list[OverlayView] = []
    yield found
    for view in found:
        view.close()


def seen(lab: Lab, stage: Stage) -> dict[str, Any]:
    """Everything that a suite can see of a stage: its changes, its paths and the contents of its files."""
    from pytest_rollout.stage.changes import ListingBounds, list_changes

    view = lab.executor.view(stage)
    reader = StageReader(view)
    try:
        deltas, findings = list_changes(view, ListingBounds())
        paths = reader.glob("**")
        return {
            "changes": [_facts(delta.change()) for delta in deltas],
            "findings": findings,
            "paths": paths,
            "there": [path for path in NAMES if reader.exists(path)],
            "contents": {path: _content(reader, path) for path in dict.fromkeys((*paths, *NAMES))},
        }
    finally:
        reader.close()


def _facts(change: Any) -> tuple[Any, ...]:
    return change.path, change.kind, change.type, change.mode, change.size


def _content(reader: StageReader, path: str) -> bytes | str:
    try:
        return reader.read(path)
    except AssertionError as error:
        return str(error)


def play(lab: Lab, base: Any, scripts: list[list[str]]) -> tuple[dict[str, Any], list[str]]:
    """Run the scripts one after the other in one stage; what is seen, and what ``find`` said inside."""
    stage = lab.executor.provision(base)
    inside: list[str] = []
    for number, lines in enumerate(scripts):
        script = "\n".join(f"{{ {line}; }} 2>/dev/null" for line in lines)
        last = number == len(scripts) - 1
        trial = lab.run(
            f"umask 022\n{script}\n" + ("find . -mindepth 1 | cut -c3-" if last else "true"), over=stage, wall=10
        )
        assert trial.end == ("completed", 0, None), trial.stderr
        inside = sorted(trial.text.splitlines())
    found = seen(lab, stage)
    assert lab.executor.drop(stage) is None
    return found, inside


def check(sandbox: Lab, local: Lab, bases: tuple[Any, Any], scripts: list[list[str]]) -> None:
    over, inside = play(sandbox, bases[0], scripts)
    copied, inside_copy = play(local, bases[1], scripts)
    assert over["paths"] == inside
    assert copied["paths"] == inside_copy
    assert over == copied


@pytest.fixture
def bases(sandbox: Lab, local: Lab) -> tuple[Any, Any]:
    """The baseline, of each executor."""
    found = sandbox.executor.prepare(sandbox.workspace(BASE)), local.executor.prepare(local.workspace(BASE))
    assert found[0].revision == found[1].revision
    return found


scripts = st.lists(st.lists(operations, min_size=1, max_size=25), min_size=1, max_size=2)


@settings(max_examples=12)
@given(scripts=scripts)
def test_overlay_and_copy_agree(sandbox: Lab, local: Lab, bases: tuple[Any, Any], scripts: list[list[str]]) -> None:
    check(sandbox, local, bases, scripts)


@pytest.mark.slow
@settings(max_examples=80)
@given(scripts=scripts)
def test_overlay_and_copy_agree_for_long(
    sandbox: Lab, local: Lab, bases: tuple[Any, Any], scripts: list[list[str]]
) -> None:
    check(sandbox, local, bases, scripts)


@pytest.mark.parametrize(
    "scripts",
    [
        [["rm -r d", "mkdir d", "mkdir d/e"], ["echo n > d/e/n"]],
        [["rm -r d"], ["mkdir -p d/e/f", "echo 3 > d/e/f/z"]],
        [["rm -r d/e", "ln -s /etc d/e"], ["rm d/e", "mkdir d/e"]],
        [["mv d g"], ["mv g d"]],
        [["rm a", "mkdir a", "echo 1 > a/x"], ["rm -r a", "echo alpha > a"]],
        [["rm -r d", "echo f > d"]],
        [["mv d g", "ln -s g d"]],
        [["ln a c", "echo x >> c"], ["rm a", "mv c a"]],
    ],
)
def test_overlay_and_copy_agree_where_it_is_hard(
    sandbox: Lab, local: Lab, bases: tuple[Any, Any], scripts: list[list[str]]
) -> None:
    check(sandbox, local, bases, scripts)


def test_a_property_that_sees_a_difference_fails(sandbox: Lab, local: Lab, bases: tuple[Any, Any]) -> None:
    over, _ = play(sandbox, bases[0], [["echo x > a"]])
    copied, _ = play(local, bases[1], [["echo y > a"]])
    assert over["changes"] == copied["changes"]
    assert over != copied


def test_locate_says_which_layer_holds_a_path(sandbox: Lab, views: list[OverlayView]) -> None:
    trial = sandbox.run("echo x >> a; rm b; rm -r d/e; mkdir d/e; echo n > d/e/n", over=BASE)
    view = OverlayView(f"{trial.stage.path}/u", trial.stage.baseline.path)
    views.append(view)
    assert view.locate(b"a") == (view.upper, b"a")
    assert view.locate(b"d/x") == (view.baseline, b"d/x")
    assert view.locate(b"d/e/n") == (view.upper, b"d/e/n")
    assert view.locate(b"never") == (view.baseline, b"never")
    for gone in (b"b", b"b/below", b"d/e/y", b"d/e/f/z"):
        with pytest.raises(FileNotFoundError):
            view.locate(gone)


def test_children_of_each_kind_of_folder(sandbox: Lab, views: list[OverlayView]) -> None:
    trial = sandbox.run("rm b; echo n > d/n; rm -r d/e; mkdir d/e; touch d/e/only; mkdir g", over=BASE)
    view = OverlayView(f"{trial.stage.path}/u", trial.stage.baseline.path)
    views.append(view)

    def paths(folder: bytes) -> list[bytes]:
        return [entry.path for entry in view.children(folder, 1, 100)]

    assert paths(b"") == [b"a", b"d", b"g"]
    assert paths(b"d") == [b"d/e", b"d/n", b"d/x"]
    assert paths(b"d/e") == [b"d/e/only"]
    assert paths(b"g") == []


def test_closing_gives_the_descriptors_back(lab: Lab) -> None:
    stage = lab.stage(BASE)
    before = len(os.listdir("/proc/self/fd"))
    view = lab.executor.view(stage)
    assert len(os.listdir("/proc/self/fd")) == before + 2
    view.close()
    assert len(os.listdir("/proc/self/fd")) == before
