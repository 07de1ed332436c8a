"""What is said of held-out tasks: the answer of the rule of promotion, and how often they were looked at."""

from __future__ import annotations

from pytest_rollout.decisions.promote import Promotion
from pytest_rollout.report.comparison import signed
from pytest_rollout.report.inert import one_line
from pytest_rollout.report.terminal import plural
from pytest_rollout.store.heldout import Looks

__all__ = ["looks_line", "promotion_lines"]


def looks_line(looks: Looks, *, tasks: int | None = None, since: str | None = None) -> str:
    """How often held-out tasks were run; ``tasks`` by this session, ``since`` names an earlier run."""
    times = plural(len(looks.looks), "run")
    line = f"held-out: {plural(tasks, 'task')}; " if tasks is not None else "held-out: "
    line += f"the split was run in {times} that this folder knows"
    if since is not None:
        line += f", {looks.since(since)} of them after A"
    return line + (f" ({plural(looks.broken, 'line')} of the ledger can't be read)" if looks.broken else "")


def promotion_lines(found: Promotion, looks: Looks, since: str) -> list[str]:
    """The answer of the rule, and what it rests on."""
    rule = found.rule
    lines = [f"{found.answer}: {found.reasons[0]}", *(f"  {reason}" for reason in found.reasons[1:])]
    difference = found.difference
    if difference is not None:
        lines.append(f"  B − A: {signed(difference.mean)} over {plural(difference.count, 'held-out task')}")
    if found.guarded is not None:
        low = found.guarded.lower(rule.confidence)
        lines.append(
            f"  with forgeable infra of B as 0: {signed(found.guarded.mean)}"
            + (f", lower bound {signed(low)}" if low is not None else "")
        )
    if found.answer == "undecided":
        lines += _deciding_lines(found)
    lines.append(f"  {looks_line(looks, since=since)}")
    number = looks.since(since)
    if number > 1:
        chance = min(1.0, number * (1 - rule.confidence))
        lines.append(
            f"  {number} looks: one of them promotes a policy that is no better in up to {chance:.0%} of cases"
        )
    return [one_line(line) for line in lines]


def _deciding_lines(found: Promotion) -> list[str]:
    lines = []
    if found.tasks is None:
        lines.append("  no number of tasks decides a difference that is the margin, or has no spread")
    elif found.difference is not None:
        lines.append(f"  would decide at this spread: about {plural(found.tasks, 'held-out task')}")
    if found.spread is None:
        lines.append(
            "  whether more samples would help is unknown: that takes 2 samples a task, or more, on both sides"
        )
        return lines
    whole = found.spread.within + found.spread.between
    share = f"{found.spread.within / whole:.0%} of the variance is within tasks" if whole else "there is no variance"
    if found.samples is not None:
        lines.append(f"  or about {plural(found.samples, 'sample')} a task on both sides ({share})")
    elif found.tasks is not None:
        lines.append(f"  more samples alone can't decide: {share}, the rest is between them")
    return lines
