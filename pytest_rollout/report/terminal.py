"""What the terminal shows of rollouts, as plain text: the header, the sections, the closing block.

Nothing here knows pytest or colours. What a candidate wrote is printed inert: control characters are
escaped and every line has a bar before it, because CI systems obey lines that begin with ``::`` even
behind blanks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean

from pytest_rollout.bundle import BundleRecord
from pytest_rollout.decisions.rows import rewards_by_task
from pytest_rollout.decisions.statistics import estimate
from pytest_rollout.outcome import Means, means
from pytest_rollout.report.inert import inert_text, one_line
from pytest_rollout.reward import Check
from pytest_rollout.store.records import Result

__all__ = [
    "check_lines",
    "closing_block",
    "indented",
    "mean_words",
    "means_of",
    "plural",
    "sections",
    "status_word",
]

_TAIL_LINES = 20
_TAIL_BYTES = 4000
_MAX_CHANGES = 20
_MAX_MESSAGE = 800
_MAX_NOTES = 20
_WORTH_TELLING = 1.0  # seconds
_TELLING = 0.5  # how far a mean of rewards may be off, so that it still says something


def figure(value: float | None) -> str:
    """A reward for people: up to four digits, or ``none``; what is below 1 is never shown as 1."""
    if value is None:
        return "none"
    short = f"{value:.4g}"
    return f"{value:.12g}" if short == "1" and value < 1 else short


def status_word(outcome: str, kind: str | None, reward: float | None) -> str:
    """The word of ``-v``: ``PASSED r=1``, ``FAILED r=0.75``, ``INFRA spawn``."""
    return f"INFRA {kind}" if outcome == "infra" else f"{outcome.upper()} r={figure(reward)}"


def check_lines(checks: Sequence[Check]) -> list[str]:
    """One line a check, with its value, weight and name; then why each that is below 1 is so."""
    if not checks:
        return []
    width = max(len(figure(check.value)) for check in checks)
    lines = [f"  {figure(check.value):>{width}}  × {check.weight:g}  {one_line(check.name)}" for check in checks]
    for check in checks:
        if check.value < 1 and check.message:
            lines += ["", one_line(f"{check.name}:"), indented(check.message)]
    return lines


def inert(line: str) -> str:
    """One line of a candidate's, so that neither a terminal nor a CI system obeys it."""
    return inert_text(f"  | {line}")


def indented(text: str) -> str:
    """The lines of a text, inert."""
    return "\n".join(inert(line) for line in text.splitlines())


def ending(bundle: BundleRecord) -> str:
    """How an agent ended: ``wall_limit after 5.003 s``, ``exit_code 3 after 0.2 s``, ``signal 9 after 1 s``."""
    number = {"exit_code": f" {bundle.exit_code}", "signal": f" {bundle.signal}"}.get(bundle.termination, "")
    return f"{bundle.termination}{number} after {bundle.times.duration:.4g} s"


def sections(folder: Path, bundle: BundleRecord | None, checks: Sequence[Check]) -> list[tuple[str, str]]:
    """(title, text) pairs for a report that did not pass."""
    found: list[tuple[str, str]] = []
    if bundle is not None and bundle.termination != "completed":
        found.append(("agent", f"  {ending(bundle)}"))
    if bundle is not None:
        for stream in (bundle.stdout, bundle.stderr):
            tail = _tail(folder / stream.file)
            if tail:
                size = stream.kept + stream.dropped
                found.append((f"agent {stream.file} (tail of {size} bytes)", tail))
        lines = [one_line(f"  {change.kind:<8}  {change.type:<7}  {change.path}") for change in bundle.changes]
        if len(lines) > _MAX_CHANGES:
            lines = [*lines[:_MAX_CHANGES], f"  … and {len(lines) - _MAX_CHANGES} more"]
        found.append(("changed files", "\n".join(lines) or "  none"))
        if bundle.findings:
            notes = [
                one_line(f"  {finding.code}: {finding.message}" + (f" ({finding.path})" if finding.path else ""))
                for finding in bundle.findings[:_MAX_CHANGES]
            ]
            if len(bundle.findings) > len(notes):
                notes.append(f"  … and {len(bundle.findings) - len(notes)} more")
            found.append(("findings", "\n".join(notes)))
    if checks:
        found.append(("checks", "\n".join(check_lines(checks))))
    return found


def _tail(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _TAIL_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()[-_TAIL_LINES:]
            return "\n".join(inert(line) for line in lines)
    except OSError:
        return ""


def closing_block(
    results: Sequence[Result],
    *,
    not_run: int,
    lost: Sequence[str],
    folder: str,
    notes: Sequence[str] = (),
    said: Sequence[str] = (),
) -> list[str]:
    """The lines at the end of a session; ``said`` is what gates and the like say."""
    count = Counter(result.outcome for result in results)
    lines = [
        f"{plural(len(results), 'rollout')}: {count['passed']} passed, {count['failed']} failed, "
        f"{count['infra']} infra" + (f"; {not_run} not run" if not_run else "")
    ]
    infra = [result for result in results if result.outcome == "infra"]
    if infra:
        kinds = Counter(f"{result.kind}{' (forgeable)' if result.forgeable else ''}" for result in infra)
        lines.append("infra: " + ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items())))
    found = means_of(results)
    lines.append(f"mean reward: {mean_words(results, found)}")
    lines += _tried_again(results)
    ends = Counter(result.termination for result in results if result.termination and result.reward is not None)
    del ends["completed"]
    if ends:
        lines.append("agents that did not complete: " + ", ".join(f"{n} {end}" for end, n in sorted(ends.items())))
    if any(result.doubtful for result in results):
        mean = figure(found.forgeable_mean)
        lines.append(f"with forgeable infra as 0: {mean} over {found.forgeable_measured}")
    waits = [result.waited for result in results if result.waited]
    if sum(waits) >= _WORTH_TELLING:
        lines.append(f"waited for places: {sum(waits):.3g} s together, {max(waits):.3g} s at most")
    lines += _about_checks(results)
    if any(result.trusted is False for result in results):
        lines.append("untrusted: the agents were not isolated, or not as far as their tasks ask")
    lines += _causes(infra)
    if lost:
        more = f" and {len(lost) - 5} more" if len(lost) > 5 else ""
        lines.append(f"LOST: {plural(len(lost), 'rollout')} without a result: {', '.join(lost[:5])}{more}")
    lines += [one_line(f"warning: {note}") for note in notes[:_MAX_NOTES]]
    if len(notes) > _MAX_NOTES:
        lines.append(f"warning: … and {len(notes) - _MAX_NOTES} more")
    lines += said
    lines.append(f"results: {folder}")
    return lines


def means_of(results: Iterable[Result]) -> Means:
    """The means of results, in which what the candidate may have brought about is forgeable."""
    return means((result.task, result.reward, result.doubtful) for result in results)


def mean_words(results: Sequence[Result], found: Means) -> str:
    """The mean reward, how far it may be off, and over how many of these results it is."""
    unmeasured = sum(result.outcome == "infra" for result in results)
    said = f"{figure(found.mean)}{_reach(results)} over {found.measured} measured of {len(results)}"
    return said + (f" ({unmeasured} unmeasured)" if unmeasured else "")


def _reach(results: Sequence[Result]) -> str:
    """How far the mean may be off, by the spread of its tasks; nothing where that is not known."""
    found = estimate([fmean(rewards) for rewards in rewards_by_task(results).values()], 0.95)
    if found is None or not found.error or found.interval is None:
        return ""
    reach = (found.interval.high - found.interval.low) / 2
    return f" ± {reach:.2g} (95 %, {found.count} tasks)" if reach < _TELLING else ""


def _tried_again(results: Sequence[Result]) -> list[str]:
    """How many rollouts needed more than one attempt, and why."""
    again = [result for result in results if result.earlier]
    if not again:
        return []
    kinds = Counter(f"{each.kind}{' (forgeable)' if each.forgeable else ''}" for r in again for each in r.earlier)
    why = ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items()))
    return [f"more than one attempt: {plural(len(again), 'rollout')}, after infra: {why}"]


def _about_checks(results: Sequence[Result]) -> list[str]:
    """What is known of the checks that scored these, where that makes a reader careful."""
    lines = []
    crashed = sum(result.type == "check_crashed" for result in results)
    if crashed:
        lines.append(f"check_crashed: {crashed} scored 0 because the test crashed on what the agent left")
    in_process = sum(result.in_process and result.outcome == "passed" for result in results)
    if in_process:
        lines.append(f"in-process: {in_process} passed by a verdict of a process that held the candidate's code")
    weak = {result.task for result in results if result.audit == "weak"}
    if weak:
        more = f" and {len(weak) - 3} more" if len(weak) > 3 else ""
        named = ", ".join(one_line(task) for task in sorted(weak)[:3])
        lines.append(f"weak checks: {plural(len(weak), 'task')} can be passed without doing the work: {named}{more}")
    return lines


def _causes(infra: Sequence[Result]) -> list[str]:
    """Each cause of infrastructure once, with its count and its remedy."""
    causes = Counter((result.kind, result.message) for result in infra)
    lines = []
    for (kind, message), number in causes.most_common(5):
        text = message if len(message) <= _MAX_MESSAGE else f"{message[:_MAX_MESSAGE]} …"
        first, *rest = text.splitlines() or [""]
        lines.append(one_line(f"  {number} × {kind}: {first}"))
        lines += [f"  {inert(line)}" for line in rest]
    if len(causes) > 5:
        lines.append(f"  … and {len(causes) - 5} more causes")
    return lines


def plural(number: int, noun: str) -> str:
    """``1 rollout``, ``2 rollouts``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
