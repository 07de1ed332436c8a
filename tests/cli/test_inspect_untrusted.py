"""A stage that the executor ``local`` kept can be inspected, also by root, whose sandbox runs as another uid."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_rollout.bundle import BundleRecord
from pytest_rollout.cli import tool as cli
from pytest_rollout.stage.removal import remove_tree
from pytest_rollout.store.folder import ResultsFolder, read_record
from pytest_rollout.store.load import find_rollout

SOURCE = """
import pytest

@pytest.mark.rollout(agent="umask 077; mkdir private; echo kept > private/file")
def test_kept(bundle):
    assert bundle.exists("private/file")
"""


def test_inspect_a_stage_without_isolation(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile(SOURCE)
    done = pytester.runpytest_subprocess("-p", "rollout", "--rollout-isolation=none", "--rollout-keep=all")
    assert done.ret == 0
    run, result = find_rollout(ResultsFolder(pytester.path / ".rollout"))
    assert result.folder is not None
    stage = read_record(run.path / result.folder / "bundle.json", BundleRecord).stage
    assert stage is not None
    assert Path(stage).is_dir()
    capfd.readouterr()
    try:
        code = cli.main(["inspect", "last", "--", "cat", "private/file"])
    finally:
        assert remove_tree(stage) is None
    assert capfd.readouterr() == ("kept\n", "")
    assert code == 0
