"""Suites and folders that can't be used: one message, exit status 4, nothing started and nothing half-written."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.plugin.support import ALIKE, GOOD, SUITE, UNISOLATED, attempt, filled, refused

if TYPE_CHECKING:
    from tests.plugin.conftest import Suite

ROOT = os.geteuid() == 0
APART = "Move the workspace to a folder of its own."
ELSEWHERE = "Move it elsewhere, or bind a narrower folder."
OTHER_RESULTS = "Set another with --rollout-dir, or the ini key rollout_dir."
OTHER_STAGES = "Set the ini key rollout_stage_root to a folder that this user can write."

# -- the marker and the fixtures belong together


@pytest.mark.parametrize("name", ["bundle", "reward"])
@ALIKE
def test_a_fixture_without_the_marker(suite: Suite, name: str) -> None:
    left = attempt(suite, f"def test_it({name}):\n    pass\n")
    assert left == refused(f"{SUITE}::test_it: the fixture '{name}' needs the marker: @pytest.mark.rollout(…)")


@pytest.mark.parametrize("arguments", ["", "reward"])
@ALIKE
def test_the_marker_without_the_bundle(suite: Suite, arguments: str) -> None:
    assert attempt(suite, GOOD.replace("test_it(bundle)", f"test_it({arguments})")) == refused(
        f"{SUITE}::test_it: the marker 'rollout' is on a test that does not ask for the fixture 'bundle'\n"
        "Name 'bundle' as an argument of the test, or of a fixture of it; or move the marker off this test."
    )


OWN = """
import pytest

@pytest.fixture
def {name}():
    return None
"""
IN_MODULE = """
    import pytest

    @pytest.fixture
    def {name}():
        return None

    @pytest.mark.rollout(agent="echo started >> '{probe}'")
    def test_it(bundle, reward):
        pass
"""
IN_CLASS = """
    import pytest

    class TestIt:
        @pytest.fixture
        def {name}(self):
            return None

        @pytest.mark.rollout(agent="echo started >> '{probe}'")
        def test_it(self, bundle, reward):
            pass
"""
BOTH = GOOD.replace("(bundle)", "(bundle, reward)")


@pytest.mark.parametrize("name", ["bundle", "reward"])
@pytest.mark.parametrize(
    ("files", "source", "args", "node", "where"),
    [
        pytest.param({"conftest.py": OWN}, BOTH, [], f"{SUITE}::test_it", "conftest", id="conftest"),
        pytest.param(
            {"evals/conftest.py": OWN, f"evals/{SUITE}": BOTH},
            None,
            [],
            f"evals/{SUITE}::test_it",
            "evals",
            id="conftest of a folder",
        ),
        pytest.param({}, IN_MODULE, [], f"{SUITE}::test_it", SUITE, id="module"),
        pytest.param({}, IN_CLASS, [], f"{SUITE}::TestIt::test_it", f"{SUITE}::TestIt", id="class"),
        pytest.param({"ours.py": OWN}, BOTH, ["-p", "ours"], f"{SUITE}::test_it", "ours", id="plugin"),
    ],
)
@ALIKE
def test_a_fixture_of_the_suite_that_replaces_ours(
    suite: Suite, files: dict[str, str], source: str | None, args: list[str], node: str, where: str, name: str
) -> None:
    suite.write({place: filled(suite, text.replace("{name}", name)) for place, text in files.items()})
    left = attempt(suite, None if source is None else source.replace("{name}", name), args)
    assert left == refused(
        f"{node}: the suite ({where}) has a fixture named '{name}' of its own, which replaces the plugin's\n"
        f"Give it another name; it may ask for the plugin's '{name}'."
    )


# -- workspaces


def with_workspaces(*workspaces: object) -> str:
    """A suite with a task for each of these workspaces."""
    tests = [
        textwrap.dedent(f"""
        @pytest.mark.rollout(agent="echo started >> '{{probe}}'", workspace={workspace!r})
        def test_{number}(bundle):
            assert bundle.exit_code == 0
        """)
        for number, workspace in enumerate(workspaces)
    ]
    return "import pytest\n" + "".join(tests)


@ALIKE
def test_a_workspace_that_is_no_folder(suite: Suite) -> None:
    suite.write({"a_file": ""})
    assert attempt(suite, with_workspaces("nowhere", "a_file", 7)) == refused(
        f"{SUITE}::test_0: rollout(workspace='nowhere'): the folder {suite.root}/nowhere does not exist",
        f"{SUITE}::test_1: rollout(workspace='a_file'): {suite.root}/a_file is not a folder",
        f"{SUITE}::test_2: rollout(workspace=7): it is not a path of a folder",
    )


@ALIKE
def test_a_workspace_that_holds_the_results(suite: Suite) -> None:
    suite.write({"calc/calc.py": ""})
    left = attempt(suite, with_workspaces("calc"), ["--rollout-dir=calc/results"])
    results = f"{suite.root}/calc/results"
    assert left == refused(f"{SUITE}::test_0: the workspace {suite.root}/calc holds the results ({results})\n{APART}")
    assert not Path(results).exists()


@ALIKE
def test_a_workspace_that_holds_the_test(suite: Suite, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "results"
    left = attempt(suite, with_workspaces("."), [f"--rollout-dir={elsewhere}"])
    test = f"{suite.root}/{SUITE}"
    assert left == refused(f"{SUITE}::test_0: the workspace {suite.root} holds the test itself ({test})\n{APART}")
    assert not elsewhere.exists()


# -- the folders of results and of stages


@ALIKE
def test_a_file_in_the_way_of_the_results(suite: Suite) -> None:
    suite.write({"taken": "mine\n"})
    taken = suite.root / "taken"
    assert attempt(suite, args=["--rollout-dir=taken"]) == refused(
        f"the folder of the results, {taken}, is not a folder\nSet it with --rollout-dir."
    )
    assert attempt(suite, args=["--rollout-dir=taken/results"]) == refused(
        f"the folder of the results, {taken}/results, can't be written: {taken} is not a folder\n{OTHER_RESULTS}"
    )
    assert taken.read_text() == "mine\n"


@ALIKE
def test_a_file_in_the_way_of_the_runs(suite: Suite) -> None:
    suite.write({"results/runs": "mine\n"})
    results = suite.root / "results"
    assert attempt(suite, args=["--rollout-dir=results"]) == refused(
        f"the folder of the results, {results}, can't be written: Not a directory\n{OTHER_RESULTS}"
    )
    assert [path.name for path in results.iterdir()] == ["runs"]


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user can reach."""
    folder = Path(tempfile.mkdtemp(prefix="rollout-tests-", dir="/var/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@ALIKE
def test_a_file_in_the_way_of_the_stages(suite: Suite, place: Path) -> None:
    suite.stage_root = place / "taken"
    suite.stage_root.write_text("mine\n")
    assert attempt(suite) == refused(
        f"rollout_stage_root: the folder {suite.stage_root} can't be written: File exists\n{OTHER_STAGES}"
    )
    assert suite.stage_root.read_text() == "mine\n"


@pytest.fixture
def locked(place: Path) -> Iterator[Path]:
    """A folder that this user can't write: by its mode, or for root on a file system that is mounted read-only."""
    folder = place / "locked"
    folder.mkdir(mode=0o555)
    if ROOT:
        mount = ["mount", "-t", "tmpfs", "-o", "ro,mode=755", "tmpfs", str(folder)]
        if subprocess.run(mount, capture_output=True, check=False).returncode:
            pytest.skip("root may write everywhere, and this one can't mount")
    yield folder
    if ROOT:
        subprocess.run(["umount", str(folder)], check=True)


def test_results_that_can_not_be_written(suite: Suite, locked: Path) -> None:
    assert attempt(suite, args=[f"--rollout-dir={locked}/results"]) == refused(
        f"the folder of the results, {locked}/results, can't be written: no right to write in {locked}\n{OTHER_RESULTS}"
    )


@ALIKE
def test_stages_that_can_not_be_written(suite: Suite, locked: Path) -> None:
    suite.stage_root = locked / "stages"
    reason = "Read-only file system" if ROOT else "Permission denied"
    assert attempt(suite) == refused(
        f"rollout_stage_root: the folder {suite.stage_root} can't be written: {reason}\n{OTHER_STAGES}"
    )


@pytest.mark.skipif(not ROOT, reason="only root's agents run as another user")
@ALIKE
def test_stages_that_the_agents_of_root_can_not_reach(suite: Suite, place: Path) -> None:
    closed = place / "closed"
    closed.mkdir(mode=0o700)
    suite.stage_root = closed / "below" / "stages"
    assert attempt(suite) == refused(
        f"rollout_stage_root: {suite.stage_root} lies below {closed}, which uid 65534 can't enter\n"
        "Agents of root run as that uid. Set rollout_stage_root to a folder outside it."
    )
    assert list(closed.iterdir()) == []


# -- what an agent could read

WIDE = """
[agents.wide]
command = "true"
paths = ["{path}"]
"""
NAMES_IT = f"which an agent could read: agent 'wide' names it in 'paths'\n{ELSEWHERE}"


def test_a_suite_that_an_agent_could_read(suite: Suite) -> None:
    suite.write({f"evals/{SUITE}": filled(suite), "rollout.toml": WIDE.replace("{path}", "evals")})
    evals = suite.root / "evals"
    left = attempt(suite, None, ["--rollout-agent=wide"], ini=[])
    assert left == refused(f"the suite ({evals}/{SUITE}) lies under {evals}, {NAMES_IT}")


@ALIKE
def test_results_that_an_agent_could_read(suite: Suite) -> None:
    suite.write({"tools/tool": "", "rollout.toml": WIDE.replace("{path}", "tools")})
    tools = suite.root / "tools"
    left = attempt(suite, args=["--rollout-agent=wide", "--rollout-dir=tools/results"], ini=[])
    assert left == refused(f"the folder of the results ({tools}/results) lies under {tools}, {NAMES_IT}")
    assert [path.name for path in tools.iterdir()] == ["tool"]


@pytest.mark.skipif(not ROOT, reason="only root can write below /usr")
@ALIKE
def test_a_suite_below_usr(suite: Suite) -> None:
    folder = Path(tempfile.mkdtemp(prefix="rollout-tests-", dir="/usr/src"))
    try:
        (folder / SUITE).write_text(textwrap.dedent(filled(suite)))
        left = attempt(suite, None, [str(folder), "--rootdir=.", "-c", "pytest.ini"], ini=[])
        assert left == refused(
            f"the suite ({folder}/{SUITE}) lies under /usr, which an agent could read:"
            f" the sandbox shows it to every agent\n{ELSEWHERE}"
        )
        assert {path.name for path in folder.iterdir()} - {"__pycache__"} == {SUITE}
    finally:
        shutil.rmtree(folder)


@ALIKE
def test_an_agent_of_a_fixture_that_could_read_the_suite(suite: Suite) -> None:
    """The fixture says it when the test has begun: infra, and the agent is not started."""
    source = """
        import pytest

        @pytest.fixture
        def rollout_agent():
            return "wide"

        @pytest.mark.rollout
        def test_it(bundle):
            assert bundle.exit_code == 0
    """
    suite.ini()
    suite.write({f"evals/{SUITE}": textwrap.dedent(source), "rollout.toml": WIDE.replace("{path}", "evals")})
    ran = suite.run(None)
    evals = suite.root / "evals"
    (result,) = ran.loaded.results
    assert (result.kind, result.folder) == ("fixture", None)
    assert result.message == f"the suite ({evals}/{SUITE}) lies under {evals}, {NAMES_IT}"


def test_a_task_of_a_fixture_that_holds_the_suite(suite: Suite) -> None:
    source = """
        import pytest
        from pytest_rollout.limits import Limits
        from pytest_rollout.task import Folder

        @pytest.fixture
        def rollout_task(rollout_task, request):
            return rollout_task.replace(**request.param)

        CHANGES = [{"workspace": Folder(path="{root}")}, {"limits": Limits(memory="1MiB")}, {"network": "gateway"}]

        @pytest.mark.parametrize("rollout_task", CHANGES, indirect=True)
        @pytest.mark.rollout(agent="echo started >> '{probe}'")
        def test_it(bundle):
            assert bundle.exit_code == 0
    """
    suite.ini(UNISOLATED)
    ran = suite.run(filled(suite, source).replace("{root}", str(suite.root)))
    assert [(result.kind, result.folder) for result in ran.loaded.results] == [("fixture", None)] * 3
    assert [result.message for result in ran.loaded.results] == [
        f"the workspace {suite.root} holds the results ({suite.root}/.rollout)\n{APART}",
        "the fixture rollout_task: Limits(memory=…): '1MiB' is less memory than a shell needs: 4MiB",
        "the fixture rollout_task: rollout(network='gateway') is not enforced by this version, so it is refused",
    ]
    assert not (suite.root / "started").exists()


def test_a_suite_without_the_marker_may_use_our_names(suite: Suite) -> None:
    """Fixtures and parameters named bundle or reward are no concern of ours where nothing is marked."""
    suite.ini()
    source = """
        import pytest

        @pytest.fixture
        def bundle():
            return ["a", "b"]

        def test_bundle(bundle):
            assert bundle == ["a", "b"]

        @pytest.mark.parametrize("reward", [1, 2])
        def test_reward(reward):
            assert reward in (1, 2)
    """
    ran = suite.run(source)
    assert (ran.status, ran.counts) == (0, {"passed": 3})
    assert not (suite.root / ".rollout").exists()


RERUNS = (
    "test_suite.py::test_it: a rollout is not run again by another plugin, as {} asks: "
    "a second try at a model's failure inflates its reward\n"
    "Leave that out. --rollout-retries tries infrastructure again; samples=N makes independent samples."
)


def test_reruns_are_refused(suite: Suite) -> None:
    """The options of pytest-rerunfailures, without its code: what it would do to a rollout is the question."""
    suite.write(
        {
            "conftest.py": """
                def pytest_addoption(parser):
                    parser.addoption("--reruns", type=int, default=None)

                def pytest_configure(config):
                    config.addinivalue_line("markers", "flaky: try again")
            """
        }
    )
    assert attempt(suite, args=["--reruns", "2"]) == refused(RERUNS.format("--reruns"))
    flaky = GOOD.replace("    @pytest.mark.rollout", "    @pytest.mark.flaky(reruns=2)\n    @pytest.mark.rollout")
    assert attempt(suite, flaky) == refused(RERUNS.format("the marker 'flaky'"))
