"""Options, ini keys, rollout.toml and markers that can't be used: one message, exit status 4, nothing started."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.plugin.support import ALIKE, GOOD, SUITE, UNISOLATED, attempt, filled, left, probe, refused

if TYPE_CHECKING:
    from tests.plugin.conftest import Suite

COUNT = "is not a whole number from 1 to 1000000"
ONE_WORD = "A command of one word is written as a list, ['god']; on the command line, as 'exec god'."
FIELDS = "prompt, prompt_file, task, sample, attempt, seed, rollout_id"
NOT_FOUND = (
    "the program 'no-such-program-at-all' is not on the agent's PATH (/usr/local/bin:/usr/bin:/bin)\n"
    "Install it below /usr, name its 'bin' folder in 'paths', or write its whole path."
)
NO_COMMAND = "is not a command: a text for sh -c, or a list of words"
LATER = "is not enforced by this version, so it is refused"
VALID = (
    "agent, prompt, workspace, limits, network, env, samples, seed, threshold, score_on, tags, id, "
    "hidden, protect, oracle, pools, split"
)
VALID_LIMITS = (
    "valid: 'wall', 'output', 'evaluation', 'body', 'memory', 'cpu', 'processes', 'open_files', 'file_size', 'disk', "
    "'files'"
)
DURATION = "is not a duration: write seconds above 0, or a text like '90s', '5m', '1h'"
SIZE = "is not a size: write whole bytes above 0, or a text like '500kB', '10MiB', '2GiB'"


def test_the_agent_of_these_tests_leaves_a_file_when_it_runs(suite: Suite) -> None:
    suite.ini(UNISOLATED)
    ran = suite.run(filled(suite))
    assert probe(suite).read_text() == "started\n"
    assert (ran.status, left(suite, ran).results) == (0, True)


# -- options and the ini file


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("executor", "sandbx", "unknown executor 'sandbx'; valid: sandbox, local. Did you mean 'sandbox'?"),
        (
            "isolation",
            "requird",
            "unknown isolation 'requird'; valid: required, preferred, none. Did you mean 'required'?",
        ),
        ("keep", "some", "unknown keep 'some'; valid: failed, all, none."),
        ("samples", "0", f"'0' {COUNT}"),
        ("samples", "two", f"'two' {COUNT}"),
        ("pin", "model", "'model' is not KEY=VALUE"),
    ],
)
@pytest.mark.parametrize("source", ["option", "ini"])
@ALIKE
def test_settings(suite: Suite, source: str, name: str, value: str, message: str) -> None:
    isolation = [] if name == "isolation" else [UNISOLATED]
    if source == "option":
        left = attempt(suite, args=[f"--rollout-{name}={value}"], ini=isolation)
        assert left == refused(f"--rollout-{name}: {message}")
    else:
        left = attempt(suite, ini=[*isolation, f"rollout_{name} = {value}"])
        assert left == refused(f"rollout_{name} in the ini file: {message}")


def test_a_setting_of_the_ini_file_alone(suite: Suite) -> None:
    left = attempt(suite, ini=[UNISOLATED, "rollout_keep_runs = -1"])
    assert left == refused(f"rollout_keep_runs in the ini file: '-1' {COUNT}")


@ALIKE
def test_an_executor_that_does_not_isolate(suite: Suite) -> None:
    assert attempt(suite, args=["--rollout-executor=local"], ini=[]) == refused(
        "--rollout-executor: the executor 'local' does not isolate the agent\n"
        "Allow it with --rollout-isolation=none; its results are then marked untrusted."
    )


ANY_AGENT = """
    import pytest

    @pytest.mark.rollout
    def test_it(bundle):
        assert bundle.exit_code == 0

    @pytest.mark.rollout(samples=3)
    def test_other(bundle):
        assert bundle.exit_code == 0
"""
NAMED = """
    [agents.good]
    command = "echo started >> '{probe}'"
"""


@pytest.mark.parametrize(
    ("where", "args", "ini"),
    [("--rollout-agent", ["--rollout-agent=god"], []), ("rollout_agent in the ini file", [], ["rollout_agent = god"])],
)
@ALIKE
def test_an_unknown_agent(suite: Suite, where: str, args: list[str], ini: list[str]) -> None:
    suite.write({"rollout.toml": filled(suite, NAMED)})
    assert attempt(suite, ANY_AGENT, args, [UNISOLATED, *ini]) == refused(
        f"{SUITE}::test_it (and 3 more tests): {where}: there is no agent 'god'; valid: good, noop."
        f" Did you mean 'good'?\n{ONE_WORD}"
    )


def test_no_agent(suite: Suite) -> None:
    suite.write({"rollout.toml": filled(suite, NAMED)})
    assert attempt(suite, ANY_AGENT) == refused(
        f"{SUITE}::test_it (and 3 more tests): no agent is named for this task;"
        f" in {suite.root}/rollout.toml: good, noop\n"
        "Use --rollout-agent, the ini key rollout_agent, the marker's agent=…, or the fixture rollout_agent."
    )


# -- rollout.toml


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("[agent.x]\ncommand = 'true'", "unknown key 'agent'; valid: agents. Did you mean 'agents'?"),
        (
            "[agents.x]\ncomand = 'true'",
            "[agents.x]: unknown key 'comand'; valid: command, version, preflight, paths, env, infra_exit_codes, pins."
            " Did you mean 'command'?",
        ),
        ("[agents.x]\nenv = ['A']", "[agents.x]: 'command' is missing"),
        ("[agents.x]\ncommand = 7", f"[agents.x] command: 7 {NO_COMMAND}"),
        (
            "[agents.noop]\ncommand = 'true'",
            "[agents.noop]: 'noop' is not a name for an agent: letters, digits, '_', '.', '-'; not 'noop'",
        ),
        (
            "[agents.x]\ncommand = 'true'\ninfra_exit_codes = [0]",
            "[agents.x]: infra_exit_codes = [0] is not a list of exit codes from 1 to 255",
        ),
        ("[agents.x\n", "this is not TOML: Expected ']' at the end of a table declaration (at line 1, column 10)"),
    ],
)
@ALIKE
def test_a_bad_file_of_agents(suite: Suite, toml: str, message: str) -> None:
    suite.write({"rollout.toml": toml})
    assert attempt(suite) == refused(f"{suite.root}/rollout.toml: {message}")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("command = ['no-such-program-at-all']", f"[agents.x] command: {NOT_FOUND}"),
        ("command = 'true'\nversion = ['no-such-program-at-all']", f"[agents.x] version: {NOT_FOUND}"),
        ("command = 'true'\npaths = ['tools']", "[agents.x]: the path 'tools' ({root}/tools) does not exist"),
    ],
)
@ALIKE
def test_an_agent_that_is_taken_and_not_there(suite: Suite, table: str, message: str) -> None:
    suite.write({"rollout.toml": f"[agents.x]\n{table}\n"})
    said = f"{suite.root}/rollout.toml: {message.replace('{root}', str(suite.root))}"
    left = attempt(suite, ANY_AGENT, ["--rollout-agent=x"])
    assert left == refused(f"{SUITE}::test_it (and 3 more tests): {said}")


@ALIKE
def test_a_configured_file_that_is_not_there(suite: Suite) -> None:
    left = attempt(suite, ini=[UNISOLATED, "rollout_config = agents.toml"])
    assert left == refused(f"rollout_config: the file {suite.root}/agents.toml does not exist")


# -- the marker

MARKED = """
    import pytest
    from pytest_rollout import Limits

    GIVEN = [{given}]

    def make(number, arguments):
        @pytest.mark.rollout(**{"agent": "echo started >> '{probe}'", **arguments})
        def test(bundle):
            assert bundle.exit_code == 0
        return test

    for number, arguments in enumerate(GIVEN):
        globals()[f"test_{number}"] = make(number, arguments)
"""
MARKERS = {
    "arguments": [
        ("{'agnet': 'true'}", f"rollout has no argument 'agnet'; valid: {VALID}. Did you mean 'agent'?"),
        ("{'zzz': 1}", f"rollout has no argument 'zzz'; valid: {VALID}."),
        ("{'pools': {}}", "rollout(pools={}): it is not a list of texts"),
        ("{'split': 'my tests'}", "rollout(split='my tests'): it is not a name, such as 'train' or 'held-out'"),
        ("{'network': 'gateway'}", f"rollout(network='gateway') {LATER}"),
        ("{'network': 'hots'}", "rollout(network='hots'): valid: 'none', 'host'. Did you mean 'host'?"),
        ("{'score_on': 'always'}", "rollout(score_on='always'): valid: 'any', 'completed'."),
    ],
    "limits": [
        (
            "{'limits': Limits(processes=0)}",
            "Limits(processes=…): 0 is not a count: write a whole number from 1 to 1000000000",
        ),
        (
            "{'limits': Limits(wal='5s')}",
            f"Limits(wal=…): there is no such limit; {VALID_LIMITS}. Did you mean 'wall'?",
        ),
        ("{'limits': Limits(wall='5 parsecs')}", f"Limits(wall=…): '5 parsecs' {DURATION}"),
        ("{'limits': Limits(wall=0)}", f"Limits(wall=…): 0 {DURATION}"),
        (
            "{'limits': Limits(output='10 pages', wall=-1)}",
            f"Limits(wall=…): -1 {DURATION}; Limits(output=…): '10 pages' {SIZE}",
        ),
        ("{'limits': {'wall': 5}}", "rollout(limits={'wall': 5}): it is not a Limits, such as Limits(wall='5m')"),
    ],
    "values": [
        ("{'samples': 0}", f"rollout(samples=0): it {COUNT}"),
        ("{'samples': '2'}", f"rollout(samples='2'): it {COUNT}"),
        ("{'env': {'ROLLOUT_A': ''}}", "rollout(env=…): 'ROLLOUT_A' begins with ROLLOUT_, which is set by the plugin"),
        ("{'env': {'A': 1}}", "rollout(env={'A': 1}): it is not a dict of texts"),
        ("{'threshold': 1.5}", "rollout(threshold=1.5): it is not a number from 0 to 1"),
        ("{'seed': -1}", "rollout(seed=-1): it is not a whole number from 0 up"),
        ("{'tags': 'a'}", "rollout(tags='a'): it is not a list of texts"),
        ("{'id': ' '}", "rollout(id=' '): it is empty or longer than 500 characters"),
        ("{'prompt': 3}", "rollout(prompt=3): it is not a text without NUL"),
    ],
    "files of the evaluator": [
        ("{'hidden': 3}", "rollout(hidden=3): it is not a path of a folder"),
        ("{'hidden': '/no/such'}", "rollout(hidden='/no/such'): the folder /no/such does not exist"),
        ("{'oracle': 3}", "rollout(oracle=3): it is not a path"),
        ("{'oracle': '/no/such.sh'}", "rollout(oracle='/no/such.sh'): /no/such.sh does not exist"),
        ("{'protect': 3}", "rollout(protect=3): it is not a list of globs, such as ['tests/**']"),
        (
            "{'protect': ['/etc/**']}",
            "rollout(protect=…): '/etc/**' is not a glob inside the workspace\n"
            "Write paths of the workspace: 'setup.cfg', 'tests/**', '**/conftest.py'.",
        ),
    ],
    "agents": [
        ("{'agent': 'god'}", f"rollout(agent=…): there is no agent 'god'; valid: noop.\n{ONE_WORD}"),
        ("{'agent': ['no-such-program-at-all', '-x']}", f"rollout(agent=…): {NOT_FOUND}"),
        ("{'agent': ['/no/such']}", "rollout(agent=…): the program '/no/such' (/no/such) does not exist"),
        ("{'agent': []}", f"rollout(agent=…): [] {NO_COMMAND}"),
        (
            "{'agent': ['echo', '{prmpt}']}",
            f"rollout(agent=…): '{{prmpt}}' has the field 'prmpt'; valid: {FIELDS}. Did you mean 'prompt'?\n"
            "In a list, a brace that is meant is written twice: {{ or }}.",
        ),
    ],
}


@pytest.mark.parametrize("kind", MARKERS)
@ALIKE
def test_the_marker(suite: Suite, kind: str) -> None:
    source = MARKED.replace("{given}", ", ".join(given for given, _ in MARKERS[kind]))
    messages = [f"{SUITE}::test_{number}: {message}" for number, (_, message) in enumerate(MARKERS[kind])]
    assert attempt(suite, source) == refused(*messages)


@pytest.mark.parametrize(("extra", "left_out"), [(1, "… and 1 more problem"), (2, "… and 2 more problems")])
@ALIKE
def test_at_most_ten_problems_are_told(suite: Suite, extra: int, left_out: str) -> None:
    problems = [f"rollout(seed={-1 - number}): it is not a whole number from 0 up" for number in range(10)]
    source = MARKED.replace("{given}", ", ".join(f"{{'seed': {-1 - number}}}" for number in range(10 + extra)))
    messages = [f"{SUITE}::test_{number}: {problem}" for number, problem in enumerate(problems)]
    assert attempt(suite, source) == refused(*messages, left_out)


def test_one_problem_of_many_tests_is_told_once(suite: Suite) -> None:
    message = f"{SUITE}::test_0 (and 39 more tests): rollout(seed=-1): it is not a whole number from 0 up"
    assert attempt(suite, MARKED.replace("{given}", ", ".join(["{'seed': -1}"] * 40))) == refused(message)


@ALIKE
def test_a_positional_argument(suite: Suite) -> None:
    left = attempt(suite, GOOD.replace("rollout(", "rollout('fix it', "))
    assert left == refused(f"{SUITE}::test_it: rollout takes named arguments only, got 'fix it'")


@ALIKE
def test_samples_in_the_marks_of_a_parameter(suite: Suite) -> None:
    source = """
        import pytest

        MARK = pytest.mark.rollout(agent="echo started >> '{probe}'", samples=2)

        @pytest.mark.parametrize("size", [pytest.param(1, marks=MARK)])
        def test_it(bundle, size):
            assert bundle.exit_code == 0
    """
    assert attempt(suite, source) == refused(
        f"{SUITE}::test_it[1]: 'samples' inside pytest.param(marks=…) comes too late to multiply the test\n"
        "Put it into the marker of the function, the class or the module, or use --rollout-samples."
    )


@ALIKE
def test_an_id_that_two_tasks_have(suite: Suite) -> None:
    source = """
        import pytest

        @pytest.mark.rollout(agent="echo started >> '{probe}'", id="same")
        def test_it(bundle):
            assert bundle.exit_code == 0

        @pytest.mark.rollout(agent="echo started >> '{probe}'", id="same")
        def test_other(bundle):
            assert bundle.exit_code == 0
    """
    left = attempt(suite, source)
    assert left == refused(f"{SUITE}::test_other: the task id 'same' is that of {SUITE}::test_it too")


def test_a_fixture_that_is_not_there_is_told_before_an_agent_runs(suite: Suite) -> None:
    ran = suite.run(
        """
        import pytest

        @pytest.fixture
        def answers(bundle, tmp_pth):
            return bundle

        @pytest.mark.rollout(agent="exec true")
        def test_direct(bundle, rewrd):
            assert bundle

        @pytest.mark.rollout(agent="exec true")
        @pytest.mark.parametrize("number", [1])
        def test_of_a_fixture(answers, number, request):
            assert answers
        """,
        checked=False,
    )
    assert ran.status == 4
    told = ran.text + ran.errors
    assert "test_suite.py::test_direct: there is no fixture 'rewrd'." in told
    assert "test_suite.py::test_of_a_fixture[1]: there is no fixture 'tmp_pth'." in told
