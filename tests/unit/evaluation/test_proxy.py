"""``run_tests(proxy=…)``: hidden tests in a process without candidate code, which ask another one."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from pytest_rollout.errors import EvaluatorError, HostError, InfraError
from pytest_rollout.evaluation.guest.proxy import Channel
from pytest_rollout.executors.protocol import Command, Stage

if TYPE_CHECKING:
    from pytest_rollout.evaluated import TestRun
    from tests.unit.evaluation.conftest import Court

CALC = r"""
import os, sys, time

NUMBER = 4
TABLE = {"a": [1, (2, None)], "b": "gr\u00fc\u00df"}
HANDLE = object()
COUNT = 0

class Own(Exception):
    pass

class Thing:
    pass

def add(a, b=10, *, c=0): return a + b + c
def echo(*args, **kwargs): return [list(args), kwargs]
def thing(): return Thing()
def text(): return type("Text", (str,), {"__eq__": lambda self, other: True})("x")
def count():
    global COUNT
    COUNT += 1
    return COUNT
def prints():
    print('{"ok": true, "value": 99}', flush=True)
    return 1
def deep():
    value = []
    for _ in range(100_000):
        value = [value]
    return value
def digits(): return 7 ** 9000
def huge(): return "x" * (9 << 20)
def leave(how):
    if how == "exit": sys.exit(0)
    if how == "at once": os._exit(0)
    if how == "loop": time.sleep(300)
def fail(how):
    raise {
        "value": ValueError("bad value"), "key": KeyError("k"), "own": Own("mine"), "stop": StopIteration(5),
        "unicode": UnicodeDecodeError("utf-8", b"", 0, 1, "x"), "interrupt": KeyboardInterrupt("x"),
        "skip": __import__("unittest").SkipTest("x"), "assert": AssertionError("no"), "os": OSError("gone"),
        "group": ExceptionGroup("g", [ValueError()]), "generator": GeneratorExit(),
    }[how]
async def waits(): return 1
"""
PACKAGE = {
    "calc.py": CALC,
    "pkg/__init__.py": "from pkg.inner import one\nNAME = 'pkg'\n",
    "pkg/inner.py": "def one(): return 1\n",
    "pkg/sub/deep.py": "def two(): return 2\n",
    "other.py": "def three(): return 3\n",
    "src/flat.py": "def four(): return 4\n",
}


def run(court: Court, body: str, *, proxy: Any = ("calc",), **more: Any) -> TestRun:
    """One hidden test with this body."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    source = f"import pytest\ndef test_it():\n{lines}"
    return court.bundle(PACKAGE, hidden={"test_x.py": source}, **more).run_tests(proxy=proxy)


def told(found: TestRun) -> str:
    """What the one test failed with."""
    assert found.tests == {"test_x.py::test_it": "failed"}
    assert (found.passed, found.in_process) == (False, False)
    return found.messages["test_x.py::test_it"]


WORKING = """
import calc
from calc import add, NUMBER
import calc as again
assert (add(1), add(1, 2), add(1, b=2, c=3), NUMBER, again.add(1, 1)) == (11, 3, 6, 4, 2)
assert calc.TABLE == {"a": [1, (2, None)], "b": "grüß"}
assert calc.echo(None, True, 2.5, [1], (2,), k={"a": "\\ud800"}) == [
    [None, True, 2.5, [1], (2,)], {"k": {"a": "\\ud800"}}
]
assert [calc.count(), calc.count(), calc.COUNT] == [1, 2, 2]
assert calc.prints() == 1
assert add.__name__ == "add"
assert not hasattr(calc, "missing")
with pytest.raises(ValueError, match="^bad value$"):
    calc.fail("value")
with pytest.raises(KeyError):
    calc.fail("key")
with pytest.raises(OSError, match="gone"):
    calc.fail("os")
with pytest.raises(AssertionError, match="no"):
    calc.fail("assert")
with pytest.raises(TypeError, match="missing 1 required positional argument"):
    calc.add()
with pytest.raises(ImportError):
    from calc import missing
assert list(map(calc.add, [1, 2])) == [11, 12]
"""


def test_functions_values_and_exceptions(any_court: Court) -> None:
    found = run(any_court, WORKING)
    assert (found.messages, found.passed, found.in_process) == ({}, True, False)


def test_the_very_same_test_passes_in_process(any_court: Court) -> None:
    found = run(any_court, WORKING, proxy=())
    assert (found.messages, found.passed, found.in_process) == ({}, True, True)


@pytest.mark.parametrize(
    ("proxy", "body"),
    [
        (["pkg"], "import pkg\nassert (pkg.one(), pkg.NAME) == (1, 'pkg')"),
        (["pkg"], "from pkg.inner import one\nimport pkg.inner\nassert (one(), pkg.inner.one()) == (1, 1)"),
        (["pkg.inner"], "from pkg.inner import one\nassert one() == 1"),
        (["pkg.inner"], "import pkg.inner\nassert pkg.inner.one() == 1"),
        (["pkg.sub.deep"], "import pkg.sub.deep as deep\nassert deep.two() == 2"),
        (["flat"], "import flat\nassert flat.four() == 4"),
        ("flat", "import flat\nassert flat.four() == 4"),
        (["calc", "other"], "import calc, other\nassert calc.add(other.three()) == 13"),
    ],
)
def test_modules_of_packages(court: Court, proxy: Any, body: str) -> None:
    found = run(court, body, proxy=proxy)
    assert (found.messages, found.passed) == ({}, True)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("import calc.inner", "ImportError: calc.inner is not there: No module named 'calc.inner'; 'calc' is not a pa"),
        (
            "from calc import missing",
            "ImportError: calc.missing is not there: No module named 'calc.missing'; 'calc' i",
        ),
        ("import calc\ncalc.missing", "AttributeError: calc:missing is not there: module 'calc' has no attribute 'm"),
        (
            "open('calc.py')",
            "FileNotFoundError: [Errno 2] No such file or directory: 'calc.py'",
        ),
    ],
)
def test_nothing_else_of_the_candidates_is_there(court: Court, body: str, why: str) -> None:
    assert told(run(court, body)).startswith(why)


@pytest.mark.parametrize("where", ["in a test", "in the file"])
@pytest.mark.parametrize(("name", "module"), [("other", "other"), ("pkg.inner", "pkg"), ("calculator", "calculator")])
def test_a_module_that_nobody_named_is_the_evaluators_mistake(court: Court, name: str, module: str, where: str) -> None:
    lines = f"import {name}\ndef test_it(): pass\n" if where == "in the file" else f"def test_it(): import {name}\n"
    bundle = court.bundle(PACKAGE, hidden={"test_x.py": lines})
    with pytest.raises(EvaluatorError) as caught:
        bundle.run_tests(proxy=["calc"])
    assert (
        caught.value.message == f"run_tests(proxy=…): the hidden tests import {module!r}, which is not there for them"
    )
    assert not caught.value.asked


def test_a_candidate_can_not_bring_that_mistake_about(court: Court) -> None:
    source = "def f():\n    raise ModuleNotFoundError('x', name='numpy')\n"
    bundle = court.bundle({"calc.py": source}, hidden={"test_x.py": "def test_it():\n    import calc\n    calc.f()\n"})
    found = bundle.run_tests(proxy=["calc"])
    assert found.tests == {"test_x.py::test_it": "failed"}


def test_a_test_may_do_without_a_module(court: Court) -> None:
    lines = "import pytest\ndef test_it():\n    with pytest.raises(ImportError):\n        import other\n"
    assert court.bundle(PACKAGE, hidden={"test_x.py": lines}).run_tests(proxy=["calc"]).passed


def test_a_listed_module_that_is_not_there(court: Court) -> None:
    found = run(court, "import absent", proxy=["absent"])
    assert told(found) == "ImportError: absent is not there: there is no module 'absent' in the candidate's tree"


@pytest.mark.parametrize("name", ["json", "os", "pytest", "_pytest.reports", "sys", "pluggy", "pytest_rollout"])
def test_a_module_that_the_tests_run_with_can_not_stand_for_the_candidates(any_court: Court, name: str) -> None:
    files = {f"{name.replace('.', '/')}.py": "def mine(): return 1\n"}
    bundle = any_court.bundle(files, hidden={"test_x.py": "def test_it(): pass\n"})
    with pytest.raises(EvaluatorError) as caught:
        bundle.run_tests(proxy=["calc", name])
    why = f"run_tests(proxy=…): {name!r} is also the name of a module that the tests run with"
    assert caught.value.message == why


def test_a_module_named_as_one_of_pythons_that_is_not_loaded(court: Court) -> None:
    source = "def test_it():\n    import chunk\n    import this\n    assert chunk.mine() + this.mine() == 3\n"
    files = {"chunk.py": "def mine(): return 1\n", "this.py": "def mine(): return 2\n"}
    found = court.bundle(files, hidden={"test_x.py": source}).run_tests(proxy=["chunk", "this"])
    assert (found.messages, found.passed) == ({}, True)


ONLY = "only None, bool, int, float, str, bytes, list, tuple, set, frozenset and dict cross"


CROSSING = [
    (
        "calc.Thing()",
        "calc:Thing is a class; a proxied module offers functions and plain values. Test it through a function "
        "that gives plain values, or without proxy=",
    ),
    ("calc.os", "calc:os gave an object of type builtins.module; "),
    ("calc.HANDLE", f"calc:HANDLE gave an object of type builtins.object; {ONLY} to the test. Test it through a "),
    (
        "calc.thing()",
        f"calc:thing gave an object of type calc.Thing; {ONLY} to the test. Test it through a function",
    ),
    ("assert calc.text() == 'y'", "calc:text gave an object of type calc.Text; "),
    ("calc.waits()", "calc:waits gave an object of type builtins.coroutine; "),
    ("calc.deep()", "calc:deep gave a value nested deeper than 150 levels; "),
    ("calc.digits()", "calc:digits gave Exceeds the limit (4300 digits) for integer string conversion; "),
    ("calc.huge()", "calc:huge gave a result of 9437209 bytes; "),
    ("calc.fail('own')", "calc:fail raised Own: mine"),
    ("calc.fail('unicode')", "calc:fail raised UnicodeDecodeError: "),
    ("calc.fail('interrupt')", "calc:fail raised KeyboardInterrupt: x"),
    ("calc.fail('generator')", "calc:fail raised GeneratorExit: "),
    ("calc.fail('skip')", "calc:fail raised SkipTest: x"),
    ("calc.fail('group')", "calc:fail raised ExceptionGroup: "),
    ("calc.leave('exit')", "calc:leave raised SystemExit: 0"),
    ("calc.leave('at once')", "calc:leave: the candidate's process ended before it answered"),
]


MISUSE = [
    ("calc.echo(k=object())", f"calc:echo was given an object of type builtins.object; {ONLY} to the candidate"),
    ("calc.echo(print)", "calc:echo was given an object of type builtins.builtin_function_or_method; "),
    ("calc.echo(7 ** 9000)", "calc:echo was given Exceeds the limit (4300 digits) for integer string conversion; "),
    ("calc.echo('x' * (9 << 20))", "calc:echo was given a result of "),
    ("from calc import *", "'from calc import *' takes nothing from a proxied module: name what is imported"),
    ("calc.NUMBER = 5", "the hidden tests set calc.NUMBER, which changes nothing for the candidate's code"),
    ("monkeypatch.setattr(calc, 'NUMBER', 5)", "the hidden tests set calc.NUMBER, which changes nothing"),
    ("request.getfixturevalue('mocker')", "the hidden tests ask for the fixture 'mocker', which is not there"),
]


@pytest.mark.parametrize(("line", "why"), MISUSE)
def test_what_a_test_asks_that_no_proxy_gives_is_the_evaluators_mistake(court: Court, line: str, why: str) -> None:
    top = line.startswith("from")
    lines = f"{line if top else ''}\nimport calc\ndef test_it(monkeypatch, request):\n    {'pass' if top else line}\n"
    bundle = court.bundle(PACKAGE, hidden={"test_x.py": lines})
    with pytest.raises(EvaluatorError) as caught:
        bundle.run_tests(proxy=["calc"])
    assert caught.value.message.startswith(f"run_tests(proxy=…): {why}")
    assert caught.value.asked == ("setattr" in line), "a value was told before"


def test_containers_cross_as_what_they_are(any_court: Court) -> None:
    body = """
import calc
for value in ((), (1, (2, [3])), {1, 2}, frozenset("a"), b"\\xff\\0", {1: 2, (3, 4): {5}}, {"~": "tuple", "of": [1]}):
    assert calc.echo(value, k=value) == [[value], {"k": value}]
    assert type(calc.echo(value)[0][0]) is type(value)
assert calc.echo({1, 1.0, True}) == [[{1}], {}]
"""
    for proxy in (("calc",), ()):
        found = run(any_court, body, proxy=proxy)
        assert (found.messages, found.passed) == ({}, True)


CHANGING = """
def sort(values):
    values.sort()
def fill(table, *, key):
    table[key] = table.pop("old", None)
    table["inner"].append(1)
def grow(values, more):
    values.append(more)
    more.add(3)
def fail(values):
    values.clear()
    raise ValueError("after")
def spoil(values):
    values.append(object())
def sorted_copy(values):
    return sorted(values)
"""


@pytest.mark.parametrize("proxy", [("mod",), ()])
def test_what_is_done_to_an_argument_is_seen(any_court: Court, proxy: tuple[str, ...]) -> None:
    source = """
import mod, pytest
def test_it():
    values = same = [2, 1]
    mod.sort(values)
    assert values == [1, 2] and same is values
    inner = []
    table = {"old": 5, "inner": inner}
    mod.fill(table, key="new")
    assert table == {"new": 5, "inner": [1]} and table["inner"] is inner
    more = {1}
    mod.grow(values, more)
    assert values == [1, 2, {3, 1}] and more == {1, 3}
    with pytest.raises(ValueError):
        mod.fail(values)
    assert values == []
    values = [2, 1]
    assert mod.sorted_copy(values) == [1, 2] and values == [2, 1]
def test_spoilt():
    mod.spoil([])
"""
    found = any_court.bundle({"mod.py": CHANGING}, hidden={"test_x.py": source}).run_tests(proxy=proxy)
    assert found.tests["test_x.py::test_it"] == "passed", found.messages
    assert found.tests["test_x.py::test_spoilt"] == ("failed" if proxy else "passed")
    if proxy:
        why = "CandidateError: mod:spoil gave an object of type builtins.object in an argument; "
        assert found.messages["test_x.py::test_spoilt"].startswith(why)


def test_a_candidate_that_changes_what_a_test_compares_with(court: Court) -> None:
    files = {"mod.py": "def srt(values):\n    values.sort()\n    return values\n"}
    source = "import mod\ndef test_it():\n    values = [2, 1]\n    mod.srt(values)\n    assert values == [2, 1]\n"
    assert not court.bundle(files, hidden={"test_x.py": source}).run_tests(proxy=["mod"]).passed


def test_what_can_not_cross_is_told(court: Court) -> None:
    tests = [f"def test_{number}():\n    {body}\n" for number, (body, _) in enumerate(CROSSING)]
    found = court.bundle(PACKAGE, hidden={"test_x.py": "import calc\n" + "".join(tests)}).run_tests(proxy=["calc"])
    assert set(found.tests.values()) == {"failed"}
    for number, (_, why) in enumerate(CROSSING):
        assert found.messages[f"test_x.py::test_{number}"].removeprefix("CandidateError: ").startswith(why)


@pytest.mark.parametrize(
    "body",
    [
        "assert all(map(lambda case: calc.fail('stop') == case, [1, 2]))",
        "for _ in map(calc.fail, ['stop']): assert False",
        "assert dict(zip(['a'], map(calc.fail, ['stop']))) == {}",
        "next(map(calc.fail, ['stop']), None)",
    ],
)
def test_a_candidate_does_not_end_the_loops_of_a_test(court: Court, body: str) -> None:
    assert told(run(court, f"import calc\n{body}")).startswith("CandidateError: calc:fail raised StopIteration: 5")


def test_a_server_that_ended_answers_no_more(any_court: Court) -> None:
    body = """
import calc
for _ in range(2):
    with pytest.raises(AssertionError, match="the candidate's process ended before it answered"):
        calc.leave("at once")
assert calc.add(1) == 11
"""
    assert told(run(any_court, body)) == "CandidateError: calc:add: the candidate's process ended before it answered"


def test_a_server_that_hangs(any_court: Court) -> None:
    found = run(any_court, "import calc\ncalc.leave('loop')", evaluation=1.5)
    assert found.problem == "the hidden tests did not end within the limit of an evaluation"
    assert (found.tests, found.passed) == ({"test_x.py::test_it": "missing"}, False)


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (r"{\"ok\": 1}\n", "the candidate's process gave an answer of another form"),
        (r"[]\n", "the candidate's process gave an answer of another form"),
        (r"null\n", "the candidate's process gave an answer of another form"),
        (r"\xff\n", "the candidate's process answered what can't be read: "),
        (r"no json\n", "the candidate's process answered what can't be read: "),
        (r"{\"ok\": true", "the candidate's process ended before it answered"),
        ('b"[" * 100_000 + b"\\n"', "the candidate's process answered what can't be read: "),
        ('b"9" * 5000 + b"\\n"', "the candidate's process answered what can't be read: "),
        (r"{\"ok\": true, \"is\": \"function\"}\n" * 3, ""),
    ],
)
def test_a_server_that_writes_its_answers_itself(court: Court, lines: str, why: str) -> None:
    data = lines if lines.startswith("b") else f'b"{lines}"'
    source = f"""
import json, os, socket, sys
channel = socket.socket(fileno=json.loads(sys.argv[-1])["socket"])
channel.sendall({data})
os._exit(0)
"""
    found = court.bundle(
        {"calc.py": source}, hidden={"test_x.py": "def test_it():\n    import calc\n    assert calc.add(1) == 11\n"}
    ).run_tests(proxy=["calc"])
    assert why in told(found)


def test_the_tests_process_can_not_be_reached_from_the_candidates(court: Court) -> None:
    source = r"""
import os
def look():
    found = [name for name in os.listdir("/proc") if name.isdigit()]
    words = []
    for name in found:
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                words.append(file.read())
        except OSError:
            pass
    return [any(b"test_x.py" in each for each in words), os.path.exists("test_x.py"), sorted(os.listdir("."))]
"""
    body = "import calc\nassert calc.look() == [False, False, ['calc.py']]"
    hidden = {"test_x.py": f"def test_it():\n    {body.splitlines()[0]}\n    {body.splitlines()[1]}\n"}
    found = court.bundle({"calc.py": source}, hidden=hidden).run_tests(proxy=["calc"])
    assert (found.messages, found.passed) == ({}, True)


@pytest.mark.parametrize("broken", [HostError("no room"), InfraError("no stage")], ids=["host", "infra"])
def test_a_server_that_was_not_started_is_no_failure_of_the_candidates(
    court: Court, monkeypatch: pytest.MonkeyPatch, broken: InfraError
) -> None:
    executor = court.lab.executor
    start = executor.run

    def run_but_the_server(stage: Stage, command: Command, *rest: Any) -> Any:
        if "serve" in command.argv:
            raise broken
        return start(stage, command, *rest)

    bundle = court.bundle(PACKAGE, hidden={"test_x.py": "def test_it():\n    import calc\n    calc.add(1)\n"})
    monkeypatch.setattr(executor, "run", run_but_the_server)
    with pytest.raises(InfraError) as caught:
        bundle.run_tests(proxy=["calc"])
    assert caught.value is broken
    assert caught.value.forgeable is isinstance(broken, HostError), "what fills a machine may be the candidate's"


@pytest.mark.parametrize("proxy", [("mod",), ()])
def test_changes_that_do_not_show_by_comparing(any_court: Court, proxy: tuple[str, ...]) -> None:
    files = {
        "mod.py": """
def reorder(table):
    first = table.pop(next(iter(table)))
    table["a"] = first
def to_floats(values):
    values[:] = [float(value) for value in values]
def first_of_two(values, others):
    values.append(1)
def by_name(values, *, others):
    values.append(1)
"""
    }
    source = """
import mod
def test_it():
    table = {"a": 1, "b": 2}
    mod.reorder(table)
    assert list(table) == ["b", "a"]
    values = [1, 2]
    mod.to_floats(values)
    assert [type(value) for value in values] == [float, float]
    same = []
    mod.first_of_two(same, same)
    assert same == [1]
    mod.by_name(same, others=same)
    assert same == [1, 1]
"""
    found = any_court.bundle(files, hidden={"test_x.py": source}).run_tests(proxy=proxy)
    assert (found.messages, found.passed) == ({}, True)


UNCLOSED = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


@UNCLOSED
@pytest.mark.parametrize(
    ("verb", "answer", "told"),
    [
        ("call", '{"ok": true, "value": null}', True),
        ("call", '{"ok": true}', True),
        ("call", '{"ok": true, "is": "function"}', True),
        ("call", '{"ok": false, "kind": "other"}', True),
        ("get", '{"ok": true, "is": "class"}', True),
        ("get", '{"ok": true, "is": "other"}', True),
        ("get", '{"ok": false, "kind": "missing"}', True),
        ("get", "[]", True),
        ("get", '{"ok": true, "is": "function"}', False),
        ("get", '{"ok": true, "is": "module"}', False),
    ],
)
def test_what_could_steer_a_test_is_known_to_have_been_told(verb: str, answer: str, told: bool) -> None:
    ours, theirs = socket.socketpair()
    channel = Channel(ours.detach())
    theirs.sendall(f"{answer}\n".encode())
    with suppress(AssertionError):
        channel.ask(verb, "calc:f")
    theirs.close()
    assert channel.told == told


@UNCLOSED
def test_a_result_without_a_value_is_none() -> None:
    ours, theirs = socket.socketpair()
    theirs.sendall(b'{"ok": true}\n')
    with pytest.raises(AssertionError, match="gave an answer of another form"):
        Channel(ours.detach()).ask("call", "calc:f")
    theirs.close()
