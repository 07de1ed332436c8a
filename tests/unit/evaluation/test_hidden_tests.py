"""``bundle.run_tests``: which hidden tests have to pass, and what counts as that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_rollout.errors import EvaluatorError
from pytest_rollout.evaluation.hidden_tests import expected_tests

if TYPE_CHECKING:
    from pytest_rollout.evaluated import TestRun
    from tests.unit.evaluation.conftest import Court

CALC = {"calc.py": "NUMBER = 4\n\n\ndef add(a, b):\n    return a + b\n\n\ndef fail():\n    raise ValueError('no')\n"}
TESTS = """
import unittest

import pytest

import calc


def test_add():
    assert calc.add(2, 3) == 5


@pytest.mark.parametrize(("a", "b"), [(1, 2), (3, 4)], ids=["small", "[odd]"])
def test_pairs(a, b):
    assert calc.add(a, b) == a + b


class TestGroup:
    def test_number(self):
        assert calc.NUMBER == 4

    class TestInner:
        def test_raises(self):
            with pytest.raises(ValueError, match="^no$"):
                calc.fail()


class Sums(unittest.TestCase):
    def setUp(self):
        self.three = 3

    def test_sum(self):
        self.assertEqual(calc.add(1, 2), self.three)
"""
PASSING = {
    "test_calc.py::test_add": "passed",
    "test_calc.py::test_pairs[small]": "passed",
    "test_calc.py::test_pairs[[odd]]": "passed",
    "test_calc.py::TestGroup::test_number": "passed",
    "test_calc.py::TestGroup::TestInner::test_raises": "passed",
    "test_calc.py::Sums::test_sum": "passed",
}


def run(court: Court, source: str, *, files: dict[str, str | bytes | None] | None = None, **asked: Any) -> TestRun:
    """What one hidden file with these tests comes to."""
    hidden: dict[str, str | bytes | None] = {"test_x.py": source}
    return court.bundle(CALC if files is None else files, hidden=hidden).run_tests(**asked)


def test_functions_parameters_classes_and_unittest(any_court: Court, proxy: tuple[str, ...]) -> None:
    found = any_court.bundle(CALC, hidden={"test_calc.py": TESTS}).run_tests(proxy=proxy)
    assert found.tests == PASSING
    assert (found.passed, found.problem, found.in_process, found.messages) == (True, "", not proxy, {})
    assert "6 passed" in found.output
    assert repr(found) == "<TestRun 6 of 6 passed>"


def test_each_failing_test_is_told(any_court: Court, proxy: tuple[str, ...]) -> None:
    wrong = CALC["calc.py"].replace("a + b", "a - b")
    found = any_court.bundle({"calc.py": wrong}, hidden={"test_calc.py": TESTS}).run_tests(proxy=proxy)
    assert not found.passed
    failed = {test for test, end in found.tests.items() if end == "failed"}
    assert failed == {
        "test_calc.py::test_add",
        "test_calc.py::test_pairs[small]",
        "test_calc.py::test_pairs[[odd]]",
        "test_calc.py::Sums::test_sum",
    }
    assert failed == set(found.messages)
    assert found.messages["test_calc.py::test_add"].startswith("AssertionError: assert -1 == 5")
    assert repr(found).startswith(
        "<TestRun 2 of 6 passed; test_calc.py::test_add failed: AssertionError: assert -1 == 5; "
    )
    assert repr(found).endswith("; … and 1 more>")


# Which tests are asked for


def test_only_the_tests_that_are_expected_count(any_court: Court, proxy: tuple[str, ...]) -> None:
    source = "import calc\ndef test_good(): assert calc.add(1, 1) == 2\ndef test_bad(): assert calc.add(1, 1) == 3\n"
    bundle = any_court.bundle(CALC, hidden={"test_x.py": source, "test_y.py": "def test_other():\n    assert 0\n"})
    good = bundle.run_tests(expect=["test_x.py::test_good"], proxy=proxy)
    assert (good.tests, good.passed) == ({"test_x.py::test_good": "passed"}, True)
    assert bundle.run_tests(expect="test_x.py::test_good", proxy=proxy).passed, "a single one may be a text"
    both = bundle.run_tests(expect=["test_x.py::test_good", "test_x.py::test_bad"], proxy=proxy)
    assert (both.tests, both.passed) == ({"test_x.py::test_good": "passed", "test_x.py::test_bad": "failed"}, False)
    everything = bundle.run_tests(proxy=proxy)
    assert set(everything.tests) == {"test_x.py::test_good", "test_x.py::test_bad", "test_y.py::test_other"}


def test_parametrized_tests_by_their_name_or_by_one_id(court: Court) -> None:
    bundle = court.bundle(CALC, hidden={"test_calc.py": TESTS})
    ids = ["test_calc.py::test_pairs[small]", "test_calc.py::test_pairs[[odd]]"]
    assert bundle.run_tests(expect=["test_calc.py::test_pairs"]).tests == dict.fromkeys(ids, "passed")
    assert bundle.run_tests(expect=ids[:1]).tests == {ids[0]: "passed"}
    missing = bundle.run_tests(expect=[*ids, "test_calc.py::test_pairs[none]"])
    assert (missing.tests["test_calc.py::test_pairs[none]"], missing.passed) == ("missing", False)
    assert repr(missing) == "<TestRun 2 of 3 passed; test_calc.py::test_pairs[none] missing>"


@pytest.mark.parametrize(
    ("expect", "why"),
    [
        ([], "run_tests(expect=[]) expects nothing, so it would always pass"),
        ((), "run_tests(expect=[]) expects nothing, so it would always pass"),
        (["test_none"], "run_tests(expect=…): there is no hidden test 'test_none'; there are: {}"),
        (
            ["test_x.py::test_none"],
            "run_tests(expect=…): there is no hidden test 'test_x.py::test_none'; there are: {}",
        ),
        (["test_x.py"], "run_tests(expect=…): there is no hidden test 'test_x.py'; there are: {}"),
        ([5], "run_tests(expect=…): there is no hidden test 5; there are: {}"),
        ("test_a", "run_tests(expect=…): there is no hidden test 'test_a'; there are: {}"),
    ],
)
def test_ids_that_can_not_be_expected_are_the_evaluators(court: Court, expect: Any, why: str) -> None:
    source = "".join(f"def test_{name}(): pass\n" for name in "abcdef")
    there = ", ".join(f"test_x.py::test_{name}" for name in "abcde") + " …"
    with pytest.raises(EvaluatorError) as caught:
        run(court, source, expect=expect)
    assert caught.value.message == why.replace("{}", there)


@pytest.mark.parametrize(
    ("hidden", "why"),
    [
        ({}, "run_tests() found no test in the hidden files: no test_*.py that defines one"),
        ({"data.txt": "x"}, "run_tests() found no test in the hidden files: no test_*.py that defines one"),
        ({"test_x.py": "def check(): pass\n"}, "run_tests() found no test in the hidden files: no test_*.py that"),
        ({"checks.py": "def test_a(): pass\n"}, "run_tests() found no test in the hidden files: no test_*.py that"),
        (
            {"test_x.py": "def test_a(:\n"},
            "the hidden file test_x.py is not Python: invalid syntax (<unknown>, line 1)",
        ),
        ({"test_x.py": "def test_a(): pass\0"}, "the hidden file test_x.py is not Python: source code"),
    ],
)
def test_hidden_files_without_tests_are_the_evaluators(court: Court, hidden: dict[str, str], why: str) -> None:
    bundle = court.bundle(CALC)
    with pytest.raises(EvaluatorError) as caught:
        bundle.run_tests(files=hidden)
    assert caught.value.message.startswith(why)


def test_no_hidden_files_at_all(court: Court) -> None:
    with pytest.raises(EvaluatorError, match=r"^run_tests\(\) has no hidden files\nName a folder: rollout\(hidden="):
        court.bundle(CALC).run_tests()


@pytest.mark.parametrize("proxy", [["a b"], [""], [5], ["calc.py "], ["../calc"], "calc:add", [None]])
def test_a_proxy_that_names_no_module_is_the_evaluators(court: Court, proxy: Any) -> None:
    with pytest.raises(EvaluatorError, match=r"^run_tests\(proxy=…\): .* is not the name of a module$"):
        run(court, "def test_a(): pass\n", proxy=proxy)


def test_what_pytest_would_collect_is_expected() -> None:
    source = """
import unittest
import pytest
def test_plain(): pass
async def test_async(): pass
def testing(): pass
def helper(): pass
@pytest.fixture
def test_data(): pass
@pytest.fixture(scope="module")
def test_more_data(): pass
@pytest.mark.parametrize("fixtures", [1])
def test_marked(fixtures): pass
@pytest.mark.usefixtures("test_data")
def test_using(): pass
class TestGroup:
    CASES = [1]
    def test_method(self): pass
    def helper(self): pass
    @pytest.fixture
    def test_own(self): pass
    class TestInner:
        def test_deep(self): pass
class Helpers:
    def test_nothing(self): pass
class Cases(unittest.TestCase):
    def test_case(self): pass
class Other(unittest.IsolatedAsyncioTestCase):
    async def test_case(self): pass
class TestNot:
    __test__ = False
    def test_nothing(self): pass
if True:
    def test_conditional(): pass
"""
    files = {"tests/test_x.py": source, "x_test.py": "def test_a(): pass\n", "helper.py": "def test_a(): pass\n"}
    assert expected_tests(files) == [
        *(f"tests/test_x.py::{name}" for name in ("test_plain", "test_async", "testing", "test_marked", "test_using")),
        "tests/test_x.py::TestGroup::test_method",
        "tests/test_x.py::TestGroup::TestInner::test_deep",
        "tests/test_x.py::Cases::test_case",
        "tests/test_x.py::Other::test_case",
        "x_test.py::test_a",
    ]


# What counts as passed


PREAMBLE = "import unittest\nimport pytest\nimport calc\n"
BODIES = [
    ("pass", "passed"),
    ("return 5", "passed"),
    ("assert calc.add(1, 1) == 3", "failed"),
    ("pytest.skip('not today')", "skipped"),
    ("raise unittest.SkipTest('not today')", "skipped"),
    ("pytest.importorskip('no_such_module')", "skipped"),
    ("pytest.fail('no')", "failed"),
    ("pytest.xfail('known')", "failed"),
    ("raise SystemExit(0)", "failed"),
    ("raise AssertionError", "failed"),
    ("raise type('Skipped', (Exception,), {})", "skipped"),
]
METHODS = [
    ("self.assertEqual(1, 2)", "failed"),
    ("self.skipTest('x')", "skipped"),
    ("self.fail()", "failed"),
    ("1 / 0", "failed"),
    ("for n in range(3):\n            with self.subTest(n=n): self.assertNotEqual(n, 1)", "failed"),
    ("pass", "passed"),
]
SOURCES = [
    ("@pytest.mark.skip\ndef test_a(): pass", "skipped"),
    ("@pytest.mark.skipif(calc.NUMBER == 4, reason='x')\ndef test_a(): pass", "skipped"),
    ("@pytest.mark.xfail\ndef test_a(): assert 0", "failed"),
    ("@pytest.mark.xfail(raises=ZeroDivisionError)\ndef test_a(): 1 / 0", "failed"),
    ("@pytest.fixture\ndef f(): yield 1 / 0\ndef test_a(f): pass", "failed"),
    ("@pytest.fixture\ndef f():\n    yield 1\n    1 / 0\ndef test_a(f): pass", "failed"),
    ("@pytest.fixture\ndef f():\n    yield 1\n    pytest.skip()\ndef test_a(f): pass", "skipped"),
    ("@pytest.fixture\ndef f():\n    yield 1\n    pytest.skip()\ndef test_a(f): assert 0", "failed"),
    ("async def test_a(): pass", "failed"),
    ("def test_a(no_such_fixture): pass", "failed"),
    ("def setup_module(): 1 / 0\ndef test_a(): pass", "failed"),
]
SUBTESTS = "def test_a(subtests):\n    for n in range(3):\n        with subtests.test(n=n): assert n != 1"


def test_only_a_test_that_passed_passes(court: Court) -> None:
    """Each in a file of its own; no other is touched by one that ends in its own way."""
    sources = [*((f"def test_a(): {body}", end) for body, end in BODIES), *SOURCES]
    sources += [(SUBTESTS, "failed")] if hasattr(pytest, "Subtests") else []
    files = {f"test_{number}.py": f"{PREAMBLE}{source}\n" for number, (source, _) in enumerate(sources)}
    lines = "".join(f"    def test_{number}(self):\n        {body}\n" for number, (body, _) in enumerate(METHODS))
    files["test_case.py"] = f"{PREAMBLE}class Case(unittest.TestCase):\n{lines}"
    expected = {f"test_{number}.py::test_a": end for number, (_, end) in enumerate(sources)}
    expected |= {f"test_case.py::Case::test_{number}": end for number, (_, end) in enumerate(METHODS)}
    found = court.bundle(CALC, hidden=files).run_tests()
    assert found.tests == expected
    assert set(found.messages) == {test for test, end in expected.items() if end != "passed"}
    assert not found.passed


@pytest.mark.parametrize("body", ["pytest.exit('enough', returncode=0)", "raise KeyboardInterrupt"])
def test_what_ends_the_session_leaves_tests_that_did_not_pass(court: Court, body: str) -> None:
    found = run(court, f"import pytest\ndef test_a(): pass\ndef test_b(): {body}\ndef test_c(): pass\n")
    assert found.tests == {
        "test_x.py::test_a": "passed",
        "test_x.py::test_b": "missing",
        "test_x.py::test_c": "missing",
    }
    assert not found.passed


def test_a_test_without_cases_is_skipped(court: Court) -> None:
    source = "import pytest\nimport calc\n@pytest.mark.parametrize('n', calc.CASES)\ndef test_a(n): assert 0\n"
    found = run(court, source, files={"calc.py": "CASES = []\n"})
    assert set(found.tests.values()) == {"skipped"}
    assert not found.passed


@pytest.mark.parametrize(
    ("calc", "problem"),
    [
        ("import os; os._exit(0)", "the process of the hidden tests ended early (exit code 0) and reported nothing"),
        (
            "import os; os.kill(os.getpid(), 9)",
            "the process of the hidden tests ended early (signal 9) and reported nothing",
        ),
        ("1 / 0", "a hidden test file could not be collected: ZeroDivisionError: division by zero"),
        ("def add(:", "a hidden test file could not be collected: SyntaxError: invalid syntax"),
        ("import pytest; pytest.exit('bye', returncode=0)", ""),
        ("raise SystemExit(0)", ""),
        ("raise KeyboardInterrupt", ""),
        ("import unittest; raise unittest.SkipTest('x')", ""),
        ("import pytest; pytest.skip(allow_module_level=True)", ""),
    ],
)
def test_a_candidate_that_ends_the_run(court: Court, calc: str, problem: str) -> None:
    found = run(court, "import calc\ndef test_a(): assert calc.add(1, 1) == 2\n", files={"calc.py": f"{calc}\n"})
    assert found.tests == {"test_x.py::test_a": "missing"}
    assert not found.passed
    assert found.problem.startswith(problem)


def test_a_candidate_that_takes_all_the_time(any_court: Court, proxy: tuple[str, ...]) -> None:
    bundle = any_court.bundle(
        {"calc.py": "while True: pass\n"},
        hidden={"test_x.py": "def test_a():\n    import calc\n    assert calc\n"},
        evaluation=1.5,
    )
    found = bundle.run_tests(proxy=proxy)
    assert (found.passed, found.problem) == (False, "the hidden tests did not end within the limit of an evaluation")


def test_a_report_that_is_written_by_hand_still_has_to_name_every_test(court: Court) -> None:
    forge = """
import json, os, sys
orders = json.loads(sys.argv[-1])
data = b'{"tests": {"test_x.py::test_a": %s, "test_y.py::more": "passed"}}'
os.pwrite(orders["report"], len(data).to_bytes(8, "big") + data, 0)
os._exit(0)
"""
    source = "import calc\ndef test_a(): pass\ndef test_b(): pass\n"
    for end, told in ((b'"passed"', "passed"), (b'"error"', "failed"), (b"null", "failed"), (b"[]", "failed")):
        found = run(court, source, files={"calc.py": forge.replace("%s", end.decode())})
        assert found.tests["test_x.py::test_a"] == told
        assert found.tests["test_x.py::test_b"] == "missing"
        assert not found.passed
        assert found.in_process


@pytest.mark.parametrize("data", ["[]", "5", "{}", '{"tests": []}', "x", "[" * 100_000, '{"tests": {"a": NaN}}'])
def test_a_report_of_another_form_is_no_pass(court: Court, data: str) -> None:
    forge = f"""
import json, os, sys
data = {data!r}.encode()
os.pwrite(json.loads(sys.argv[-1])["report"], len(data).to_bytes(8, "big") + data, 0)
os._exit(0)
"""
    found = run(court, "import calc\ndef test_a(): pass\n", files={"calc.py": forge})
    assert (found.tests, found.passed) == ({"test_x.py::test_a": "missing"}, False)


def test_inherited_tests_are_expected(court: Court) -> None:
    source = """
class Shared:
    def test_a(self): pass
    def test_b(self): pass

class Deep(Shared):
    def test_c(self): pass

class TestOne(Deep):
    def test_a(self): pass

class TestTwo(Shared, Deep if False else object): pass
"""
    expected = ["TestOne::test_a", "TestOne::test_c", "TestOne::test_b", "TestTwo::test_a", "TestTwo::test_b"]
    assert expected_tests({"test_x.py": source}) == [f"test_x.py::{name}" for name in expected]
    found = court.bundle(CALC, hidden={"test_x.py": source}).run_tests()
    assert (set(found.tests), found.passed) == ({f"test_x.py::{name}" for name in expected}, True)


@pytest.mark.parametrize("name", ["pytest.ini", "tox.ini"])
def test_an_ini_file_among_hidden_files_is_refused_as_it_would_change_nothing(court: Court, name: str) -> None:
    hidden = {"test_x.py": "def test_a(): pass\n", name: "[pytest]\npython_functions = check_*\n"}
    with pytest.raises(EvaluatorError) as caught:
        court.bundle(CALC, hidden=hidden).run_tests()
    why = f"run_tests(): the hidden file {name} would not be used, since pytest reads no ini file there"
    assert caught.value.message == why


def test_neither_a_run_of_tests_nor_of_a_command_is_true(court: Court) -> None:
    bundle = court.bundle(CALC, hidden={"test_x.py": "def test_a(): pass\n"})
    with pytest.raises(EvaluatorError, match=r"^a TestRun is neither true nor false: write \.passed$"):
        assert bundle.run_tests()
    with pytest.raises(EvaluatorError, match=r"^an Exec is neither true nor false: look at its exit_code"):
        assert bundle.run(["true"])
