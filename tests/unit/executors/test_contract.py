"""What every executor does alike: how a command ends, what is captured, and that nothing outlives it."""

from __future__ import annotations

import os
import re
import resource
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_rollout.executors.cancel import Cancel
from pytest_rollout.executors.protocol import Bind

if TYPE_CHECKING:
    from pytest_rollout.executors.protocol import Stage
    from tests.unit.conftest import Lab


@pytest.fixture(
    params=[
        "sandbox",
        pytest.param("rung2", marks=pytest.mark.slow),
        pytest.param("rung3", marks=pytest.mark.slow),
        pytest.param("rung4", marks=pytest.mark.slow),
        "local",
    ]
)
def lab(request: pytest.FixtureRequest) -> Any:
    """Each rung in its turn."""
    return request.getfixturevalue(request.param)


# Four processes that beat: a daemon, one that was forked twice, one that ignores every signal, and one that is
# stopped. The agent ends when all of them have beaten.
TREE = """
beat() { while :; do echo x >> $1; sleep 0.01; done; }
setsid sh -c ': TOKEN; while :; do echo x >> daemon; sleep 0.01; done' &
(setsid sh -c ': TOKEN; while :; do echo x >> twice; sleep 0.01; done' & )
sh -c ': TOKEN; trap "" HUP INT TERM QUIT USR1 USR2 PIPE ALRM CHLD CONT TSTP TTIN TTOU
       while :; do echo x >> deaf; sleep 0.01; done' &
sh -c ': TOKEN; while :; do echo x >> stopped; sleep 0.01; done' & stopped=$!
until [ -s daemon ] && [ -s twice ] && [ -s deaf ] && [ -s stopped ]; do sleep 0.01; done
kill -STOP $stopped
echo all alive
"""
BEATS = ("daemon", "deaf", "stopped", "twice")


def living(token: str) -> list[int]:
    """The processes of this machine with a word in their command line, but the agent's reaper and zombies."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read()
            with open(f"/proc/{pid}/stat", "rb") as file:
                state = file.read().rpartition(b")")[2].split()[0]
        except OSError:
            continue
        if token.encode() in words and state != b"Z" and int(pid) != os.getpid():
            found.append(int(pid))
    return found


@pytest.mark.parametrize(
    ("script", "end"),
    [
        ("true", ("completed", 0, None)),
        ("exit 3", ("exit_code", 3, None)),
        ("exit 127", ("exit_code", 127, None)),
        ("exit 128", ("exit_code", 128, None)),
        ("kill -9 $$", ("signal", 137, 9)),
        ("kill -TERM $$", ("signal", 143, 15)),
        ("kill -SEGV $$", ("signal", 139, 11)),
        ("sleep 60 & kill -9 $$", ("signal", 137, 9)),
    ],
)
def test_how_a_command_ended(lab: Lab, script: str, end: tuple[str, int | None, int | None]) -> None:
    trial = lab.run(script)
    assert trial.end == end
    assert trial.ended.duration > 0
    assert trial.ended.usage.wall == trial.ended.duration


def test_a_program_that_is_not_there_is_said_by_the_shell(lab: Lab) -> None:
    trial = lab.run("no-such-program")
    assert trial.end == ("exit_code", 127, None)
    assert b"no-such-program" in trial.stderr


def test_a_wall_limit_ends_the_whole_tree_and_keeps_what_was_written(lab: Lab) -> None:
    began = time.monotonic()
    trial = lab.run("echo before; echo kept > file; sleep 300 & sleep 300", wall=1.0)
    assert 1.0 <= time.monotonic() - began < 5
    assert trial.end == ("wall_limit", None, None)
    assert trial.text == "before\n"
    assert trial.changes == {"file": "added file"}


def test_it_returns_when_the_agent_ends_and_not_when_the_pipe_closes(lab: Lab) -> None:
    began = time.monotonic()
    token = f"token-{os.getpid()}-{time.monotonic_ns()}"
    trial = lab.run(f"setsid sh -c ': {token}; echo up; sleep 60' & echo done")
    assert time.monotonic() - began < 10
    assert trial.end == ("completed", 0, None)
    assert "done\n" in trial.text
    assert living(token) == []


def test_what_would_be_written_after_the_limit_is_never_there(lab: Lab) -> None:
    trial = lab.run("(echo soon > early; sleep 1.2; echo x > late) & sleep 99", wall=0.6)
    assert trial.end == ("wall_limit", None, None)
    assert trial.changes == {"early": "added file"}
    time.sleep(1.2)
    assert trial.changes == {"early": "added file"}


def check_the_tree_is_dead(lab: Lab, number: int) -> None:
    token = f"token-{os.getpid()}-{number}-{time.monotonic_ns()}"
    trial = lab.run(TREE.replace("TOKEN", token))
    left = living(token)
    sizes = {name: len(trial.reader.read(name)) for name in BEATS}
    assert (trial.end, trial.text) == (("completed", 0, None), "all alive\n")
    assert left == []
    assert all(size > 0 for size in sizes.values())  # each was alive
    time.sleep(0.1)
    assert {name: len(trial.reader.read(name)) for name in BEATS} == sizes
    assert living(token) == []


def test_no_process_outlives_its_command(lab: Lab) -> None:
    check_the_tree_is_dead(lab, 0)


def skip_what_rung_1_shows(lab: Lab) -> None:
    """Rungs 2 and 3 confine a command as rung 1 does: what takes long is tried there."""
    if lab.executor.info.rung in (2, 3):
        pytest.skip("rung 1 shows it")


@pytest.mark.slow
def test_no_process_outlives_its_command_in_thirty_of_thirty(lab: Lab) -> None:
    skip_what_rung_1_shows(lab)
    for number in range(30):
        check_the_tree_is_dead(lab, number)


def test_the_tree_is_seen_alive_where_it_is_not_killed() -> None:
    """The check above sees what lives: this very process."""
    assert os.getppid() in living(_word_of(os.getppid()))


def _word_of(pid: int) -> str:
    with open(f"/proc/{pid}/cmdline") as file:
        return file.read().split("\0")[0]


def test_a_cancel_ends_it_at_once(lab: Lab) -> None:
    cancel = Cancel()
    timer = threading.Timer(0.5, cancel.set)
    timer.start()
    began = time.monotonic()
    trial = lab.run("echo before; setsid sleep 60 & sleep 60", cancel=cancel)
    assert time.monotonic() - began < 5
    timer.join()
    cancel.close()
    assert (trial.end, trial.text) == (("cancelled", None, None), "before\n")


def test_a_cancel_that_came_before_lets_nothing_run_on(lab: Lab) -> None:
    cancel = Cancel()
    cancel.set()
    began = time.monotonic()
    trial = lab.run("sleep 60", cancel=cancel)
    assert time.monotonic() - began < 5
    cancel.close()
    assert trial.end == ("cancelled", None, None)


@pytest.mark.parametrize(
    ("script", "output"),
    [
        ("printf '\\377ok'", b"\xffok"),
        ("printf '\\342\\202'; sleep 0.3; printf '\\254'", "€".encode()),
        ("printf '\\033[31m\\000\\010'", b"\x1b[31m\x00\x08"),
        ("printf 'a\\r\\nb'", b"a\r\nb"),
        ("true", b""),
    ],
)
def test_bytes_are_kept_as_they_are(lab: Lab, script: str, output: bytes) -> None:
    assert lab.run(script).stdout == output


def test_both_streams_are_drained(lab: Lab) -> None:
    trial = lab.run("head -c 1M /dev/zero >&2; echo ok; head -c 1M /dev/zero >&2", output=4 << 20)
    assert (trial.end, trial.stdout, trial.stderr) == (("completed", 0, None), b"ok\n", bytes(2 << 20))
    assert trial.ended.usage.output_bytes == (2 << 20) + 3


def check_that_much_output_is_bounded(lab: Lab, size: int) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    trial = lab.run(f"yes 0123456 | head -c {size}; echo last; echo done >&2", output=1 << 20, wall=120)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert (trial.end, trial.stderr) == (("completed", 0, None), b"done\n")
    half = 1 << 19
    head, tail = trial.stdout[:half], trial.stdout[-half:]
    assert head == b"0123456\n" * (half // 8)
    assert tail.endswith(b"0123456\nlast\n")
    assert trial.stdout[half:-half] == b"\n[... %d bytes dropped ...]\n" % (size + 5 - (1 << 20))
    assert trial.ended.usage.output_bytes == size + 5 + 5
    assert grown < 64 << 10  # KiB


def test_much_output_is_bounded_and_does_not_block(lab: Lab) -> None:
    check_that_much_output_is_bounded(lab, 100 << 20)


@pytest.mark.slow
def test_two_gigabytes_of_output_are_bounded(lab: Lab) -> None:
    skip_what_rung_1_shows(lab)
    check_that_much_output_is_bounded(lab, 2 << 30)


def test_standard_input_is_empty(lab: Lab) -> None:
    trial = lab.run("cat; echo $?; readlink /proc/self/fd/0; ls /proc/self/fd | tr '\\n' ' '")
    assert trial.text == "0\n/dev/null\n0 1 2 3 "  # ls has the folder open as 3


def test_a_stage_with_closed_folders_is_dropped(lab: Lab) -> None:
    trial = lab.run("mkdir d; touch d/f; chmod 500 d; mkdir e; chmod 000 e; chmod 000 .")
    assert trial.end == ("completed", 0, None)
    assert lab.executor.drop(trial.stage) is None
    assert not os.path.lexists(trial.stage.path)
    assert lab.executor.drop(trial.stage) is None  # a second time, and after a loss


def test_each_stage_is_fresh(lab: Lab) -> None:
    script = "test -f m && echo seen; touch m; touch $HOME/m $TMPDIR/m; (ls -A $HOME; ls -A $TMPDIR) | grep -c m"
    first = lab.run(script, over={"a": "x"})
    second = lab.run(script, over=lab.executor.provision(first.stage.baseline))
    assert first.text == second.text == "2\n"


def test_the_stage_is_the_working_folder_and_keeps_its_files_between_commands(lab: Lab) -> None:
    first = lab.run("cat a; echo one > b; pwd", over={"a": "base\n"})
    assert first.text.splitlines()[0] == "base"
    second = lab.run("cat b; pwd", over=first.stage)
    assert second.text.splitlines() == ["one", first.text.splitlines()[1]]


@pytest.mark.parametrize("prompt", ["", "Make it add.\n", "ü€\U0001f600\n'\"$(x)\n", "a\udc80b", "x" * 300_000])
def test_the_prompt_is_in_its_file(lab: Lab, prompt: str) -> None:
    stage = lab.stage()
    trial = lab.run(["cat", lab.executor.prompt_file(stage)], over=stage, prompt=prompt)
    assert trial.stdout == prompt.encode("utf-8", "backslashreplace")
    assert trial.changes == {}


def test_variables_are_given_as_they_are(lab: Lab) -> None:
    env = {"PLAIN": "1", "SPACES": " a  b ", "LINES": "a\nb", "EMPTY": "", "odd.name": "kept", "UNICODE": "ü€"}
    trial = lab.run(["env", "-0"], env=env)
    found = dict(item.split("=", 1) for item in trial.text.split("\0") if item)
    assert {name: found.get(name) for name in env} == env


def test_arguments_are_given_as_they_are(lab: Lab) -> None:
    words = ["a b", "", "-n", "$HOME", "`id`", "*", "ü", "x\ny", "'"]
    trial = lab.run(["printf", "%s|", *words])
    assert trial.text == "|".join(words) + "|"


def test_a_kept_stage_is_out_of_reach_of_drop_and_close(lab: Lab) -> None:
    trial = lab.run("echo x > kept")
    place = lab.executor.keep(trial.stage)
    lab.executor.close()
    assert re.fullmatch(r"[0-9a-f]{16}", os.path.basename(place))
    with open(f"{place}/{'u' if os.path.isdir(f'{place}/u') else 'copy'}/kept") as file:
        assert file.read() == "x\n"


def test_sixteen_at_once_from_threads_that_end(lab: Lab) -> None:
    base = lab.executor.prepare(None)
    found: dict[int, str] = {}

    def one(number: int) -> None:
        found[number] = lab.run(f"sleep 0.3; echo {number}", over=lab.executor.provision(base)).text

    threads = [threading.Thread(target=one, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: f"{number}\n" for number in range(16)}


def test_no_descriptor_and_no_child_is_left(lab: Lab) -> None:
    base = lab.executor.prepare(None)

    def run(script: str, wall: float = 30.0) -> None:
        stage = lab.executor.provision(base)
        lab.run(script, over=stage, wall=wall)
        lab.executor.drop(stage)

    run("true")
    before = (sorted(os.listdir("/proc/self/fd")), _children())
    for script in ("true", "setsid sleep 60 & exit 3", "head -c 1M /dev/zero"):
        run(script)
    run("sleep 60", wall=0.2)
    assert (sorted(os.listdir("/proc/self/fd")), _children()) == before


def _children() -> int:
    """How many children, dead or alive, this process has."""
    count = 0
    for task in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{task}/children") as file:
            count += len(file.read().split())
    return count


# Evaluation: stages over a stage, layers

LIST = "find . -mindepth 1 | sort | while read f; do if [ -L $f ]; then echo $f '->' $(readlink $f); "
LIST += "elif [ -f $f ]; then echo $f = $(cat $f); else echo $f; fi; done"


def listed(lab: Lab, stage: Stage) -> list[str]:
    trial = lab.run(LIST, over=stage)
    assert (trial.end, trial.stderr) == (("completed", 0, None), b"")
    return trial.text.splitlines()


def test_a_stage_above_another_holds_what_that_one_holds(lab: Lab) -> None:
    script = "rm gone; rm -r all; echo two > a; echo mine > new; ln -s new link; mkdir -p e/f; mkfifo pipe"
    agents = lab.run(script, over={"a": "one", "gone": "x", "kept": "k", "all/x": "y"})
    changes = agents.changes
    above = lab.above(agents.stage)
    seen = lab.run(LIST.replace("find .", "find . ! -type p"), over=above)
    assert seen.text.splitlines() == ["./a = two", "./e", "./e/f", "./kept = k", "./link -> new", "./new = mine"]
    assert lab.run("echo three > a; rm kept new; echo more > e/f/g", over=above).ended.exit_code == 0
    assert agents.changes == changes
    again = lab.run(LIST.replace("find .", "find . ! -type p"), over=lab.above(agents.stage))
    assert again.text == seen.text


def test_a_stage_above_one_that_is_above_another_holds_both(lab: Lab) -> None:
    first = lab.run("echo one > a; echo one > b", over={"base": "x"})
    second = lab.run("echo two > b; rm base", over=lab.above(first.stage, lab.layer({"c": "layer"})))
    assert listed(lab, lab.above(second.stage)) == ["./a = one", "./b = two", "./c = layer"]


def test_folders_that_an_agent_closed_are_open_to_nobody_but_do_not_stop_an_evaluation(lab: Lab) -> None:
    trial = lab.run("mkdir d; echo x > d/f; chmod 000 d/f d; echo y > g; chmod 000 g", over={"a": "one"})
    above = lab.above(trial.stage, lab.layer({"b": "two"}))
    assert lab.run("cat a b", over=above).text == "onetwo"


@pytest.mark.parametrize("above", [False, True], ids=["over a baseline", "over a stage"])
def test_layers_win_over_what_is_below_them_and_the_last_over_all(lab: Lab, above: bool) -> None:
    base = {"a": "base", "b": "base", "c": "base", "gone": "x", "folder/x": "y", "file": "z"}
    low = lab.layer({"b": "low", "c": "low", "gone": None, "folder": None, "file/inside": "low"})
    high = lab.layer({"c": "high", "folder/new": "high"})
    if above:
        stage = lab.above(lab.stage(base), low, high)
    else:
        stage = lab.owned(lab.executor.provision(lab.executor.prepare(lab.workspace(base)), (low, high)))
    assert listed(lab, stage) == [
        "./a = base",
        "./b = low",
        "./c = high",
        "./file",
        "./file/inside = low",
        "./folder",
        "./folder/new = high",
    ]


def test_what_a_layer_deletes_and_makes_again_is_what_the_layers_say(lab: Lab) -> None:
    agents = lab.run("mkdir -p tests/deep; echo mine > tests/t; echo mine > tests/deep/u; echo mine > other")
    stage = lab.above(agents.stage, lab.layer({"tests/t": None, "tests/deep": None}), lab.layer({"tests/new": "n"}))
    assert listed(lab, stage) == ["./other = mine", "./tests", "./tests/new = n"]


@pytest.mark.parametrize("target", ["OUTSIDE", "elsewhere", "gone"])
def test_a_link_of_a_candidates_is_replaced_by_a_layer_and_never_followed(
    lab: Lab, private_folder: Path, target: str
) -> None:
    outside = private_folder / "outside"
    outside.mkdir()
    outside.chmod(0o777)
    said = target.replace("OUTSIDE", str(outside))
    agents = lab.run(f"mkdir elsewhere; rm -r tests; ln -s {said} tests; ln -s {said}/f file", over={"tests/t": "x"})
    assert lab.run("readlink tests file", over=agents.stage).text == f"{said}\n{said}/f\n"
    hidden = lab.layer({"tests/hidden": "h", "tests/deep/er": "h", "file": "h"})
    assert listed(lab, lab.above(agents.stage, hidden)) == [
        "./elsewhere",
        "./file = h",
        "./tests",
        "./tests/deep",
        "./tests/deep/er = h",
        "./tests/hidden = h",
    ]
    assert list(outside.iterdir()) == []
    assert agents.changes["elsewhere"] == "added dir"
    assert agents.changes["tests"] == "modified symlink"


def test_a_link_in_a_layer_stays_a_link(lab: Lab) -> None:
    stage = lab.above(lab.stage({"a": "one", "d/x": "y"}), lab.layer({"link": "->a", "d": "->/etc"}))
    assert lab.run("readlink link d; cat link", over=stage).text == "a\n/etc\none"


def test_a_layer_is_there_until_it_is_dropped_whatever_is_done_over_it(lab: Lab) -> None:
    layer = lab.layer({"a": "layer"})
    for _ in range(2):
        trial = lab.run("cat a; echo changed > a; rm a", over=lab.above(lab.stage(), layer))
        assert trial.text == "layer"
    assert (Path(layer) / "a").read_text() == "layer"
    stages = len(list(lab.root.stages.iterdir()))
    lab.executor.drop_layer(layer)
    assert not os.path.lexists(layer)
    assert len(list(lab.root.stages.iterdir())) == stages - 1


def test_layers_that_nobody_dropped_go_when_the_executor_is_closed(lab: Lab) -> None:
    layer = lab.layer({"a": "x"})
    assert os.path.isdir(layer)
    lab.root.close()
    assert not os.path.lexists(layer)


def test_a_descriptor_crosses_only_where_it_is_named(lab: Lab) -> None:
    ours, theirs = os.pipe()
    os.set_inheritable(theirs, True)
    os.set_blocking(ours, False)
    words = ["bash", "-c", 'printf crossed >&"$0"', str(theirs)]
    try:
        without = lab.run(words)
        assert without.ended.exit_code == 1
        assert b"Bad file descriptor" in without.stderr
        with pytest.raises(BlockingIOError):
            os.read(ours, 100)
        assert lab.run(words, inherit=(theirs,)).end == ("completed", 0, None)
        assert os.read(ours, 100) == b"crossed"
    finally:
        os.close(ours)
        os.close(theirs)


def test_a_sealed_command_in_the_sandbox_can_not_write_the_stage(sandbox: Lab) -> None:
    script = "cat a; echo x > a; echo x > new; rm b; touch $TMPDIR/t && echo own"
    agents = sandbox.run("echo mine > b", over={"a": "base\n"})
    above = sandbox.above(agents.stage, sandbox.layer({"c": "layer"}))
    sealed = sandbox.run(script, over=above, sealed=True)
    assert sealed.text == "base\nown\n"  # HOME and TMPDIR are its own
    assert sealed.stderr.count(b"Read-only file system") == 3
    assert sandbox.run("cat a b c", over=above, sealed=True).text == "base\nmine\nlayer"
    opened = sandbox.run(script, over=above)
    assert (opened.text, opened.stderr) == ("base\nown\n", b"")
    assert sandbox.run("cat a new; ls", over=above, sealed=True).text == "x\nx\na\nc\nnew\n"


def test_local_seals_nothing_and_is_untrusted(local: Lab) -> None:
    trial = local.run("echo x > a && cat a", sealed=True)
    assert (trial.text, local.executor.info.trusted) == ("x\n", False)


def test_a_bind_is_readable_where_it_is_named(sandbox: Lab) -> None:
    shared = sandbox.root.path.parent / "shared"
    shared.mkdir()
    (shared / "data").write_text("of the host")
    shared.chmod(0o755)
    bind = Bind(source=str(shared), target="/opt/shared")
    trial = sandbox.run("cat /opt/shared/data; echo x > /opt/shared/data", binds=(bind,))
    assert trial.text == "of the host"
    assert trial.ended.exit_code != 0
    assert (shared / "data").read_text() == "of the host"
