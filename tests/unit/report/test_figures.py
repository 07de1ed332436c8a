"""The figures as text: what is known, how sure it is, and what was left out; and gates in JUnit."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from pytest_rollout.decisions.figures import figures_of, task_figures
from pytest_rollout.decisions.rows import RowEarlier, Rows
from pytest_rollout.decisions.selection import groups_of
from pytest_rollout.report.figures import figure_lines, group_table, task_table
from pytest_rollout.report.gates import write_gates
from tests.unit.decisions.conftest import row, rows

FLAT = rows({f"{number}": [0.5 + number / 100] for number in range(5)})
RUN = rows({"a": [1, 0, 1, 1], "b": [0, 1], "c": [None], "d": [1]}, missing={"b": 2})


def test_a_run_with_much_to_say() -> None:
    made = [replace(each, forgeable=True) if each.reward is None else each for each in RUN.rows]
    made[0] = replace(made[0], earlier=(RowEarlier(kind="stage"),))
    run = replace(RUN, rows=tuple(made))
    assert figure_lines("run", figures_of(run, ks=(1, 4, 9), seed=2)) == [
        "run            run",
        "rollouts       7 measured of 10 planned, 1 infra, 2 missing (cut short, skipped, or not over)",
        "tasks          4, 3 measured",
        "mean reward    0.75 (95 %: 0.1290 to 1.0000)",
        "               standard error 0.1443 over 3 tasks; by drawing tasks anew: 0.5000 to 1.0000",
        "               every sample alike: 0.7143, clustered error 0.0764",
        "success rate   0.75 (95 %: 0.1290 to 1.0000)",
        "pass@1, ^1     0.75, 0.75 over 3 tasks of 4",
        "pass@4, ^4     1, 0 over 1 task of 4",
        "pass@9, ^9     none: no task has 9 measured samples",
        "infra rate     0.125: 1 stage",
        "forgeable as 0 0.5625 with 1 forgeable infra as 0",
        "bounds         0.5 to 0.875, with all that is left out as 0 or 1",
        "detectable     none: with so few tasks and samples not even a drop from 1 to 0",
        "one sample     1 task: nothing is known of the spread within",
        "retried        1 after a retry, 6 at once: +0.3333 between rollouts",
    ]


def test_a_label_and_its_figures_are_apart() -> None:
    lines = figure_lines("run", figures_of(FLAT, ks=(10_000,)))
    assert "pass@10000, ^10000 none: no task has 10000 measured samples" in lines


def test_a_run_with_little_to_say() -> None:
    assert figure_lines("::error::x\n", figures_of(rows({"a": [1, 1]}), ks=(1,))) == [
        "run            | ::error::x\\n",
        "rollouts       2 measured of 2 planned",
        "tasks          1",
        "mean reward    1",
        "success rate   1",
        "pass@1, ^1     1, 1 over 1 task of 1",
    ]
    none = figure_lines("r", figures_of(rows({"a": [None]})))
    assert none[3:5] == ["mean reward    none", "success rate   none"]


def test_one_sample_a_task_gives_the_detectable_drop_at_most() -> None:
    (line,) = [line for line in figure_lines("r", figures_of(FLAT)) if "detect" in line]
    assert line.endswith(" (80 % power), at most: one sample does not show the spread within a task")


def test_untrusted_results_are_counted_apart() -> None:
    run = Rows(name="r", rows=(row("a", 0, 1), row("a", 1, 0, trusted=False)))
    assert (
        figure_lines("r", figures_of(run))[1]
        == "rollouts       1 measured of 2 planned, 1 untrusted (--untrusted counts them)"
    )


def test_the_table_of_tasks() -> None:
    assert task_table(task_figures(RUN), (1, 2)) == [
        "measured  mean  success              95 %  pass@1 ^1  pass@2 ^2  task",
        "     4/4  0.75     0.75  0.3006 to 0.9544  0.75 0.75      1 0.5  a",
        "     2/4   0.5      0.5  0.0945 to 0.9055    0.5 0.5        1 0  b",
        "     0/1  none     none                 –          –          –  c",
        "     1/1     1        1  0.2065 to 1.0000        1 1          –  d",
    ]


def test_the_table_of_parts() -> None:
    run = Rows(name="r", rows=(*rows({"a": [1], "b": [0]}, tags=("x",)).rows, row("c", 0, None)))
    groups = {name: figures_of(part) for name, part in groups_of(run, "tag").items()}
    assert group_table(groups, "tag") == [
        "tasks  measured  mean              95 %  success  infra  tag",
        "    2       2/2   0.5  0.0000 to 1.0000      0.5      0  x",
        "    1       0/1  none                 –     none      1  (none)",
    ]


HEAD = '<?xml version="1.0" encoding="utf-8"?>\n'
JUNIT = f'{HEAD}<testsuites><testsuite name="p"><testcase name="a" /></testsuite></testsuites>\n'


def test_gates_are_properties_of_the_testsuite(tmp_path: Path) -> None:
    path = tmp_path / "report.xml"
    path.write_text(JUNIT)
    assert write_gates(path, ["gate a > 0: holds", "\x00é"]) == []
    added = (
        '<properties><property name="rollout.gate.1" value="gate a &gt; 0: holds" />'
        '<property name="rollout.gate.2" value="\\x00é" /></properties>'
    )
    assert path.read_text() == JUNIT.replace('<testsuite name="p">', f'<testsuite name="p">{added}')


@pytest.mark.parametrize(
    ("text", "said"),
    [(None, "No such file or directory"), ("<a", "unclosed token"), ("<testsuites />", "it has no testsuite")],
)
def test_a_report_that_gates_can_not_be_written_into(tmp_path: Path, text: str | None, said: str) -> None:
    path = tmp_path / "report.xml"
    if text is not None:
        path.write_text(text)
    (problem,) = write_gates(path, ["gate"])
    assert problem.startswith(f"the gates could not be written into {path}: ")
    assert said in problem
    assert text is None or path.read_text() == text
