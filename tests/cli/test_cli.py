"""The console tool: list, show and inspect, from the records of real runs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytest_rollout import __version__
from pytest_rollout.bundle import BundleRecord
from pytest_rollout.cli import tool as cli
from pytest_rollout.stage.removal import remove_tree
from pytest_rollout.store.folder import RunFolder, read_record, write_record
from pytest_rollout.store.load import load_results
from pytest_rollout.store.records import Plan, Planned, Result, ScoreRecord
from tests.cli.conftest import OUTCOMES, Tool


def line(rollout: str, **changes: Any) -> Result:
    values: dict[str, Any] = {"task": "t", "sample": 0, "attempt": 1, "node": "n", "agent": "a", "outcome": "passed"}
    return Result(rollout=rollout, **{**values, "reward": 1.0, **changes})


def write_run(tool: Tool, name: str, *results: Result, plan: str = "", broken: str = "") -> RunFolder:
    run = tool.results.open_run(name)
    data = "".join(f"{msgspec.json.encode(result).decode()}\n" for result in results)
    (run.results / "main.jsonl").write_text(data + broken)
    if plan:
        planned = tuple(Planned(node=each, rollout=each, task="t", sample=0, agent="a") for each in plan.split())
        write_record(run.plan, Plan(rollouts=planned))
    return run


# list


def test_list_runs(empty: Tool) -> None:
    write_run(empty, "2026-01-01T00-00-00Z-00000001", line("1-a"))
    infra = line("2-b", outcome="infra", kind="spawn", reward=None, forgeable=True, agent="b")
    write_run(empty, "2026-01-01T00-00-00Z-00000002", line("2-a", outcome="failed", reward=0.5), infra, plan="2-a 2-c")
    write_run(empty, "2026-01-01T00-00-00Z-00000003")
    assert empty.said("list") == [
        "2026-01-01T00-00-00Z-00000001  a  1 rollout: 1 passed, 0 failed, 0 infra; mean 1 of 1",
        "2026-01-01T00-00-00Z-00000002  2 agents  2 rollouts: 0 passed, 1 failed, 1 infra, 1 without a result; "
        "mean 0.5 of 1",
        "2026-01-01T00-00-00Z-00000003  0 agents  0 rollouts: 0 passed, 0 failed, 0 infra; mean none of 0",
    ]
    assert [json.loads(each) for each in empty.said("list", "--json")][1] == {
        "run": "2026-01-01T00-00-00Z-00000002",
        "rollouts": 2,
        "passed": 0,
        "failed": 1,
        "infra": 1,
        "missing": 1,
        "agents": ["a", "b"],
        "mean_reward": 0.5,
        "measured": 1,
        "changed_checks": [],
    }


def test_list_tells_where_other_checks_scored_a_task_than_before(empty: Tool) -> None:
    def scored(rollout: str, task: str, revision: str | None) -> Result:
        return line(rollout, task=task, evaluator_revision=revision)

    runs = [f"2026-01-01T00-00-00Z-0000000{number}" for number in range(5)]
    write_run(empty, runs[0], scored("1-a", "a", "sha256:1"), scored("1-b", "b", "sha256:1"))
    write_run(empty, runs[1], scored("2-a", "a", "sha256:2"), scored("2-c", "c", "sha256:1"))
    write_run(empty, runs[2], scored("3-a", "a", None))
    write_run(empty, runs[3], scored("4-a", "a", "sha256:2"), scored("4-b", "b", "sha256:1"))
    write_run(empty, runs[4], scored("5-a", "a", "sha256:1"), scored("5-b", "b", "sha256:2"))
    assert [text.partition("; mean 1 of ")[2][1:] for text in empty.said("list")] == [
        "",
        "; other checks than before for 1 task",
        "",
        "",
        "; other checks than before for 2 tasks",
    ]
    changed = [json.loads(text)["changed_checks"] for text in empty.said("list", "--json")]
    assert changed == [[], ["a"], [], [], ["a", "b"]]


def test_list_rollouts(empty: Tool) -> None:
    infra = line("1-b", outcome="infra", kind="spawn", reward=None, forgeable=True)
    lost = line("1-c", outcome="infra", kind="worker", reward=None)
    low = line("1-d", outcome="failed", reward=0.123456)
    write_run(empty, "2026-01-01T00-00-00Z-00000001", line("1-a"), infra, lost, low, plan="1-a 1-b 1-c 1-d 1-e")
    assert empty.said("list", "last") == [
        "passed          1  1-a",
        "infra        none  1-b  spawn (forgeable)",
        "infra        none  1-c  worker",
        "failed     0.1235  1-d",
        "no result       –  1-e",
    ]


@pytest.mark.parametrize(("count", "said"), [(1, "1 line"), (2, "2 lines")])
def test_list_counts_broken_lines(empty: Tool, count: int, said: str) -> None:
    write_run(empty, "2026-01-01T00-00-00Z-00000001", line("1-a"), broken='{"half": \n' * count)
    assert empty.said("list", "last") == ["passed          1  1-a", f"{said} of the journals could not be read"]
    assert len(empty.said("list", "last", "--json")) == 1
    assert empty.said("list")[0].endswith("  1 rollout: 1 passed, 0 failed, 0 infra; mean 1 of 1")


def test_list_the_real_run(tool: Tool) -> None:
    name = tool.run.name
    assert tool.said("list") == [f"{name}  3 agents  4 rollouts: 2 passed, 1 failed, 1 infra; mean 0.875 of 3"]
    results = load_results(tool.run).results
    assert [result.outcome for result in results] == OUTCOMES
    for selector in ("last", name, name[:12], name[-8:], name[-8:-3]):
        assert [each.split()[0] for each in tool.said("list", selector)] == OUTCOMES
    lines = tool.said("list", "last", "--json")
    assert [msgspec.json.decode(each, type=Result) for each in lines] == list(results)
    written = [json.loads(text) for path in tool.run.results.iterdir() for text in path.read_bytes().splitlines()]
    said = [json.loads(each) for each in lines]
    assert sorted(written, key=lambda each: each["rollout"]) == sorted(said, key=lambda each: each["rollout"])


def test_json_lines_are_plain_ascii(empty: Tool) -> None:
    odd = line("1-a", message="\x9b31m \u202e ##x", node="ü")
    write_run(empty, "2026-01-01T00-00-00Z-00000001", odd)
    (text,) = empty.said("list", "last", "--json")
    assert text.isascii()
    assert msgspec.json.decode(text, type=Result) == odd


# show


def test_show_a_pass(tool: Tool) -> None:
    result = tool.of("test_passes[s1]")
    bundle = read_record(tool.folder("test_passes[s1]") / "bundle.json", BundleRecord)
    lines = tool.said("show", result.rollout)
    assert lines == [
        f"rollout      {result.rollout}",
        "task         test_suite.py::test_passes, sample 1",
        "agent        mkdir new; echo y > new/file; rm old; e…",
        "outcome      passed, reward 1",
        f"termination  completed, exit code 0, {bundle.times.duration:.3f} s",
        "executor     sandbox rung 1, trusted",
        f"environment  {bundle.pins.environment_revision}",
        f"checks       {bundle.pins.evaluator_revision}",
        "audit        none of these checks yet: pytest --rollout-audit",
        f"folder       {tool.folder('test_passes[s1]')}",
        "",
        "agent stdout (tail of 5 bytes)",
        "  | said",
        "",
        "changed files",
        "  added     dir      new",
        "  added     file     new/file",
        "  deleted   file     old",
    ]


def test_show_what_is_known_of_the_checks(tool: Tool) -> None:
    assert "audit        weak" in tool.said("show", tool.of("test_spawn").rollout)  # a run of nothing passes it
    folder = tool.folder("test_passes[s1]")
    before = read_record(folder / "bundle.json", BundleRecord)
    pins = msgspec.structs.replace(before.pins, evaluator_revision=None)
    write_record(folder / "bundle.json", msgspec.structs.replace(before, audit="sound", pins=pins))
    lines = tool.said("show", tool.of("test_passes[s1]").rollout)
    assert "audit        sound" in lines
    assert "checks       of an unknown revision" in lines
    assert not any(each.startswith("in-process") for each in lines)


def test_show_a_verdict_of_a_process_with_candidate_code(empty: Tool) -> None:
    write_run(empty, "2026-01-01T00-00-00Z-00000001", line("1-a", in_process=True))
    assert empty.said("show") == [
        "rollout      1-a",
        "task         t, sample 0",
        "agent        a",
        "outcome      passed, reward 1",
        "in-process   candidate code ran in the process of a verdict, and could have forged it",
    ]


def test_show_is_inert(tool: Tool) -> None:
    text = "\n".join(tool.said("show", tool.of("test_fails").rollout))
    assert "outcome      failed, reward 0.75\nbecause      reward 0.75 is below the threshold 1\n" in text
    assert "  | ::error::x\n  |  \\x1b[31m# #vso[task.complete]\n" in text
    assert "  added     file     # #vso[x]" in text
    assert "\nfindings\n  special: a fifo, not a file (p)\n" in text
    assert "\nchecks\n  1  × 3  half\n  0  × 1  other\n\nother:\n" in text
    assert "# #vso[build] \\x1b[31m in a check" in text
    assert "\x1b" not in text
    assert "##vso" not in text


def test_show_a_message_inert(empty: Tool) -> None:
    odd = line(
        "1-a", message="##vso[x] \x1b[31m\nmore", task="##[t]\nu", agent="##vso[a]", outcome="failed", reward=0.0
    )
    write_run(empty, "2026-01-01T00-00-00Z-00000001", odd)
    assert empty.said("show") == [
        "rollout      1-a",
        "task         # #[t]\\nu, sample 0",
        "agent        # #vso[a]",
        "outcome      failed, reward 0",
        "because      # #vso[x] \\x1b[31m",
    ]


def test_show_infra(tool: Tool) -> None:
    lines = tool.said("show", tool.of("test_spawn").rollout)
    assert "outcome      infra, kind spawn (forgeable), reward none" in lines
    message = "because      exit code 127: the agent's program, or one that it starts, is not found"
    assert message in lines


def test_json_holds_no_command_that_a_ci_system_obeys(tool: Tool) -> None:
    rollout = tool.of("test_fails").rollout
    text = "\n".join([*tool.said("show", "--json", rollout), *tool.said("list", "last", "--json")])
    assert "##" not in text
    found = json.loads("\n".join(tool.said("show", "--json", rollout)))
    assert found["bundle"]["changes"][0]["path"] == "##vso[x]"


@pytest.mark.parametrize("test", ["test_passes[s0]", "test_fails", "test_spawn"])
def test_show_json_is_the_records(tool: Tool, test: str) -> None:
    result, folder = tool.of(test), tool.folder(test)
    found = json.loads("\n".join(tool.said("show", "--json", result.rollout)))
    assert sorted(found) == ["bundle", "labels", "result", "score"]
    assert found["bundle"] == json.loads((folder / "bundle.json").read_bytes())
    assert found["score"] == json.loads((folder / "score.json").read_bytes())
    assert msgspec.convert(found["result"], type=Result) == result
    assert msgspec.convert(found["score"], type=ScoreRecord) == read_record(folder / "score.json", ScoreRecord)


def test_show_json_without_evidence(empty: Tool) -> None:
    write_run(empty, "2026-01-01T00-00-00Z-00000001", line("1-a"))
    found = json.loads("\n".join(empty.said("show", "--json")))
    assert (found["bundle"], found["score"]) == (None, None)


def test_show_the_last_one(tool: Tool) -> None:
    last = max(load_results(tool.run).results, key=lambda result: result.time)
    assert tool.said("show") == tool.said("show", "last") == tool.said("show", last.rollout)


@pytest.mark.parametrize("name", ["bundle.json", "score.json"])
def test_show_a_broken_record(tool: Tool, name: str) -> None:
    place = tool.folder("test_fails") / name
    place.write_text("{broken")
    for option in ([], ["--json"]):
        message = tool.refused("show", *option, tool.of("test_fails").rollout)
        assert message.startswith(f"{place} can't be read: JSON is malformed")


# inspect


def inspected(tool: Tool, stages: str, test: str, *command: str) -> tuple[int, str, str]:
    return tool("inspect", "--stage-root", stages, tool.of(test).rollout, "--", *command)


def test_inspect_a_rebuilt_stage(tool: Tool, stages: str) -> None:
    assert read_record(tool.folder("test_passes[s0]") / "bundle.json", BundleRecord).stage is None
    script = "find . -type f | sort; cat new/file"
    assert inspected(tool, stages, "test_passes[s0]", "sh", "-c", script) == (0, "./new/file\ny\n", "")


def test_inspect_a_kept_stage(tool: Tool) -> None:
    stage = read_record(tool.folder("test_fails") / "bundle.json", BundleRecord).stage
    assert stage is not None
    before = sorted(path.name for path in Path(stage).rglob("*"))
    code, text, errors = tool("inspect", tool.of("test_fails").rollout, "--", "ls", "-F")
    assert (code, text, errors) == (0, "##vso[x]\nold\np|\n", "")
    code, _, errors = tool("inspect", tool.of("test_fails").rollout, "--", "rm", "old")
    assert (code, errors) == (1, "rm: cannot remove 'old': Read-only file system\n")
    assert sorted(path.name for path in Path(stage).rglob("*")) == before


def test_the_exit_code_is_passed_on(tool: Tool, stages: str) -> None:
    for code in (0, 1, 2, 42):
        said = inspected(tool, stages, "test_passes[s0]", "sh", "-c", f"echo out; echo err >&2; exit {code}")
        assert said == (code, "out\n", "err\n")


def test_the_words_of_a_command_stay_as_they_are(tool: Tool, stages: str) -> None:
    words = ("printf", "%s\\n", "--json", "--", "-x", "--stage-root", "")
    assert inspected(tool, stages, "test_passes[s0]", *words) == (0, "--json\n--\n-x\n--stage-root\n\n", "")
    grep = ("grep", "-c", "--", "y", "new/file")
    assert inspected(tool, stages, "test_passes[s0]", *grep) == (0, "1\n", "")


def test_inspect_what_left_nothing(empty: Tool) -> None:
    lost = line("1-a", outcome="infra", kind="worker", reward=None, message="gw0 crashed \x1b[31m ##vso[x]")
    write_run(empty, "2026-01-01T00-00-00Z-00000001", lost)
    assert empty.refused("inspect", "last", "--", "ls") == "1-a left nothing: gw0 crashed \\x1b[31m # #vso[x]"


def test_inspect_without_its_baseline(tool: Tool) -> None:
    root = tempfile.mkdtemp(prefix="rollout-tests-", dir="/var/tmp")
    try:
        result = tool.of("test_passes[s0]")
        revision = read_record(tool.folder("test_passes[s0]") / "bundle.json", BundleRecord).pins.environment_revision
        message = tool.refused("inspect", "--stage-root", root, result.rollout, "--", "ls")
        assert message == f"the baseline {revision} is not on this machine any more"
    finally:
        assert remove_tree(root) is None


def test_inspect_takes_its_options_before_and_behind(tool: Tool, stages: str) -> None:
    rollout = tool.of("test_passes[s0]").rollout
    assert tool("inspect", rollout, "--stage-root", stages, "--", "ls", "new") == (0, "file\n", "")
    assert tool("inspect", "--stage-root", stages, rollout, "ls", "new") == (0, "file\n", "")


def test_inspect_needs_a_command(tool: Tool) -> None:
    for arguments in (["last"], ["last", "--"]):
        code, text, errors = tool("inspect", *arguments)
        assert (code, text) == (2, "")
        assert errors.endswith("pytest-rollout inspect: error: the following arguments are required: -- CMD\n")


# Selectors


def test_selectors(tool: Tool) -> None:
    result = tool.of("test_fails")
    digits, _, behind = result.rollout.partition("-")
    names = ("test_f", result.node, result.task)
    for selector in (result.rollout, result.rollout[:-3], f"{digits}-test-f", behind, "test-f", *names):
        assert tool.said("show", selector)[0] == f"rollout      {result.rollout}"
    first = tool.of("test_passes[s0]").rollout
    second = tool.of("test_passes[s1]").rollout
    assert tool.refused("show", "test-p") == f"'test-p' fits 2 rollouts: {first}, {second}"
    hint = "pytest-rollout list last shows those of the newest run."
    nothing = f"no rollout begins with 'x\\x1b' in {tool.results.path}\n{hint}"
    assert tool.refused("show", "x\x1b") == tool.refused("inspect", "x\x1b", "--", "ls") == nothing
    assert tool.refused("list", "x") == "no run begins with 'x'\npytest-rollout list shows them."


def test_ambiguous_runs(empty: Tool) -> None:
    runs = [f"2026-01-01T00-00-0{number}Z-0000000{number}" for number in range(8)]
    for name in runs:
        write_run(empty, name, line("1-a"))
    assert empty.refused("list", "2026") == f"'2026' fits 8 runs: {', '.join(runs[:6])} and 2 more"
    assert empty.said("list", "00000003") == ["passed          1  1-a"]


def test_without_runs(empty: Tool) -> None:
    hint = "Run pytest first, or name the folder with --dir."
    for arguments in (["list"], ["list", "last"], ["list", "--json"]):
        assert empty.refused(*arguments) == f"there are no runs in {empty.results.path}\n{hint}"
    for arguments in (["show"], ["inspect", "last", "--", "ls"]):
        assert empty.refused(*arguments) == f"there are no rollouts in {empty.results.path}\n{hint}"


# The tool itself


def test_the_folder_of_results_is_found(tool: Tool, real: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(real / "space")
    expected = tool.said("list")
    assert cli.main(["list"]) == 0
    monkeypatch.chdir(real)
    assert cli.main(["list"]) == 0
    assert tool.said("list") == expected


@pytest.fixture(params=["module", "script"])
def words(request: pytest.FixtureRequest) -> list[str]:
    """Both ways to start the tool."""
    script = Path(sys.executable).with_name("pytest-rollout")
    if request.param == "module":
        return [sys.executable, "-m", "pytest_rollout.cli"]
    if not script.exists():
        pytest.skip("the console script is not installed beside this Python")
    return [str(script)]


def start(words: list[str], **options: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(words, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False, **options)


def test_it_starts_as_a_process(words: list[str], tool: Tool, stages: str) -> None:
    done = start([*words, "--version"], stdout=subprocess.PIPE)
    assert (done.returncode, done.stdout) == (0, f"pytest-rollout {__version__}\n".encode())
    chosen = ["--dir", str(tool.results.path), "inspect", "--stage-root", stages, tool.of("test_passes[s0]").rollout]
    done = start([*words, *chosen, "--", "sh", "-c", "echo hi; exit 3"], stdout=subprocess.PIPE)
    assert (done.returncode, done.stdout, done.stderr) == (3, b"hi\n", b"")
    done = start([*words, "--dir", "/none", "list"], stdout=subprocess.PIPE)
    message = b"pytest-rollout: there are no runs in /none\nRun pytest first, or name the folder with --dir.\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, b"", message)


def test_a_reader_that_went_away(words: list[str], tool: Tool) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = start([*words, "--dir", str(tool.results.path), "show"], stdout=writing)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


def test_an_output_that_can_not_be_written(words: list[str], tool: Tool) -> None:
    with open("/dev/full", "wb") as full:
        done = start([*words, "--dir", str(tool.results.path), "show"], stdout=full)
    assert (done.returncode, done.stderr) == (2, b"pytest-rollout: [Errno 28] No space left on device\n")


def test_an_output_that_is_closed(words: list[str], tool: Tool) -> None:
    done = start(["sh", "-c", 'exec "$@" >&-', "sh", *words, "--dir", str(tool.results.path), "show"])
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_terminal_that_knows_ascii_only(words: list[str], tool: Tool) -> None:
    environ = {**os.environ, "PYTHONIOENCODING": "ascii"}
    chosen = ["--dir", str(tool.results.path), "show", tool.of("test_fails").rollout]
    done = start([*words, *chosen], stdout=subprocess.PIPE, env=environ)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"  1  \\xd7 3  half\n" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: VERB"),
        (["lst"], "argument VERB: invalid choice: 'lst' (choose from VERBS)"),
        (["list", "--jsn"], "unrecognized arguments: --jsn"),
    ],
)
def test_mistakes(empty: Tool, arguments: list[str], message: str) -> None:
    code, text, errors = empty(*arguments)
    assert (code, text) == (2, "")
    last = errors.splitlines()[-1]
    assert re.sub(r"choose from [^)]*", "choose from VERBS", last).endswith(message)


# report


def test_the_junit_report_of_a_run(tool: Tool, tmp_path: Path) -> None:
    said = tool.said("report", "--junit", str(tmp_path / "r.xml"))
    assert said == [f"{tmp_path}/r.xml: 4 rollouts of {tool.run.name}: 2 passed, 1 failed, 1 not measured"]
    suite = ET.parse(tmp_path / "r.xml").getroot()[0]
    assert [suite.get(name) for name in ("tests", "failures", "errors", "skipped")] == ["4", "1", "1", "0"]
    failure = suite.find("testcase/failure")
    assert failure is not None
    assert "half" in (failure.text or "")
    assert "##vso[build]" not in (tmp_path / "r.xml").read_text()
    refused = tool.refused("report", "--junit", str(tmp_path / "none" / "r.xml"))
    assert refused == f"the JUnit report {tmp_path}/none/r.xml can't be written: No such file or directory"
    assert tool("report")[0] == 2
