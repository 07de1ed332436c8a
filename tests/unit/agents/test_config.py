"""``rollout.toml`` and what a user names: every key, every refusal with its words, misspellings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_rollout.agents.command import CommandAgent
from pytest_rollout.agents.config import AgentConfig, choose_agent, load_config
from pytest_rollout.agents.function import FunctionAgent
from pytest_rollout.agents.noop import NoopAgent
from pytest_rollout.agents.protocol import DEFAULT_PATH, AgentInfo, LiveStage
from pytest_rollout.bundle import Ended
from pytest_rollout.errors import ConfigError
from pytest_rollout.executors.protocol import Bind

KEYS = "command, version, preflight, paths, env, infra_exit_codes, pins"
BRACES = "In a list, a brace that is meant is written twice: {{ or }}."


def load(folder: Path, text: str) -> dict[str, AgentConfig]:
    path = folder / "rollout.toml"
    path.write_text(text, encoding="utf-8")
    return dict(load_config(path, must_exist=True))


def refusal(folder: Path, text: str) -> str:
    """The message without the path of the file before it."""
    with pytest.raises(ConfigError) as caught:
        load(folder, text)
    where = f"{folder / 'rollout.toml'}: "
    assert str(caught.value).startswith(where)
    return str(caught.value).removeprefix(where)


# The file


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "rollout.toml"
    assert load_config(path, must_exist=False) == {}
    with pytest.raises(ConfigError) as caught:
        load_config(path, must_exist=True)
    assert str(caught.value) == f"rollout_config: the file {path} does not exist"


def test_a_file_that_can_not_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path, must_exist=False)
    assert str(caught.value) == (
        f"rollout_config: the file {tmp_path} can't be read: [Errno 21] Is a directory: '{tmp_path}'"
    )
    (tmp_path / "rollout.toml").write_bytes(b"\xff")
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path / "rollout.toml", must_exist=False)
    assert str(caught.value) == (
        f"rollout_config: the file {tmp_path}/rollout.toml can't be read: "
        "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[agent.x]", "unknown key 'agent'; valid: agents. Did you mean 'agents'?"),
        ("zzz = 1", "unknown key 'zzz'; valid: agents."),
        ("agents = 5", "agents are tables: [agents.NAME]"),
        ("agents = [{ command = 'x' }]", "agents are tables: [agents.NAME]"),
        ("[agents]\nx = 'sh'", "agents are tables: [agents.NAME]"),
    ],
)
def test_what_is_refused_of_the_whole_file(tmp_path: Path, text: str, message: str) -> None:
    assert refusal(tmp_path, text) == message


def test_a_file_that_is_not_toml(tmp_path: Path) -> None:
    assert refusal(tmp_path, "[agents").startswith("this is not TOML: Expected ']' at the end of a table declaration")


# One table


def test_an_empty_file_names_nobody(tmp_path: Path) -> None:
    assert load(tmp_path, "") == load(tmp_path, "[agents]") == {}


def test_every_key_of_a_table(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    text = """
        [agents.my-agent]
        command = ["sh", "-c", "echo {seed}"]
        version = ["sh", "--version"]
        preflight = "ask it"
        paths = ["tools"]
        env = ["MODEL", "MISSING"]
        infra_exit_codes = [75, 1, 255]
        pins = { model = "m", temperature = 0.7, top_k = 5, greedy = false }

        [agents.plain]
        command = "echo {anything} > {}"
        version = "cat version"
    """
    found = load(tmp_path, text)
    assert list(found) == ["my-agent", "plain"]
    tools = str(tmp_path / "tools")
    assert found["my-agent"] == AgentConfig(
        name="my-agent",
        command=("sh", "-c", "echo {seed}"),
        version=("sh", "--version"),
        preflight="ask it",
        binds=(Bind(source=tools, target=tools),),
        env=("MODEL", "MISSING"),
        infra_exit_codes=(75, 1, 255),
        pins={"model": "m", "temperature": 0.7, "top_k": 5, "greedy": False},
    )
    assert found["plain"] == AgentConfig(name="plain", command="echo {anything} > {}", version="cat version")


def test_an_agent_sees_the_variables_that_it_names_and_no_other(tmp_path: Path) -> None:
    config = load(tmp_path, '[agents.a]\ncommand = "x"\nenv = ["MODEL", "MISSING", "EMPTY"]\npins = {m = 1}')["a"]
    agent = config.agent({"MODEL": "m", "TOKEN": "secret", "EMPTY": ""}, version="v2")
    assert agent == CommandAgent(name="a", command="x", version="v2", env={"MODEL": "m", "EMPTY": ""}, pins={"m": 1})


def test_a_program_beside_the_file_is_found_there(tmp_path: Path) -> None:
    program = tmp_path / "agents" / "good"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    text = '[agents.a]\ncommand = ["agents/good", "{task}"]\nversion = ["agents/good", "-V"]\npaths = ["agents"]'
    config = load(tmp_path, text)["a"]
    assert (config.command, config.version) == ((str(program), "{task}"), (str(program), "-V"))


NOT_A_COMMAND = "is not a command: a text for sh -c, or a list of words"


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("", ": 'command' is missing"),
        ("version = 'x'", ": 'command' is missing"),
        ("comand = 'x'", f": unknown key 'comand'; valid: {KEYS}. Did you mean 'command'?"),
        ("command = 'x'\nzzz = 1", f": unknown key 'zzz'; valid: {KEYS}."),
        ("command = ''", f" command: '' {NOT_A_COMMAND}"),
        ("command = '  '", f" command: '  ' {NOT_A_COMMAND}"),
        ("command = []", f" command: [] {NOT_A_COMMAND}"),
        ("command = ['']", f" command: [''] {NOT_A_COMMAND}"),
        ("command = ['sh', 5]", f" command: ['sh', 5] {NOT_A_COMMAND}"),
        ("command = 5", f" command: 5 {NOT_A_COMMAND}"),
        ('command = "a\\u0000b"', f" command: 'a\\x00b' {NOT_A_COMMAND}"),
        ('command = ["sh", "a\\u0000b"]', f" command: ['sh', 'a\\x00b'] {NOT_A_COMMAND}"),
        ("command = 'x'\nversion = []", f" version: [] {NOT_A_COMMAND}"),
        ("command = 'x'\npreflight = 3", f" preflight: 3 {NOT_A_COMMAND}"),
        ("command = 'x'\nversion = true", f" version: True {NOT_A_COMMAND}"),
        (
            "command = ['sh', '{promt}']",
            " command: '{promt}' has the field 'promt'; valid: prompt, prompt_file, task, sample, attempt, seed, "
            f"rollout_id. Did you mean 'prompt'?\n{BRACES}",
        ),
        ("command = ['sh', '{']", f" command: '{{': Single '{{' encountered in format string\n{BRACES}"),
        (
            "command = ['no-such-program']",
            f" command: the program 'no-such-program' is not on the agent's PATH ({DEFAULT_PATH})\n"
            "Install it below /usr, name its 'bin' folder in 'paths', or write its whole path.",
        ),
        ("command = ['/no/such']", " command: the program '/no/such' (/no/such) does not exist"),
        (
            "command = 'x'\nversion = ['no-such-program']",
            f" version: the program 'no-such-program' is not on the agent's PATH ({DEFAULT_PATH})\n"
            "Install it below /usr, name its 'bin' folder in 'paths', or write its whole path.",
        ),
        ("command = 'x'\npaths = '/opt'", ": paths = '/opt' is not a list of texts"),
        ("command = 'x'\npaths = [5]", ": paths = [5] is not a list of texts"),
        ("command = 'x'\npaths = ['']", ": paths = [''] is not a list of texts"),
        ("command = 'x'\npaths = ['no']", ": the path 'no' (TMP/no) does not exist"),
        (
            "command = 'x'\npaths = ['/']",
            ": the path '/' (/) is too wide to be shown to an agent\n"
            "Name the folders of the interpreter or the program that the agent needs.",
        ),
        ("command = 'x'\nenv = { A = '1' }", ": env = {'A': '1'} is not a list of texts"),
        ("command = 'x'\nenv = ['A', '']", ": env = ['A', ''] is not a list of texts"),
        ("command = 'x'\nenv = ['A=1']", ": env: 'A=1' is not a name of a variable; its value is the host's"),
        ("command = 'x'\ninfra_exit_codes = 75", ": infra_exit_codes = 75 is not a list of exit codes from 1 to 255"),
        ("command = 'x'\ninfra_exit_codes = [0]", ": infra_exit_codes = [0] is not a list of exit codes from 1 to 255"),
        (
            "command = 'x'\ninfra_exit_codes = [256]",
            ": infra_exit_codes = [256] is not a list of exit codes from 1 to 255",
        ),
        (
            "command = 'x'\ninfra_exit_codes = [true, '75']",
            ": infra_exit_codes = [True, '75'] is not a list of exit codes from 1 to 255",
        ),
        ("command = 'x'\npins = 'm'", ": pins = 'm' is not a table of texts, numbers and booleans"),
        ("command = 'x'\npins = { a = [1] }", ": pins = {'a': [1]} is not a table of texts, numbers and booleans"),
        ("command = 'x'\npins = { a = nan }", ": pins = {'a': nan} is not a table of texts, numbers and booleans"),
        ("command = 'x'\npins = { a = -inf }", ": pins = {'a': -inf} is not a table of texts, numbers and booleans"),
        (
            "command = 'x'\npins = { a = 9223372036854775808 }",
            ": pins = {'a': 9223372036854775808} is not a table of texts, numbers and booleans",
        ),
    ],
    ids=lambda value: value.replace("\n", ";")[:40],
)
def test_what_is_refused_of_a_table(tmp_path: Path, table: str, message: str) -> None:
    text = f"[agents.good]\ncommand = 'x'\n[agents.a]\n{table}"
    assert refusal(tmp_path, text) == f"[agents.a]{message}".replace("TMP", str(tmp_path))


@pytest.mark.parametrize("name", ["a b", "-a", "", "a/b", "ä", "noop", ".a"])
def test_a_name_that_a_command_line_could_not_tell_from_a_command_is_refused(tmp_path: Path, name: str) -> None:
    assert refusal(tmp_path, f"[agents.'{name}']\ncommand = 'x'") == (
        f"[agents.{name}]: {name!r} is not a name for an agent: letters, digits, '_', '.', '-'; not 'noop'"
    )


@pytest.mark.parametrize("name", ["a", "A-1.b_c", "5", "_"])
def test_names_that_are_good(tmp_path: Path, name: str) -> None:
    assert list(load(tmp_path, f"[agents.'{name}']\ncommand = 'x'")) == [name]


# What a user names

NAMED = {"good": AgentConfig(name="good", command="x"), "sloppy": AgentConfig(name="sloppy", command="y")}


def choose(value: object, folder: Path | None = None) -> Any:
    return choose_agent(value, NAMED, where="--rollout-agent", folder=folder)


def test_one_word_is_a_name() -> None:
    assert choose("good") is NAMED["good"]
    assert choose(" good ") is NAMED["good"]
    assert isinstance(choose("noop"), NoopAgent)


@pytest.mark.parametrize(
    ("name", "hint"), [("goood", " Did you mean 'good'?"), ("noob", " Did you mean 'noop'?"), ("zz", "")]
)
def test_a_name_that_nobody_has_is_refused(name: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        choose(name)
    assert str(caught.value) == (
        f"--rollout-agent: there is no agent {name!r}; valid: good, sloppy, noop.{hint}\n"
        f"A command of one word is written as a list, [{name!r}]; on the command line, as 'exec {name}'."
    )


def test_more_than_a_word_is_a_command_for_the_shell() -> None:
    agent = choose("printf '%s'  x\n> out")
    assert agent == CommandAgent(name="printf '%s' x > out", command="printf '%s'  x\n> out")


def test_the_name_of_a_long_command_is_short() -> None:
    assert choose("echo " + "x" * 35).name == "echo " + "x" * 35
    assert choose("echo " + "x" * 36).name == "echo " + "x" * 34 + "…"


def test_a_list_is_a_command_as_it_is(tmp_path: Path) -> None:
    assert choose(["sh", "-c", "{task}"]) == CommandAgent(name="sh", command=("sh", "-c", "{task}"))
    assert choose(("/bin/sh", "x")) == CommandAgent(name="sh", command=("/bin/sh", "x"))
    assert choose(["./run.sh"], tmp_path) == CommandAgent(name="run.sh", command=("./run.sh",))


def drive(stage: LiveStage) -> None:
    stage.run("true")


class Own:
    """An agent of a suite's own."""

    info = AgentInfo(name="own")
    infra_exit_codes: tuple[int, ...] = ()

    def run(self, stage: LiveStage) -> Ended:
        return stage.finished()


def test_a_callable_and_an_agent_are_taken() -> None:
    agent = choose(drive)
    assert isinstance(agent, FunctionAgent)
    assert agent.info.name.endswith(":drive")
    own = Own()
    assert choose(own) is own


@pytest.mark.parametrize("value", [5, None, b"x", [], [5], "", " ", {}, Own, ["sh", "\0"], "echo \0"], ids=repr)
def test_what_is_no_agent_is_refused(value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        choose(value)
    assert str(caught.value) == f"--rollout-agent: {value!r} {NOT_A_COMMAND}"


def test_a_refusal_of_a_list_names_where_it_was_said() -> None:
    with pytest.raises(ConfigError) as caught:
        choose(["sh", "{x}"])
    assert str(caught.value).startswith("--rollout-agent: '{x}' has the field 'x'; valid: prompt, ")
    with pytest.raises(ConfigError) as caught:
        choose(["no-such-program"])
    assert str(caught.value) == (
        f"--rollout-agent: the program 'no-such-program' is not on the agent's PATH ({DEFAULT_PATH})\n"
        "Install it below /usr, name its 'bin' folder in 'paths', or write its whole path."
    )


# What an agent needs of this machine


def test_an_agent_that_is_not_on_this_machine_is_no_trouble_to_others(tmp_path: Path) -> None:
    path = tmp_path / "rollout.toml"
    path.write_text('[agents.ok]\ncommand = "true"\n[agents.far]\ncommand = ["not-installed-here"]\n', encoding="utf-8")
    named = load_config(path, must_exist=True)
    assert (list(named), len(named), "far" in named) == (["ok", "far"], 2, True)
    assert isinstance(choose_agent("ok", named, where="w", folder=None), AgentConfig)
    assert named["ok"] is named["ok"]
    with pytest.raises(ConfigError, match=r"\[agents\.far\] command: the program 'not-installed-here' is not on"):
        choose_agent("far", named, where="w", folder=None)


def test_a_field_in_a_text_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path, '[agents.x]\ncommand = "cat {prompt_file}"\n') == (
        "[agents.x] command: the text 'cat {prompt_file}' has the field {prompt_file}, "
        "but fields are filled in lists only\nWrite a list, or use the variable $ROLLOUT_PROMPT_FILE in the text."
    )
    assert load(tmp_path, '[agents.x]\ncommand = "echo ${HOME} {}"\n')["x"].command == "echo ${HOME} {}"
