"""What GitHub shows: the summary's figures and bounds, and annotations that nothing of a candidate's can break."""

from __future__ import annotations

import re
from typing import Any

import pytest

from pytest_rollout.report.github import Place, annotations_of, code, summary
from pytest_rollout.store.load import LoadedRun
from pytest_rollout.store.records import Result


def line(number: int, **changes: Any) -> Result:
    values: dict[str, Any] = {"task": "t", "attempt": 1, "agent": "a", "outcome": "passed", "reward": 1.0, **changes}
    return Result(rollout=f"r-{number}", sample=number, node=f"test_a.py::test_b[{number}]", **values)


def infra(number: int, message: str = "no space", **changes: Any) -> Result:
    return line(number, **{"outcome": "infra", "kind": "stage", "reward": None, "message": message, **changes})


def failed(number: int, reward: float = 0.5, message: str = "below") -> Result:
    return line(number, outcome="failed", reward=reward, message=message)


def text_of(*results: Result, **options: Any) -> str:
    text = summary(LoadedRun(results=results), **{"status": 0, **options})
    assert text is not None
    return text


def plain(text: str) -> str:
    """Markdown as it is shown: entities decoded."""
    text = text.replace("<code>", "`").replace("</code>", "`")
    return re.sub(r"&#(\d+);", lambda match: chr(int(match[1])), text)


def nowhere(_: Result) -> None:
    return None


def test_the_summary() -> None:
    loaded = LoadedRun(results=(line(0), failed(1), failed(2, 0.0, "a\nb"), infra(3), infra(4)), missing=("x",))
    text = summary(loaded, status=75, said=["gate mean_reward >= 0.8: holds"], folder="/x/y")
    assert text is not None
    assert (
        plain(text)
        == """\
### 5 rollouts

| | |
|---|---|
| passed | 1 |
| failed | 2 |
| infra | 2 |
| not run | 1 |
| mean reward | 0.5 over 3 measured of 5 (2 unmeasured) |
| exit status | 75: something was not measured |
| results | `/x/y` |

- `gate mean_reward >= 0.8: holds`

#### Not measured

| rollouts | kind | why | one of them |
|---|---|---|---|
| 2 | stage | `no space` | `r-3` |

#### Failed

| reward | test | why | rollout |
|---|---|---|---|
| 0 | `test_a.py::test_b[2]` | `a\\nb` | `r-2` |
| 0.5 | `test_a.py::test_b[1]` | `below` | `r-1` |


"""
    )


def test_a_run_that_passed_has_a_short_summary() -> None:
    assert "####" not in text_of(line(0))


@pytest.mark.parametrize(
    ("results", "status", "said"),
    [
        ([line(0)], 0, "0: everything passed"),
        ([line(0), failed(1)], 0, "0: what did not pass was expected, or the gates hold"),
        ([line(0), failed(1)], 75, "75: a gate is undecided"),
    ],
)
def test_a_status_of_gates_is_not_that_of_rollouts(results: list[Result], status: int, said: str) -> None:
    assert f"| exit status | {said} |" in text_of(*results, status=status)


def test_what_a_candidate_says_means_nothing_in_markdown() -> None:
    bad = "</code>| [x](http://evil) <img src=x> @user #1 `a` **b** &lt; www.evil.org \x1b[31m"
    shown = text_of(failed(0, message=bad))
    cell = shown.splitlines()[-3].split(" | ")[2]
    assert re.fullmatch(r"<code>(?:[A-Za-z0-9 -]|&#\d+;)*</code>", cell)
    assert plain(cell) == "`" + bad.replace("\x1b", "\\x1b") + "`"


@pytest.mark.parametrize("room", [1_000_000, 20_000, 3000, 400])
def test_the_summary_fits(room: int) -> None:
    results = [failed(number, message="é" * 5000) for number in range(1000)] + [
        infra(number, f"{number}: " + "x" * 5000) for number in range(1000)
    ]
    text = text_of(*results, room=room)
    assert text.startswith("### 2000 rollouts\n")
    assert len(text.encode()) <= room
    assert ("#### Failed" in text) is (room > 400)


def test_rows_that_are_not_shown_are_counted() -> None:
    text = text_of(*[failed(number) for number in range(60)])
    assert (text.count("test&#95;b"), "\n… and 10 more failed rollouts\n" in text) == (50, True)


def test_without_room_for_its_head_there_is_none() -> None:
    assert summary(LoadedRun(results=(line(0),)), status=0, room=10) is None


def test_one_annotation_for_each_cause() -> None:
    results = [line(0), failed(1), infra(2, "no\nspace: 100%, really"), infra(3, "odd", forgeable=True, kind="agent")]
    results.append(infra(4, "no\nspace: 100%, really"))
    assert annotations_of(results, lambda result: Place("evals/a,b.py", 7) if result.kind == "stage" else None) == [
        "::error file=evals/a%2Cb.py,line=7,title=2 rollouts not measured%3A stage::"
        "no%0Aspace: 100%25, really%0Ar-2 (and 1 more)",
        "::warning title=1 rollout not measured%3A agent::odd%0Ar-3",
    ]
    assert annotations_of(results[:2], nowhere) == []


def test_at_most_ten_annotations_the_most_frequent_first() -> None:
    results = [infra(number, f"cause {number // 2 if number < 4 else number}") for number in range(30)]
    lines = annotations_of(results, nowhere)
    assert len(lines) == 10
    assert [each.partition("::cause ")[2].partition("%0A")[0] for each in lines[:3]] == ["0", "1", "4"]


def test_an_annotation_is_one_line_that_obeys_nobody() -> None:
    (text,) = annotations_of([infra(0, "x\r\n::stop-commands::x\n##[group]y\x1b[0m\u2028" + "z" * 9000)], nowhere)
    assert text.isprintable()
    assert text.index("::stop") > text.index("| ")
    assert "##[" not in text
    assert len(text) < 1000


def test_secrets_are_redacted_before_they_are_escaped() -> None:
    def redact(text: str) -> str:
        return text.replace("se:cret,1%", "[redacted]")

    (text,) = annotations_of([infra(0, "is se:cret,1% here")], nowhere, redact)
    assert "is [redacted] here" in text
    shown = plain(text_of(failed(0, message="se:cret,1%"), said=["se:cret,1%"], folder="se:cret,1%", redact=redact))
    assert (shown.count("[redacted]"), "cret" in shown) == (3, False)


def test_code_of_nothing_is_nothing() -> None:
    assert (code(""), code("a" * 300)) == ("", f"<code>{'a' * 200} &#8230;</code>")
