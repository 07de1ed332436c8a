"""Monstrous values of a candidate's, in files, from calls and in hidden tests: each is its failure, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.hostile.sessions import INI, PASSED

if TYPE_CHECKING:
    from tests.plugin.conftest import Suite

SOURCE = r"""
    import pytest
    from pytest_rollout import Limits

    # What the agent writes with a program of the shell, what a call of its gives, and what is said of each.
    FILES = {
        "deep": "head -c 100000 /dev/zero | tr '\\0' '['",
        "closed": "head -c 100000 /dev/zero | tr '\\0' '['; head -c 100000 /dev/zero | tr '\\0' ']'",
        "objects": "yes '{\"a\":' | head -n 300; echo 1; yes '}' | head -n 300",
        "digits": "head -c 5000 /dev/zero | tr '\\0' '9'",
        "nan": "echo '[NaN]'",
        "huge": "echo 1e999999",
        "bytes": r"printf '\"\377\"'",
        "large": "truncate -s 100M large; cat /dev/null",
        "many": "echo '['; yes '[],' | head -n 1000001; echo '0]'",
        "empty": ":",
    }
    VALUES = {
        "deep": "x = []\n    for _ in range(100000): x = [x]\n    return x",
        "loop": "x = []; x.append(x); return x",
        "digits": "return 10 ** 5000 - 1",
        "nan": "return float('nan')",
        "large": "return 'x' * (100 << 20)",
        "many": "return [[]] * 2500000",
        "surrogate": "return '\\ud800'",
        "keys": "return {1: 2}",
        "class": "return type('x', (dict,), {})()",
        "says": "raise ValueError('::error::x\\n##vso[task.complete]\\x1b[2J' * 10)",
        "str": "raise type('E', (Exception,), {'__str__': lambda self: 1 / 0})()",
        "exit": "import os; os._exit(0)",
        "group": "raise BaseExceptionGroup('x', [KeyboardInterrupt()])",
    }
    WRITE = "; ".join(f"{{ {script}; }} > {name}.json" for name, script in FILES.items() if name != "large")
    CALC = "\n".join(f"def v_{name}():\n    {body}" for name, body in VALUES.items())
    TESTS = "\n".join(
        f"def test_{name}():\n    from calc import v_{name}\n    assert v_{name}() == 0" for name in VALUES
    )
    SAID = {
        "deep": "deep.json is JSON that is nested too deeply",
        "closed": "closed.json is JSON that is nested too deeply",
        "objects": "objects.json is JSON that is nested deeper than 200 levels",
        "digits": "digits.json is not JSON that can be read: a number of 5000 digits",
        "nan": "nan.json is not JSON that can be read: NaN is not a number of JSON",
        "huge": "huge.json is not JSON that can be read: 1e999999 is beyond the numbers that can be held",
        "bytes": "bytes.json is not UTF-8: invalid start byte at byte 2",
        "large": "large.json is larger than 16777216 bytes, the most that is read",
        "many": "many.json is JSON of more than 2,000,000 values",
        "empty": "empty.json is not JSON that can be read: Expecting value: line 1 column 1 (char 0)",
    }
    GAVE = "gave what is not a plain JSON value:"
    CALLED = {
        "deep": f"calc:v_deep() {GAVE} a value nested deeper than 150 levels",
        "loop": f"calc:v_loop() {GAVE} a value nested deeper than 150 levels",
        "digits": f"calc:v_digits() {GAVE} Exceeds the limit (4300 digits) for integer string conversion",
        "nan": "the result of calc:v_nan() is not JSON that can be read: NaN is not a number of JSON",
        "large": f"calc:v_large() {GAVE} a result of 104857625 bytes",
        "many": f"calc:v_many() {GAVE} a result of 10000023 bytes",
        "keys": f"calc:v_keys() {GAVE} a dict with a key of type int",
        "class": f"calc:v_class() {GAVE} an object of type calc.x",
        "says": "calc:v_says() raised ValueError: ::error::x",
        "str": "calc:v_str() raised E: (its text can't be made)",
        "exit": "calc:v_exit() gave no result: its process ended before that",
        "group": "calc:v_group() raised BaseExceptionGroup: x (1 sub-exception)",
    }

    def said(call, *arguments):
        with pytest.raises(AssertionError) as caught:
            call(*arguments)
        text = str(caught.value)
        assert len(text) < 5000
        return text.splitlines()[0].partition("; use sys.")[0]

    AGENT = (
        f"{WRITE}; truncate -s 100M large.json; cat > calc.py <<'END'\n{CALC}\nEND\n"
        "echo '{\"a\": 1, \"a\": 2, \"b\": \"\\\\ud800\"}' > twice.json"
    )
    pytestmark = pytest.mark.rollout(agent=AGENT, limits=Limits(wall="1m"))

    def test_files(bundle):
        assert {name: said(bundle.read_json, f"{name}.json") for name in FILES} == SAID
        assert bundle.read_json("twice.json") == {"a": 2, "b": "\ud800"}  # the last of two keys, as Python has it
        print(bundle.read_json("twice.json")["b"])

    def test_calls(bundle):
        assert {name: said(bundle.call, f"calc:v_{name}") for name in CALLED} == CALLED
        assert bundle.call("calc:v_surrogate") == "\ud800"

    @pytest.mark.parametrize(("proxy", "ended"), [((), ("exit", "group")), (("calc",), ())])
    def test_tests(bundle, proxy, ended):
        ran = bundle.run_tests(files={"test_it.py": TESTS}, proxy=proxy)
        assert {test.partition("::test_")[2]: end for test, end in ran.tests.items()} == {
            name: "missing" if name in ended else "failed" for name in VALUES
        }
        assert not ran.passed
        assert max(map(len, ran.messages.values())) < 10000
        raise AssertionError("\n".join(ran.messages.values()))
"""


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["-n2"], indirect=True)
def test_monstrous_values(suite: Suite) -> None:
    suite.ini(*INI)
    ran = suite.run(SOURCE, "-rA")
    told = dict.fromkeys(("test_tests[proxy0-ended0]", "test_tests[proxy1-ended1]"), ("failed", None, 0.0))
    assert ran.verdicts == {"test_files": PASSED, "test_calls": PASSED, **told}, ran.text
    for line in ran.lines:
        assert not line.lstrip().startswith("::"), line
        assert "##vso[" not in line or '"says": ' in line, line
