"""No agent is shown hidden files or an oracle: in its workspace, in copies there, or in git's objects."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_rollout.errors import ConfigError
from pytest_rollout.evaluation.exposure import check_exposure, replaced_files, secrets_of, unmatched_globs
from pytest_rollout.task import Folder, Task

SECRET = "def test_add():\n    assert add(2, 3) == 5\n"


@pytest.fixture
def place(tmp_path: Path) -> Callable[[str, str], Path]:
    """Writes a file below the folder of the test."""

    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    write("ws/app.py", "app = 1\n")
    write("hidden/tests/test_app.py", SECRET)
    return write


def task(top: Path, *, hidden: str | None = "hidden", oracle: str | None = None) -> Task:
    """A task over the workspace ``ws``."""
    return Task(
        id="t",
        workspace=Folder(path=str(top / "ws")),
        hidden=Folder(path=str(top / hidden)) if hidden else None,
        oracle=str(top / oracle) if oracle else None,
    )


def refusal(asked: Task) -> str:
    """Why a task is refused."""
    with pytest.raises(ConfigError) as caught:
        check_exposure(asked)
    return caught.value.message


def git(folder: Path, *words: str) -> str:
    """Run git in a folder, with no configuration but this."""
    env = {"PATH": "/usr/bin:/bin", "HOME": "/", "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null"}
    names = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "init.defaultBranch=main"]
    done = subprocess.run(["git", *names, *words], cwd=folder, env=env, capture_output=True, text=True, check=True)
    return done.stdout.strip()


Place = Callable[[str, str], Path]


def test_files_that_lie_apart(tmp_path: Path, place: Place) -> None:
    place("solution/app.py", "app = 2  # what it has to be\n")
    check_exposure(task(tmp_path, oracle="solution"))
    check_exposure(task(tmp_path, oracle="solution/app.py"))
    check_exposure(Task(id="t", hidden=Folder(path=str(tmp_path / "hidden"))))


@pytest.mark.parametrize("hidden", ["ws", "ws/tests", "ws/../ws/tests", "link"])
def test_hidden_files_in_the_workspace(tmp_path: Path, place: Place, hidden: str) -> None:
    place("ws/tests/test_app.py", SECRET)
    (tmp_path / "link").symlink_to("ws/tests")
    where = f"{tmp_path / hidden} lies in the workspace {tmp_path}/ws, which the agent sees"
    assert refusal(task(tmp_path, hidden=hidden)) == f"rollout(hidden=…): {where}"


def test_an_oracle_in_the_workspace(tmp_path: Path, place: Place) -> None:
    place("ws/solve.sh", "echo 'app = 2' > app.py\n")
    where = f"{tmp_path}/ws/solve.sh lies in the workspace {tmp_path}/ws, which the agent sees"
    assert refusal(task(tmp_path, oracle="ws/solve.sh")) == f"rollout(oracle=…): {where}"


@pytest.mark.parametrize("copy", ["test_app.py", "tests/test_other.py", ".cache/x", "deep/er/a.txt"])
def test_a_copy_in_the_workspace(tmp_path: Path, place: Place, copy: str) -> None:
    place(f"ws/{copy}", SECRET)
    secret = f"{tmp_path}/hidden/tests/test_app.py"
    assert refusal(task(tmp_path)) == f"rollout(hidden=…): {secret} is in the workspace {tmp_path}/ws too: {copy}"


def test_a_copy_of_an_oracle_in_the_workspace(tmp_path: Path, place: Place) -> None:
    place("ws/old/solve.sh", "echo 'app = 2' > app.py\n")
    place("solve.sh", "echo 'app = 2' > app.py\n")
    why = f"rollout(oracle=…): {tmp_path}/solve.sh is in the workspace {tmp_path}/ws too: old/solve.sh"
    assert refusal(task(tmp_path, oracle="solve.sh")) == why


def test_a_hidden_file_that_restores_the_workspaces_own(tmp_path: Path, place: Place) -> None:
    place("ws/tests/test_app.py", SECRET)
    place("ws/tests/copy.py", SECRET)
    check_exposure(task(tmp_path))


def test_what_is_too_short_or_a_link_tells_nothing(tmp_path: Path, place: Place) -> None:
    place("ws/pkg/__init__.py", "")
    place("hidden/tests/__init__.py", "")
    place("ws/a.txt", "x" * 15)
    place("hidden/b.txt", "x" * 15)
    (tmp_path / "ws" / "link").symlink_to("../hidden/tests/test_app.py")
    check_exposure(task(tmp_path))
    place("ws/c.txt", "y" * 16)
    place("hidden/d.txt", "y" * 16)
    (tmp_path / "same").symlink_to("hidden")
    assert refusal(task(tmp_path, hidden="same")).endswith("/d.txt is in the workspace " + f"{tmp_path}/ws too: c.txt")


def _committed(folder: Path, secret: str = SECRET) -> None:
    """A history that had the file once, and has it no more."""
    git(folder, "init", "-q")
    (folder / "gone.py").write_text(secret)
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "one")
    git(folder, "rm", "-qf", "gone.py")
    git(folder, "commit", "-qm", "two")


def _loose(top: Path) -> None:
    _committed(top / "ws")


def _packed(top: Path) -> None:
    _committed(top / "ws")
    git(top / "ws", "gc", "-q")
    assert not list((top / "ws/.git/objects").glob("[0-9a-f][0-9a-f]/*")), "everything is packed"


def _unreachable(top: Path) -> None:
    _committed(top / "ws")
    git(top / "ws", "checkout", "-q", "--orphan", "new")
    git(top / "ws", "commit", "-qm", "only")
    git(top / "ws", "branch", "-qD", "main")
    git(top / "ws", "reflog", "expire", "--expire=now", "--all")
    assert len(git(top / "ws", "fsck", "--unreachable").splitlines()) >= 3


def _unreachable_and_packed(top: Path) -> None:
    _committed(top / "ws")
    git(top / "ws", "repack", "-adq")
    _unreachable_only(top)


def _unreachable_only(top: Path) -> None:
    git(top / "ws", "update-ref", "-d", "HEAD")
    git(top / "ws", "reflog", "expire", "--expire=now", "--all")


def _staged(top: Path) -> None:
    git(top / "ws", "init", "-q")
    (top / "ws/gone.py").write_text(SECRET)
    git(top / "ws", "add", "gone.py")
    (top / "ws/gone.py").unlink()


def _stashed(top: Path) -> None:
    git(top / "ws", "init", "-q")
    git(top / "ws", "add", "-A")
    git(top / "ws", "commit", "-qm", "one")
    (top / "ws/app.py").write_text(SECRET)
    git(top / "ws", "stash", "-q")


def _of_sha256(top: Path) -> None:
    git(top / "ws", "init", "-q", "--object-format=sha256")
    _committed(top / "ws")


@pytest.mark.parametrize(
    "make", [_loose, _packed, _unreachable, _unreachable_and_packed, _staged, _stashed, _of_sha256]
)
@pytest.mark.parametrize("oracle", [False, True], ids=["hidden", "oracle"])
def test_a_copy_among_the_objects_of_git(
    tmp_path: Path, place: Place, make: Callable[[Path], None], oracle: bool
) -> None:
    make(tmp_path)
    assert not (tmp_path / "ws/gone.py").exists()
    secret = f"{tmp_path}/hidden/tests/test_app.py"
    asked = task(tmp_path, hidden=None, oracle="hidden/tests/test_app.py") if oracle else task(tmp_path)
    name = "oracle" if oracle else "hidden"
    where = f"{secret} is in the workspace {tmp_path}/ws too: among the objects of .git"
    assert refusal(asked) == f"rollout({name}=…): {where}"


@pytest.mark.parametrize(("folder", "shown"), [("ws/vendor/lib", "vendor/lib/.git"), ("ws/a/b", "a/b/.git")])
def test_a_copy_in_a_repository_inside_the_workspace(tmp_path: Path, place: Place, folder: str, shown: str) -> None:
    (tmp_path / folder).mkdir(parents=True)
    _committed(tmp_path / folder)
    assert refusal(task(tmp_path)).endswith(f"/ws too: among the objects of {shown}")


def test_a_copy_in_a_bare_repository(tmp_path: Path, place: Place) -> None:
    (tmp_path / "source").mkdir()
    _committed(tmp_path / "source")
    git(tmp_path, "clone", "-q", "--bare", "source", "ws/origin.git")
    assert refusal(task(tmp_path)).endswith("/ws too: among the objects of origin.git")
    git(tmp_path, "clone", "-q", "--bare", "source", "ws/origin.git/again")
    assert refusal(task(tmp_path)).endswith("among the objects of origin.git")


def test_a_history_without_the_secret(tmp_path: Path, place: Place) -> None:
    _committed(tmp_path / "ws", "something else, of some length\n")
    check_exposure(task(tmp_path))


def test_git_data_of_a_workspace_runs_nothing(tmp_path: Path, place: Place) -> None:
    _committed(tmp_path / "ws", "something else, of some length\n")
    hook = tmp_path / "hook"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)
    for name in ("core.fsmonitor", "diff.external", "core.sshCommand", "core.pager"):
        git(tmp_path / "ws", "config", name, str(hook))
    git(tmp_path / "ws", "status")
    assert (tmp_path / "ran").exists(), "git itself runs it"
    (tmp_path / "ran").unlink()
    check_exposure(task(tmp_path))
    assert not (tmp_path / "ran").exists()


def test_without_git_loose_objects_are_still_seen(
    tmp_path: Path, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    _loose(tmp_path)
    monkeypatch.setattr("pytest_rollout.evaluation.exposure._GIT_ENV", {"PATH": str(tmp_path)})
    assert refusal(task(tmp_path)).endswith("among the objects of .git")


def test_the_secrets_of_tasks(tmp_path: Path) -> None:
    tasks = [task(tmp_path), task(tmp_path, hidden=None), task(tmp_path, hidden="other", oracle="solve.sh")]
    assert secrets_of(tasks) == {tmp_path / "hidden", tmp_path / "other", tmp_path / "solve.sh"}
    assert secrets_of([]) == set()


def test_globs_that_protect_nothing(tmp_path: Path, place: Place) -> None:
    place("ws/tests/sub/test_app.py", "x")
    asked = task(tmp_path).replace(protect=("tests/**", "**/test_*.py", "test/**", "app.py", "*.txt", "tests/sub"))
    assert unmatched_globs(asked) == ("test/**", "*.txt")
    assert unmatched_globs(Task(id="t", protect=("a",))) == ("a",)
    assert unmatched_globs(task(tmp_path)) == ()


def test_hidden_files_that_take_the_place_of_an_agents_work(tmp_path: Path, place: Place) -> None:
    place("hidden/app.py", "app = 2\n")
    place("hidden/lib/same.py", "same\n")
    place("ws/lib/same.py", "same\n")
    for name in ("tests/test_app.py", "conftest.py", "guarded/a.py"):
        place(f"hidden/{name}", "right\n")
        place(f"ws/{name}", "other\n")
    asked = task(tmp_path)
    assert replaced_files(asked.replace(protect=("guarded/**",))) == ("app.py",)
    assert replaced_files(asked) == ("app.py", "guarded/a.py")
    assert replaced_files(asked.replace(hidden=None)) == ()
