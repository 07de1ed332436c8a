"""A session keeps what it has to report of a rollout, and none of its evidence."""

from __future__ import annotations

from pathlib import Path

import pytest

SUITE = """
    import pytest

    @pytest.mark.rollout(agent="echo x > answer.txt", samples=3)
    def test_passes(bundle):
        assert bundle.exists("answer.txt")

    @pytest.mark.rollout(agent="echo x > answer.txt", samples=3)
    def test_fails(bundle, reward):
        with reward.check("answer"):
            assert bundle.exists("other.txt")

    @pytest.mark.rollout(agent="echo x > answer.txt", samples=3)
    def test_hides_a_misuse(bundle, reward):
        try:
            reward.add("value", bundle.exists)
        except Exception:
            pass
"""
CONFTEST = """
    import gc
    import sys
    import pytest

    def alive():
        for name in ("last_exc", "last_value", "last_traceback"):  # pytest's, of the last failure
            vars(sys).pop(name, None)
        gc.collect()
        names = [type(thing).__name__ for thing in gc.get_objects()]
        return " ".join(f"{name}={names.count(name)}" for name in ("Bundle", "BundleRecord", "Attempt"))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(item):
        print(f"in {item.name}:", alive())

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(session):
        print("\\nat the end:", alive())
"""


def test_evidence_is_let_go_of(pytester: pytest.Pytester, stage_root: Path) -> None:
    pytester.makeini(f"[pytest]\nrollout_stage_root = {stage_root}")
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(SUITE)
    ran = pytester.runpytest_subprocess("-q", "-s", "-p", "no:cacheprovider")
    ran.assert_outcomes(passed=3, failed=3, errors=3)
    lines = [line for line in ran.outlines if "Bundle=" in line]
    assert [line.partition(": ")[2] for line in lines] == [
        *["Bundle=1 BundleRecord=1 Attempt=1"] * 9,  # those of control runs are in other processes
        "Bundle=0 BundleRecord=0 Attempt=0",
    ]
