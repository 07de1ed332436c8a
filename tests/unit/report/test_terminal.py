"""What the terminal shows of rollouts: the words, the sections, the closing block."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_rollout.bundle import BundleRecord, Captured, Change, Finding
from pytest_rollout.report.terminal import check_lines, closing_block, ending, figure, plural, sections, status_word
from pytest_rollout.reward import Check
from pytest_rollout.store.records import Earlier, Result

COMMANDS = ["::error::x", "  ::stop-commands::x", "##[group]", "##vso[task.setvariable]", "\x1b[31mred", "\u202egnp"]
INERT = [
    "  | ::error::x",
    "  |   ::stop-commands::x",
    "  | # #[group]",
    "  | # #vso[task.setvariable]",
    "  | \\x1b[31mred",
    "  | \\u202egnp",
]


def check(name: str, value: float = 1.0, weight: float = 1.0, message: str | None = None) -> Check:
    return Check(name=name, weight=weight, value=value, message=message)


# Words


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "none"),
        (0.0, "0"),
        (1.0, "1"),
        (0.75, "0.75"),
        (1 / 3, "0.3333"),
        (0.99996, "0.99996"),
        (0.999999998, "0.999999998"),
        (0.00001, "1e-05"),
        (0.99994, "0.9999"),
    ],
)
def test_a_figure_is_short_and_never_rounded_up_to_a_pass(value: float | None, text: str) -> None:
    assert figure(value) == text


def test_the_word_of_a_status() -> None:
    assert status_word("passed", None, 1.0) == "PASSED r=1"
    assert status_word("failed", None, 0.75) == "FAILED r=0.75"
    assert status_word("failed", None, None) == "FAILED r=none"
    assert status_word("infra", "spawn", None) == "INFRA spawn"


def test_plural() -> None:
    assert [plural(number, "rollout") for number in (0, 1, 2)] == ["0 rollouts", "1 rollout", "2 rollouts"]


# Checks


def test_checks_stand_in_columns_with_the_reasons_below() -> None:
    checks = [check("adds"), check("half", 0.5, 3), check("text", 0.3333333, 0.25, "t.py:4: no\nsecond"), check("n", 0)]
    assert check_lines(checks) == [
        "       1  × 1  adds",
        "     0.5  × 3  half",
        "  0.3333  × 0.25  text",
        "       0  × 1  n",
        "",
        "text:",
        "  | t.py:4: no\n  | second",
    ]
    assert check_lines([]) == []


def test_checks_of_a_candidates_words_are_inert() -> None:
    lines = check_lines([check("a\n::error::x", 0, 1, "\n".join(COMMANDS)), check("##vso[x]")])
    assert lines[:2] == ["  0  × 1  a\\n::error::x", "  1  × 1  # #vso[x]"]
    assert lines[3:] == ["a\\n::error::x:", "\n".join(INERT)]
    assert check_lines([check("::x", 0, 1, "m")])[2] == "| ::x:"


# Sections


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "stdout").write_bytes(b"")
    (tmp_path / "stderr").write_bytes(b"")
    return tmp_path


def test_the_sections_of_a_rollout(folder: Path, make_record: Callable[..., BundleRecord]) -> None:
    (folder / "stdout").write_bytes("one\ntwo \xff€".encode("latin-1", "replace"))
    assert sections(folder, make_record(), [check("a", 0.5)]) == [
        ("agent", "  exit_code 3 after 1.5 s"),
        ("agent stdout (tail of 10 bytes)", "  | one\n  | two \N{REPLACEMENT CHARACTER}?"),
        ("changed files", "  added     file     answer.txt\n  deleted   file     old.txt"),
        ("findings", "  link: a hard link (answer.txt)"),
        ("checks", "  0.5  × 1  a"),
    ]


def test_nothing_to_say_is_left_out_but_for_the_changes(folder: Path, make_record: Callable[..., BundleRecord]) -> None:
    quiet = make_record(termination="completed", exit_code=0, changes=(), findings=())
    assert sections(folder, quiet, ()) == [("changed files", "  none")]
    assert sections(folder, None, ()) == []
    assert sections(folder, None, [check("a")]) == [("checks", "  1  × 1  a")]
    (folder / "stdout").unlink()
    assert sections(folder, quiet, ()) == [("changed files", "  none")]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"termination": "exit_code", "exit_code": 3}, "exit_code 3 after 1.5 s"),
        ({"termination": "signal", "signal": 9, "exit_code": 137}, "signal 9 after 1.5 s"),
        ({"termination": "wall_limit", "exit_code": None}, "wall_limit after 1.5 s"),
        ({"termination": "completed", "exit_code": 0}, "completed after 1.5 s"),
    ],
)
def test_how_an_agent_ended(make_record: Callable[..., BundleRecord], changes: dict[str, Any], text: str) -> None:
    assert ending(make_record(**changes)) == text


def test_of_long_output_the_tail_is_shown(folder: Path, make_record: Callable[..., BundleRecord]) -> None:
    (folder / "stderr").write_text("".join(f"line {number}\n" for number in range(100)))
    record = make_record(changes=(), findings=(), stderr=Captured(file="stderr", kept=790, dropped=2**40))
    _, (title, text), _ = sections(folder, record, ())
    assert title == "agent stderr (tail of 1099511628566 bytes)"
    assert text.splitlines() == [f"  | line {number}" for number in range(80, 100)]
    (folder / "stderr").write_text("x" * 10_000)
    _, (_, text), _ = sections(folder, record, ())
    assert text == "  | " + "x" * 4000


def test_of_many_changes_twenty_are_shown(folder: Path, make_record: Callable[..., BundleRecord]) -> None:
    changes = tuple(Change(path=f"f{number}", kind="added", type="symlink") for number in range(21))
    text = dict(sections(folder, make_record(changes=changes), ()))["changed files"]
    assert text.splitlines()[:2] == ["  added     symlink  f0", "  added     symlink  f1"]
    assert text.splitlines()[20:] == ["  … and 1 more"]
    text = dict(sections(folder, make_record(changes=changes[:20]), ()))["changed files"]
    assert text.splitlines()[19:] == ["  added     symlink  f19"]


def test_of_many_findings_twenty_are_shown(folder: Path, make_record: Callable[..., BundleRecord]) -> None:
    findings = tuple(Finding(code="setuid", message="mode 4755", path=f"f{number}") for number in range(22))
    text = dict(sections(folder, make_record(findings=findings), ()))["findings"]
    assert text.splitlines()[19:] == ["  setuid: mode 4755 (f19)", "  … and 2 more"]


def test_what_a_candidate_wrote_is_inert(folder: Path, make_record: Callable[..., BundleRecord]) -> None:
    (folder / "stdout").write_text("\n".join(COMMANDS))
    changes = (Change(path="##vso[x]\n::error::x", kind="added", type="file"),)
    findings = (Finding(code="agent.failure", message="a\n::error::x", path="##[x]"),)
    found = dict(sections(folder, make_record(changes=changes, findings=findings), ()))
    assert found == {
        "agent": "  exit_code 3 after 1.5 s",
        "agent stdout (tail of 10 bytes)": "\n".join(INERT),
        "changed files": "  added     file     # #vso[x]\\n::error::x",
        "findings": "  agent.failure: a\\n::error::x (# #[x])",
    }


# The closing block


@pytest.fixture
def block(make_result: Callable[..., Result]) -> Callable[..., list[str]]:
    """The lines for results that are given as changes of a passed one."""

    def lines(*results: dict[str, Any], not_run: int = 0, lost: tuple[str, ...] = (), **more: Any) -> list[str]:
        return closing_block(
            [make_result(**changes) for changes in results], not_run=not_run, lost=lost, folder="runs/r", **more
        )

    return lines


def infra(kind: str, message: str = "why", *, forgeable: bool = False) -> dict[str, Any]:
    return {"outcome": "infra", "kind": kind, "reward": None, "message": message, "forgeable": forgeable}


FAILED: dict[str, Any] = {"outcome": "failed", "reward": 0.5}


def test_all_passed(block: Callable[..., list[str]]) -> None:
    assert block({}, {}) == [
        "2 rollouts: 2 passed, 0 failed, 0 infra",
        "mean reward: 1 over 2 measured of 2",
        "results: runs/r",
    ]


def test_one_of_each(block: Callable[..., list[str]]) -> None:
    assert block({}, FAILED, infra("spawn", "no such program"), not_run=2) == [
        "3 rollouts: 1 passed, 1 failed, 1 infra; 2 not run",
        "infra: 1 spawn",
        "mean reward: 0.75 over 2 measured of 3 (1 unmeasured)",
        "  1 × spawn: no such program",
        "results: runs/r",
    ]


def test_the_reach_of_a_mean_is_of_its_tasks(block: Callable[..., list[str]]) -> None:
    """Means of 1, 0.75 and 0: Student's interval; the mean is theirs, not that of the five rollouts."""
    several: list[dict[str, Any]] = [{"task": "a"}, {"task": "b"}, {"task": "b", "reward": 0.5}]
    several += [{"task": "c", "reward": 0.0}, {"task": "c", "reward": 0.0}]
    assert block(*several)[1] == "mean reward: 0.5833 over 5 measured of 5"  # ± 1.3: that says nothing
    more: list[dict[str, Any]] = [{"task": "d", "reward": 0.75}, {"task": "e", "reward": 0.5}]
    assert block(*several, *more)[1] == "mean reward: 0.6 ± 0.47 (95 %, 5 tasks) over 7 measured of 7"
    assert block({"task": "a"}, {"task": "b"})[1] == "mean reward: 1 over 2 measured of 2"  # no spread says nothing


def test_rollouts_that_needed_more_than_one_attempt_are_counted_with_the_reasons(
    block: Callable[..., list[str]],
) -> None:
    stage = Earlier(attempt=1, kind="stage")
    forged = Earlier(attempt=2, kind="agent", forgeable=True)
    lines = block({}, {"earlier": (stage, forged)}, {**infra("stage"), "earlier": (stage,)})
    assert "with forgeable infra as 0: 0.5 over 2" in lines
    assert lines[3] == "more than one attempt: 2 rollouts, after infra: 1 agent (forgeable), 2 stage"


def test_no_results_have_no_mean(block: Callable[..., list[str]]) -> None:
    assert block() == [
        "0 rollouts: 0 passed, 0 failed, 0 infra",
        "mean reward: none over 0 measured of 0",
        "results: runs/r",
    ]


def test_ends_that_were_measured_are_counted(block: Callable[..., list[str]]) -> None:
    ends: list[dict[str, Any]] = [{"termination": end} for end in ("wall_limit", "signal", "wall_limit", "completed")]
    unmeasured = {**infra("evaluator"), "termination": "signal"}
    assert block(*ends, unmeasured)[2:4] == [
        "mean reward: 1 over 4 measured of 5 (1 unmeasured)",
        "agents that did not complete: 1 signal, 2 wall_limit",
    ]


def test_forgeable_infrastructure_is_also_shown_as_0(block: Callable[..., list[str]]) -> None:
    assert block({}, infra("spawn"), infra("evaluator", forgeable=True), infra("evaluator", forgeable=True)) == [
        "4 rollouts: 1 passed, 0 failed, 3 infra",
        "infra: 2 evaluator (forgeable), 1 spawn",
        "mean reward: 1 over 1 measured of 4 (3 unmeasured)",
        "with forgeable infra as 0: 0.3333 over 3",
        "  2 × evaluator: why",
        "  1 × spawn: why",
        "results: runs/r",
    ]


def test_only_forgeable_infrastructure(block: Callable[..., list[str]]) -> None:
    assert block(infra("spawn", forgeable=True)) == [
        "1 rollout: 0 passed, 0 failed, 1 infra",
        "infra: 1 spawn (forgeable)",
        "mean reward: none over 0 measured of 1 (1 unmeasured)",
        "with forgeable infra as 0: 0 over 1",
        "  1 × spawn: why",
        "results: runs/r",
    ]


@pytest.mark.parametrize(("trusted", "said"), [(True, False), (None, False), (False, True)])
def test_agents_that_were_not_isolated_are_told(
    block: Callable[..., list[str]], trusted: bool | None, said: bool
) -> None:
    assert (
        "untrusted: the agents were not isolated, or not as far as their tasks ask" in block({}, {"trusted": trusted})
    ) is said


def test_bodies_that_crashed_on_what_the_agent_left_are_counted(block: Callable[..., list[str]]) -> None:
    crashed = {"outcome": "failed", "reward": 0.0, "type": "check_crashed"}
    assert block({}, crashed, crashed)[2:] == [
        "check_crashed: 2 scored 0 because the test crashed on what the agent left",
        "results: runs/r",
    ]


def test_tasks_with_weak_checks_are_named_once(block: Callable[..., list[str]]) -> None:
    said = "can be passed without doing the work:"
    weak = [{"audit": "weak", "task": f"t{number}\n"} for number in (4, 1, 3, 1, 2)]
    assert block({"audit": "sound"}, {"audit": "in-process"}, {"audit": None}, weak[1], weak[3])[2:] == [
        f"weak checks: 1 task {said} t1\\n",
        "results: runs/r",
    ]
    assert block(*weak[:3])[2] == f"weak checks: 3 tasks {said} t1\\n, t3\\n, t4\\n"
    assert block(*weak)[2] == f"weak checks: 4 tasks {said} t1\\n, t2\\n, t3\\n and 1 more"


def test_a_cause_is_told_once_with_its_remedy(block: Callable[..., list[str]]) -> None:
    message = "bubblewrap was refused: no user namespaces\nRun sysctl.\nOr use --rollout-isolation=none."
    assert block(infra("isolation", message), infra("isolation", message))[3:] == [
        "  2 × isolation: bubblewrap was refused: no user namespaces",
        "    | Run sysctl.",
        "    | Or use --rollout-isolation=none.",
        "results: runs/r",
    ]


def test_of_many_causes_five_are_told_the_most_common_first(block: Callable[..., list[str]]) -> None:
    results = [infra("stage", f"cause {number}") for number in range(7)] + [infra("stage", "cause 6")]
    assert block(*results)[3:] == [
        "  2 × stage: cause 6",
        *(f"  1 × stage: cause {number}" for number in range(4)),
        "  … and 2 more causes",
        "results: runs/r",
    ]


def test_a_long_cause_is_cut_and_an_empty_one_is_shown(block: Callable[..., list[str]]) -> None:
    assert block(infra("stage", "x" * 900))[3] == f"  1 × stage: {'x' * 800} …"
    assert block(infra("stage", "x" * 800))[3] == f"  1 × stage: {'x' * 800}"
    assert block(infra("stage", ""))[3] == "  1 × stage: "


def test_lost_rollouts_and_notes(block: Callable[..., list[str]]) -> None:
    assert block(lost=("a",), notes=("one", "two"))[2:] == [
        "LOST: 1 rollout without a result: a",
        "warning: one",
        "warning: two",
        "results: runs/r",
    ]
    assert block(lost=tuple("abcdefg"))[2] == "LOST: 7 rollouts without a result: a, b, c, d, e and 2 more"


def test_the_block_is_inert(block: Callable[..., list[str]]) -> None:
    message = "the test raised ValueError: ##vso[x]\n" + "\n".join(COMMANDS)
    lines = block(infra("evaluator", message), infra("stage", "::x"), notes=("a\n::error::x", "##[x]"))
    assert lines[3:] == [
        "  1 × evaluator: the test raised ValueError: # #vso[x]",
        *(f"  {line}" for line in INERT),
        "  1 × stage: ::x",
        "warning: a\\n::error::x",
        "warning: # #[x]",
        "results: runs/r",
    ]
