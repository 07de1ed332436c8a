"""``bundle.run_tests``: hidden pytest tests against the candidate's work.

Which tests have to pass is read from the evaluator's own files, so a run that leaves some out fails.
That one passed is taken only from a report made over a descriptor of this run; an exit status and
printed lines count for nothing.

A test that imports candidate code holds it in its own process, where that code can compare as
equal to everything, read the frames of its callers or patch the framework. Such runs are marked
``in_process``. With ``proxy`` the tests run in a process, and over a tree, without any file of the
candidate's; what they import from the proxied modules is answered by a second sandbox.
"""

from __future__ import annotations

import ast
import json
import os
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from threading import Thread
from typing import Any

from pytest_rollout.bundle import TRUNCATED
from pytest_rollout.errors import EvaluatorError, EvidenceError, InfraError
from pytest_rollout.evaluated import Exec, TestRun
from pytest_rollout.evaluation.answers import asking, read_answer
from pytest_rollout.evaluation.interpreter import own_interpreter
from pytest_rollout.evaluation.trees import Hidden, Trees
from pytest_rollout.executors.cancel import Cancel
from pytest_rollout.executors.protocol import Command, Stage
from pytest_rollout.plain import printable

__all__ = ["expected_tests", "run_tests"]
__tracebackhide__ = True  # pytest shows the suite's line, not ours

_TEST_FILE = re.compile(r"(.*/)?(test_[^/]*|[^/]*_test)\.py")
_CONFTEST = re.compile(r"(.*/)?conftest\.py")
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_FIXTURE = re.compile(r"\bfixture\b")
_INI = ("pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "tox.ini")
_OUTCOMES = ("passed", "failed", "skipped")


def run_tests(trees: Trees, hidden: Hidden | None, expect: Sequence[str] | None, proxy: Sequence[str]) -> TestRun:
    """Run the hidden tests; raises EvaluatorError where they can't be run as asked, whatever the candidate did."""
    trees.check_unseen()
    if hidden is None:
        raise EvaluatorError(
            "run_tests() has no hidden files", hint="Name a folder: rollout(hidden='…') or run_tests(files='…')."
        )
    ignored = next((name for name in _INI if os.path.lexists(f"{hidden.layer}/{name}")), None)
    if ignored is not None:
        raise EvaluatorError(
            f"run_tests(): the hidden file {ignored} would not be used, since pytest reads no ini file there",
            hint="Name the tests test_*.py and test…, and take out that file.",
            asked=hidden.given,
        )
    wanted = _wanted(hidden, expect)
    modules = [proxy] if isinstance(proxy, str) else list(proxy)
    for module in modules:
        if not isinstance(module, str) or not _MODULE.fullmatch(module):
            raise EvaluatorError(f"run_tests(proxy=…): {module!r} is not the name of a module", asked=True)
    with asking([b""]) as ((_, report),):
        spec: dict[str, Any] = {
            "files": sorted({test.partition("::")[0] for test in wanted}),
            "conftests": [path for path in hidden.sources if _CONFTEST.fullmatch(path)],
            "paths": own_interpreter().packages,
            "proxy": modules,
            "report": report,
        }
        ended = _proxied(trees, hidden, spec) if modules else _in_process(trees, hidden, spec)
        return _judged(trees, wanted, ended, report, only=expect is not None, in_process=not modules)


def _in_process(trees: Trees, hidden: Hidden, spec: dict[str, Any]) -> Exec:
    with trees.of_candidate(hidden) as stage:
        argv = own_interpreter().argv("test", json.dumps(spec), mounted=trees.executor.info.mounts)
        return trees.run(stage, argv, inherit=(spec["report"],))


def _proxied(trees: Trees, hidden: Hidden, spec: dict[str, Any]) -> Exec:
    """The tests in one sandbox, the candidate's modules in another, and a socket between them."""
    mounted = trees.executor.info.mounts
    tests, candidate = socket.socketpair()
    cancel, broken = Cancel(), list[InfraError]()
    with trees.of_candidate() as of_candidate, trees.of_hidden(hidden) as of_hidden:
        serving = Thread(
            target=_serve, args=(trees, of_candidate, candidate, cancel, broken), name="rollout-candidate", daemon=True
        )
        serving.start()
        try:
            words = own_interpreter().argv("test", json.dumps({**spec, "socket": tests.fileno()}), mounted=mounted)
            ended = trees.run(of_hidden, words, inherit=(spec["report"], tests.fileno()))
        finally:
            tests.close()
            cancel.set()
            serving.join()
            cancel.close()
    if broken:
        raise broken[0]
    return ended


def _serve(trees: Trees, stage: Stage, channel: socket.socket, cancel: Cancel, broken: list[InfraError]) -> None:
    """Run the candidate's side until the tests are done; where it ends before that, they see the socket closed."""
    interpreter, fd = own_interpreter(), channel.fileno()
    assert trees.task.limits.evaluation is not None
    command = Command(
        argv=interpreter.argv("serve", json.dumps({"socket": fd}), mounted=trees.executor.info.mounts),
        env={"PATH": interpreter.path, "LANG": "C.UTF-8"},
        binds=interpreter.binds,
        wall=trees.task.limits.evaluation,
        inherit=(fd,),
    )
    try:
        trees.run_command(stage, command, cancel)
    except InfraError as error:
        broken.append(error)  # the tests are told by the socket
    finally:
        channel.close()


def _judged(trees: Trees, wanted: Sequence[str], ended: Exec, report: int, *, only: bool, in_process: bool) -> TestRun:
    """What the tests came to; ``only`` leaves out those that are not wanted."""
    tests: dict[str, str] = dict.fromkeys(wanted, "missing")
    messages: dict[str, str] = {}
    problem = ""
    try:
        found = read_answer(report, "the report of the hidden tests")
        if isinstance(found, dict):
            told = {name: trees.redactor.value(found[name]) for name in found if name != "tests"}
            found = {**found, **told}  # messages are cut; the names of tests are compared
        if not in_process and isinstance(found, dict):
            _check_use(found)
        if found is None:
            trees.check_python(tests=True)
        problem = _take(found, wanted, only, tests, messages) if found is not None else _no_report(ended)
    except EvidenceError as error:
        problem = error.message
    if ended.termination == "wall_limit":
        problem = "the hidden tests did not end within the limit of an evaluation"
    elif ended.termination in TRUNCATED:
        problem = f"the hidden tests were ended by the {ended.termination.replace('_', ' ')}"
    output = printable(ended.output.replace("\t", "    ").replace("\r\n", "\n"))
    return TestRun(tests=tests, output=output, problem=problem, in_process=in_process, messages=messages)


def _check_use(found: dict[str, Any]) -> None:
    """Raise EvaluatorError for what hidden tests got wrong about a proxy.

    The candidate's values may have led them to it, where some were told before.
    """
    if "loaded" in found:
        raise EvaluatorError(
            f"run_tests(proxy=…): {found['loaded']!r} is also the name of a module that the tests run with",
            hint="Call its functions with bundle.call(), or let the task name the module otherwise.",
        )
    if "mistake" in found:
        raise EvaluatorError(
            f"run_tests(proxy=…): {printable(str(found['mistake']))}",
            hint="The tests have their own files, what is installed beside pytest, and the modules named in proxy=.",
            asked=bool(found.get("told")),
        )


def _no_report(ended: Exec) -> str:
    how = f"signal {ended.signal}" if ended.signal is not None else f"exit code {ended.exit_code}"
    return f"the process of the hidden tests ended early ({how}) and reported nothing"


def _take(found: Any, wanted: Sequence[str], only: bool, tests: dict[str, str], messages: dict[str, str]) -> str:
    """Fill in what the report says; returns what is wrong with it, or nothing."""
    if not isinstance(found, dict) or not isinstance(found.get("tests"), dict):
        return found.get("text", "") if isinstance(found, dict) else "the report has another form"
    told: Any = found.get("messages")
    for test, end in found["tests"].items():
        name = test.partition("[")[0]
        if only and name not in wanted and test not in wanted:
            continue
        if end not in _OUTCOMES:
            end = "failed"
        if name in wanted:
            tests.pop(name, None)
        tests[test] = end
        if end != "passed":
            messages[test] = printable(str(told.get(test, "") if isinstance(told, dict) else ""))[:2000]
    broken = found.get("broken")
    if isinstance(broken, list) and broken:
        return f"a hidden test file could not be collected: {_last_line(broken[0])}"
    return ""


def _last_line(broken: Any) -> str:
    lines = str(broken[1] if isinstance(broken, list) and len(broken) == 2 else broken).strip().splitlines()
    return printable(lines[-1].removeprefix("E ").strip())[:300] if lines else "it gave no reason"


def _wanted(hidden: Hidden, expect: Sequence[str] | None) -> tuple[str, ...]:
    """The ids that must be reported passed; raises EvaluatorError."""
    there = expected_tests(hidden.sources, given=hidden.given)
    if expect is None:
        if not there:
            message = "run_tests() found no test in the hidden files: no test_*.py that defines one"
            raise EvaluatorError(message, asked=hidden.given)
        return tuple(there)
    ids = [expect] if isinstance(expect, str) else list(expect)
    if not ids:
        raise EvaluatorError("run_tests(expect=[]) expects nothing, so it would always pass", asked=True)
    for test in ids:
        if not isinstance(test, str) or test.partition("[")[0] not in there:
            names = ", ".join(there[:5]) + (" …" if len(there) > 5 else "")
            raise EvaluatorError(
                f"run_tests(expect=…): there is no hidden test {test!r}; there are: {names or 'none'}", asked=True
            )
    return tuple(dict.fromkeys(ids))


def expected_tests(sources: dict[str, str], *, given: bool = False) -> list[str]:
    """The ids of the tests that these files define, without parameters; raises EvaluatorError for broken ones."""
    found: list[str] = []
    for path, text in sorted(sources.items()):
        if not _TEST_FILE.fullmatch(path):
            continue
        try:
            found += [f"{path}::{name}" for name in _tests_of(ast.parse(text).body)]
        except (SyntaxError, ValueError, RecursionError) as error:
            raise EvaluatorError(f"the hidden file {path} is not Python: {error}", asked=given) from None
    return found


def _tests_of(body: Sequence[ast.stmt]) -> Iterator[str]:
    """Functions and methods that pytest collects: ``test*`` at the top, and in classes ``Test*`` and of unittest."""
    classes = {node.name: node for node in body if isinstance(node, ast.ClassDef)}
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
            if not any(_FIXTURE.search(ast.unparse(decorator)) for decorator in node.decorator_list):
                yield node.name
        elif isinstance(node, ast.ClassDef) and (node.name.startswith("Test") or _is_unittest(node)):
            whole = _with_inherited(node, classes)
            if not any(ast.unparse(each) == "__test__ = False" for each in node.body):
                yield from dict.fromkeys(f"{node.name}::{name}" for name in _tests_of(whole))


def _with_inherited(node: ast.ClassDef, classes: Mapping[str, ast.ClassDef]) -> list[ast.stmt]:
    """The body of a class and of those of the same file that it derives from; each name once."""
    found, pending, seen = list[ast.stmt](), [node], set[str]()
    while pending:
        each = pending.pop(0)
        if each.name not in seen:
            seen.add(each.name)
            found += each.body
            pending += [classes[base.id] for base in each.bases if isinstance(base, ast.Name) and base.id in classes]
    return found


def _is_unittest(node: ast.ClassDef) -> bool:
    return any("TestCase" in ast.unparse(base) for base in node.bases)
