"""A code repair, judged without running any code of the candidate's.

The checks work the mended functions out from their syntax tree (see small_python.py), which is why the prompt asks for
plain code. This is a stopgap. Hidden tests that run in a sandbox of their own are the better way, and take any code,
once the plugin's trusted evaluator is there.
"""

import math

import pytest
from small_python import call

PROMPT = """\
The Python package in this folder has defects in textstats/averages.py: the tests show them, and README.md says what
its functions promise. Mend them there. Leave the tests as they are, and keep the change small.
In that file use no imports, no loops, no try and no further functions: plain expressions, if and return are enough.
"""


def agrees(source: str, name: str, values: list[float], expected: float) -> bool:
    """Whether the candidate's function gives the expected number."""
    result = call(source, name, values)
    return isinstance(result, int | float) and math.isclose(result, expected, abs_tol=1e-9)


def belongs_to_tests(path: str) -> bool:
    """Whether a path is of the tests; bytecode is what running them leaves behind."""
    folders = path.split("/")
    return folders[0] == "tests" and "__pycache__" not in folders


@pytest.mark.rollout(prompt=PROMPT, workspace="workspaces/textstats", tags=["code"])
def test_mends_textstats(bundle, reward):
    # Hard gates: without them an agent that does nothing would be paid for what was right before.
    assert bundle.changes, "the agent changed nothing"
    source = bundle.read_text("textstats/averages.py")

    with reward.check("mean of nothing", weight=2):
        assert agrees(source, "mean", [], 0)
    with reward.check("median of nothing", weight=2):
        assert agrees(source, "median", [], 0)
    with reward.check("median of an even count", weight=3):
        assert agrees(source, "median", [2, 1], 1.5)
        assert agrees(source, "median", [10, 1, 3, 2], 2.5)
        assert agrees(source, "median", [6, -8, 0.5, 4, 1, 9], 2.5)
    with reward.check("what was right stays right"):
        assert agrees(source, "mean", [1, 2, 6], 3)
        assert agrees(source, "median", [7], 7)
        assert agrees(source, "median", [9, 1, 4], 4)
        assert agrees(source, "spread", [3, 8, 5], 5)
        assert agrees(source, "spread", [], 0)
    with reward.check("tests untouched"):
        assert [change.path for change in bundle.changes if belongs_to_tests(change.path)] == []
    with reward.check("small diff"):
        assert bundle.diff.lines_changed < 20
