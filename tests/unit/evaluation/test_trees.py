"""The clean tree: hidden files win, protected paths are what they were, and no link of the candidate's is followed."""

from __future__ import annotations

import shlex
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_rollout.bundle import Finding
from pytest_rollout.errors import EvaluatorError, EvidenceError

if TYPE_CHECKING:
    from pytest_rollout.evidence import Bundle
    from tests.unit.evaluation.conftest import Court

# Every entry with its type, its target, its content.
LISTING = r"""
import os
for at, folders, files in sorted(os.walk(".")):
    for name in sorted(folders + files):
        path = os.path.relpath(os.path.join(at, name), ".")
        if os.path.islink(path):
            print(f"{path} -> {os.readlink(path)}")
        elif os.path.isdir(path):
            print(f"{path}/")
        elif os.path.isfile(path):
            print(f"{path}{'*' if os.access(path, os.X_OK) else ''}: {open(path).read()!r}")
        else:
            print(f"{path}?")
"""
WORKSPACE = {
    "app.py": "app",
    "tests/test_a.py": "a",
    "tests/sub/test_b.py": "b",
    "tests/run.sh": "sh",
    "conftest.py": "c",
}
ALL_TESTS = ("tests/", "tests/run.sh: 'sh'", "tests/sub/", "tests/sub/test_b.py: 'b'", "tests/test_a.py: 'a'")


def listed(bundle: Bundle, files: object = None) -> list[str]:
    """What an evaluation finds in the tree."""
    found = bundle.evaluate(["python3", "-c", LISTING], files=files)
    assert (found.exit_code, found.stderr) == (0, "")
    return sorted(found.stdout.splitlines())


# Hidden files


@pytest.mark.parametrize(
    ("act", "more"),
    [
        ("true", ["tests/other: 'o'"]),
        ("echo theirs > tests/test_a.py", ["tests/other: 'o'"]),
        ("rm -r tests", []),
        ("rm -r tests; echo x > tests", []),
        ("rm -r tests; ln -s /usr tests", []),
        ("rm -r tests; ln -s . tests", []),
        ("rm -r tests; ln -s tests tests", []),
        ("rm -r tests; mkfifo tests", []),
        ("rm tests/test_a.py; mkdir tests/test_a.py; touch tests/test_a.py/x", ["tests/other: 'o'"]),
        ("rm tests/test_a.py; ln -s ../app.py tests/test_a.py", ["tests/other: 'o'"]),
        ("rm tests/test_a.py; ln -s /nowhere tests/test_a.py", ["tests/other: 'o'"]),
        ("rm tests/test_a.py; mkfifo tests/test_a.py", ["tests/other: 'o'"]),
        ("ln -s /usr deep", ["tests/other: 'o'"]),
        ("echo x > deep", ["tests/other: 'o'"]),
        ("mkdir -p deep/er/file; touch deep/er/file/x", ["tests/other: 'o'"]),
        ("mkdir deep; ln -s .. deep/er", ["tests/other: 'o'"]),
        ("chmod 555 tests; chmod 444 tests/test_a.py", ["tests/other: 'o'"]),
    ],
)
def test_hidden_files_win_over_whatever_the_candidate_put_there(any_court: Court, act: str, more: list[str]) -> None:
    hidden = {"tests/test_a.py": "hidden", "deep/er/file": "hidden"}
    bundle = any_court.bundle({"app.py": "app", "tests/test_a.py": "a", "tests/other": "o"}, act, hidden=hidden)
    ours = ["app.py: 'app'", "deep/", "deep/er/", "deep/er/file: 'hidden'", "tests/", "tests/test_a.py: 'hidden'"]
    assert listed(bundle) == sorted([*ours, *more])


@pytest.mark.parametrize("act", ["rm -r tests; ln -s {} tests", "rm tests/test_a.py; ln -s {}/victim tests/test_a.py"])
@pytest.mark.parametrize("protect", [(), ("tests/**",)])
def test_nothing_is_written_through_a_link(
    any_court: Court, private_folder: Path, act: str, protect: Sequence[str]
) -> None:
    outside = private_folder / "outside"
    outside.mkdir()
    outside.chmod(0o777)
    (outside / "victim").write_text("theirs")
    (outside / "victim").chmod(0o666)
    place = shlex.quote(str(outside))
    bundle = any_court.bundle(
        {"tests/test_a.py": "a"}, act.format(place), hidden={"tests/test_a.py": "hidden"}, protect=protect
    )
    assert bundle.changes[-1].type == "symlink" or bundle.changes[0].type == "symlink"
    assert listed(bundle) == ["tests/", "tests/test_a.py: 'hidden'"]
    assert listed(bundle, {"tests/test_a.py": "given"}) == ["tests/", "tests/test_a.py: 'given'"]
    assert not bundle.run_tests(files={"tests/test_a.py": "def test_a():\n    assert 0\n"}).passed
    assert [(path.name, path.read_text()) for path in outside.iterdir()] == [("victim", "theirs")]


def test_links_and_modes_of_hidden_files_are_kept(any_court: Court) -> None:
    source = any_court.lab.workspace({"a": "x", "run": "#!/bin/sh\n"})
    (source / "link").symlink_to("a")
    (source / "run").chmod(0o755)
    bundle = any_court.bundle({}, "mkdir link run", hidden=source)
    assert listed(bundle) == ["a: 'x'", "link -> a", "run*: '#!/bin/sh\\n'"]
    given = {"b": "y", "c": "#!/bin/sh\n", "d/e": "\r\n\udcff"}
    found = bundle.evaluate("cat b c d/e | od -An -c; ./c; echo $?", files=given)
    assert found.stdout.replace(" ", "") == "y#!/bin/sh\\n\\r\\n377\n0\n"


def test_every_evaluation_begins_with_the_same_tree(any_court: Court) -> None:
    bundle = any_court.bundle({"app.py": "app"}, "echo agents > new", hidden={"h": "x"})
    for _ in range(2):
        seen = bundle.evaluate("find . -type f | sort; echo late > late; rm app.py new h").stdout.split()
        assert seen == ["./app.py", "./h", "./new"]
    assert bundle.read_text("app.py") == "app"
    assert bundle.glob("*") == ["app.py", "new"]


# Protected paths


def findings(bundle: Bundle) -> list[str]:
    """The paths of the findings about protected paths."""
    found = [finding for finding in bundle.findings if finding.code == "protected"]
    expected = [Finding(code="protected", message="changed, and restored for checks", path=f.path) for f in found]
    assert found == expected
    return [finding.path or "" for finding in found]


@pytest.mark.parametrize(
    ("act", "broken"),
    [
        ("true", []),
        ("echo x >> app.py; touch new", []),
        ("touch tests/test_a.py", []),
        ("echo x >> tests/test_a.py", ["tests/test_a.py"]),
        ("chmod +x tests/run.sh", ["tests/run.sh"]),
        ("rm tests/test_a.py", ["tests/test_a.py"]),
        ("mv tests/test_a.py tests/test_c.py", ["tests/test_a.py", "tests/test_c.py"]),
        ("rm tests/test_a.py; ln -s ../app.py tests/test_a.py", ["tests/test_a.py"]),
        ("rm tests/test_a.py; mkfifo tests/test_a.py", ["tests/test_a.py"]),
        (
            "rm tests/test_a.py; mkdir tests/test_a.py; touch tests/test_a.py/x",
            ["tests/test_a.py", "tests/test_a.py/x"],
        ),
        ("echo x > tests/conftest.py", ["tests/conftest.py"]),
        ("mkdir -p tests/new/er; echo x > tests/new/er/f", ["tests/new", "tests/new/er", "tests/new/er/f"]),
        ("ln -s /usr tests/new", ["tests/new"]),
        ("mkfifo tests/new", ["tests/new"]),
        ("rm -r tests/sub; echo x > tests/sub", ["tests/sub", "tests/sub/test_b.py"]),
        ("rm -r tests/sub; ln -s .. tests/sub", ["tests/sub", "tests/sub/test_b.py"]),
        ("rm -r tests/sub; mkdir tests/sub; touch tests/sub/x", ["tests/sub/test_b.py", "tests/sub/x"]),
        ("chmod 500 tests/sub", ["tests/sub"]),
        ("rm -r tests", ["tests/run.sh", "tests/sub", "tests/sub/test_b.py", "tests/test_a.py"]),
        ("rm -r tests; ln -s /usr tests", ["tests/run.sh", "tests/sub", "tests/sub/test_b.py", "tests/test_a.py"]),
        ("rm -r tests; ln -s . tests", ["tests/run.sh", "tests/sub", "tests/sub/test_b.py", "tests/test_a.py"]),
        ("rm -r tests; echo x > tests", ["tests/run.sh", "tests/sub", "tests/sub/test_b.py", "tests/test_a.py"]),
        ("mv tests moved; rm -r moved", ["tests/run.sh", "tests/sub", "tests/sub/test_b.py", "tests/test_a.py"]),
        ("rm conftest.py", ["conftest.py"]),
        ("mkdir sub; echo x > sub/conftest.py", ["sub/conftest.py"]),
        ("mkdir -p sub/conftest.py; echo x > sub/conftest.py/f", ["sub/conftest.py"]),
    ],
)
def test_protected_paths_are_restored_and_told(any_court: Court, act: str, broken: list[str]) -> None:
    bundle = any_court.bundle(WORKSPACE, act, protect=["tests/**", "**/conftest.py"])
    assert findings(bundle) == broken
    assert bundle.usage.invalid_actions == len(broken)
    theirs = {"echo x >> app.py; touch new": ["app.py: 'appx\\n'", "new: ''"]}.get(act, ["app.py: 'app'"])
    more = ["sub/"] if "mkdir" in act and " sub" in act else []
    assert listed(bundle) == sorted([*theirs, *more, "conftest.py: 'c'", *ALL_TESTS])


def test_what_is_not_protected_stays_beside_it(any_court: Court) -> None:
    act = "echo x > tests/test_a.py; echo x > tests/free; rm tests/run.sh; mkdir tests/more; echo y > tests/more/free"
    bundle = any_court.bundle(WORKSPACE, act, protect=["tests/test_*.py"])
    assert findings(bundle) == ["tests/test_a.py"]
    assert listed(bundle) == [
        "app.py: 'app'",
        "conftest.py: 'c'",
        "tests/",
        "tests/free: 'x\\n'",
        "tests/more/",
        "tests/more/free: 'y\\n'",
        "tests/sub/",
        "tests/sub/test_b.py: 'b'",
        "tests/test_a.py: 'a'",
    ]


def test_without_protection_nothing_is_counted(court: Court) -> None:
    bundle = court.bundle(WORKSPACE, "rm -r tests")
    assert (findings(bundle), bundle.usage.invalid_actions) == ([], None)
    assert listed(bundle) == ["app.py: 'app'", "conftest.py: 'c'"]


def test_every_way_of_judging_sees_protected_paths_as_they_were(any_court: Court) -> None:
    files = {"data/number.txt": "5", "mod.py": "def f():\n    return int(open('data/number.txt').read())\n"}
    bundle = any_court.bundle(files, "echo 6 > data/number.txt", protect=["data/**"])
    assert bundle.read_text("data/number.txt") == "6\n", "the evidence stays as it is"
    assert bundle.call("mod:f") == 5
    assert bundle.call_many("mod:f", [(), ()]) == [5, 5]
    assert bundle.run("cat data/number.txt").stdout == "5"
    assert bundle.evaluate("cat data/number.txt", files={}).stdout == "5"
    test = {"test_x.py": "import mod\n\n\ndef test_f():\n    assert mod.f() == 5\n"}
    assert bundle.run_tests(files=test).passed
    assert bundle.run_tests(files=test, proxy=["mod"]).passed


def test_hidden_files_win_over_protected_paths(any_court: Court) -> None:
    bundle = any_court.bundle(
        WORKSPACE, "rm -r tests; ln -s /usr tests", protect=["tests/**"], hidden={"tests/test_a.py": "hidden"}
    )
    assert "tests/test_a.py: 'hidden'" in listed(bundle)
    assert "tests/sub/test_b.py: 'b'" in listed(bundle)


def test_changes_that_can_not_be_listed_are_no_way_around_protection(court: Court) -> None:
    act = "seq 50100 | xargs touch; echo x > tests/test_a.py"
    bundle = court.bundle(WORKSPACE, act, protect=["tests/**"])
    for _ in range(2):
        with pytest.raises(EvidenceError) as caught:
            bundle.run("true")
        why = "the protected paths can't be restored: the listing stopped at 50000 entries"
        assert caught.value.message == why


def test_a_protected_path_that_is_too_long_is_the_candidates(court: Court) -> None:
    folders = "for i in $(seq 16); do mkdir $(printf 'd%.0s' $(seq 250)); cd d*; done"
    bundle = court.bundle(WORKSPACE, f"{folders}; touch $(printf 'x%.0s' $(seq 40)).cfg", protect=["**/*.cfg"])
    assert bundle.glob("d*"), "it was made"
    with pytest.raises(EvidenceError) as caught:
        bundle.run("true")
    assert caught.value.message == "the protected paths can't be restored: one is too long"


def test_a_stage_that_was_closed_can_be_judged(any_court: Court) -> None:
    files = {"mod.py": "def f():\n    return 5\n", "tests/test_a.py": "a"}
    act = "chmod 000 tests mod.py; chmod 755 mod.py; mkdir x; chmod 000 x; chmod 000 ."
    bundle = any_court.bundle(files, act, protect=["tests/**"], hidden={"tests/test_a.py": "hidden"})
    assert bundle.call("mod:f") == 5
    assert bundle.evaluate("cat tests/test_a.py").stdout == "hidden"


def test_pipes_of_the_candidates_do_not_stop_an_evaluation(any_court: Court) -> None:
    bundle = any_court.bundle({"app.py": "app"}, "mkfifo pipe; mkdir d; mkfifo d/pipe")
    assert listed(bundle, {})[0] == "app.py: 'app'"


# What an evaluation can't see


def test_an_evaluation_is_in_a_sandbox_of_its_own_without_network(court: Court) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        source = f"""
import os, socket
def f():
    try:
        socket.create_connection(("127.0.0.1", {port}), timeout=5)
    except OSError as error:
        reached = type(error).__name__
    else:
        reached = "reached"
    return [reached, sorted(os.listdir("/tmp")), sorted(os.listdir(os.path.expanduser("~")))]
"""
        act = "echo x > /tmp/of-agent; echo x > ~/of-agent; setsid sh -c 'while :; do touch late; done' &"
        bundle = court.bundle({"mod.py": source}, act)
        reached, temporary, home = bundle.call("mod:f")
    assert reached == "ConnectionRefusedError"
    assert "of-agent" not in (*temporary, *home)


def test_code_of_a_candidates_is_not_run_where_the_suite_can_be_seen(court: Court, python_prefix: Path) -> None:
    court.suite = python_prefix / "suite"
    bundle = court.bundle({"mod.py": "def f():\n    return 5\n"})
    for ask in (
        lambda: bundle.call("mod:f"),
        lambda: bundle.call_many("mod:f", [()]),
        lambda: bundle.run("true"),
        lambda: bundle.evaluate("true", files={}),
        lambda: bundle.run_tests(files={"test_a.py": "def test_a():\n    pass\n"}),
    ):
        with pytest.raises(EvaluatorError) as caught:
            ask()
        assert caught.value.message.startswith(f"{python_prefix / 'suite'} lies under {python_prefix}, which an ")


@pytest.fixture
def python_prefix() -> Path:
    """The folder of the Python that runs the tests, where that is bound into an evaluation."""
    if Path(sys.prefix).is_relative_to("/usr"):
        pytest.skip("this Python lies under /usr")
    return Path(sys.prefix).resolve()
