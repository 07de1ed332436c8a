"""The smallest task: no workspace, one file to write, plain assertions. A wrong answer is a reward of 0."""

import pytest


@pytest.mark.rollout(
    prompt="Write the word candidate, in lower case and followed by a line end, to the file answer.txt.",
    oracle="solutions/offline.sh",
    tags=["smoke"],
)
def test_writes_the_answer(bundle):
    assert bundle.exit_code == 0
    assert bundle.read_text("answer.txt") == "candidate\n"
