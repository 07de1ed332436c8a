"""Which stages stay after a run; what an agent changed is always kept."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.plugin.support import ALIKE

if TYPE_CHECKING:
    from tests.plugin.conftest import Suite

SOURCE = """
    import pytest

    @pytest.fixture
    def breaks_after(bundle):
        raise KeyError("x")

    @pytest.mark.rollout(agent="mkdir d; echo x > d/a; echo said", workspace="space")
    class TestKept:
        def test_passes(self, bundle):
            assert bundle.exists("d/a")

        def test_fails(self, bundle):
            assert bundle.exists("b")

        def test_infra(self, bundle):
            raise KeyError("x")

        def test_fixture(self, breaks_after):
            pass

        @pytest.mark.rollout(agent="mkdir d; echo x > d/a; echo said; exit 127")
        def test_spawn(self, bundle):
            assert bundle.exists("d/a")
    """
NAMES = ("passes", "fails", "infra", "fixture", "spawn")


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        pytest.param((), {"fails", "infra", "fixture", "spawn"}, id="default"),
        pytest.param(("--rollout-keep=failed",), {"fails", "infra", "fixture", "spawn"}, id="failed"),
        pytest.param(("--rollout-keep=all",), set(NAMES), id="all"),
        pytest.param(("--rollout-keep=none",), set[str](), id="none"),
    ],
)
@pytest.mark.parametrize("isolation", ["required", "none"])
@ALIKE
def test_kept_stages(suite: Suite, isolation: str, options: tuple[str, ...], kept: set[str]) -> None:
    suite.write({"space/file": "from the workspace\n"})
    ran = suite.run(SOURCE, f"--rollout-isolation={isolation}", "--rollout-controls=none", *options)
    assert {node.rpartition("_")[2] for node in ran.results} == set(NAMES)
    stages = {name: ran.bundle(f"TestKept::test_{name}").stage for name in NAMES}
    assert {name for name, stage in stages.items() if stage is not None} == kept
    on_disk = set((suite.stage_root / "kept").iterdir())
    assert on_disk == {Path(stage) for stage in stages.values() if stage is not None}
    for stage in on_disk:
        (found,) = [path for path in stage.rglob("a") if path.is_file()]
        assert found.read_text() == "x\n"
    assert list((suite.stage_root / "stages").iterdir()) == []
    for name in NAMES:
        attempt = ran.attempt(f"TestKept::test_{name}")
        assert (attempt / "changes" / "d" / "a").read_text() == "x\n"
        assert (attempt / "stdout").read_text() == "said\n"
        assert sorted(change.path for change in ran.bundle(f"TestKept::test_{name}").changes) == ["d", "d/a"]
        assert ("kept" if name in kept else "dropped") in (attempt / "journal.jsonl").read_text()


def test_the_ini_file(suite: Suite) -> None:
    suite.write({"space/file": "from the workspace\n"})
    suite.ini("rollout_keep = none")
    ran = suite.run(SOURCE)
    assert {ran.bundle(node).stage for node in ran.results} == {None}
    ran = suite.run(SOURCE, "--rollout-keep=all", "-k", "passes")
    assert ran.bundle("TestKept::test_passes").stage is not None
