"""Paths that an agent may read: what is bound with them, what is too wide, and where a program is found."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from pytest_rollout.agents.paths import find_program, is_below, resolve_paths
from pytest_rollout.agents.protocol import DEFAULT_PATH, join_path
from pytest_rollout.errors import ConfigError
from pytest_rollout.executors.protocol import Bind

WIDE = "Name the folders of the interpreter or the program that the agent needs."


def binds(*paths: object, folder: Path = Path("/")) -> dict[str, str]:
    """Target to source."""
    found = resolve_paths([str(path) for path in paths], folder, "w")
    assert len({bind.target for bind in found}) == len(found)
    return {bind.target: bind.source for bind in found}


def same(*paths: object) -> dict[str, str]:
    return {str(path): str(path) for path in paths}


def refusal(*paths: str, folder: Path = Path("/")) -> str:
    with pytest.raises(ConfigError) as caught:
        resolve_paths(paths, folder, "rollout.toml: [agents.a]")
    return str(caught.value)


def make(place: Path, mode: int = 0o755) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("#!/bin/sh\n")
    place.chmod(mode)
    return place


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """A folder whose own name has no link in it."""
    return Path(os.path.realpath(tmp_path))


@pytest.fixture
def python(top: Path) -> Path:
    """A Python of its own: ``<top>/py/3.12/bin/python3.12``, with ``python3`` and ``python`` as links to it."""
    home = top / "py" / "3.12"
    make(home / "bin" / "python3.12")
    (home / "bin" / "python3").symlink_to("python3.12")
    (home / "bin" / "python").symlink_to("python3")
    return home


def venv(place: Path, home: object, link: object) -> Path:
    (place / "bin").mkdir(parents=True)
    (place / "pyvenv.cfg").write_text(f"home = {home}\ninclude-system-site-packages = false\n")
    (place / "bin" / "python").symlink_to(str(link))
    return place


# What is bound


def test_a_folder_and_a_file_are_bound_at_their_own_place(top: Path) -> None:
    tool = make(top / "d" / "tool")
    assert binds(top / "d") == same(top / "d")
    assert binds(tool) == same(tool)
    assert binds() == {}
    assert binds(top / "d", top / "d") == same(top / "d")


def test_relative_paths_lie_beside_the_file_and_a_home_folder_is_expanded(
    top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(top / "d" / "tool")
    monkeypatch.setenv("HOME", str(top))
    assert binds("d", folder=top) == same(top / "d")
    assert binds("../d/.", folder=top / "d") == same(top / "d")
    assert binds("~/d") == same(top / "d")


def test_a_folder_behind_links_is_bound_under_its_name_and_its_real_one(top: Path) -> None:
    real = top / "real" / "v1"
    real.mkdir(parents=True)
    (top / "current").symlink_to("real/v1")
    (top / "newest").symlink_to("current")
    (top / "up").symlink_to("real")
    assert binds(top / "newest") == {str(top / "newest"): str(real), str(real): str(real)}
    assert binds(top / "up" / "v1") == {str(top / "up" / "v1"): str(real), str(real): str(real)}


def test_a_bind_that_a_wider_one_shows_is_left_out(top: Path) -> None:
    (top / "a" / "b").mkdir(parents=True)
    (top / "ab").mkdir()
    (top / "link").symlink_to("a/b")
    assert binds(top / "a" / "b", top / "a", top / "ab") == same(top / "a", top / "ab")
    # at another name it is another place
    assert binds(top / "a", top / "link") == {**same(top / "a"), str(top / "link"): str(top / "a" / "b")}


def test_a_virtual_environment_brings_the_python_that_it_was_made_from(top: Path, python: Path) -> None:
    made = venv(top / "env", python / "bin", python / "bin" / "python3")
    assert binds(made) == same(made, python)
    assert binds("env", folder=top) == same(made, python)


def test_only_pyvenv_cfg_or_only_the_links_are_enough(top: Path, python: Path) -> None:
    copied = venv(top / "copied", python / "bin", "x")
    (copied / "bin" / "python").unlink()
    make(copied / "bin" / "python")
    assert binds(copied) == same(copied, python)
    linked = venv(top / "linked", "/nowhere/bin", python / "bin" / "python")
    (linked / "pyvenv.cfg").unlink()
    assert binds(linked) == same(linked, python)


def test_every_link_on_the_way_is_bound_under_its_own_name(top: Path, python: Path) -> None:
    (top / "py" / "current").symlink_to("3.12")
    alias = top / "opt" / "bin" / "python3"
    alias.parent.mkdir(parents=True)
    alias.symlink_to("../../py/current/bin/python3")
    made = venv(top / "env", alias.parent, alias)
    assert binds(made) == {
        **same(made, top / "opt", python),
        str(top / "py" / "current"): str(python),
    }


def test_an_environment_inside_its_python_needs_one_bind(python: Path) -> None:
    made = venv(python / "envs" / "e", python / "bin", "../../../bin/python3")
    assert binds(made, python) == same(python)


@pytest.mark.parametrize("home", ["/usr/bin", "/bin", "/usr/local/bin", "/sbin"])
@pytest.mark.parametrize("name", ["pyvenv.cfg", "link"])
def test_a_python_of_the_system_is_there_already(top: Path, home: str, name: str) -> None:
    made = venv(top / "env", home if name == "pyvenv.cfg" else "", f"{home}/python3" if name == "link" else "none")
    assert binds(made) == same(made)


@pytest.mark.parametrize("content", [b"\xff\xfe", b"", b"home\n", b"home =\n", b"homes = /opt/x/bin\n", None])
def test_an_odd_environment_is_a_folder_like_any_other(top: Path, content: bytes | None) -> None:
    made = venv(top / "env", "x", "python")
    assert os.readlink(made / "bin" / "python") == "python"  # to itself, for ever
    if content is None:
        (made / "pyvenv.cfg").unlink()
        (made / "pyvenv.cfg").mkdir()
    else:
        (made / "pyvenv.cfg").write_bytes(content)
    assert binds(made) == same(made)


def test_a_home_that_is_gone_is_not_bound(top: Path) -> None:
    made = venv(top / "env", top / "gone" / "bin", top / "gone" / "bin" / "python3")
    assert binds(made) == same(made)


@pytest.mark.skipif(sys.prefix == sys.base_prefix, reason="this Python is in no virtual environment")
def test_the_environment_of_these_tests_brings_its_python() -> None:
    found = binds(sys.prefix)
    real = os.path.realpath(sys.executable)
    system = real.startswith("/usr/")
    assert system or any(is_below(real, source) for source in found.values())
    assert found[os.path.normpath(sys.prefix)] == os.path.realpath(sys.prefix)


# What is refused


def test_a_path_that_is_not_there_is_refused(top: Path) -> None:
    assert refusal("no", folder=top) == f"rollout.toml: [agents.a]: the path 'no' ({top}/no) does not exist"
    (top / "dangling").symlink_to("no")
    assert refusal("dangling", folder=top) == (
        f"rollout.toml: [agents.a]: the path 'dangling' ({top}/dangling) does not exist"
    )


@pytest.mark.parametrize(
    "path", ["/", "//", "/usr/..", "/proc", "/dev", "/sys", "/tmp", "/etc", "/home", "/var", "/run"]
)
def test_a_path_that_shows_the_machine_is_too_wide(path: str) -> None:
    place = os.path.normpath(path)
    assert refusal(path) == (
        f"rollout.toml: [agents.a]: the path {path!r} ({place}) is too wide to be shown to an agent\n{WIDE}"
    )


def test_a_home_folder_and_what_holds_it_are_too_wide(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = top / "people" / "me"
    (home / "agent").mkdir(parents=True)
    (top / "link").symlink_to(home)
    monkeypatch.setenv("HOME", str(top / "link"))
    for path, place in (("~", top / "link"), ("people/me", home), ("people", top / "people"), ("link", top / "link")):
        assert refusal(path, folder=top) == (
            f"rollout.toml: [agents.a]: the path {path!r} ({place}) is too wide to be shown to an agent\n{WIDE}"
        )
    assert binds("people/me/agent", folder=top) == same(home / "agent")


def test_a_link_to_a_wide_folder_is_too_wide(top: Path) -> None:
    (top / "link").symlink_to("/")
    assert refusal("link", folder=top) == (
        f"rollout.toml: [agents.a]: the path 'link' ({top}/link) is too wide to be shown to an agent\n{WIDE}"
    )


@pytest.mark.parametrize("how", ["pyvenv.cfg", "link"])
def test_an_environment_whose_python_needs_a_wide_folder_is_refused(
    top: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    home = top / "me"
    made = make(home / "bin" / "python3")
    monkeypatch.setenv("HOME", str(home))
    by_file = how == "pyvenv.cfg"
    environment = venv(top / "env", made.parent if by_file else "", "none" if by_file else made)
    assert refusal("env", folder=top) == (
        f"rollout.toml: [agents.a]: the path 'env' ({environment}) needs {home}, "
        f"which is too wide to be shown to an agent\n{WIDE}"
    )


# is_below


def test_below_is_after_links(top: Path) -> None:
    (top / "a" / "b").mkdir(parents=True)
    (top / "link").symlink_to("a/b")
    assert is_below(top / "a", top / "a")
    assert is_below(top / "a" / "b" / "new", top / "a")
    assert is_below(top / "link" / "x", top / "a")
    assert is_below(str(top / "a"), "/")
    assert is_below("/", "/")
    assert not is_below(top / "ab", top / "a")
    assert not is_below(top, top / "a")
    assert not is_below(top / "a" / ".." / "x", top / "a")


# Programs


def at(place: Path) -> tuple[Bind, ...]:
    return (Bind(source=str(place), target=str(place)),)


def missing(words: list[str], binds: tuple[Bind, ...] = (), folder: Path | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        find_program(words, binds, folder, "w command")
    return str(caught.value)


def test_a_name_is_looked_up_on_the_path_of_the_agent(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(top / "tools" / "bin" / "my-agent")
    monkeypatch.setenv("PATH", f"{top}/tools/bin")
    assert find_program(["sh", "-c", "x"], (), None, "w") == ("sh", "-c", "x")
    assert find_program(["my-agent", "a"], at(top / "tools"), None, "w") == ("my-agent", "a")
    assert missing(["my-agent"]) == (
        f"w command: the program 'my-agent' is not on the agent's PATH ({DEFAULT_PATH})\n"
        "Install it below /usr, name its 'bin' folder in 'paths', or write its whole path."
    )
    assert missing(["other"], at(top / "tools")) == (
        f"w command: the program 'other' is not on the agent's PATH ({top}/tools/bin:{DEFAULT_PATH})\n"
        "Install it below /usr, name its 'bin' folder in 'paths', or write its whole path."
    )


def test_a_file_without_the_right_to_run_is_not_on_the_path(top: Path) -> None:
    make(top / "tools" / "bin" / "my-agent", 0o644)
    assert "is not on the agent's PATH" in missing(["my-agent"], at(top / "tools"))


def test_a_program_at_another_name_is_found_where_the_host_has_it(top: Path) -> None:
    make(top / "real" / "bin" / "my-agent")
    bind = Bind(source=str(top / "real"), target=str(top / "link"))
    assert find_program(["my-agent"], (bind,), None, "w") == ("my-agent",)
    assert join_path((bind,)) == f"{top}/link/bin:{DEFAULT_PATH}"


def test_a_path_is_made_absolute_where_it_is_a_file_beside_the_table(
    top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = make(top / "agents" / "good")
    assert find_program(["agents/good", "x"], at(top / "agents"), top, "w") == (str(agent), "x")
    assert find_program(["./agents/../agents/good"], at(agent), top, "w") == (str(agent),)
    assert find_program([str(agent)], at(top / "agents"), None, "w") == (str(agent),)
    monkeypatch.setenv("HOME", str(top))
    assert find_program(["~/agents/good"], at(top / "agents"), None, "w") == (str(agent),)
    assert find_program(["/bin/sh"], (), None, "w") == ("/bin/sh",)


def test_a_relative_path_that_is_not_there_may_be_in_the_workspace(top: Path) -> None:
    assert find_program(["./run.sh"], (), top, "w") == ("./run.sh",)
    assert find_program(["bin/run", "x"], (), None, "w") == ("bin/run", "x")


def test_a_program_that_can_not_be_run_is_refused(top: Path) -> None:
    agent = make(top / "agents" / "good")
    dead = make(top / "agents" / "dead", 0o644)
    assert missing([f"{top}/no"]) == f"w command: the program '{top}/no' ({top}/no) does not exist"
    assert missing(["agents/dead"], at(top), top) == (
        f"w command: the program 'agents/dead' ({dead}) is not executable\nchmod +x {dead}"
    )
    assert missing(["agents/good"], (), top) == (
        f"w command: the program 'agents/good' ({agent}) is not visible to the agent\n"
        "Name its folder in 'paths' of the agent in rollout.toml."
    )
    assert "is not visible" in missing([str(agent)], at(top / "agen"))


# PATH


def test_the_path_of_an_agent_has_the_bin_folder_of_each_bind_once(top: Path) -> None:
    make(top / "a" / "bin" / "x")
    (top / "b").mkdir()
    assert join_path((*at(top / "a"), *at(top / "b"), *at(top / "a"))) == f"{top}/a/bin:{DEFAULT_PATH}"
    assert join_path(()) == "/usr/local/bin:/usr/bin:/bin"


# Words behind the program


def test_every_word_that_is_a_file_of_the_suite_is_made_absolute(top: Path) -> None:
    script = make(top / "tools" / "solve.py")
    binds = at(top / "tools")
    assert find_program(["sh", "tools/solve.py", "src/x", "--flag=tools/solve.py"], binds, top, "w") == (
        "sh",
        str(script),
        "src/x",
        "--flag=tools/solve.py",
    )
    with pytest.raises(ConfigError) as caught:
        find_program(["sh", "tools/solve.py"], (), top, "w command")
    assert str(caught.value) == (
        f"w command: 'tools/solve.py' ({script}) is not visible to the agent\n"
        "Name its folder in 'paths' of the agent in rollout.toml."
    )


def test_a_program_without_its_interpreter_is_refused(top: Path) -> None:
    lost = make(top / "agents" / "lost")
    lost.write_bytes(b"#!/no/such/python -u\n")
    assert missing(["agents/lost"], at(top), top) == (
        f"w command: the first line of {lost} names /no/such/python, which does not exist"
    )
    lost.write_bytes(b"#!/bin/sh\r\n")
    assert missing(["agents/lost"], at(top), top) == (
        f"w command: the first line of {lost} ends in a carriage return\nSave it with Unix line ends."
    )


def test_folders_of_programs(top: Path) -> None:
    tool = make(top / "kit" / "bin" / "tool")
    plain = make(top / "plain")
    for bound, folder in ((top / "kit", tool.parent), (tool.parent, tool.parent), (plain, top)):
        binds = resolve_paths([str(bound)], top, "w")
        assert join_path(binds).split(":")[0] == str(folder)
    assert find_program(["tool"], resolve_paths([str(tool.parent)], top, "w"), top, "w") == ("tool",)


def test_a_word_that_is_too_long_for_a_path_is_none(top: Path) -> None:
    words = ["sh", "-c", f"cd a/b; echo {'x' * 5000}", f"a/{'y' * 300}"]
    assert find_program(words, (), top, "w") == tuple(words)
