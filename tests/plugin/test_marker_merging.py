"""Arguments of the marker on the module, the class and the function: the nearest wins, one by one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.plugin.support import ALIKE

if TYPE_CHECKING:
    from tests.plugin.conftest import Ran, Suite

SOURCE = """
    import json
    import pytest
    from pytest_rollout import Limits

    pytestmark = pytest.mark.rollout(
        agent="echo module; ", prompt="module", workspace="module", network="none", samples=2, seed=10,
        limits=Limits(wall=30, output="1kB"), env={"A": "module", "B": "module", "C": "module"},
        threshold=0.1, score_on="any", tags=["module"],
    )

    def facts(task):
        return {
            "prompt": task.prompt, "workspace": task.workspace and task.workspace.path.rpartition("/")[2],
            "network": task.network, "samples": task.samples, "seed": task.seed, "wall": task.limits.wall,
            "output": task.limits.output, "env": task.env, "threshold": task.threshold, "score_on": task.score_on,
            "tags": list(task.tags), "id": task.id,
        }

    @pytest.fixture
    def shows(rollout_task, bundle, record_property):
        record_property("task", json.dumps(facts(rollout_task)))
        record_property("said", bundle.stdout)

    def test_module(shows):
        pass

    @pytest.mark.rollout(
        agent="echo class; ", prompt="class", workspace="class", samples=1, seed=20,
        limits=Limits(wall=20), env={"B": "class", "C": "class"}, threshold=0.2, tags={"x", "class"},
    )
    class TestClass:
        def test_class(self, shows):
            pass

        @pytest.mark.rollout(
            agent=["echo", "function"], prompt="function", workspace=None, network="host", samples=1, seed=30,
            limits=Limits(output=2000), env={"C": "function"}, threshold=0.3, score_on="completed", tags=(), id="own",
        )
        def test_function(self, shows):
            pass

        @pytest.mark.rollout(threshold=0.4)
        @pytest.mark.rollout(threshold=0.5, seed=50)
        def test_two_marks(self, shows):
            pass

        @pytest.mark.parametrize("number", [pytest.param(1, marks=pytest.mark.rollout(seed=60, prompt="param"))])
        @pytest.mark.rollout(seed=70, env={"D": "function"})
        def test_param(self, shows, number):
            pass
    """


def told(ran: Ran, node: str) -> dict[str, Any]:
    properties = ran.case(node).properties
    facts: dict[str, Any] = json.loads(properties["task"])
    return facts | {"said": properties["said"].strip()}


@ALIKE
def test_the_nearest_wins(suite: Suite) -> None:
    suite.write({"module/file": "m", "class/file": "c"})
    ran = suite.run(SOURCE)
    module = {
        "prompt": "module",
        "workspace": "module",
        "network": "none",
        "samples": 2,
        "seed": 10,
        "wall": 30.0,
        "output": 1000,
        "env": {"A": "module", "B": "module", "C": "module"},
        "threshold": 0.1,
        "score_on": "any",
        "tags": ["module"],
        "id": "test_suite.py::test_module",
        "said": "module",
    }
    of_class = module | {
        "prompt": "class",
        "workspace": "class",
        "samples": 1,
        "seed": 20,
        "wall": 20.0,
        "env": {"A": "module", "B": "class", "C": "class"},
        "threshold": 0.2,
        "tags": ["class", "x"],
        "id": "test_suite.py::TestClass::test_class",
        "said": "class",
    }
    function = of_class | {
        "prompt": "function",
        "workspace": None,
        "network": "host",
        "seed": 30,
        "output": 2000,
        "env": {"A": "module", "B": "class", "C": "function"},
        "threshold": 0.3,
        "score_on": "completed",
        "tags": [],
        "id": "own",
        "said": "function",
    }
    two = of_class | {"threshold": 0.5, "seed": 50, "id": "test_suite.py::TestClass::test_two_marks"}
    param = of_class | {
        "prompt": "param",
        "seed": 60,
        "env": {"A": "module", "B": "class", "C": "class", "D": "function"},
        "id": "test_suite.py::TestClass::test_param[1]",
    }
    assert told(ran, "test_module[s0]") == told(ran, "test_module[s1]") == module
    assert told(ran, "TestClass::test_class") == of_class
    assert told(ran, "TestClass::test_function") == function
    assert told(ran, "TestClass::test_two_marks") == two
    assert told(ran, "TestClass::test_param[1]") == param
    assert len(ran.results) == 6


def test_what_is_merged_reaches_the_agent(suite: Suite) -> None:
    suite.write({"space/file": "from the workspace\n"})
    ran = suite.run("""
        import pytest
        from pytest_rollout import Limits

        pytestmark = pytest.mark.rollout(env={"A": "1"}, workspace="space", prompt="the prompt", limits=Limits(wall=50))

        @pytest.mark.rollout(
            agent='cat file; cat "$ROLLOUT_PROMPT_FILE"; echo; echo $A $B; head -c 300 /dev/zero | tr "\\\\000" x',
            env={"B": "2"}, limits=Limits(output=200),
        )
        def test_it(bundle):
            lines = bundle.stdout.splitlines()
            assert lines[:3] == ["from the workspace", "the prompt", "1 2"]
            assert any("bytes dropped" in line for line in lines)
            assert [finding.code for finding in bundle.findings] == ["output.dropped"]
        """)
    assert ran.verdicts == {"test_it": ("passed", None, 1.0)}
    assert ran.bundle("test_it").pins.limits == {"wall": 50.0, "output": 200}


@ALIKE
def test_a_module_that_is_marked_holds_for_its_rollouts_only_by_request(suite: Suite) -> None:
    """A mark of the module on a test without ``bundle`` is refused, since it would silently do nothing."""
    ran = suite.run("""
        import pytest

        pytestmark = pytest.mark.rollout(agent="true;")

        def test_it(bundle):
            assert bundle.exit_code == 0

        def test_plain():
            pass
        """)
    assert (ran.status, ran.results) == (4, {})
    assert "the marker 'rollout' is on a test that does not ask for the fixture 'bundle'" in ran.text + ran.errors


@ALIKE
def test_samples_of_a_parameter_are_refused_also_beside_those_of_the_function(suite: Suite) -> None:
    ran = suite.run("""
        import pytest

        @pytest.mark.parametrize("number", [pytest.param(1, marks=pytest.mark.rollout(samples=3))])
        @pytest.mark.rollout(agent="true;", samples=2)
        def test_it(bundle, number):
            assert bundle.exit_code == 0
        """)
    assert (ran.status, ran.results) == (4, {})
    assert "'samples' inside pytest.param(marks=…) comes too late to multiply the test" in ran.text + ran.errors
