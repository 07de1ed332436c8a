"""What a check that failed says: pytest's rewritten text, rendered when the check ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.plugin.support import ALIKE

if TYPE_CHECKING:
    from tests.plugin.conftest import Suite


def test_checks_keep_the_rewritten_text(suite: Suite) -> None:
    suite.write(
        {
            "helpers.py": """
                def same(found, wanted):
                    assert found == wanted, "they differ"
                """,
            "conftest.py": """
                import pytest
                pytest.register_assert_rewrite("helpers")
                """,
        }
    )
    ran = suite.run("""
        import pytest
        from helpers import same

        def has(bundle, path):
            lines = bundle.read_text(path).splitlines()
            assert "three" in lines

        @pytest.mark.rollout(agent="printf 'one\\\\ntwo\\\\n' > a; echo '{}' > b")
        def test_it(bundle, reward):
            with reward.check("text", weight=2):
                assert bundle.read_text("a") == "one\\nthree\\n"
            with reward.check("helper"):
                has(bundle, "a")
            with reward.check("other module"):
                same(bundle.read_json("b"), {"x": 1})
            with reward.check("evidence"):
                bundle.read_text("no/such/file")
            with reward.check("approx"):
                assert len(bundle.read_text("a")) == pytest.approx(9)
            with reward.check("raises"), pytest.raises(ValueError, match="nothing"):
                raise ValueError("something")
            with reward.check("caught", catch=KeyError):
                bundle.read_json("b")["answer"]
            with reward.check("bare"):
                raise AssertionError
            with reward.check("holds"):
                assert bundle.exists("a")
            reward.add("half", 0.5)
        """)
    assert ran.verdicts["test_it"][:2] == ("failed", None)
    messages = {check.name: (check.message or "").splitlines() for check in ran.score("test_it").checks}
    assert messages["text"] == [
        r"test_suite.py:12: assert 'one\ntwo\n' == 'one\nthree\n'",
        "  ",
        "    one",
        "  - three",
        "  + two",
    ]
    assert messages["helper"] == ["test_suite.py:14: assert 'three' in ['one', 'two']"]
    assert messages["other module"][:2] == ["test_suite.py:16: they differ", "assert {} == {'x': 1}"]
    assert messages["evidence"] == ["test_suite.py:18: no/such/file: there is no such file in the stage"]
    assert messages["approx"][0] == "test_suite.py:20: assert 8 == 9 ± 9.0e-06"
    assert messages["raises"][0] == "test_suite.py:21: Regex pattern did not match."
    assert messages["caught"] == ["test_suite.py:24: KeyError: 'answer'"]
    assert messages["bare"] == ["test_suite.py:26: AssertionError"]
    assert messages["holds"] == messages["half"] == []
    shown = ran.section("test_it")
    for name, lines in messages.items():
        if lines:
            assert "\n".join([f"{name}:", *(f"  | {line}" for line in lines)]) in shown
    assert shown.splitlines()[-len(_SUMMARY) :] != _SUMMARY  # the sections follow
    assert "\n".join(_SUMMARY) in shown


_SUMMARY = [
    "reward 0.1364 is below the threshold 1",
    "    0  × 2  text",
    "    0  × 1  helper",
    "    0  × 1  other module",
    "    0  × 1  evidence",
    "    0  × 1  approx",
    "    0  × 1  raises",
    "    0  × 1  caught",
    "    0  × 1  bare",
    "    1  × 1  holds",
    "  0.5  × 1  half",
]


@ALIKE
def test_a_message_is_rendered_when_the_check_ends(suite: Suite) -> None:
    ran = suite.run("""
        import pytest

        class Thing:
            name = "before"

            def __eq__(self, other):
                return False

            def __repr__(self):
                return f"<Thing {self.name}>"

        @pytest.mark.rollout(agent="echo x > a")
        def test_mutates(bundle, reward):
            assert bundle.exists("a")
            thing, found = Thing(), ["first"]
            with reward.check("repr"):
                assert thing == 1
            with reward.check("list"):
                assert found == []
            with reward.check("own"):
                raise AssertionError(thing)
            thing.name = "after"
            found[:] = ["second"]
        """)
    messages = {check.name: check.message for check in ran.score("test_mutates").checks}
    assert messages["repr"] == "test_suite.py:18: assert <Thing before> == 1"
    assert (messages["list"] or "").startswith("test_suite.py:20: assert ['first'] == []")
    assert messages["own"] == "test_suite.py:22: <Thing before>"
    assert "after" not in ran.text
    assert "second" not in ran.text


@ALIKE
def test_a_hard_gate_shows_the_failed_checks_before_it(suite: Suite) -> None:
    ran = suite.run("""
        import pytest

        @pytest.mark.rollout(agent="echo x > a")
        def test_gate(bundle, reward):
            with reward.check("made", weight=3):
                assert bundle.exists("a")
            with reward.check("other"):
                assert bundle.exists("b"), "no b"
            assert bundle.stdout == "said", "it says nothing"
        """)
    shown = ran.section("test_gate")
    assert "E       AssertionError: it says nothing" in shown
    start = shown.index("rollout: checks")
    assert shown[start:].splitlines()[1:6] == [
        "  1  × 3  made",
        "  0  × 1  other",
        "",
        "other:",
        "  | test_suite.py:9: no b",
    ]


@ALIKE
def test_messages_that_can_not_be_made(suite: Suite) -> None:
    """A repr or a str that raises belongs to the suite, and does not lose the rollout."""
    ran = suite.run("""
        import pytest

        class Broken:
            def __repr__(self):
                raise RuntimeError("no repr")

        class BrokenError(AssertionError):
            def __str__(self):
                raise RuntimeError("no str")

        @pytest.mark.rollout(agent="echo x > a")
        def test_broken_repr(bundle, reward):
            assert bundle.exists("a")
            with reward.check("repr"):
                assert Broken() == 1

        @pytest.mark.rollout(agent="echo x > a")
        def test_broken_str(bundle, reward):
            assert bundle.exists("a")
            with reward.check("str"):
                raise BrokenError

        @pytest.mark.rollout(agent="echo x > a")
        def test_broken_gate(bundle, reward):
            assert bundle.exists("a")
            raise BrokenError

        @pytest.mark.rollout(agent="echo x > a")
        def test_huge(bundle, reward):
            with reward.check("huge"):
                raise AssertionError("x" * 5_000_000)
        """)
    assert ran.verdicts == {
        "test_broken_repr": ("failed", None, 0.0),
        "test_broken_str": ("failed", None, 0.0),
        "test_broken_gate": ("failed", None, 0.0),
        "test_huge": ("failed", None, 0.0),
    }
    assert "Broken" in (ran.score("test_broken_repr").checks[0].message or "")
    messages = {node: (ran.score(node).checks or (None,))[0] for node in ran.results}
    assert messages["test_broken_str"] is not None
    assert (messages["test_broken_str"].message or "").endswith("BrokenError: <exception str() failed>")
    assert messages["test_huge"] is not None
    assert len(messages["test_huge"].message or "") < 10_100
    assert (messages["test_huge"].message or "").endswith(" more characters)")
    assert ran.case("test_broken_gate").message == "<BrokenError: its text raised RuntimeError>"
