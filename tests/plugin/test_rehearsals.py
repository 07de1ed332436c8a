"""Control runs leave nothing in the process that the test itself runs in, and end with it."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from tests.plugin.support import ALIKE, background, last_run

if TYPE_CHECKING:
    from tests.plugin.conftest import Suite

RIGHT = {"work/m.py": "def sq(a):\n    return None\n", "right/m.py": "def sq(a):\n    return a * a\n"}


@ALIKE
def test_data_that_can_be_read_once_is_there_for_the_test(suite: Suite) -> None:
    suite.write({**RIGHT, "cases.csv": "2,4\n3,9\n"})
    ran = suite.run("""
        import csv
        import pathlib

        import pytest

        pytestmark = pytest.mark.rollout(workspace="work", oracle="right", agent="echo 'def sq(a): return 4' > m.py")
        PAIRS = zip([2, 3], [4, 9])
        HERE = pathlib.Path(__file__).parent

        @pytest.fixture(scope="module")
        def rows():
            with open(HERE / "cases.csv") as file:
                yield csv.reader(file)

        def test_of_a_module(bundle):
            for number, square in PAIRS:
                assert bundle.call("m:sq", number) == square

        @pytest.mark.parametrize("cases", [[2, 3]])
        def test_of_a_parameter(bundle, cases):
            while cases:
                number = cases.pop(0)
                assert bundle.call("m:sq", number) == number ** 2

        def test_of_a_fixture(bundle, rows):
            for number, square in rows:
                assert bundle.call("m:sq", int(number)) == int(square)
    """)
    assert set(ran.verdicts.values()) == {("failed", None, 0.0)}
    assert len(ran.verdicts) == 3


def test_state_of_the_suite_is_as_if_nothing_had_run(suite: Suite) -> None:
    suite.write(RIGHT)
    conftest = """
        import pytest

        MADE = []
        KEY = pytest.StashKey()

        def pytest_collection_modifyitems(items):
            for item in items:
                item.stash[KEY] = item.name

        def pytest_runtest_setup(item):
            assert item.name not in MADE, "once for each test"
            MADE.append(item.name)

        @pytest.fixture(scope="session")
        def database(tmp_path_factory):
            place = tmp_path_factory.mktemp("database", numbered=False)
            (place / "tables").mkdir()
            with open(f"{place.parent}/log", "a") as log:
                print("up", file=log)
            yield place
            (place / "tables").rmdir()
            with open(f"{place.parent}/log", "a") as log:
                print("down", file=log)

        @pytest.fixture
        def stashed(request, bundle):
            return request.node.stash[KEY]
    """
    ran = suite.run(
        """
        import pytest

        pytestmark = pytest.mark.rollout(workspace="work", oracle="right", agent="echo 'def sq(a): return a*a' > m.py")
        SEEN = []

        class TestIt:
            def test_seen(self, bundle, database):
                assert SEEN == [] and (database / "tables").is_dir()
                SEEN.append(1)
                assert (database.parent / "log").read_text() == "up\\n", "what control runs set up has its own place"
                assert bundle.call("m:sq", 3) == 9

            def test_stash(self, bundle, stashed, database):
                assert stashed == "test_stash"
                assert bundle.call("m:sq", 3) == 9
        """,
        conftest=conftest,
    )
    assert ran.verdicts == {f"TestIt::test_{name}": ("passed", None, 1.0) for name in ("seen", "stash")}
    assert ran.status == 0


def test_a_wider_fixture_that_only_a_control_run_made_is_put_away_there(suite: Suite) -> None:
    ran = suite.run(
        """
        import os

        import pytest

        LOG = "ROOT.log"

        @pytest.fixture(scope="session")
        def service():
            with open(LOG, "a") as log:
                print("up", os.getpid(), file=log)
            yield
            with open(LOG, "a") as log:
                print("down", os.getpid(), file=log)

        @pytest.mark.rollout(agent="echo 1 > a")
        def test_first(bundle, service):
            assert bundle.exists("a")

        @pytest.mark.rollout(agent="echo 1 > a")
        def test_second(bundle, service):
            assert bundle.exists("a")
    """.replace("ROOT", str(suite.root))
    )
    assert ran.status == 0
    lines = [line.split() for line in suite.root.with_name(f"{suite.root.name}.log").read_text("utf-8").splitlines()]
    pids = list(dict.fromkeys(pid for _, pid in lines))
    assert all(sorted(word for word, pid in lines if pid == each) == ["down", "up"] for each in pids)
    if suite.workers == "-n0":  # one control run made it; for the second test it was there
        assert [word for word, _ in lines] == ["up", "down", "up", "down"]
        assert len(pids) == 2


def test_what_a_control_run_prints_is_shown_nowhere(suite: Suite) -> None:
    ran = suite.run("""
        import os

        import pytest

        @pytest.mark.rollout(agent="echo 1 > a")
        def test_it(bundle, capfd):
            print("printed", "after" if bundle.exists("a") else "before")
            os.write(2, b"written\\n")
            out, err = capfd.readouterr()
            assert (out.split()[0], err) == ("printed", "written\\n")
            with capfd.disabled():
                print("aloud", "after" if bundle.exists("a") else "before")
            assert bundle.exists("a")
    """)
    assert ran.verdicts == {"test_it": ("passed", None, 1.0)}
    assert "before" not in ran.text + ran.errors


@pytest.mark.parametrize("how", ["os._exit(0)", "os.kill(os.getpid(), 9)", "sys.exit(3)", "pytest.exit('enough')"])
@ALIKE
def test_a_control_run_that_ends_its_process_shows_nothing(suite: Suite, how: str) -> None:
    ran = suite.run(f"""
        import os
        import sys

        import pytest

        @pytest.mark.rollout(agent="echo 1 > a")
        def test_it(bundle):
            if not bundle.exists("a"):
                {how}
            assert bundle.exists("a")
    """)
    assert ran.verdicts == {"test_it": ("passed", None, 1.0)}
    assert ran.status == 0


SLOW = """
    import pytest

    @pytest.mark.rollout(agent="exec true", oracle="slow.sh")
    def test_it(bundle):
        assert bundle.exists("a")
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_control_run_does_not_outlive_its_session(suite: Suite, pytester: pytest.Pytester, how: int) -> None:
    word = f"outlives-{os.path.basename(suite.stage_root)}"
    suite.write({"slow.sh": f"exec sleep 987.{os.getpid()} # {word}\n", "test_suite.py": SLOW})

    def lives() -> bool:
        return any(
            f"sleep\0987.{os.getpid()}".encode() in _read(f"/proc/{name}/cmdline")
            for name in os.listdir("/proc")
            if name.isdigit()
        )

    with background(pytester, suite.workers) as running:
        _until(lives)
        os.killpg(running.pid, how)
        running.wait(timeout=30)
        _until(lambda: not lives())
    assert last_run(pytester)


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def _until(true: object) -> None:
    import time

    assert callable(true)
    end = time.monotonic() + 30
    while not true():
        assert time.monotonic() < end, "it took longer than 30 s"
        time.sleep(0.05)


@ALIKE
def test_a_wider_fixture_with_parameters_is_put_away_once(suite: Suite) -> None:
    ran = suite.run(
        """
        import pytest

        @pytest.fixture(scope="module", params=["A", "B"])
        def wide(request, tmp_path_factory):
            place = tmp_path_factory.getbasetemp().parent / f"ROOT-{request.param}"
            place.mkdir()
            yield place
            place.rmdir()

        @pytest.mark.rollout(agent="echo 1 > a")
        def test_wide(bundle, wide):
            assert wide.is_dir()
            assert bundle.exists("a")
    """.replace("ROOT", suite.root.name)
    )
    assert ran.verdicts == {f"test_wide[{name}]": ("passed", None, 1.0) for name in "AB"}
    assert ran.status == 0


@ALIKE
def test_what_a_trial_started_ends_with_it(suite: Suite) -> None:
    word = f"876.{os.getpid()}"
    ran = suite.run(f"""
        import subprocess

        import pytest

        @pytest.fixture(scope="session")
        def server():
            return subprocess.Popen(["sleep", "{word}"], start_new_session=True)

        @pytest.mark.rollout(agent="echo 1 > a")
        def test_it(bundle, server):
            server.wait(0.1) if bundle.exists("none") else None
            assert server.poll() is None and bundle.exists("a")
            server.kill()
            server.wait()
    """)
    assert ran.verdicts == {"test_it": ("passed", None, 1.0)}
    lives = [name for name in os.listdir("/proc") if name.isdigit() and word.encode() in _read(f"/proc/{name}/cmdline")]
    assert lives == []


def test_a_trial_that_nobody_could_judge_is_told_with_the_result(suite: Suite) -> None:
    ran = suite.run("""
        import os

        import pytest

        @pytest.mark.rollout(agent="echo 1 > a")
        def test_it(bundle):
            bundle.exists("a") or os._exit(0)
            assert bundle.exists("a")
    """)
    (result,) = ran.loaded.results
    assert result.warnings == ("the checks were not tried: the trial 'noop' of the checks ended before it was judged",)
    assert "the checks were not tried" in ran.text
