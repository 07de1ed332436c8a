"""Where there is no rollout the plugin does nothing; where pytest only looks, it starts and writes nothing."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_rollout.knobs import KNOBS
from tests.plugin.support import ALIKE, GOOD, SUITE, UNISOLATED, cases, filled, left_of_stages, probe, session

if TYPE_CHECKING:
    from tests.plugin.conftest import Suite

USAGE = 4
PLAIN = """
    import warnings
    import pytest

    @pytest.fixture
    def number():
        return 1

    @pytest.mark.parametrize("other", [1, 2])
    def test_passes(number, other):
        assert number + other > 1

    def test_fails():
        assert 1 == 2

    @pytest.mark.skip(reason="not now")
    def test_skips():
        pass
"""
LISTS_MODULES = """
    import os
    import pathlib
    import sys

    def pytest_unconfigure(config):
        worker = getattr(config, "workerinput", {}).get("workerid", "main")
        folder = pathlib.Path(os.environ["MODULES"])
        (folder / worker).write_text("\\n".join(sorted(sys.modules)))
"""
LIGHT = {"pytest_rollout", "pytest_rollout.knobs", "pytest_rollout.plugin", "pytest_rollout._marks"}
ON_A_CONTROLLER = {
    f"pytest_rollout.{name}" for name in ("_xdist", "_settings", "settings", "retries", "errors", "plain", "identity")
}


def files(folder: Path) -> set[str]:
    """Every file below, but what Python and pytester leave."""
    found = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    return {path for path in found if "__pycache__" not in path and not path.startswith("runpytest-")}


def comparable(text: str) -> list[str]:
    """The lines of an output without the list of plugins, and without what differs from run to run."""
    lines = [re.sub(r"\d+\.\d+s|(?<=gw)\d|\[ *\d+%\]", "", line) for line in text.splitlines()]
    lines = ["".join(sorted(line)) if re.fullmatch("[.Fs ]+", line) else line for line in lines]
    return [line for line in lines if not line.startswith("plugins:")]


def modules(
    suite: Suite, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, *args: str
) -> dict[str, set[str]]:
    """The modules that each process of a session had imported at its end."""
    folder = suite.root / f"modules-{'-'.join(args)}"
    folder.mkdir()
    monkeypatch.setenv("MODULES", str(folder))
    session(pytester, "-p", "xdist", *args, suite.workers)
    return {path.name: set(path.read_text().split("\n")) for path in folder.iterdir()}


def test_nothing_heavy_is_imported(suite: Suite, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    suite.write({SUITE: PLAIN, "conftest.py": LISTS_MODULES})
    without = modules(suite, pytester, monkeypatch)
    there = modules(suite, pytester, monkeypatch, "-p", "rollout")
    assert set(there) == ({"main"} if suite.workers == "-n0" else {"main", "gw0", "gw1"})
    for process, names in there.items():
        added = names - without[process]
        ours = {name for name in added if name.partition(".")[0] == "pytest_rollout"}
        assert ours == LIGHT | ({"pytest_rollout._xdist"} if process == "main" else set()) | (
            ON_A_CONTROLLER if process == "main" and suite.workers != "-n0" else set()
        )
        assert added - ours == set()


@ALIKE
def test_the_list_of_modules_would_show_a_heavy_one(
    suite: Suite, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite.ini(UNISOLATED)
    suite.write({SUITE: filled(suite), "conftest.py": LISTS_MODULES})
    there = modules(suite, pytester, monkeypatch, "-p", "rollout")
    heavy = {"msgspec", "filelock", "junitparser", "tomllib", "concurrent.futures"}
    assert heavy - there["main"] <= {"junitparser"}
    assert "pytest_rollout._session" in set().union(*there.values())


@cases(
    "args",
    {
        "plain": ([],),
        "-v": (["-v"],),
        "-q": (["-q"],),
        "no:terminal": (["-p", "no:terminal"],),
        "no:junitxml": (["-p", "no:junitxml"],),
        "no:cacheprovider": (["-p", "no:cacheprovider"],),
        "-W error": (["-W", "error"],),
        "--collect-only": (["--collect-only"],),
        "--setup-plan": (["--setup-plan"],),
        "importlib": (["--import-mode=importlib"],),
    },
    n2=("plain", "-W error"),
)
def test_nothing_is_printed_and_nothing_is_written(suite: Suite, pytester: pytest.Pytester, args: list[str]) -> None:
    suite.write({SUITE: PLAIN, "pytest.ini": "[pytest]\n"})
    options = ("-p", "xdist", suite.workers, "-p", "no:randomly", *args)
    before = session(pytester, *options)
    known, stages = files(suite.root), files(suite.stage_root)
    with_us = session(pytester, "-p", "rollout", *options)
    assert (with_us.status, with_us.errors) == (before.status, before.errors)
    assert sorted(comparable(with_us.text)) == sorted(comparable(before.text))
    assert files(suite.root) == known
    assert files(suite.stage_root) == stages


@cases(
    "args",
    {
        "--collect-only": (["--collect-only"],),
        "--collect-only -q": (["--collect-only", "-q"],),
        "--setup-plan": (["--setup-plan"],),
        "--fixtures": (["--fixtures"],),
        "--fixtures-per-test": (["--fixtures-per-test"],),
    },
    n2=("--collect-only", "--setup-plan"),
)
def test_a_look_at_rollouts_starts_and_writes_nothing(suite: Suite, pytester: pytest.Pytester, args: list[str]) -> None:
    suite.ini(UNISOLATED)
    suite.write({SUITE: filled(suite)})
    stages = files(suite.stage_root)
    done = session(pytester, "-p", "xdist", "-p", "rollout", suite.workers, *args)
    assert (done.status, done.errors) == (0, "")
    assert not probe(suite).exists()
    assert done.run is None
    assert not (suite.root / ".rollout").exists()
    assert (files(suite.stage_root), left_of_stages(suite)) == (stages, [])
    header = [line for line in done.text.splitlines() if line.startswith("rollout:")]
    if suite.workers == "-n0" and args in (["--collect-only"], ["--setup-plan"]):
        agent = f"echo started >> '{probe(suite)}'"
        assert header == [f"rollout: 1 agent run of 1 task, agent {agent if len(agent) <= 40 else agent[:39] + '…'}"]


@ALIKE
def test_a_look_refuses_what_a_run_would_refuse(suite: Suite, pytester: pytest.Pytester) -> None:
    suite.ini(UNISOLATED)
    suite.write({SUITE: filled(suite, GOOD.replace("rollout(", "rollout(seed=-1, "))})
    done = session(pytester, "-p", "xdist", "-p", "rollout", suite.workers, "--collect-only")
    message = f"ERROR: rollout: {SUITE}::test_it: rollout(seed=-1): it is not a whole number from 0 up"
    assert (done.status, done.errors.strip()) == (USAGE, message)


@ALIKE
def test_help(suite: Suite, pytester: pytest.Pytester) -> None:
    text = session(pytester, "-p", "rollout", "--help").text
    options = [knob.option for knob in KNOBS if knob.option]
    assert re.findall(r"^  (--rollout-[\w-]+)", text, re.M) == options
    keys = [knob.name for knob in KNOBS if knob.ini]
    assert re.findall(r"^  rollout_(\w+) ", text, re.M) == keys
    assert "agent rollouts (pytest-rollout):" in text.splitlines()


@ALIKE
def test_markers(suite: Suite, pytester: pytest.Pytester) -> None:
    lines = session(pytester, "-p", "rollout", "--markers").text.splitlines()
    ours = [line for line in lines if line.startswith("@pytest.mark.rollout")]
    assert ours == [
        "@pytest.mark.rollout(agent, prompt, workspace, limits, …): an agent evaluation task; see pytest-rollout"
    ]


@ALIKE
def test_fixtures(suite: Suite, pytester: pytest.Pytester) -> None:
    suite.write({SUITE: PLAIN})
    text = session(pytester, "-p", "rollout", "--fixtures").text
    assert sorted(re.findall(r"^(\w+) -- .*pytest_rollout/plugin\.py:\d+\n    (.*?)[.:]", text, re.M)) == [
        ("bundle", "The evidence of one rollout"),
        ("reward", "The score of this rollout"),
        ("rollout_agent", "The agent of this test"),
        ("rollout_task", "The task of this test, from its marker"),
    ]


# -- what candidates wrote is never collected

PLANTED = """
    import pytest

    SOURCE = "import pathlib\\npathlib.Path('{ran}').touch()\\ndef test_planted(): pass\\n"
    PLANTS = 'printf "%s" "$1" > conftest.py; cp conftest.py test_planted.py'

    @pytest.mark.rollout(agent=["sh", "-c", PLANTS, "sh", SOURCE])
    def test_it(bundle):
        assert bundle.exists("test_planted.py")
"""


@pytest.fixture
def planted(suite: Suite, pytester: pytest.Pytester) -> Path:
    """The ``changes/`` of a candidate who planted tests, in a folder of results that pytest would walk."""
    suite.ini(UNISOLATED, "rollout_dir = results", "norecursedirs = nothing", "rollout_keep = all")
    suite.write({SUITE: PLANTED.replace("{ran}", str(suite.root / "ran"))})
    assert session(pytester, "-p", "rollout").status == 0
    (changes,) = (suite.root / "results").glob("runs/*/rollouts/*/s0/a1/changes")
    assert sorted(os.listdir(changes)) == ["conftest.py", "test_planted.py"]
    return changes


@pytest.mark.parametrize("mode", ["prepend", "importlib"])
@ALIKE
def test_folders_of_results_are_not_collected(
    suite: Suite, pytester: pytest.Pytester, planted: Path, mode: str
) -> None:
    options = ("-p", "xdist", "-p", "rollout", suite.workers, f"--import-mode={mode}", "--collect-only", "-q")
    collected = [f"{SUITE}::test_it", "", "1 test collected in "]
    assert comparable(session(pytester, *options).text) == collected
    assert comparable(session(pytester, *options, "results", SUITE).text) == collected
    assert session(pytester, *options, "results").status == pytest.ExitCode.NO_TESTS_COLLECTED
    assert not (suite.root / "ran").exists()
    unguarded = session(pytester, "--collect-only", "-q", "-p", "no:rollout")
    assert "test_planted.py::test_planted" in unguarded.text
    assert (suite.root / "ran").exists(), "pytest itself would have run it"


@cases(
    "place",
    {"folder": ("",), "file": ("test_planted.py",), "test": ("test_planted.py::test_planted",)},
    n2=("folder",),
)
def test_a_path_inside_a_folder_of_results_is_refused(
    suite: Suite, pytester: pytest.Pytester, planted: Path, place: str
) -> None:
    """Pytest would run the candidate's conftest before it asks what to collect."""
    argument = f"{planted}/{place}".rstrip("/")
    done = session(pytester, "-p", "xdist", "-p", "rollout", suite.workers, argument)
    named = argument.partition("::")[0]
    message = f"ERROR: rollout: {named} is in {suite.root}/results: what candidates wrote is never collected"
    assert (done.status, done.errors.strip()) == (USAGE, message)
    assert not (suite.root / "ran").exists()


@ALIKE
def test_kept_stages_are_not_collected(suite: Suite, pytester: pytest.Pytester, planted: Path) -> None:
    """Also where somebody has put the root of the stages among the tests."""
    kept = next((suite.stage_root / "kept").rglob("test_planted.py"))
    done = session(pytester, "-p", "rollout", "--collect-only", "-q", str(suite.stage_root), SUITE)
    assert "test_planted" not in done.text
    assert f"{SUITE}::test_it" in done.text.splitlines()
    assert session(pytester, "-p", "rollout", str(kept)).status == USAGE
    assert not (suite.root / "ran").exists()
