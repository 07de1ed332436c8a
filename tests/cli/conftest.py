"""The console tool over the records of one real run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_rollout.cli import tool as cli
from pytest_rollout.stage.removal import remove_tree
from pytest_rollout.store.folder import ResultsFolder, RunFolder
from pytest_rollout.store.load import load_results
from pytest_rollout.store.records import Result

SUITE = r"""
import pytest

pytestmark = pytest.mark.rollout(workspace="space")

@pytest.mark.rollout(agent="mkdir new; echo y > new/file; rm old; echo said", samples=2)
def test_passes(bundle):
    assert bundle.exists("new/file")

@pytest.mark.rollout(agent="printf '::error::x\\n \\033[31m##vso[task.complete]\\r\\n'; touch '##vso[x]'; mkfifo p")
def test_fails(bundle, reward):
    with reward.check("half", weight=3):
        pass
    with reward.check("other"):
        pytest.fail("##vso[build] \x1b[31m in a check")

@pytest.mark.rollout(agent="exit 127")
def test_spawn(bundle):
    assert bundle.exit_code == 0
"""
OUTCOMES = ["passed", "passed", "failed", "infra"]


class Tool:
    """The console tool over one folder of results."""

    def __init__(self, results: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self.results, self._capfd = ResultsFolder(results), capfd

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        """Exit status, output and errors."""
        self._capfd.readouterr()
        try:
            code = cli.main(["--dir", str(self.results.path), *arguments])
        except SystemExit as ended:
            code = int(str(ended.code))
        sys.stdout.flush()
        return code, *self._capfd.readouterr()

    def said(self, *arguments: str) -> list[str]:
        """The lines of a call that went well."""
        code, text, errors = self(*arguments)
        assert (code, errors) == (0, "")
        return text.splitlines()

    def refused(self, *arguments: str) -> str:
        """The message of a call that was refused."""
        code, text, errors = self(*arguments)
        assert (code, text) == (2, "")
        assert errors.startswith("pytest-rollout: ")
        return errors.removeprefix("pytest-rollout: ").removesuffix("\n")

    @property
    def run(self) -> RunFolder:
        run = self.results.latest()
        assert run is not None
        return run

    def of(self, test: str) -> Result:
        """The result of a rollout of the last run."""
        return next(result for result in load_results(self.run).results if test in result.node)

    def folder(self, test: str) -> Path:
        folder = self.of(test).folder
        assert folder is not None
        return self.run.path / folder


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a suite that was run once; its stages are dropped where the rollout passed."""
    suite = tmp_path_factory.mktemp("suite")
    root = tempfile.mkdtemp(prefix="rollout-tests-", dir="/var/tmp")
    (suite / "pytest.ini").write_text(f"[pytest]\nrollout_stage_root = {root}\n")
    (suite / "space").mkdir()
    (suite / "space" / "old").write_text("old\n")
    (suite / "test_suite.py").write_text(SUITE)
    environ = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    environ.pop("PYTEST_ADDOPTS", None)
    words = [sys.executable, "-m", "pytest", "-p", "rollout", "-p", "no:cacheprovider"]
    done = subprocess.run(words, cwd=suite, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 75, done.stdout + done.stderr
    yield suite
    assert remove_tree(root) is None


@pytest.fixture
def tool(real: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Tool:
    """The tool over a copy of the results of the real run."""
    shutil.copytree(real / ".rollout", tmp_path / "results")
    return Tool(tmp_path / "results", capfd)


@pytest.fixture
def stages(real: Path) -> str:
    """The stage root of the real run."""
    return (real / "pytest.ini").read_text().rpartition(" = ")[2].strip()


@pytest.fixture
def empty(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Tool:
    """The tool over a folder of results without runs."""
    return Tool(tmp_path / "none", capfd)
