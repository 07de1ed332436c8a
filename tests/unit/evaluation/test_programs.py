"""``bundle.run`` and ``bundle.evaluate``: programs over the clean tree."""

from __future__ import annotations

import secrets
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_rollout.errors import CandidateError, EvaluatorError
from pytest_rollout.evaluated import Exec

if TYPE_CHECKING:
    from pytest_rollout.evidence import Bundle
    from tests.unit.evaluation.conftest import Court

COUNT = "#!/bin/sh\nwc -c | tr -d ' '\n"
READ = "import sys; data = sys.stdin.buffer.read(); print(len(data), data[:9], data[-3:])"


def end(found: Exec) -> tuple[Any, ...]:
    """How a program ended."""
    return found.exit_code, found.signal, found.termination


# run


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("", "0 b'' b''\n"),
        (b"", "0 b'' b''\n"),
        ("grüß\n", "7 b'gr\\xc3\\xbc\\xc3\\x9f\\n' b'\\x9f\\n'\n".replace("b'\\x9f\\n'", "b'\\xc3\\x9f\\n'")),
        (b"\0\xff\n\n", "4 b'\\x00\\xff\\n\\n' b'\\xff\\n\\n'\n"),
        ("\udcff", "1 b'\\xff' b'\\xff'\n"),
        ("x" * (1 << 20), "1048576 b'xxxxxxxxx' b'xxx'\n"),
    ],
    ids=["no text", "no bytes", "text", "bytes", "escaped byte", "1 MiB"],
)
def test_standard_input_arrives_as_it_is(any_court: Court, given: str | bytes, read: str) -> None:
    found = any_court.bundle({"read.py": READ}).run(["python3", "read.py"], stdin=given)
    assert (found.stdout, found.stderr, end(found)) == (read, "", (0, None, "completed"))


def test_standard_input_that_nobody_reads(any_court: Court) -> None:
    bundle = any_court.bundle({"count": COUNT})
    assert bundle.run("true", stdin=b"x" * (1 << 20)).exit_code == 0
    assert bundle.run("chmod +x count; ./count", stdin=b"x" * 100_000).stdout == "100000\n"


@pytest.mark.parametrize(
    ("command", "how"),
    [
        ("exit 3", (3, None, "exit_code")),
        ("kill -9 $$", (137, 9, "signal")),
        ("kill -15 $$", (143, 15, "signal")),
        (["no-such-program"], (127, None, "exit_code")),
        (["./plain"], (126, None, "exit_code")),
    ],
)
def test_how_a_program_ended(court: Court, command: Any, how: tuple[Any, ...]) -> None:
    assert end(court.bundle({"plain": "echo\n"}).run(command)) == how


def test_both_streams_are_kept_apart(any_court: Court) -> None:
    found = any_court.bundle().run(["sh", "-c", "printf 'a\\377b'; echo wrong >&2", "name", "; exit 9"])
    assert (found.stdout, found.stderr, found.output, found.exit_code) == ("a\ufffdb", "wrong\n", "a\ufffdbwrong\n", 0)


def test_words_are_no_shell_text(any_court: Court) -> None:
    words = ["$HOME", "a b", "'\"", "*", "", "\n", "--"]
    script = "import json, sys; print(json.dumps(sys.argv[1:]))"
    assert any_court.bundle({"w.py": script}).run(["python3", "w.py", *words]).stdout == (
        '["$HOME", "a b", "\'\\"", "*", "", "\\n", "--"]\n'
    )


def test_what_a_program_prints_is_bounded(court: Court) -> None:
    found = court.bundle().run("head -c 3000000 /dev/zero | tr '\\0' x; echo end")
    assert len(found.stdout) < 1_100_000
    assert "\n[... 1951428 bytes dropped ...]\n" in found.stdout
    assert found.stdout.endswith("xend\n")


def test_a_program_that_does_not_end(any_court: Court) -> None:
    bundle = any_court.bundle(evaluation=0.5)
    with pytest.raises(CandidateError) as caught:
        bundle.run(["sleep", "300"])
    assert caught.value.message == "sleep 300 ended by wall_limit: 0.5 s are allowed"


def test_no_process_outlives_a_program(court: Court) -> None:
    seconds = f"300.{secrets.randbelow(10**12):012}"
    lives = "until tr '\\0' ' ' < /proc/$!/cmdline | grep -q '^s[el]'; do :; done; echo it lives"
    found = court.bundle({}, evaluation=20).run(f"setsid sleep {seconds} & {lives}")
    assert (found.exit_code, found.stdout) == (0, "it lives\n")
    assert not [path for path in Path("/proc").glob("[0-9]*/cmdline") if seconds.encode() in _read(path)]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_a_program_sees_nothing_of_the_suite(court: Court, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXPECTED", "42")
    (court.suite / "secret.txt").write_text("42")
    bundle = court.bundle({}, hidden={"expected.txt": "42"})
    script = f"cat /proc/*/environ; env; cat {court.suite}/secret.txt"
    script += "; find /stage /rollout /tmp /home /var -name expected.txt 2>/dev/null; ls -a"
    found = bundle.run(script)
    assert "42" not in found.stdout
    assert "expected.txt" not in found.stdout
    assert "PYTEST" not in found.stdout.replace("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "")


@pytest.mark.parametrize("stdin", [None, 5, ["x"]])
def test_standard_input_of_another_type_is_the_evaluators(court: Court, stdin: Any) -> None:
    with pytest.raises(EvaluatorError, match=r"^run\(…, stdin=.*\): it is neither a text nor bytes$"):
        court.bundle().run("true", stdin=stdin)


@pytest.mark.parametrize("command", ["", "  ", [], [""], ["a\0b"], "a\0b", [1], None, {"a": 1}, ["sh", None]])
def test_a_command_that_is_none_is_the_evaluators(court: Court, command: Any) -> None:
    bundle = court.bundle()
    asks: list[Callable[[], object]] = [lambda: bundle.run(command), lambda: bundle.evaluate(command)]
    for ask in asks:
        with pytest.raises(EvaluatorError) as caught:
            ask()
        assert caught.value.message == f"{command!r} is not a command: a text for sh -c, or a list of words"


# evaluate


CHECK = '#!/bin/sh\ntest "$(cat answer)" = 42 && echo right\n'


def test_a_check_of_the_evaluators_sees_the_work_and_its_own_files(any_court: Court) -> None:
    hidden = {"check/run.sh": CHECK}
    right = any_court.bundle({}, "echo 42 > answer", hidden=hidden).evaluate(["sh", "check/run.sh"])
    assert (right.stdout, end(right)) == ("right\n", (0, None, "completed"))
    wrong = any_court.bundle({}, "echo 41 > answer; echo exit 0 > check", hidden=hidden).evaluate("sh check/run.sh")
    assert (wrong.stdout, end(wrong)) == ("", (1, None, "exit_code"))


def test_files_of_the_call_take_the_place_of_the_tasks(any_court: Court) -> None:
    bundle = any_court.bundle({}, "echo 42 > answer", hidden={"other": "x"})
    found = bundle.evaluate(["sh", "-c", "./check.sh; ls"], files={"check.sh": CHECK})
    assert found.stdout.split() == ["right", "answer", "check.sh"]
    folder = any_court.suite / "checks"
    folder.mkdir()
    (folder / "check.sh").write_text(CHECK)
    assert bundle.evaluate("sh check.sh; ls", files="checks").stdout.split() == ["right", "answer", "check.sh"]


def test_an_evaluation_is_marked_and_a_call_is_not(court: Court) -> None:
    attempt = court.attempt(None, court.task({"mod.py": "def f():\n    return 1\n"}))
    bundle = court.as_bundle(attempt)
    assert (bundle.call("mod:f"), bundle.run("true").exit_code, attempt.judged_in_process) == (1, 0, False)
    assert (bundle.evaluate("true").exit_code, attempt.judged_in_process) == (0, True)


@pytest.mark.parametrize(
    ("command", "code", "meaning"),
    [
        ("no-such-program --check", 127, "was not found"),
        (["no-such-program"], 127, "was not found"),
        (["./run"], 127, "was not found"),
        ("exit 126", 126, "is not runnable"),
    ],
)
def test_a_program_that_is_not_there_on_the_baseline_is_the_evaluators(
    court: Court, command: Any, code: int, meaning: str
) -> None:
    """Also where the candidate made one of that name."""
    bundle = court.bundle({}, "printf '#!/bin/sh\\nexit 0\\n' > run; chmod +x run; cp run no-such-program")
    shown = command if isinstance(command, str) else command[0]
    words = ["sh", "-c", command] if isinstance(command, str) else command
    for _ in range(2):
        with pytest.raises(EvaluatorError) as caught:
            bundle.evaluate(command)
        assert caught.value.message == (
            f"evaluate({shlex.join(words)!r}): on the clean baseline it ended with exit code {code}: "
            f"the program, or one that it starts, {meaning}"
        ), shown


def test_a_program_that_is_not_there_without_a_sandbox(local_court: Court) -> None:
    with pytest.raises(EvaluatorError, match=r"^evaluate\('no-such-program'\): .*'no-such-program' was not found"):
        local_court.bundle().evaluate(["no-such-program"])


def test_a_program_that_only_the_candidate_broke_is_the_candidates(any_court: Court) -> None:
    bundle = any_court.bundle({"tool": "#!/bin/sh\nexit 0\n"}, "rm tool")
    found = bundle.evaluate("sh ./tool || exit 127")
    assert end(found) == (127, None, "exit_code")


def test_a_limit_of_an_evaluation_is_the_candidates(any_court: Court) -> None:
    bundle = any_court.bundle({"wait": "0"}, "echo 300 > wait", evaluation=0.7)
    with pytest.raises(CandidateError, match=r"wait.* ended by wall_limit: 0\.7 s are allowed$"):
        bundle.evaluate('sleep "$(cat wait)"')


def test_programs_of_the_candidates_are_not_found_before_those_of_the_system(any_court: Court) -> None:
    planting = (
        "for name in python3 sh cat ls bin/python3; do mkdir -p bin; echo 'echo cheated' > $name; chmod +x $name; done"
    )
    bundle = any_court.bundle({}, planting)
    assert bundle.evaluate("python3 -c 'print(1)'; cat /dev/null").stdout == "1\n"
    assert bundle.run(["python3", "-c", "print(1)"]).stdout == "1\n"


def test_the_python_of_an_evaluation_is_the_one_that_runs_these_tests(any_court: Court) -> None:
    found = any_court.bundle().evaluate(["python3", "-c", "import sys; print(sys.version)"])
    assert found.stdout == f"{sys.version}\n"


# the files that a test names


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ("none", "files='none': the folder {suite}/none does not exist"),
        ("file", "files='file': the folder {suite}/file does not exist"),
        (Path("none"), "files='none': the folder {suite}/none does not exist"),
        (5, "files=5: it is neither a folder nor a mapping of path to text"),
        (["a"], "files=['a']: it is neither a folder nor a mapping of path to text"),
        ({"a": b"x"}, "files={{…}}: a mapping for hidden files has a text for every path"),
        ({"a": None}, "files={{…}}: a mapping for hidden files has a text for every path"),
        ({"../a": "x"}, "files={{…}}: '../a' is not a path for a file of the tree: write it relative, without '..'"),
        ({"/a": "x"}, "files={{…}}: '/a' is not a path for a file of the tree: write it relative, without '..'"),
        (
            {"a/../b": "x"},
            "files={{…}}: 'a/../b' is not a path for a file of the tree: write it relative, without '..'",
        ),
        ({"a/": "x"}, "files={{…}}: 'a/' is not a path for a file of the tree: write it relative, without '..'"),
        ({"": "x"}, "files={{…}}: '' is not a path for a file of the tree: write it relative, without '..'"),
        ({".": "x"}, "files={{…}}: '.' is not a path for a file of the tree: write it relative, without '..'"),
        ({"a\0": "x"}, "files={{…}}: 'a\\x00' is not a path for a file of the tree: write it relative, without '..'"),
        ({5: "x"}, "files={{…}}: 5 is not a path for a file of the tree: write it relative, without '..'"),
        ({"a": "x", "a/b": "y"}, "files={{…}}: 'a' is a file and a folder of others"),
        ({"a/b": "y", "a": "x"}, "files={{…}}: 'a' is a file and a folder of others"),
        (
            {"\ud800": "x"},
            "files={{…}}: '\\ud800' is not a path for a file of the tree: write it relative, without '..'",
        ),
        ({"a": "\ud800"}, "files={{…}}: the text of 'a' can't be written as UTF-8"),
        ({"d/" + "a" * 300: "x"}, "files={{…}}: 'd/" + "a" * 58 + "'… has a part of more than 255 bytes"),
    ],
    ids=repr,
)
def test_hidden_files_that_can_not_be_used_are_the_evaluators(court: Court, files: Any, why: str | None) -> None:
    (court.suite / "file").write_text("x")
    bundle = court.bundle()
    for ask in (lambda: bundle.evaluate("true", files=files), lambda: bundle.run_tests(files=files)):
        with pytest.raises(EvaluatorError) as caught:
            ask()
        if why is not None:
            assert caught.value.message == why.format(suite=court.suite)


def _names(bundle: Bundle, files: Any) -> list[str]:
    return bundle.evaluate("find . -type f | sort", files=files).stdout.split()


def test_a_folder_is_named_relative_to_the_test_or_absolutely(any_court: Court) -> None:
    (any_court.suite / "given" / "sub").mkdir(parents=True)
    (any_court.suite / "given" / "sub" / "a").write_text("x")
    bundle = any_court.bundle({"of-workspace": "x"})
    for files in (
        "given",
        Path("given"),
        "./given/../given",
        str(any_court.suite / "given"),
        any_court.suite / "given",
    ):
        assert _names(bundle, files) == ["./of-workspace", "./sub/a"]
