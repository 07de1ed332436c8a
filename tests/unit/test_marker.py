"""The arguments of the marker: how they merge, which task they make, and what is refused with which words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_rollout.errors import ConfigError
from pytest_rollout.limits import DEFAULT_LIMITS, Limits
from pytest_rollout.marker import ARGUMENTS, check_workspace, checked_task, merge, read_samples, read_task
from pytest_rollout.task import Archive, Folder, Git, Task

VALID = (
    "agent, prompt, workspace, limits, network, env, samples, seed, threshold, score_on, tags, id, "
    "hidden, protect, oracle, pools, split"
)
LITTLE = "1 is less memory than a shell needs: 4MiB"


OUTSIDE = "is not a glob inside the workspace\nWrite paths of the workspace: 'setup.cfg', 'tests/**', '**/conftest.py'."
NO_GLOBS = ("", "/etc/**", "tests/", "../x", "a/../b", "..")


def task_of(folder: Path, **arguments: Any) -> Task:
    return read_task(arguments, default_id="test_a.py::test_x", folder=folder, samples=1, prepare=prepared)


def refusal(call: Any, *args: Any, **kwargs: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        call(*args, **kwargs)
    return str(caught.value)


# Merging


def prepared(asked: Git | Archive) -> Folder:
    """A workspace that is made ready: it says what was asked for."""
    return Folder(path="/made", source=repr(asked), commit="c0ffee")


def test_the_nearest_mark_wins_argument_by_argument() -> None:
    function, cls, module = {"prompt": "f"}, {"prompt": "c", "seed": 2}, {"seed": 3, "agent": "noop"}
    assert merge([((), function), ((), cls), ((), module)]) == {"prompt": "f", "seed": 2, "agent": "noop"}
    assert merge([]) == {}


def test_none_of_the_nearest_mark_wins_too() -> None:
    assert merge([((), {"workspace": None}), ((), {"workspace": "w"})]) == {"workspace": None}


def test_limits_and_env_are_merged_by_field() -> None:
    near = {"limits": Limits(wall=1), "env": {"A": "near"}}
    middle = {"limits": Limits(wall=2, output=2, body=4), "env": {"A": "middle", "B": "middle"}}
    far = {"limits": Limits(output=3, evaluation=5, body=6), "env": {"C": "far"}}
    merged = merge([((), near), ((), middle), ((), far)])
    assert merged["limits"] == Limits(wall=1, output=2, evaluation=5, body=4)
    assert merged["env"] == {"A": "near", "B": "middle", "C": "far"}
    assert near["env"] == {"A": "near"}


@pytest.mark.parametrize(
    ("name", "good", "odd"), [("limits", Limits(wall=1), "5m"), ("env", {"A": "1"}, ["A"]), ("env", {"A": "1"}, None)]
)
def test_what_can_not_be_merged_is_left_to_the_nearest(name: str, good: object, odd: object) -> None:
    assert merge([((), {name: odd}), ((), {name: good})]) == {name: odd}
    assert merge([((), {name: good}), ((), {name: odd})]) == {name: good}


def test_a_problem_of_any_merged_limits_is_told() -> None:
    near, far = {"limits": Limits(wall=1)}, {"limits": Limits(memory=1)}
    expected = f"Limits(memory=…): {LITTLE}"
    assert refusal(merge, [((), near), ((), far)]) == expected
    assert refusal(merge, [((), far), ((), near)]) == expected


def test_positional_arguments_are_refused() -> None:
    assert refusal(merge, [(("noop",), {})]) == "rollout takes named arguments only, got 'noop'"


@pytest.mark.parametrize("value", ["", "two words", "-x", "x" * 65, 3, ["held-out"]])
def test_a_split_is_a_short_name(value: object) -> None:
    assert refusal(task_of, Path("/suite"), split=value) == (
        f"rollout(split={value!r}): it is not a name, such as 'train' or 'held-out'"
    )


def test_a_split_is_kept() -> None:
    assert task_of(Path("/suite"), split="held-out").split == "held-out"
    assert task_of(Path("/suite")).split is None


@pytest.mark.parametrize(
    ("name", "hint"),
    [("promt", " Did you mean 'prompt'?"), ("sample", " Did you mean 'samples'?"), ("xyz", "")],
)
def test_an_unknown_argument_names_what_is_valid_and_the_nearest(name: str, hint: str) -> None:
    assert refusal(merge, [((), {name: 1})]) == f"rollout has no argument {name!r}; valid: {VALID}.{hint}"


def test_every_argument_of_the_list_is_taken() -> None:
    assert ", ".join(ARGUMENTS) == VALID
    assert merge([((), dict.fromkeys(ARGUMENTS, "x"))]) == dict.fromkeys(ARGUMENTS, "x")


# Samples


def test_samples() -> None:
    assert read_samples({}) is None
    assert read_samples({"samples": None}) is None
    assert read_samples({"samples": 1}) == 1
    assert read_samples({"samples": 1_000_000}) == 1_000_000


@pytest.mark.parametrize("value", [0, -1, "4", 2.0, True, [], 1_000_001])
def test_samples_that_are_refused(value: object) -> None:
    assert refusal(read_samples, {"samples": value}) == (
        f"rollout(samples={value!r}): it is not a whole number from 1 to 1000000"
    )


# The task


def test_a_mark_without_arguments_makes_the_default_task(tmp_path: Path) -> None:
    assert task_of(tmp_path) == Task(id="test_a.py::test_x", limits=DEFAULT_LIMITS)


def test_every_argument_reaches_the_task(tmp_path: Path) -> None:
    for name in ("w", "h"):
        (tmp_path / name).mkdir()
    (tmp_path / "solve.sh").touch()
    task = read_task(
        {
            "agent": "noop",
            "prompt": "Do it.",
            "workspace": "w",
            "limits": Limits(wall="1m", evaluation="2m", body="3m"),
            "network": "host",
            "env": {"A": "1"},
            "seed": 7,
            "threshold": 1,
            "score_on": "completed",
            "tags": ["b", " a ", "b"],
            "id": " mine ",
            "hidden": "h",
            "protect": ["tests/**", "./a", "a"],
            "oracle": "solve.sh",
        },
        default_id="d",
        folder=tmp_path,
        samples=3,
        prepare=prepared,
    )
    assert task == Task(
        id="mine",
        prompt="Do it.",
        workspace=Folder(path=str(tmp_path / "w")),
        limits=Limits(wall=60, output="10MiB", evaluation=120, body=180),
        network="host",
        env={"A": "1"},
        samples=3,
        seed=7,
        threshold=1.0,
        score_on="completed",
        tags=("a", "b"),
        hidden=Folder(path=str(tmp_path / "h")),
        protect=("a", "tests/**"),
        oracle=str(tmp_path / "solve.sh"),
    )
    assert type(task.threshold) is float


def test_texts_can_be_encoded(tmp_path: Path) -> None:
    task = read_task(
        {"prompt": "\udcff", "env": {"A": "\ud800"}},
        default_id="t[\udc80]",
        folder=tmp_path,
        samples=1,
        prepare=prepared,
    )
    assert (task.prompt, task.env, task.id) == ("\\udcff", {"A": "\\ud800"}, "t[\\udc80]")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"limits": "5m"}, "rollout(limits='5m'): it is not a Limits, such as Limits(wall='5m')"),
        (
            {"limits": Limits(wall=0, memory=1)},
            "Limits(wall=…): 0 is not a duration: write seconds above 0, or a text like '90s', '5m', '1h'; "
            f"Limits(memory=…): {LITTLE}",
        ),
        ({"prompt": 5}, "rollout(prompt=5): it is not a text without NUL"),
        ({"prompt": "a\0"}, "rollout(prompt='a\\x00'): it is not a text without NUL"),
        ({"id": ""}, "rollout(id=''): it is empty or longer than 500 characters"),
        ({"id": " "}, "rollout(id=' '): it is empty or longer than 500 characters"),
        ({"id": "x" * 501}, f"rollout(id={'x' * 501!r}): it is empty or longer than 500 characters"),
        ({"id": None}, "rollout(id=None): it is not a text without NUL"),
        ({"workspace": 5}, "rollout(workspace=5): it is not a path of a folder"),
        ({"workspace": "no"}, "rollout(workspace='no'): the folder TMP/no does not exist"),
        ({"workspace": "file"}, "rollout(workspace='file'): TMP/file is not a folder"),
        ({"workspace": "a\0"}, "rollout(workspace='a\\x00'): it is not a path of a folder"),
        ({"hidden": 5}, "rollout(hidden=5): it is not a path of a folder"),
        ({"hidden": "no"}, "rollout(hidden='no'): the folder TMP/no does not exist"),
        ({"hidden": "file"}, "rollout(hidden='file'): TMP/file is not a folder"),
        ({"oracle": ["x"]}, "rollout(oracle=['x']): it is not a path"),
        ({"oracle": "a\0"}, "rollout(oracle='a\\x00'): it is not a path"),
        ({"oracle": "no.sh"}, "rollout(oracle='no.sh'): TMP/no.sh does not exist"),
        ({"oracle": "empty"}, "rollout(oracle='empty'): the folder TMP/empty is empty"),
        ({"protect": 5}, "rollout(protect=5): it is not a list of globs, such as ['tests/**']"),
        ({"protect": None}, "rollout(protect=None): it is not a list of globs, such as ['tests/**']"),
        ({"protect": ["a", 5]}, "rollout(protect=['a', 5]): it is not a list of globs, such as ['tests/**']"),
        *(({"protect": ["a", glob]}, f"rollout(protect=…): {glob!r} {OUTSIDE}") for glob in NO_GLOBS),
        ({"network": "none "}, "rollout(network='none '): valid: 'none', 'host'. Did you mean 'none'?"),
        ({"network": None}, "rollout(network=None): valid: 'none', 'host'."),
        ({"network": "gateway"}, "rollout(network='gateway') is not enforced by this version, so it is refused"),
        (
            {"score_on": "complete"},
            "rollout(score_on='complete'): valid: 'any', 'completed'. Did you mean 'completed'?",
        ),
        ({"env": ["A"]}, "rollout(env=['A']): it is not a dict of texts"),
        ({"env": {"A": 1}}, "rollout(env={'A': 1}): it is not a dict of texts"),
        ({"env": {"": "1"}}, "rollout(env=…): '' is not a name of a variable, or its value has a NUL"),
        ({"env": {"A=B": "1"}}, "rollout(env=…): 'A=B' is not a name of a variable, or its value has a NUL"),
        ({"env": {"A": "\0"}}, "rollout(env=…): 'A' is not a name of a variable, or its value has a NUL"),
        ({"env": {"ROLLOUT_ID": "1"}}, "rollout(env=…): 'ROLLOUT_ID' begins with ROLLOUT_, which is set by the plugin"),
        ({"seed": -1}, "rollout(seed=-1): it is not a whole number from 0 up"),
        ({"seed": 2**62}, f"rollout(seed={2**62}): it is not a whole number from 0 up"),
        ({"seed": True}, "rollout(seed=True): it is not a whole number from 0 up"),
        ({"seed": 1.0}, "rollout(seed=1.0): it is not a whole number from 0 up"),
        ({"threshold": 1.5}, "rollout(threshold=1.5): it is not a number from 0 to 1"),
        ({"threshold": float("nan")}, "rollout(threshold=nan): it is not a number from 0 to 1"),
        ({"threshold": True}, "rollout(threshold=True): it is not a number from 0 to 1"),
        ({"threshold": "1"}, "rollout(threshold='1'): it is not a number from 0 to 1"),
        ({"tags": "a"}, "rollout(tags='a'): it is not a list of texts"),
        ({"tags": 5}, "rollout(tags=5): it is not a list of texts"),
        ({"tags": ["a", " "]}, "rollout(tags=['a', ' ']): a tag is a text that is not empty"),
        ({"tags": [1]}, "rollout(tags=[1]): a tag is a text that is not empty"),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, dict) else "",
)
def test_what_is_refused(tmp_path: Path, arguments: dict[str, Any], message: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    assert refusal(task_of, tmp_path, **arguments) == message.replace("TMP", str(tmp_path))


@pytest.mark.parametrize(
    "edge",
    [
        *({"threshold": 0}, {"threshold": 0.0}, {"seed": 0}, {"seed": 2**62 - 1}, {"tags": ()}, {"id": "x" * 500}),
        *({"protect": ()}, {"hidden": None}, {"oracle": None}),
    ],
)
def test_the_edges_are_taken(tmp_path: Path, edge: dict[str, Any]) -> None:
    (name,) = edge
    assert getattr(task_of(tmp_path, **edge), name) == edge[name]


# The workspace


def test_a_workspace_is_found_beside_the_test_or_where_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "suite").mkdir()
    (tmp_path / "w").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    for said in ("../w", str(tmp_path / "w"), "~/w", Path("../w")):
        assert task_of(tmp_path / "suite", workspace=said).workspace == Folder(path=str(tmp_path / "w"))


@pytest.mark.parametrize(
    ("holds", "what"), [("results", "the results"), ("stages", "the stages"), ("test", "the test itself")]
)
def test_a_workspace_that_holds_what_an_agent_must_not_see_is_refused(tmp_path: Path, holds: str, what: str) -> None:
    workspace, elsewhere = tmp_path / "w", tmp_path / "other"
    workspace.mkdir()
    (tmp_path / "link").symlink_to(workspace)
    places = {"results": elsewhere / "r", "stages": elsewhere / "s", "test": elsewhere / "test_a.py"}
    task = Task(id="t", workspace=Folder(path=str(tmp_path / "link")))

    def check() -> None:
        check_workspace(task, results=places["results"], stage_root=places["stages"], test_file=places["test"])

    check()
    places[holds] = workspace / "deep" / "x"
    assert refusal(check) == (
        f"the workspace {tmp_path}/link holds {what} ({workspace}/deep/x)\nMove the workspace to a folder of its own."
    )


def test_without_a_workspace_nothing_is_held(tmp_path: Path) -> None:
    check_workspace(Task(id="t"), results=tmp_path, stage_root=tmp_path, test_file=tmp_path)


# What the evaluator keeps for itself


def test_hidden_files_and_an_oracle_are_found_beside_the_test_or_where_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "suite").mkdir()
    (tmp_path / "h").mkdir()
    (tmp_path / "h" / "solve.sh").touch()
    monkeypatch.setenv("HOME", str(tmp_path))
    for said in ("../h", str(tmp_path / "h"), "~/h", Path("../h")):
        task = task_of(tmp_path / "suite", hidden=said, oracle=said)
        assert (task.hidden, task.oracle) == (Folder(path=str(tmp_path / "h")), str(tmp_path / "h"))
    assert task_of(tmp_path / "suite", oracle="../h/solve.sh").oracle == str(tmp_path / "h" / "solve.sh")


@pytest.mark.parametrize(
    ("said", "globs"),
    [
        ("tests/**", ("tests/**",)),
        (["b", "a", "./b"], ("a", "b")),
        ({"**/conftest.py"}, ("**/conftest.py",)),
        (("a..b", "...", ".hidden"), ("...", ".hidden", "a..b")),
        (["a\udcff"], ("a\\udcff",)),
    ],
)
def test_what_is_protected_is_sorted_and_told_once(tmp_path: Path, said: object, globs: tuple[str, ...]) -> None:
    assert task_of(tmp_path, protect=said).protect == globs


# A task of the suite's own


def test_a_task_of_the_fixture_is_taken_and_completed(tmp_path: Path) -> None:
    for name in ("w", "h"):
        (tmp_path / name).mkdir()
    (tmp_path / "solve.sh").touch()
    planned = Task(id="t", samples=4, limits=Limits(wall=5, output=6, evaluation=8, body=9))
    own = planned.replace(
        prompt="p\udcff",
        workspace=Folder(path="w"),
        limits=Limits(output=7, body=1),
        env={"A": "1"},
        tags=("b", "a"),
        hidden=Folder(path="h"),
        protect=["./b", "a"],
        oracle="solve.sh",
    )
    assert checked_task(own, planned, tmp_path, prepared) == planned.replace(
        prompt="p\\udcff",
        workspace=Folder(path=str(tmp_path / "w")),
        limits=Limits(wall=5, output=7, evaluation=8, body=1),
        env={"A": "1"},
        tags=("a", "b"),
        hidden=Folder(path=str(tmp_path / "h")),
        protect=("a", "b"),
        oracle=str(tmp_path / "solve.sh"),
    )
    assert checked_task(planned, planned, tmp_path, prepared) == planned


FIXED = "the fixture rollout_task changed the id or the number of samples, which are fixed when tests are collected"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"id": "u"}, FIXED),
        ({"samples": 2}, FIXED),
        ({"prompt": 5}, "the fixture rollout_task: rollout(prompt=5): it is not a text without NUL"),
        (
            {"network": "gateway"},
            "the fixture rollout_task: rollout(network='gateway') is not enforced by this version, so it is refused",
        ),
        ({"threshold": 2}, "the fixture rollout_task: rollout(threshold=2): it is not a number from 0 to 1"),
        (
            {"limits": "5m"},
            "the fixture rollout_task: rollout(limits='5m'): it is not a Limits, such as Limits(wall='5m')",
        ),
        (
            {"limits": Limits(memory=1)},
            f"the fixture rollout_task: Limits(memory=…): {LITTLE}",
        ),
        (
            {"workspace": Folder(path="no")},
            "the fixture rollout_task: rollout(workspace='no'): the folder TMP/no does not exist",
        ),
        (
            {"hidden": Folder(path="no")},
            "the fixture rollout_task: rollout(hidden='no'): the folder TMP/no does not exist",
        ),
        ({"oracle": "no"}, "the fixture rollout_task: rollout(oracle='no'): TMP/no does not exist"),
        ({"protect": ("../x",)}, f"the fixture rollout_task: rollout(protect=…): '../x' {OUTSIDE}"),
    ],
    ids=str,
)
def test_a_task_of_the_fixture_follows_the_rules_of_the_marker(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    planned = Task(id="t")
    assert refusal(checked_task, planned.replace(**changes), planned, tmp_path, prepared) == message.replace(
        "TMP", str(tmp_path)
    )


def test_what_is_not_a_task_is_refused(tmp_path: Path) -> None:
    assert refusal(checked_task, {"id": "t"}, Task(id="t"), tmp_path, prepared) == (
        "the fixture rollout_task gave {'id': 't'}, which is not a Task"
    )


def test_a_workspace_out_of_a_repository_or_an_archive_is_made_ready(tmp_path: Path) -> None:
    (tmp_path / "repository").mkdir()
    (tmp_path / "x.tar").touch()
    made = task_of(tmp_path, workspace=Git("repository", "v1")).workspace
    assert made == Folder(path="/made", source=f"Git(url='{tmp_path}/repository', rev='v1')", commit="c0ffee")
    assert made is not None
    found = task_of(tmp_path, workspace=Archive("x.tar")).workspace
    assert found is not None and found.source == f"Archive(path='{tmp_path}/x.tar')"
    for url in ("https://example.org/a.git", "git@example.org:a/b.git", "file:///srv/a.git"):
        far = task_of(tmp_path, workspace=Git(url)).workspace
        assert far is not None and far.source == f"Git(url={url!r}, rev='HEAD')"
    planned = Task(id="t", workspace=made)
    assert checked_task(planned, planned, tmp_path, prepared).workspace == made


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (Git("none"), "rollout(workspace='none'): the repository TMP/none does not exist"),
        (Archive("none"), "rollout(workspace='none'): the archive TMP/none does not exist"),
        (Git("https://example.org/a", "--upload-pack=x"), "it is not Git(path or address, revision)"),
        (Git("https://example.org/a", ""), "it is not Git(path or address, revision)"),
        (Git(5), "it is not Git(path or address, revision)"),  # type: ignore[arg-type]
    ],
)
def test_sources_that_are_refused(tmp_path: Path, asked: object, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        task_of(tmp_path, workspace=asked)
    assert message.replace("TMP", str(tmp_path)) in caught.value.message
