"""A secret that goes everywhere is read nowhere, but where the candidate's files are kept as they are."""

from __future__ import annotations

import base64
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from tests.plugin.support import ALIKE, attempt, refused

if TYPE_CHECKING:
    from tests.plugin.conftest import Ran, Suite

HOST, TASK, NAMED = "h0st/Secret+value~1", "ta5k_Secret-value", "n4med.Secret:value"
FORM = "ghp_" + "aB3dE5fG7hJ9kL1mN2pQ" + "4rS6tU8vW0xY5zA7"
SECRETS = {"HOST_API_KEY": HOST, "TASK_TOKEN": TASK, "MY_IDENTITY": NAMED, "github token": FORM}
MARKS = {name: f"[redacted: {name}]" for name in SECRETS}
EVERYWHERE = r"""
    import os, warnings
    import pytest

    HOST, TASK, NAMED, FORM = SECRETS
    ALL = f"{HOST} {TASK} {NAMED} {FORM}"
    QUOTED = "".join(f"'{each}' " for each in (HOST, TASK, NAMED, FORM))
    # The agent writes a secret in two halves, some time apart, and one in base64.
    AGENT = (
        f"printf %s {HOST[:7]}; sleep .05; echo {HOST[7:]}; echo $TASK_TOKEN; echo {NAMED} >&2; echo {FORM};"
        f"printf %s {HOST} | base64; echo {HOST} > kept; echo x > {TASK}; ln -s {FORM} link;"
        f"echo 'def f(): raise ValueError(\"{HOST}\")' > calc.py; cp calc.py {NAMED}"
    )

    def everywhere(**more):
        return pytest.mark.rollout(agent=AGENT, env={"TASK_TOKEN": TASK}, **more)

    @everywhere()
    def test_reads(bundle):
        assert bundle.read_text("kept") == HOST + "\n"
        assert [change.path for change in bundle.changes if change.kind == "added"].count(TASK) == 1
        assert bundle.stdout.splitlines()[:3] == ["[redacted: HOST_API_KEY]", "[redacted: TASK_TOKEN]",
                                                  "[redacted: github token]"]
        assert bundle.stderr == "[redacted: MY_IDENTITY]\n"
        output = bundle.evaluate(f"cat kept; echo {FORM} >&2").output
        assert output == "[redacted: HOST_API_KEY]\n[redacted: github token]\n"
        assert [(f.path, f.message) for f in bundle.findings if f.code == "secret"] == [
            (None, "stdout held HOST_API_KEY, TASK_TOKEN, github token"), (None, "stderr held MY_IDENTITY"),
            ("calc.py", "holds HOST_API_KEY"), ("kept", "holds HOST_API_KEY"), ("link", "holds github token"),
            (NAMED, "holds HOST_API_KEY, MY_IDENTITY"), (TASK, "holds TASK_TOKEN"),
        ]

    @everywhere()
    def test_asserts(bundle, record_property):
        local = ALL
        print(local)
        warnings.warn(ALL)
        record_property("said", ALL)
        assert bundle.read_text("kept") == local, ALL

    @everywhere()
    def test_checks(bundle, reward, record_xml_attribute):
        record_xml_attribute("said", ALL)
        with reward.check(f"check {HOST}"):
            assert bundle.call("calc:f") == 1
        with reward.check("long"):
            assert not HOST, "x" * 9_900 + (HOST + " ") * 20

    @everywhere()
    def test_raises(bundle):
        raise RuntimeError(ALL)

    @everywhere()
    def test_subtest(bundle, subtests, record_testsuite_property):
        record_testsuite_property("suite", ALL)
        with subtests.test(ALL, given=ALL):
            assert bundle.exit_code == 1, ALL

    @pytest.fixture
    def broken():
        yield
        raise RuntimeError(ALL)

    @everywhere()
    def test_teardown(broken, bundle):
        assert bundle.exit_code == 0

    class TestCallable:
        @pytest.fixture
        def rollout_agent(self):
            def agent(stage):
                command = ["sh", "-c", "echo $GIVEN_SECRET; echo $0", stage.prompt]
                given = stage.run(command, env={"GIVEN_SECRET": "g1ven-Secret"})
                assert given.stdout == f"g1ven-Secret\n{HOST}\n"
                raise ValueError("g1ven-Secret")
            return agent

        @pytest.mark.rollout(prompt=HOST)
        def test_it(self, bundle):
            assert bundle.exit_code == 0
"""


@pytest.fixture
def everywhere(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> Ran:
    """A session in which secrets go everywhere."""
    monkeypatch.setenv("HOST_API_KEY", HOST)
    monkeypatch.setenv("MY_IDENTITY", NAMED)
    suite.ini("rollout_redact = MY_IDENTITY")
    source = EVERYWHERE.replace("= SECRETS", f"= {tuple(SECRETS.values())!r}")
    ran = suite.run(source, "-vv", "--showlocals", "-rA", f"--rollout-pin=said={HOST}", "-o", "junit_family=xunit1")
    assert ran.loaded.missing == ()
    return ran


def readable(root: Path) -> dict[str, bytes]:
    """What anybody may read of a session: files by their paths, without those of candidates."""
    places = [path for path in (root / ".rollout").rglob("*") if path.is_file() and "changes" not in path.parts]
    return {str(path.relative_to(root)): path.read_bytes() for path in [*places, root / "report.xml"]}


def test_no_secret_is_read_anywhere(everywhere: Ran) -> None:
    assert everywhere.verdicts["test_reads"] == ("passed", None, 1.0), everywhere.text
    assert everywhere.verdicts["test_teardown"] == ("passed", None, 1.0)
    assert everywhere.verdicts["TestCallable::test_it"] == ("infra", "agent", None)
    shown = {"terminal": everywhere.text.encode(), "errors": everywhere.errors.encode(), **readable(everywhere.root)}
    tool = Path(sysconfig.get_path("scripts"), "pytest-rollout")
    for words in (["show", "--json", "last"], ["show", everywhere.results["test_asserts"].rollout], ["list", "last"]):
        done = subprocess.run([sys.executable, tool, *words], cwd=everywhere.root, capture_output=True, check=True)
        shown[" ".join(words)] = done.stdout
    for name, data in shown.items():
        for secret in (*SECRETS.values(), "g1ven-Secret"):
            coded = base64.b64encode(secret.encode()).decode()[:-4]
            for spelled in (secret, quote(secret, safe=""), coded, secret[:9]):
                assert spelled.encode() not in data, f"{secret} in {name}"
    _marked(everywhere)


def _marked(ran: Ran) -> None:
    """Each of these places had a secret: there its mark is."""
    assert ran.run is not None
    reads, checks = ran.attempt("test_reads"), ran.attempt("test_checks")
    given = ran.attempt("TestCallable::test_it")
    assert (reads / "stdout").read_text().count(MARKS["HOST_API_KEY"]) == 2
    assert (reads / "changes" / "kept").read_text() == f"{HOST}\n"
    assert (reads / "changes" / TASK).exists()
    assert {MARKS["TASK_TOKEN"], MARKS["MY_IDENTITY"]} <= {change.path for change in ran.bundle("test_reads").changes}
    assert (given / "stdout").read_text() == f"[redacted: GIVEN_SECRET]\n{MARKS['HOST_API_KEY']}\n"
    everything = list(MARKS.values())
    for text in (
        ran.case("test_asserts").text,
        ran.case("test_asserts").properties["said"],
        ran.case("test_checks").attributes.get("said", everything),  # workers lose the attributes that a test sets
        ran.case("test_raises").text,
        str(ran.results["test_teardown"].warnings),
        ran.section("test_asserts"),
        ran.section("warnings summary"),
        ran.score("test_asserts").message,
        str(ran.results["test_raises"].message),
    ):
        assert [mark for mark in everything if mark not in text] == [], text
    for place in (ran.run.record, reads / "bundle.json", checks / "journal.jsonl", given / "journal.jsonl"):
        assert MARKS["HOST_API_KEY"] in place.read_text(), place
    assert f"check {MARKS['HOST_API_KEY']}" in ran.section("test_checks")
    subtest = next(line for line in ran.lines if line.startswith("SUBFAILED"))
    assert f"[{' '.join(everything)}] (given=" in subtest
    given_to_it = subtest.partition("(given=")[2].partition(" test_suite")[0]
    assert [mark for mark in everything if mark not in given_to_it] == []


NAMES = """
    import pytest

    @pytest.mark.rollout(agent="echo started >> '{probe}'", env={"TASK_TOKEN": "ta5k_Secret-value"})
    @pytest.mark.parametrize("key", ["plain", "x-ta5k_Secret-value"])
    def test_it(bundle, key):
        assert bundle.exit_code == 0
"""


@ALIKE
def test_a_name_that_holds_a_secret_is_refused(suite: Suite) -> None:
    problem = "the name of the test, or its task's id, holds a secret (TASK_TOKEN), and names are shown\n"
    hint = "Give the parameter an id, with pytest.param(…, id=…) or ids=…, or the task another one."
    assert attempt(suite, NAMES) == refused(f"test_suite.py::test_it[x-[redacted: TASK_TOKEN]]: {problem}{hint}")


NAMED_CHECK = """
    import pytest

    @pytest.mark.rollout(agent="exec true", oracle="solve.sh", env={"TASK_TOKEN": "ta5k_Secret-value"})
    def test_it(bundle, reward):
        with reward.check("says ta5k_Secret-value"):
            assert bundle.exit_code == 0
"""


@ALIKE
def test_a_check_that_is_named_by_a_secret_is_known_by_its_kept_facts(suite: Suite) -> None:
    suite.write({"solve.sh": "true\n"})
    first, second = suite.run(NAMED_CHECK), suite.run(NAMED_CHECK)
    for ran in (first, second):
        assert ran.verdicts == {"test_it": ("passed", None, 1.0)}, ran.text
        assert [check.name for check in ran.score("test_it").checks] == ["says [redacted: TASK_TOKEN]"]
    (facts,) = (suite.root / ".rollout" / "controls").glob("*.json")
    assert facts.read_text().count("says [redacted: TASK_TOKEN]") == 2
