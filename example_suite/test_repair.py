"""A code repair, judged by hidden tests and by calls of the mended functions.

Neither runs code of the candidate's here: it runs in sandboxes of their own, over a clean tree, and plain values come
back. With proxy=["textstats"] the hidden tests hold no code of the candidate's either, so nothing that it wrote can
reach into them.
"""

import pytest

PROMPT = """\
The Python package in this folder has defects in textstats/averages.py: the tests show them, and README.md says what
its functions promise. Mend them there. Leave the tests as they are, and keep the change small.
"""


@pytest.mark.rollout(
    prompt=PROMPT,
    workspace="workspaces/textstats",
    hidden="hidden/textstats",
    protect=["tests/**"],
    oracle="solutions/textstats",
    tags=["code"],
)
def test_mends_textstats(bundle, reward):
    # A hard gate: without it an agent that does nothing would be paid for what was right before.
    assert bundle.changes, "the agent changed nothing"

    with reward.check("hidden tests", weight=3):
        assert bundle.run_tests(proxy=["textstats"]).passed
    with reward.check("mean of nothing", weight=2):
        assert bundle.call("textstats:mean", []) == 0
    with reward.check("median", weight=3):
        calls = [([],), ([2, 1],), ([10, 1, 3, 2],), ([6, -8, 0.5, 4, 1, 9],)]
        assert bundle.call_many("textstats:median", calls) == [0, 1.5, 2.5, 2.5]
    with reward.check("tests untouched"):
        assert bundle.usage.invalid_actions == 0
    with reward.check("small diff"):
        assert bundle.diff.lines_changed < 20
