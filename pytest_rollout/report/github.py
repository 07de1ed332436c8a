"""What GitHub Actions shows of a run: a step summary in Markdown, and annotations.

Texts of candidates are inert in both: in Markdown every character that could mean anything is an entity inside of
``<code>``, and an annotation is one line, escaped as its runner asks (a value and a property differ).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import msgspec

from pytest_rollout.decisions.gates import UNDECIDED
from pytest_rollout.report.inert import one_line
from pytest_rollout.report.terminal import figure, mean_words, means_of, plural
from pytest_rollout.store.load import LoadedRun
from pytest_rollout.store.records import Result

__all__ = ["SUMMARY_BYTES", "Place", "annotations_of", "code", "summary"]

SUMMARY_BYTES = 1024 * 1024 - 1  # a step's summary of 1,024 KiB or more is refused
_MOST_ANNOTATIONS = 10  # more are not shown
_MOST_CAUSES, _ROWS = 20, (50, 10, 1)  # of a table; fewer where there is less room
_TEXT, _CELL = 800, 200  # characters
_PLAIN = re.compile(r"[^A-Za-z0-9 \-]")
_STATUS = {
    0: "everything passed",
    1: "an agent fell short, or a test failed",
    2: "it was interrupted",
    75: "something was not measured",
    76: "a gate does not hold",
}


class Place(msgspec.Struct, frozen=True):
    """A test in the repository: its file, relative to it, and its line from 1, where that is known."""

    file: str
    line: int | None = None


def code(text: str, limit: int = _CELL) -> str:
    """A text for Markdown, on one line, that nothing reads as anything else: no link, mention, table or HTML."""
    shown = one_line(text if len(text) <= limit else f"{text[:limit]} …")
    return f"<code>{_PLAIN.sub(lambda match: f'&#{ord(match[0])};', shown)}</code>" if shown.strip() else ""


def annotations_of(
    results: Sequence[Result], place: Callable[[Result], Place | None], redact: Callable[[str], str] = str
) -> list[str]:
    """A line for each cause of infrastructure, the most frequent first: an error; a warning where it is forgeable."""
    causes = _causes(results)
    lines = []
    for found in causes[:_MOST_ANNOTATIONS]:
        first = found[0]
        text = redact(first.message)
        text = text if len(text) <= _TEXT else f"{text[:_TEXT]} …"
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        where = place(first)
        properties = {"title": f"{plural(len(found), 'rollout')} not measured: {first.kind}"}
        if where is not None:
            properties = {"file": where.file, "line": str(where.line or ""), **properties}
        shown = ",".join(f"{name}={_property(redact(value))}" for name, value in properties.items() if value)
        level = "warning" if first.forgeable else "error"
        said = [one_line(part) for part in text.splitlines()] or ["no message"]
        said.append(redact(one_line(first.rollout)) + more)
        lines.append(f"::{level} {shown}::" + _value("\n".join(said)))
    return lines


def _causes(results: Sequence[Result]) -> list[list[Result]]:
    """The unmeasured results by kind and message, the most frequent first."""
    found: dict[tuple[object, ...], list[Result]] = {}
    for result in results:
        if result.outcome == "infra":
            found.setdefault((result.kind, result.forgeable, result.message), []).append(result)
    return sorted(found.values(), key=len, reverse=True)


def _value(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _value(one_line(text)).replace(":", "%3A").replace(",", "%2C")


def summary(
    loaded: LoadedRun,
    *,
    status: int,
    said: Sequence[str] = (),
    folder: str = "",
    room: int = SUMMARY_BYTES,
    redact: Callable[[str], str] = str,
) -> str | None:
    """The Markdown of a run, in at most ``room`` bytes of UTF-8; None where there is no room for its head.

    ``said`` are lines of gates and the like, ``folder`` where the results are.
    """
    head = _head(loaded, status, folder, redact)
    gates = _gates(said, redact)
    whole = (head + gates + _tables(loaded.results, rows, redact) for rows in _ROWS)
    return next((text for text in (*whole, head + gates, head) if len(text.encode()) <= room), None)


def _head(loaded: LoadedRun, status: int, folder: str, redact: Callable[[str], str]) -> str:
    results = loaded.results
    count = Counter(result.outcome for result in results)
    untrusted = sum(result.trusted is False for result in results)
    rows: Mapping[str, str] = {
        "passed": str(count["passed"]),
        "failed": str(count["failed"]),
        "infra": str(count["infra"]),
        "not run": str(len(loaded.missing)) if loaded.missing else "",
        "untrusted": str(untrusted) if untrusted else "",
        "mean reward": mean_words(results, means_of(results)),
        "exit status": f"{status}{_meaning(status, count['failed'], count['infra'] + len(loaded.missing))}",
        "results": code(redact(folder)),
    }
    lines = [f"### {plural(len(results), 'rollout')}", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in rows.items() if value]
    return "\n".join(lines) + "\n\n"


def _meaning(status: int, failed: int, unmeasured: int) -> str:
    """What a status means; that of gates also where not everything passed, or everything was measured."""
    if status == 0 and failed + unmeasured:
        return ": what did not pass was expected, or the gates hold"
    if status == UNDECIDED and not unmeasured:
        return ": a gate is undecided"
    return f": {_STATUS[status]}" if status in _STATUS else ""


def _gates(said: Sequence[str], redact: Callable[[str], str]) -> str:
    lines = [f"- {code(redact(line), _TEXT)}" for line in said if line.strip()]
    return "\n".join(lines) + "\n\n" if lines else ""


def _tables(results: Sequence[Result], rows: int, redact: Callable[[str], str]) -> str:
    lines: list[str] = []
    causes = _causes(results)
    if causes:
        lines += ["#### Not measured", "", "| rollouts | kind | why | one of them |", "|---|---|---|---|"]
        for found in causes[: min(rows, _MOST_CAUSES)]:
            kind = f"{found[0].kind}{' (forgeable)' if found[0].forgeable else ''}"
            lines.append(f"| {len(found)} | {kind} | {code(redact(found[0].message))} | {code(found[0].rollout)} |")
        lines += _more(len(causes), min(rows, _MOST_CAUSES), "causes")
    failed = sorted((result for result in results if result.outcome == "failed"), key=lambda each: each.reward or 0.0)
    if failed:
        lines += ["#### Failed", "", "| reward | test | why | rollout |", "|---|---|---|---|"]
        for each in failed[:rows]:
            cells = [figure(each.reward), *(code(redact(text)) for text in (each.node, each.message, each.rollout))]
            lines.append(f"| {' | '.join(cells)} |")
        lines += _more(len(failed), rows, "failed rollouts")
    return "\n".join(lines) + "\n\n" if lines else ""


def _more(number: int, shown: int, what: str) -> list[str]:
    return ["", f"… and {number - shown} more {what}", ""] if number > shown else [""]
