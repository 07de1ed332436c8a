"""Hidden tests beside whatever else lies in the candidate's tree, and the evaluator's own helpers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.unit.evaluation.conftest import Court

CALC = {"calc.py": "def add(a, b):\n    return a + b\n"}


def test_fixtures_of_hidden_conftest_files(any_court: Court, proxy: tuple[str, ...]) -> None:
    hidden = {
        "conftest.py": "import pytest\n@pytest.fixture\ndef top(): return 1\n",
        "tests/conftest.py": "import pytest\n@pytest.fixture\ndef below(top): return top + 1\n",
        "tests/test_x.py": "import calc\ndef test_a(top, below): assert calc.add(top, below) == 3\n",
        "tests/helper.py": "VALUE = 7\n",
        "tests/test_y.py": "from tests.helper import VALUE\ndef test_b(): assert VALUE == 7\n",
    }
    act = "mkdir tests; echo 'raise SystemExit(0)' | tee conftest.py tests/conftest.py tests/helper.py more_conftest.py"
    found = any_court.bundle(CALC, act, hidden=hidden).run_tests(proxy=proxy)
    assert (found.tests, found.passed) == (
        {"tests/test_x.py::test_a": "passed", "tests/test_y.py::test_b": "passed"},
        True,
    )


PLANTED = r"""
echo 'raise SystemExit(0)' > conftest.py
for ini in pytest.ini .pytest.ini tox.ini; do printf '[pytest]\naddopts = --collect-only\n' > $ini; done
printf '[tool.pytest.ini_options]\naddopts = "--collect-only"\n' > pyproject.toml
printf '[pytest]\naddopts = ["--collect-only"]\n' > pytest.toml
printf '[tool:pytest]\naddopts = --collect-only\n' > setup.cfg
mkdir _pytest; : > _pytest/__init__.py; : > _pytest/reports.py; : > pytest.py; : > pluggy.py
for name in json os re unittest ast types linecache inspect; do echo 'raise SystemExit(0)' > $name.py; done
for name in sitecustomize usercustomize pygments iniconfig exceptiongroup pytest_rollout; do echo 1/0 > $name.py; done
echo 'import os; os._exit(0)' > a.pth
mkdir -p plug-1.dist-info; printf '[pytest11]\nplug = none\n' > plug-1.dist-info/entry_points.txt
mkdir -p src rollout; echo 1/0 > src/pytest.py; echo 1/0 > rollout/lib.py
"""


@pytest.mark.parametrize(
    "act", [PLANTED, ": > pytest.py", "mkdir tests; : > tests/__init__.py; : > __init__.py", "mkdir test_x.py"]
)
def test_the_honest_work_passes_whatever_else_lies_in_the_tree(any_court: Court, act: str) -> None:
    source = "import calc\n\n\ndef test_add():\n    assert calc.add(2, 3) == 5\n"
    bundle = any_court.bundle(CALC, act, hidden={"test_x.py": source})
    assert bundle.exit_code == 0
    assert bundle.run_tests().passed
    assert bundle.run_tests(proxy=["calc"]).passed
    assert bundle.call("calc:add", 2, 3) == 5


def test_the_output_is_clean_text(court: Court) -> None:
    source = "def test_a():\n    print('\\x1b[31mred\\x00\\x08')\n    assert 0, '\\x1b[0m\\ud800'\n"
    found = court.bundle(CALC, hidden={"test_x.py": source}).run_tests()
    assert not re.search(r"[\x00-\x08\x1b]", found.output + found.messages["test_x.py::test_a"])
    assert "red" in found.output


def test_files_of_the_call(any_court: Court, proxy: tuple[str, ...]) -> None:
    given = {"test_given.py": "import calc\n\n\ndef test_add():\n    assert calc.add(1, 1) == 2\n"}
    bundle = any_court.bundle(CALC, hidden={"test_x.py": "def test_no(): assert 0\n"})
    assert bundle.run_tests(files=given, proxy=proxy).tests == {"test_given.py::test_add": "passed"}
    (any_court.suite / "more").mkdir()
    (any_court.suite / "more" / "test_more.py").write_text(given["test_given.py"])
    assert bundle.run_tests(files="more", proxy=proxy).tests == {"test_more.py::test_add": "passed"}
