"""Nothing that a candidate wrote is obeyed by a terminal or a CI system."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.plugin.conftest import Suite

HOSTILE = r"""
    import threading
    import warnings

    import pytest

    # printed by the agent: commands of GitHub, of Azure and of a terminal, also behind a blank and a carriage return
    AGENT = (
        r"printf '::error::one\n  ::stop-commands::x\nx\r::warning::two\n';"
        r"printf '##[error]three\n##vso[task.complete]\n\033]0;title\007\033[2J'"
    )
    pytestmark = pytest.mark.rollout(agent=AGENT)

    def test_assertion(bundle):
        assert bundle.stdout == ""

    def test_message(bundle):
        assert not bundle.stdout, bundle.stdout

    def test_prints(bundle):
        print(bundle.stdout)
        assert bundle.exit_code == 0

    def test_prints_and_fails(bundle):
        print(bundle.stdout)
        assert bundle.exit_code == 1

    def test_raises(bundle):
        raise RuntimeError(bundle.stdout)

    def test_skips(bundle):
        pytest.skip(bundle.stdout)

    def test_fails(bundle):
        pytest.fail(bundle.stdout, pytrace=False)

    def test_path(bundle):
        bundle.read_text(bundle.stdout)

    def test_check(bundle, reward):
        with reward.check("said"):
            assert not bundle.stdout, bundle.stdout
        with reward.check(bundle.stdout):
            assert not bundle.stdout

    def test_subtest(bundle, subtests):
        with subtests.test(bundle.stdout):
            print(bundle.stdout)
            assert not bundle.stdout

    def test_group(bundle):
        raise ExceptionGroup(bundle.stdout, [RuntimeError(bundle.stdout)])

    def test_subtest_of_values(bundle, subtests):
        with subtests.test(value=bundle.stdout, values=[bundle.stdout]):
            assert not bundle.stdout

    def test_warns(bundle):
        warnings.warn(bundle.stdout, DeprecationWarning)
        warnings.warn(bundle.stdout + "\udcff")
        assert bundle.exit_code == 0

    @pytest.mark.filterwarnings("default::pytest.PytestUnhandledThreadExceptionWarning")
    def test_thread(bundle):
        def fails():
            raise RuntimeError(bundle.stdout)

        thread = threading.Thread(target=fails)
        thread.start()
        thread.join()

    @pytest.fixture
    def prints(bundle):
        print(bundle.stdout)
        yield
        print(bundle.stdout)
        raise RuntimeError(bundle.stdout)

    def test_teardown(prints, bundle):
        assert bundle.exit_code == 0
    """


def test_nothing_that_a_candidate_wrote_is_obeyed(suite: Suite) -> None:
    ran = suite.run(HOSTILE, "-rA", "-vv")
    assert {node: verdict[:2] for node, verdict in ran.verdicts.items()} == {
        "test_assertion": ("failed", None),
        "test_message": ("failed", None),
        "test_prints": ("passed", None),
        "test_prints_and_fails": ("failed", None),
        "test_raises": ("infra", "evaluator?"),
        "test_skips": ("infra", "evaluator?"),
        "test_fails": ("failed", None),
        "test_path": ("failed", None),
        "test_check": ("failed", None),
        "test_subtest": ("failed", None),
        "test_group": ("infra", "evaluator?"),
        "test_subtest_of_values": ("failed", None),
        "test_warns": ("passed", None),
        "test_thread": ("passed", None),
        "test_teardown": ("passed", None),
    }
    assert ran.text.count("::error::one") > 20
    warned = ran.text.partition("warnings summary")[2]
    for kind in ("DeprecationWarning: | ::error::one", "UserWarning: | ::error::one", "RuntimeError: ::error::one"):
        assert kind in warned
    for line in re.split(r"[\n\r]", ran.text):
        if line.startswith("rollout: "):
            continue  # the agent's command, which the user wrote
        assert not line.lstrip().startswith("::"), line
        assert not re.search(r"##(\w*)\[", line) or "AGENT = " in line, line
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", ran.text)
