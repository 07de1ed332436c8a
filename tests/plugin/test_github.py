"""On GitHub Actions one process, that which talks to the user, writes the summary and the annotations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.plugin.conftest import Suite

SOURCE = """
    import pytest

    @pytest.mark.rollout(agent="exit 127", samples=2)
    def test_spawn(bundle):
        assert bundle.exit_code == 0

    @pytest.mark.rollout(agent="printf '::error::obey'")
    def test_fails(bundle):
        raise AssertionError("::error::obey")
    """


@pytest.mark.parametrize("workers", ["-n2"], indirect=True)
def test_summary_and_annotations(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    place = suite.root / "summary.md"
    for name, value in (("ACTIONS", "true"), ("STEP_SUMMARY", str(place)), ("WORKSPACE", str(suite.root))):
        monkeypatch.setenv(f"GITHUB_{name}", value)
    ran = suite.run(SOURCE)
    obeyed = [line for line in ran.lines if line.lstrip().startswith("::")]
    assert len(obeyed) == 1
    assert obeyed[0].startswith("::warning file=test_suite.py,line=5,title=2 rollouts not measured%3A spawn::")
    assert ran.block()[-2] == obeyed[0]
    text = place.read_text()
    assert text.count("### 3 rollouts\n") == 1
    assert "| exit status | 75: something was not measured |" in text
    assert "::error" not in text


@pytest.mark.parametrize("workers", ["-n0"], indirect=True)
def test_elsewhere_and_switched_off_nothing_is_written(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(suite.root / "summary.md"))
    ran = suite.run(SOURCE, "--rollout-github=none")
    assert ran.status == 75
    assert [line for line in ran.lines if line.lstrip().startswith("::")] == []
    assert not (suite.root / "summary.md").exists()
