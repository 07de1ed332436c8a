"""The console tool: compare, promote, baseline, over runs written by hand."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytest_rollout.bundle import Pins, Usage
from pytest_rollout.store.heldout import Look, add_look
from pytest_rollout.store.records import Result
from tests.cli.conftest import Tool

A, B = "2026-01-01T00-00-00Z-0000000a", "2026-01-02T00-00-00Z-0000000b"


def write(tool: Tool, run: str, tasks: Mapping[str, Sequence[float | None]], **changes: Any) -> None:
    """A run with these rewards of tasks, in the order of samples."""
    model, lines = changes.pop("model", "m"), []
    for task, rewards in tasks.items():
        for sample, reward in enumerate(rewards):
            pins = Pins(
                task_digest=f"digest of {task}",
                environment_revision="sha256:e0",
                agent="agent",
                model=model,
                seed=sample,
                network="none",
                executor="sandbox",
                plugin_version="1",
            )
            values: dict[str, Any] = {
                "outcome": "infra" if reward is None else "passed" if reward == 1 else "failed",
                "reward": reward,
                "trusted": None if reward is None else True,
                "termination": None if reward is None else "completed",
                "evaluator_revision": "sha256:c0",
                "pins": None if reward is None else pins,
                "usage": None if reward is None else Usage(wall=2.0 + sample, peak_memory=2_000_000),
                "folder": f"rollouts/{task}/s{sample}/a1",
                **changes,
            }
            rollout = f"{run[-8:]}-{task}-s{sample}"
            lines.append(
                Result(rollout=rollout, task=task, sample=sample, attempt=1, node=task, agent="agent", **values)
            )
    folder = tool.results.open_run(run)
    (folder.results / "main.jsonl").write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))


OLD = {"t_add": [1, 1], "t_sort": [1, 1], "t_pack": [0, 1], "t_gone": [1]}
NEW: dict[str, Sequence[float | None]] = {
    "t_add": [1, 1, 1],
    "t_sort": [0, 0.5, 1],
    "t_pack": [1, 1, None],
    "t_new": [1],
}

TEXT = """\
A  2026-01-01T00-00-00Z-0000000a: 7 of 7 rollouts measured, 1 to 2 a task
B  2026-01-02T00-00-00Z-0000000b: 9 of 10 rollouts measured, 1 to 3 a task, 1 infra
compared: model m → n

                           A            B           B − A                     interval  tasks
reward                0.8333       0.8333               0                −1.24 … +1.24      3
success               0.8333       0.7778         −0.0556                 −1.51 … +1.4      3
unmeasured                 0       0.1111          +0.111              −0.367 … +0.589      3
wall time              2.5 s      2.833 s        +0.333 s           −0.384 s … +1.05 s      3
peak memory        1.907 MiB    1.907 MiB           0 MiB                0 MiB … 0 MiB      3

success by task: 1 higher in B, 1 lower, 1 the same; exact sign test p = 1
reward, bootstrap over tasks: −0.5 … +0.5 (seed 0)
detectable in the reward with 80% power: none, not even from 0 to 1 with so few tasks
the sides have different numbers of samples: each task counts once, by its mean

  A    B  B − A     passed  task
  1  0.5   −0.5  2/2 → 1/3  t_sort
0.5    1   +0.5  1/2 → 2/2  t_pack
single tasks: 0 of 3 changed by Fisher's test at 0.05 (by chance up to 0.15), 0 by Holm's correction
"""


@pytest.fixture
def two(empty: Tool, monkeypatch: pytest.MonkeyPatch) -> Tool:
    """Two runs that have three tasks in common; the tool is used from the folder of the results."""
    write(empty, A, OLD)
    write(empty, B, NEW, model="n")
    monkeypatch.chdir(empty.results.path)
    return empty


def test_compare(two: Tool) -> None:
    lines = two.said("compare", A, "last")
    assert lines[: lines.index("failures gained (B): 2")] == [*TEXT.splitlines(), ""]
    assert max(map(len, lines)) <= 100
    assert lines[lines.index("failures gained (B): 2") :] == [
        "failures gained (B): 2",
        "  t_sort: 2 of 3 failed",
        f"    runs/{B}/rollouts/t_sort/s0/a1",
        f"    runs/{B}/rollouts/t_sort/s1/a1 (reward 0.5)",
        "",
        "failures mended (A): 1",
        "  t_pack: 1 of 2 failed",
        f"    runs/{A}/rollouts/t_pack/s0/a1",
        "",
        "only in A: 1",
        "  t_gone",
        "",
        "only in B: 1",
        "  t_new",
    ]


def test_compare_as_json(two: Tool) -> None:
    found = json.loads("\n".join(two.said("compare", A, B, "--format", "json")))
    assert [figure["name"] for figure in found["figures"]][:3] == ["reward", "success", "unmeasured"]
    assert [(task["task"], task["old"], task["new"]) for task in found["tasks"]] == [
        ("t_sort", 1, 0.5),
        ("t_add", 1, 1),
        ("t_pack", 0.5, 1),
    ]
    assert found["new"]["folder"] == str(two.results.runs / B)
    assert found["gained"][0]["folder"] == "rollouts/t_sort/s0/a1"
    assert found["contrasts"] == [{"what": "model", "old": ["m"], "new": ["n"]}]
    assert "promotion" not in found


def test_what_is_not_the_same_is_listed_and_not_compared(empty: Tool) -> None:
    write(empty, A, {"t": [1], "u": [1]})
    write(empty, B, {"t": [1], "u": [1]}, evaluator_revision="sha256:c1")
    code, text, _ = empty("compare", A, B)
    assert code == 1, "nothing could be compared"
    lines = text.splitlines()
    assert lines[lines.index("not compared: 2") :] == [
        "not compared: 2",
        "  t: other checks",
        "  u: other checks",
        "  hint: pytest --rollout-rescore runs the checks of today on what A's agents left",
    ]


def test_markdown_is_inert_and_bounded(empty: Tool) -> None:
    tasks = {f"t[{number}|`<b>`]\n::error::x ##vso[y] @all {'long ' * 60}": [0.0] for number in range(400)}
    write(empty, A, {task: [1.0] for task in tasks})
    write(empty, B, tasks)
    code, text, _ = empty("compare", A, B, "--format", "markdown", "--all")
    assert code == 0
    assert len(text) <= 60_000
    assert text.count("<details>") == text.count("</details>") == 2
    assert "\n::" not in text and "##vso[" not in text
    cells = [line for line in text.splitlines() if line.startswith("| 1 | 0 |")]
    assert cells and all(line.count("`") == 2 and r"\|'<b>'" in line for line in cells)
    shown = empty("compare", A, B, "--format", "markdown", "--limit", "2")[1]
    assert "- … and 398 more" in shown


def test_mistakes(two: Tool) -> None:
    assert two.refused("compare", A, B, "--tag", "x", "--split", "s") == (
        f"no task of {A} or {B} has the tag 'x' and the split 's'"
    )
    assert two.refused("compare", A, "nothing").startswith("no run begins with 'nothing'")
    assert two.refused("compare", A, B, "--margin", "0.1") == "--margin belongs to --promote, which is not given"
    assert two.refused("compare", A, B, "--promote", "--tag", "x").startswith("--promote looks at all tasks with")
    assert two.refused("compare", A, B, "--promote", "--untrusted").startswith("--promote never takes untrusted")
    for words, message in (
        (("--confidence", "1"), "'1' is not a number between 0.5 and 1"),
        (("--power", "x"), "'x' is not a number between 0 and 1"),
        (("--margin", "-1"), "'-1' is not a number between -1 and 1"),
        (("--limit", "0"), "'0' is not a number of lines: at least 1"),
    ):
        code, _, errors = two("compare", A, B, *words)
        assert code == 2 and message in errors


HELD: dict[str, Sequence[float | None]] = {f"t{number}": [0.0, 0.0] for number in range(6)}


@pytest.mark.parametrize(
    ("new", "words", "status", "answer"),
    [
        ([1.0, 1.0], [], 0, "promote: the lower bound +1.0000 is above the margin 0"),
        ([0.0, 0.0], ["--margin", "0.5"], 1, "reject: the upper bound +0.0000 is below the margin 0.5"),
        ([0.0, 0.0], [], 3, "undecided: the margin 0 lies between the bounds +0.0000 and +0.0000"),
        ([1.0, None], [], 4, "refused: B measured 6 of 12 rollouts, and 95% is the least"),
    ],
)
def test_promote(new: list[float | None], words: list[str], status: int, answer: str, empty: Tool) -> None:
    write(empty, A, HELD, split="held-out")
    write(empty, B, dict.fromkeys(HELD, new), split="held-out")
    add_look(empty.results, Look(run=A, time="t", tasks=6, digest="d", agents=("a",)))
    add_look(empty.results, Look(run=B, time="t", tasks=6, digest="d", agents=("a",)))
    add_look(empty.results, Look(run=f"{B[:-1]}c", time="t", tasks=6, digest="d", agents=("a",)))
    code, text, errors = empty("compare", A, B, "--promote", *words)
    assert (code, errors) == (status, "")
    lines = text.splitlines()
    start = lines.index(answer)
    assert "  held-out: the split was run in 3 runs that this folder knows, 2 of them after A" in lines[start:]
    assert lines[-1] == "  2 looks: one of them promotes a policy that is no better in up to 10% of cases"
    code, text, _ = empty("compare", A, B, "--promote", *words, "--format", "json")
    found = json.loads(text)
    assert (code, found["promotion"]["answer"]) == (status, answer.partition(":")[0])
    assert len(found["held_out"]["looks"]) == 3
    code, text, _ = empty("compare", A, B, "--promote", *words, "--format", "markdown")
    assert code == status and f"**{answer.partition(':')[0]}**" in text


def test_baseline(two: Tool, tmp_path: Path) -> None:
    printed = two.said("baseline", A)
    assert two.said("baseline", A, "--output", "b.json") == ["b.json: 4 tasks, 7 of 7 rollouts measured"]
    assert Path("b.json").read_text(encoding="utf-8").splitlines() == printed
    assert [name for name in os.listdir() if "b.json" in name] == ["b.json"]
    run, file = two.said("compare", A, B), two.said("compare", "b.json", B)
    assert file == [line for line in run if f"{A}/" not in line]
    assert two.refused("baseline", A, "--output", "none/b.json") == (
        "the baseline none/b.json can't be written: No such file or directory"
    )
    Path("b.json").write_text("{}")
    assert two.refused("compare", "b.json", B).startswith("b.json is not a baseline: ")
