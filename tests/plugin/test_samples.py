"""Samples: how many, which node ids, which seeds, and how they meet parametrize, classes, -k and --lf."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.plugin.support import ALIKE, cases

if TYPE_CHECKING:
    from tests.plugin.conftest import Ran, Suite

SEEDS = """
    import pytest

    AGENT = "echo $ROLLOUT_SEED $ROLLOUT_SAMPLE $ROLLOUT_ATTEMPT > seen"

    @pytest.mark.rollout(agent=AGENT, seed=100)
    def test_one(bundle):
        assert bundle.read_text("seen") == "100 0 1\\n"

    @pytest.mark.rollout(agent=AGENT, samples=3, seed=100)
    def test_many(bundle):
        assert bundle.read_text("seen") == f"{100 + bundle.sample} {bundle.sample} 1\\n"
        assert bundle.seed == 100 + bundle.sample

    @pytest.mark.rollout(agent=AGENT)
    def test_unmarked(bundle):
        assert bundle.read_text("seen") == f"{bundle.sample} {bundle.sample} 1\\n"
    """


def nodes(ran: Ran) -> list[str]:
    return sorted(ran.results)


def test_samples_of_the_marker(suite: Suite) -> None:
    ran = suite.run(SEEDS)
    assert nodes(ran) == ["test_many[s0]", "test_many[s1]", "test_many[s2]", "test_one", "test_unmarked"]
    assert {verdict[0] for verdict in ran.verdicts.values()} == {"passed"}
    assert {ran.results[f"test_many[s{k}]"].task for k in range(3)} == {"test_suite.py::test_many"}
    assert [ran.results[f"test_many[s{k}]"].sample for k in range(3)] == [0, 1, 2]
    assert [ran.bundle(f"test_many[s{k}]").pins.seed for k in range(3)] == [100, 101, 102]


@ALIKE
def test_the_command_line_wins_over_the_marker(suite: Suite) -> None:
    suite.ini("rollout_samples = 4")
    ran = suite.run(SEEDS, "--rollout-samples=2")
    assert nodes(ran) == sorted(f"test_{name}[s{k}]" for name in ("many", "one", "unmarked") for k in range(2))
    ran = suite.run(SEEDS, "--rollout-samples=1", "-k", "not one")
    assert nodes(ran) == ["test_many", "test_unmarked"]


@ALIKE
def test_the_marker_wins_over_the_ini_file(suite: Suite) -> None:
    suite.ini("rollout_samples = 2")
    ran = suite.run(SEEDS, "-k", "many or unmarked")
    assert nodes(ran) == ["test_many[s0]", "test_many[s1]", "test_many[s2]", "test_unmarked[s0]", "test_unmarked[s1]"]


def test_with_parametrize_and_classes(suite: Suite) -> None:
    ran = suite.run("""
        import pytest

        @pytest.fixture(params=["f", "g"])
        def letter(request):
            return request.param

        @pytest.mark.rollout(agent="echo x > a", samples=2)
        @pytest.mark.parametrize("number", [1, 2])
        def test_params(bundle, number):
            assert bundle.exists("a")

        @pytest.mark.rollout(agent="echo x > a", samples=2)
        class TestClass:
            def test_plain(self, bundle):
                assert bundle.exists("a")

            @pytest.mark.rollout(samples=1)
            def test_single(self, bundle, letter):
                assert bundle.exists("a")

            def test_fixture(self, letter, bundle):
                assert bundle.exists("a")

        @pytest.mark.rollout(agent="echo x > a", samples=2)
        @pytest.mark.parametrize("name", ["s0", "a-s1", "s1]", "[s0"])
        def test_looks_like_a_sample(bundle, name):
            assert bundle.exists("a")
        """)
    names = ["s0", "a-s1", "s1]", "[s0"]
    assert nodes(ran) == sorted(
        [f"test_params[{number}-s{k}]" for number in (1, 2) for k in (0, 1)]
        + [f"TestClass::test_plain[s{k}]" for k in (0, 1)]
        + [f"TestClass::test_single[{letter}]" for letter in "fg"]
        + [f"TestClass::test_fixture[{letter}-s{k}]" for letter in "fg" for k in (0, 1)]
        + [f"test_looks_like_a_sample[{name}-s{k}]" for name in names for k in (0, 1)]
    )
    tasks = {(result.task.removeprefix("test_suite.py::"), result.sample) for result in ran.loaded.results}
    assert tasks == (
        {(f"test_params[{number}]", k) for number in (1, 2) for k in (0, 1)}
        | {("TestClass::test_plain", k) for k in (0, 1)}
        | {(f"TestClass::test_single[{letter}]", 0) for letter in "fg"}
        | {(f"TestClass::test_fixture[{letter}]", k) for letter in "fg" for k in (0, 1)}
        | {(f"test_looks_like_a_sample[{name}]", k) for name in names for k in (0, 1)}
    )
    assert ran.status == 0


@ALIKE
def test_keywords_and_deselection(suite: Suite) -> None:
    ran = suite.run(SEEDS, "-k", "s1")
    assert nodes(ran) == ["test_many[s1]"]
    assert ran.results["test_many[s1]"].sample == 1
    assert ran.case("test_many[s1]").properties["rollout.samples"] == "3"
    ran = suite.run(SEEDS, "test_suite.py::test_many[s2]", "test_suite.py::test_one")
    assert nodes(ran) == ["test_many[s2]", "test_one"]
    ran = suite.run(SEEDS, "--deselect=test_suite.py::test_many[s0]", "-k", "many")
    assert nodes(ran) == ["test_many[s1]", "test_many[s2]"]
    assert {verdict[0] for verdict in ran.verdicts.values()} == {"passed"}


@pytest.mark.slow
def test_only_failed_samples_run_again(suite: Suite) -> None:
    source = """
        import pytest

        @pytest.mark.rollout(agent='[ $ROLLOUT_SAMPLE != 1 ] && echo x > a; exit $((ROLLOUT_SAMPLE == 3 ? 127 : 0))')
        class TestClass:
            @pytest.mark.rollout(samples=4)
            def test_many(self, bundle):
                assert bundle.exists("a")
        """
    ran = suite.run(source, "-p", "cacheprovider")
    assert {node[-3:-1]: verdict[0] for node, verdict in ran.verdicts.items()} == {
        "s0": "passed",
        "s1": "failed",
        "s2": "passed",
        "s3": "infra",
    }
    ran = suite.run(source, "-p", "cacheprovider", "--lf")
    assert nodes(ran) == ["TestClass::test_many[s1]", "TestClass::test_many[s3]"]
    ran = suite.run(source.replace("!= 1", "!= 9"), "-p", "cacheprovider", "--lf")
    assert {node[-3:-1]: verdict[0] for node, verdict in ran.verdicts.items()} == {"s1": "passed", "s3": "infra"}
    ran = suite.run(source, "-p", "cacheprovider", "--lf")
    assert nodes(ran) == ["TestClass::test_many[s3]"]


IDS = [
    "a::b",
    "a/b",
    "..",
    ".",
    "",
    "a b",
    "x" * 400,
    "x" * 399 + "y",
    "Case",
    "case",
    "CASE",
    "über",
    "日本",
    "\u202eevil",
    "a\x00b\x1b",
    "CON",
    "trailing.",
    "-x",
    "a\\b",
    'a:b*?"<>|',
    "%s{}$HOME`id`",
]


@cases("samples", {"one": (1,), "two": (2,)}, n2=("two",))
def test_folders_are_portable_and_unique(suite: Suite, samples: int) -> None:
    ran = suite.run(
        f"""
        import pytest

        @pytest.mark.rollout(agent="printf %s \\"$ROLLOUT_ID\\" > id; printf %s \\"$ROLLOUT_TASK\\" > task",
                             samples={samples})
        @pytest.mark.parametrize("value", {IDS!r})
        def test_ids(bundle, value):
            assert bundle.read_text("id") == bundle.rollout_id
            assert bundle.read_text("task") == bundle.task_id
        """,
        "--rollout-controls=none",
    )
    assert len(ran.results) == len(IDS) * samples
    assert set(ran.verdicts.values()) == {("passed", None, 1.0)}
    folders = [result.folder or "" for result in ran.loaded.results]
    tasks = {folder.split("/")[1] for folder in folders}
    assert len({folder.lower() for folder in folders}) == len(folders)
    assert len({task.lower() for task in tasks}) == len(IDS)
    for folder in folders:
        assert re.fullmatch(r"rollouts/[a-z0-9-]{1,52}/s[01]/a1", folder), folder
    assert len({result.rollout.lower() for result in ran.loaded.results}) == len(folders)
    assert len({result.task for result in ran.loaded.results}) == len(IDS)


@ALIKE
def test_an_id_of_the_marker(suite: Suite) -> None:
    ran = suite.run("""
        import pytest

        @pytest.mark.rollout(agent="echo $ROLLOUT_TASK > task", id="My task/1", samples=2)
        def test_named(bundle):
            assert bundle.read_text("task") == "My task/1\\n"
        """)
    assert {(result.task, result.sample) for result in ran.loaded.results} == {("My task/1", 0), ("My task/1", 1)}
    assert nodes(ran) == ["test_named[s0]", "test_named[s1]"]
