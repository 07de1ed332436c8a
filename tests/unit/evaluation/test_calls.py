"""``bundle.call``: plain values come back from a sandboxed child, and whatever else happens is the candidate's."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from pytest_rollout.errors import CandidateError, EvaluatorError

if TYPE_CHECKING:
    from pytest_rollout.evidence import Bundle
    from tests.unit.evaluation.conftest import Court

MODULE = r"""
import json, os, signal, sys, time

NUMBER = 3
DEEP = []
for _ in range(100_000):
    DEEP = [DEEP]

class Text(str):
    def __eq__(self, other): return True
    __hash__ = str.__hash__

class Number(int):
    pass

class Anything:
    def __eq__(self, other): return True

class Like(dict):
    pass

class Odd(Exception):
    def __str__(self): raise ValueError

class Tool:
    @staticmethod
    def twice(number): return 2 * number

VALUES = {
    "none": None, "text": "gr\u00fc\u00df\n", "list": [1, [2.5, True], {"a": None}], "tuple": (1, (2,)),
    "lone": "\ud800", "big": 10 ** 3000,
    "nan": float("nan"), "infinity": float("inf"), "digits": 7 ** 9000, "deep": DEEP, "huge": "x" * (9 << 20),
    "many": [[]] * 2_200_000, "bytes": b"a", "set": {1}, "key": {1: 2}, "complex": 1j, "type": int, "function": len,
    "instance": Anything(), "text-class": Text("5"), "number-class": Number(5), "dict-class": Like(a=1),
    "nested": [{"a": Text("5")}], "keyed": {Text("a"): 1},
}

def give(name): return VALUES[name]

def echo(*args, **kwargs): return [list(args), kwargs]

def end(how):
    if how == "raise": raise KeyError("no such thing")
    if how == "odd": raise Odd()
    if how == "class": raise Odd
    if how == "interrupt": raise KeyboardInterrupt
    if how == "exit": sys.exit(0)
    if how == "at once":
        print("said before", file=sys.stderr, flush=True)
        os._exit(0)
    if how == "killed": os.kill(os.getpid(), signal.SIGKILL)
    if how == "parent": os.kill(os.getppid(), signal.SIGKILL)
    if how == "everything": os.kill(-1, signal.SIGKILL)
    if how in ("parent", "everything"): time.sleep(300)
    if how == "recursion": end(how)
    if how == "loop":
        while True: pass

def prints():
    print('{"ok": true, "value": 7}', flush=True)
    os.write(1, b"\xff\0[]\n")
    sys.stdout.close()
    sys.stderr.close()
    return 1

def where(): return [os.getcwd() == os.path.dirname(os.path.abspath(__file__)), __name__, sys.flags.isolated]
"""
FILES = {"mod.py": MODULE}


def refusal(bundle: Bundle, *args: Any, **kwargs: Any) -> str:
    """What the error says of a call that is the candidate's failure."""
    with pytest.raises(CandidateError) as caught:
        bundle.call(*args, **kwargs)
    assert isinstance(caught.value, AssertionError)
    return caught.value.message


def test_plain_values_come_back_as_they_are(any_court: Court) -> None:
    bundle = any_court.bundle(FILES)
    values = {name: bundle.call("mod:give", name) for name in ("none", "text", "list", "tuple", "lone", "big")}
    assert values == {
        "none": None,
        "text": "grüß\n",
        "list": [1, [2.5, True], {"a": None}],
        "tuple": [1, [2]],
        "lone": "\ud800",
        "big": 10**3000,
    }
    assert bundle.call("mod:Tool.twice", 4) == 8
    assert bundle.call("mod:where") == [True, "mod", 1]


def test_arguments_arrive_as_they_are(any_court: Court) -> None:
    given: list[Any] = [
        None,
        True,
        1,
        -2.5,
        "gr\u00fc\u00df\0\ud800",
        [1, [2]],
        {"a": {"b": []}},
        10**3000,
        "x" * 300_000,
    ]
    assert any_court.bundle(FILES).call("mod:echo", *given, key=[1], args=2) == [given, {"key": [1], "args": 2}]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("nan", "the result of mod:give('nan') is not JSON that can be read: NaN is not a number of JSON"),
        (
            "infinity",
            "the result of mod:give('infinity') is not JSON that can be read: Infinity is not a number of JSON",
        ),
        (
            "digits",
            "gave what is not a plain JSON value: Exceeds the limit (4300 digits) for integer string conversion",
        ),
        ("deep", "gave what is not a plain JSON value: a value nested deeper than 150 levels"),
        ("huge", "gave what is not a plain JSON value: a result of 9437209 bytes"),
        ("many", "gave what is not a plain JSON value: a result of 8800023 bytes"),
        ("bytes", "gave what is not a plain JSON value: an object of type builtins.bytes"),
        ("set", "gave what is not a plain JSON value: an object of type builtins.set"),
        ("key", "gave what is not a plain JSON value: a dict with a key of type int"),
        ("complex", "gave what is not a plain JSON value: an object of type builtins.complex"),
        ("type", "gave what is not a plain JSON value: an object of type builtins.type"),
        ("function", "gave what is not a plain JSON value: an object of type builtins.builtin_function_or_method"),
        ("instance", "gave what is not a plain JSON value: an object of type mod.Anything"),
        ("text-class", "gave what is not a plain JSON value: an object of type mod.Text"),
        ("number-class", "gave what is not a plain JSON value: an object of type mod.Number"),
        ("dict-class", "gave what is not a plain JSON value: an object of type mod.Like"),
        ("nested", "gave what is not a plain JSON value: an object of type mod.Text"),
        ("keyed", "gave what is not a plain JSON value: a dict with a key of type Text"),
    ],
)
def test_what_is_no_plain_value_is_told(court: Court, name: str, why: str) -> None:
    said = refusal(court.bundle(FILES), "mod:give", name)
    assert said.removeprefix(f"mod:give('{name}') ").startswith(why)


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("raise", "raised KeyError: 'no such thing'"),
        ("odd", "raised Odd: (its text can't be made)"),
        ("class", "raised Odd: (its text can't be made)"),
        ("interrupt", "raised KeyboardInterrupt: "),
        ("exit", "raised SystemExit: 0"),
        (
            "at once",
            "gave no result: its process ended before that; the last line on its standard error: said before",
        ),
        ("killed", "gave no result: its process ended before that"),
        ("parent", "gave no result: its process ended before that"),
        ("everything", "gave no result: its process ended before that"),
        ("recursion", "raised RecursionError: maximum recursion depth exceeded"),
    ],
)
def test_however_it_ends_is_the_candidates(court: Court, how: str, why: str) -> None:
    assert refusal(court.bundle(FILES), "mod:end", how).startswith(f"mod:end('{how}') {why}")


def test_one_that_never_ends(any_court: Court) -> None:
    bundle = any_court.bundle(FILES, evaluation=0.5)
    why = "mod:end('loop') gave no result: it did not end within the limit of an evaluation"
    assert refusal(bundle, "mod:end", "loop") == why
    assert refusal(bundle, "mod:end", "raise") == "mod:end('raise') raised KeyError: 'no such thing'"


def test_what_it_prints_is_no_result(any_court: Court) -> None:
    assert any_court.bundle(FILES).call("mod:prints") == 1


def test_processes_left_behind_end_with_the_call(court: Court) -> None:
    source = """
import os, time
def work():
    for _ in range(50):
        if os.fork() == 0:
            os.setsid()
            time.sleep(300)
    return 1
"""
    bundle = court.bundle({"mod.py": source}, evaluation=20)
    assert bundle.call("mod:work") == 1
    assert bundle.call_many("mod:work", [(), ()]) == [1, 1]


def test_a_fork_bomb_is_bounded(court: Court) -> None:
    source = """
import os
def work():
    while True:
        try:
            os.fork()
        except OSError:
            pass
"""
    bundle = court.bundle({"mod.py": source}, evaluation=1)
    assert refusal(bundle, "mod:work").endswith("it did not end within the limit of an evaluation")


@pytest.mark.parametrize(
    "name", ["json", "os", "time", "abc", "statistics", "sys", "encodings", "pytest_rollout", "pytest"]
)
def test_a_module_of_a_known_name_is_the_candidates(any_court: Court, name: str) -> None:
    source = f"import math\n\n\ndef mine(number):\n    return [__name__, math.floor(number), {name!r}]\n"
    bundle = any_court.bundle({f"{name}.py": source})
    assert bundle.call(f"{name}:mine", 2.5) == [name, 2, name]
    assert bundle.call_many(f"{name}:mine", [(1.5,), (0,)]) == [[name, 1, name], [name, 0, name]]


def test_where_modules_are_found(any_court: Court) -> None:
    bundle = any_court.bundle(
        {
            "src/pkg/__init__.py": "from pkg.inner import one as first\n",
            "src/pkg/inner.py": "from . import other\ndef one():\n    return other.two()\n",
            "src/pkg/other.py": "def two():\n    return 2\n",
            "plain/inside/mod.py": "def three():\n    return 3\n",
            "flat.py": "import pkg\ndef four():\n    return pkg.first() + 2\n",
        }
    )
    targets = (
        "pkg:first",
        "pkg.inner:one",
        "pkg.other:two",
        "plain.inside.mod:three",
        "flat:four",
        "flat:pkg.other.two",
    )
    assert [bundle.call(target) for target in targets] == [2, 2, 2, 3, 4, 2]


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("none:f", "there is no module 'none' in the candidate's tree"),
        ("json:dumps", "there is no module 'json' in the candidate's tree"),
        ("pytest:main", "there is no module 'pytest' in the candidate's tree"),
        ("mod.inner:f", "No module named 'mod.inner'; 'mod' is not a package"),
        ("mod:none", "module 'mod' has no attribute 'none'"),
        ("mod:Tool.none", "type object 'Tool' has no attribute 'none'"),
        ("linked:f", "there is no module 'linked' in the candidate's tree"),
    ],
)
def test_what_is_not_there_is_the_candidates(court: Court, target: str, why: str) -> None:
    bundle = court.bundle(FILES, "ln -s /nowhere/x.py linked.py")
    assert refusal(bundle, target, 1) == f"{target}(1) can't be called: {why}"


def test_a_value_that_is_no_function_and_a_module_that_raises(court: Court) -> None:
    bundle = court.bundle({**FILES, "bad.py": "1 / 0\n", "worse.py": "def f(:\n"})
    assert refusal(bundle, "mod:NUMBER") == "mod:NUMBER() raised TypeError: 'int' object is not callable"
    assert refusal(bundle, "bad:f") == "bad:f() raised ZeroDivisionError: division by zero"
    assert refusal(bundle, "worse:f") == "worse:f() raised SyntaxError: invalid syntax (worse.py, line 1)"


@pytest.mark.parametrize(
    "target", ["mod", "mod:", ":f", "mod.f", "mod:f()", "mod:f;x", "../mod:f", "mod:f\n", "", 5, None]
)
def test_a_target_that_names_nothing_is_the_evaluators(court: Court, target: Any) -> None:
    bundle = court.bundle(FILES)
    asks: list[Callable[[], object]] = [lambda: bundle.call(target), lambda: bundle.call_many(target, [()])]
    for ask in asks:
        with pytest.raises(EvaluatorError) as caught:
            ask()
        assert (
            caught.value.message == f"{target!r} is not 'module:function', as in 'calc:add' or 'pkg.mod:Class.method'"
        )


class Text(str):
    """A text that is not a plain one."""


def _deep() -> list[Any]:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("argument", "why"),
    [
        (b"x", "an argument is of type bytes"),
        ({1: 2}, "an argument is of type dict"),
        ([{1}], "an argument is of type set"),
        (float("nan"), "Out of range float values are not JSON compliant"),
        (float("inf"), "Out of range float values are not JSON compliant"),
        (Text("x"), "an argument is of type Text"),
        (7**9000, "Exceeds the limit (4300 digits) for integer string conversion"),
        (_deep(), "maximum recursion depth exceeded"),
    ],
    ids=["bytes", "keys", "set", "nan", "infinity", "str subclass", "digits", "deep"],
)
def test_arguments_that_can_not_be_given_are_the_evaluators(court: Court, argument: Any, why: str) -> None:
    bundle = court.bundle(FILES)
    asks: list[Callable[[], object]] = [
        lambda: bundle.call("mod:echo", argument),
        lambda: bundle.call("mod:echo", key=argument),
    ]
    for ask in asks:
        with pytest.raises(EvaluatorError, match=rf"mod:echo can't be called: {re.escape(why)}"):
            ask()
    with pytest.raises(EvaluatorError, match=re.escape(why)):
        bundle.call_many("mod:echo", [(1,), (argument,)])
