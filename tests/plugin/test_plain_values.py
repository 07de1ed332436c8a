"""Whatever objects a checker records or shows, no test is lost and the exit status is right."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from tests.plugin.support import ALIKE, cases

if TYPE_CHECKING:
    from tests.plugin.conftest import Suite

VALUES = r"""
    import enum
    import math
    from pathlib import Path
    import pytest

    class Colour(enum.Enum):
        RED = "red"

    class Level(enum.IntEnum):
        HIGH = 3

    class Float64(float):
        "As numpy's: a subclass of float with a repr of its own."
        def __repr__(self):
            return f"np.float64({float(self)})"

    class Array:
        "As numpy's: comparing it gives no truth value."
        def __eq__(self, other):
            return self
        def __bool__(self):
            raise ValueError("ambiguous")
        __hash__ = None

    class Broken:
        def __repr__(self):
            raise RuntimeError("no repr")

    class Name(str):
        pass

    LOOP = []
    LOOP.append(LOOP)
    VALUES = {
        "surrogate": "a\udcffb", "path": Path("/some/where"), "enum": Colour.RED, "int enum": Level.HIGH,
        "numpy": Float64(0.25), "bytes": b"\x00\xff", "set": {Colour.RED}, "big": 10**30, "huge": 10**5000,
        "nan": math.nan, "dict": {Path("k"): Colour.RED, ("t",): "\ud800"}, "none": None, "object": object(),
        "broken": Broken(), "array": Array(), "name": Name("x"), "loop": LOOP, "complex": 1j, "nul": "\x00",
    }
    every = pytest.mark.parametrize("key", VALUES)
    pytestmark = pytest.mark.rollout(agent=r"printf '\355\240\200' > a")
    """


def source(body: str) -> str:
    return textwrap.dedent(VALUES) + textwrap.dedent(body)


KEYS = 19


REPORTS = {
    "message": ("assert bundle.exists('a')\nassert VALUES[key] is [key], VALUES[key]", "failed"),
    "list message": ("assert bundle.exists('b'), [VALUES[key]]", "failed"),
    "record_property": ("record_property('key', VALUES[key])\nassert bundle.exists('a')", "passed"),
    "user_properties": (
        "request.node.user_properties.append(('key', VALUES[key]))\nassert bundle.exists('a')",
        "passed",
    ),
    "user property name": (
        "request.node.user_properties.append((VALUES[key], 1))\nassert bundle.exists('a')",
        "passed",
    ),
    "skip": ("bundle.exists('a')\npytest.skip(str(key) + '\\udcff')", "infra"),
    "skip at a find": ("assert bundle.exists('a')\npytest.skip(str(key) + '\\udcff')", "failed"),
    "error": ("raise RuntimeError(VALUES[key], bundle.exists('a'))", "infra"),
    "key": ("print(ascii(key))\nbundle.exists('a')\nraise KeyError(VALUES[key])", "infra"),
    "key at a find": ("assert bundle.exists('a')\nraise KeyError(VALUES[key])", "failed"),
}


@cases("what, outcome", REPORTS, n0=("message", "user property name", "error"), n2=REPORTS)  # reports travel
def test_objects_in_reports(suite: Suite, what: str, outcome: str) -> None:
    body = textwrap.indent(what, "    ")
    # Control runs tell a crash that is the candidate's; elsewhere they only double the work.
    args = () if suite.workers == "-n0" or outcome == "failed" else ("--rollout-controls=none",)
    ran = suite.run(source(f"@every\ndef test_it(bundle, request, record_property, key):\n{body}\n"), *args)
    assert len(ran.results) == KEYS
    assert {result.outcome for result in ran.loaded.results} == {outcome}
    assert ran.status == {"passed": 0, "failed": 1, "infra": 75}[outcome]
    assert len(ran.cases) == KEYS


@ALIKE
def test_objects_in_the_reward(suite: Suite) -> None:
    ran = suite.run(
        source("""
            from fractions import Fraction

            def test_numbers(bundle, reward):
                reward.metric("numpy", Float64(0.25))
                reward.metric("level", Level.HIGH)
                reward.metric("fraction", Fraction(1, 4))
                reward.metric(Name("name"), True)
                reward.metric("sur\\udcff", 1)
                reward.add(Name("half"), Float64(0.5), weight=Level.HIGH)
                with reward.check("sur\\udcff"):
                    assert bundle.exists("a")

            @pytest.mark.parametrize("key", ["path", "enum", "nan", "huge", "none", "object", "complex", "surrogate"])
            def test_not_numbers(bundle, reward, key):
                bundle.exists("a")
                reward.metric("value", VALUES[key])

            @pytest.mark.parametrize("key", ["path", "enum", "none", "object", "nul", "bytes"])
            def test_names(bundle, reward, key):
                bundle.exists("a")
                reward.add(VALUES[key], 1)

            def test_set(bundle, reward):
                reward.set(Float64(0.5), reason=Colour.RED)
            """)
    )
    score = ran.score("test_numbers")
    assert score.metrics == {"numpy": 0.25, "level": 3.0, "fraction": 0.25, "name": 1.0, r"sur\udcff": 1.0}
    assert [(check.name, check.weight, check.value) for check in score.checks] == [
        ("half", 3.0, 0.5),
        (r"sur\udcff", 1.0, 1.0),
    ]
    assert ran.verdicts["test_numbers"] == ("failed", None, 0.625)
    assert ran.verdicts["test_set"] == ("failed", None, 0.5)
    assert ran.score("test_set").checks[0].message == "Colour.RED"
    others = {node: verdict for node, verdict in ran.verdicts.items() if node.startswith("test_no")}
    assert len(others) == 8
    assert set(others.values()) == {("infra", "evaluator?", None)}
    names = {node[11:-1]: verdict for node, verdict in ran.verdicts.items() if node.startswith("test_names")}
    assert names.pop("nul") == ("passed", None, 1.0)
    assert set(names) == {"path", "enum", "none", "object", "bytes"}
    assert set(names.values()) == {("infra", "evaluator?", None)}


def test_what_the_agent_printed_in_assertion_text(suite: Suite) -> None:
    """The bytes of a lone surrogate, decoded by the suite in a way that keeps it."""
    ran = suite.run(
        source("""
            def test_it(bundle, record_property):
                text = bundle.read_bytes("a").decode("utf-8", "surrogatepass")
                record_property(text, text)
                assert text == "", text
            """)
    )
    assert ran.verdicts == {"test_it": ("failed", None, 0.0)}
    assert ran.status == 1
    assert r"\ud800" in ran.case("test_it").text
