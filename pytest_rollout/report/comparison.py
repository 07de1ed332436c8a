"""What the console tool says of a comparison: text of at most 100 columns, and Markdown for a comment.

Ids of tasks come from a suite, and agents' names from its users, but some of what stands here may be a candidate's:
all of it is made inert, and in Markdown it stands in code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from pytest_rollout.decisions.compare import Comparison, Failure, Figure, TaskChange
from pytest_rollout.decisions.pairs import Side
from pytest_rollout.report.inert import one_line
from pytest_rollout.report.terminal import figure, plural

__all__ = ["comparison_markdown", "comparison_text", "signed"]

_COLUMNS = 100
_MOST = 60_000  # characters of Markdown; a comment on GitHub has at most 65,536
_NAMES = {"invalid_actions": "invalid actions", "wall": "wall time", "cpu": "cpu time", "peak_memory": "peak memory"}
_MIB = 2**20
_PATHS = 4

Link = Callable[[str], str]
Item = tuple[str, Sequence[str]]
Links = tuple[Link | None, Link | None]


def comparison_text(found: Comparison, *, limit: int | None, links: Links) -> list[str]:
    """The lines of a comparison; ``limit`` of each list (None: all), ``links`` make paths of folders of A and B.

    A path stands alone on its line, and is not cut.
    """
    lines = [f"A  {_side_line(found.old)}", f"B  {_side_line(found.new)}", *_contrast_lines(found), ""]
    lines += _columns([_HEAD, *[_row(each) for each in found.figures if each.tasks]], least=_LEAST)
    lines += ["", *_test_lines(found), *_warning_lines(found)]
    changed = [task for task in found.tasks if task.difference]
    if changed:
        shown = _ends(changed, limit)
        lines += ["", *_columns([_TASK_HEAD, *[_task_row(task) for task in shown]], words=True)]
        if len(shown) < len(changed):
            lines.append(f"… and {plural(len(changed) - len(shown), 'task')} between these (--all)")
        lines += _single_lines(found)
    made = [_cut(line) for line in lines]
    for title, number, items in _failure_lists(found, links):
        made += _listed(title, items, limit, number)
    made += _listed("not compared", [(f"{each.task}: {each.why}", ()) for each in found.changed], limit)
    if any(each.checks for each in found.changed):
        made.append("  hint: pytest --rollout-rescore runs the checks of today on what A's agents left")
    for title, tasks in _task_lists(found):
        made += _listed(title, [(task, ()) for task in tasks], limit)
    return made


def _failure_lists(found: Comparison, links: Links) -> list[tuple[str, int, list[Item]]]:
    """Title, number and items, one a task, of what failed more often, and less often, in B."""
    passed = {task.task: task for task in found.tasks}
    made = []
    for title, side, failures in (("failures gained (B)", 1, found.gained), ("failures mended (A)", 0, found.mended)):
        by_task: dict[str, list[Failure]] = {}
        for failure in failures:
            by_task.setdefault(failure.task, []).append(failure)
        items: list[Item] = [
            (f"{task}: {len(each)} of {passed[task].samples[side]} failed", _paths(each, links[side]))
            for task, each in by_task.items()
        ]
        made.append((title, len(failures), items))
    return made


def _paths(failures: Sequence[Failure], link: Link | None) -> list[str]:
    """Where the evidence of some of them lies, with a reward that is not 0, and what ended an agent that did not."""
    found = []
    for failure in failures[:_PATHS]:
        if link is not None and failure.folder is not None:
            said = [f"reward {figure(failure.reward)}"] if failure.reward else []
            said += [failure.termination] if failure.termination not in (None, "completed") else []
            found.append(link(failure.folder) + (f" ({', '.join(said)})" if said else ""))
    return found


def _task_lists(found: Comparison) -> list[tuple[str, Sequence[str]]]:
    return [
        ("nothing measured in A", found.unmeasured[0]),
        ("nothing measured in B", found.unmeasured[1]),
        ("only in A", found.only_old),
        ("only in B", found.only_new),
    ]


def _side_line(side: Side) -> str:
    least, most = side.samples
    line = f"{side.name}: {side.measured} of {plural(side.rollouts, 'rollout')} measured"
    line += f", {least if least == most else f'{least} to {most}'} a task"
    for number, what in ((side.infra, "infra"), (side.missing, "without a result"), (side.forgeable, "forgeable")):
        line += f", {number} {what}" if number else ""
    line += f", {side.untrusted} untrusted" if side.untrusted else ""
    return line + (f", {plural(side.broken, 'broken line')}" if side.broken else "")


def _contrast_lines(found: Comparison) -> list[str]:
    if not found.contrasts:
        return ["compared: nothing differs on purpose (the same agent, model, policy and versions)"]
    named = {each.what for each in found.contrasts}
    shown = [each for each in found.contrasts if each.what != "agent digest" or "agent" not in named]
    return [f"compared: {each.what} {_short(each.old)} → {_short(each.new)}" for each in shown]


def _short(values: Sequence[str]) -> str:
    text = " | ".join(value if len(value) <= 36 else f"{value[:35]}…" for value in values)
    return text or "unknown"


_LEAST = (15, 11, 11, 14, 27, 5)
_HEAD = ("", "A", "B", "B − A", "interval", "tasks")


def _row(each: Figure) -> tuple[str, ...]:
    of = _unit(each)
    low_high = each.difference.interval if each.difference is not None else None
    return (
        _NAMES.get(each.name, each.name),
        of(each.old, False),
        of(each.new, False),
        of(each.difference.mean if each.difference is not None else None, True),
        f"{of(low_high.low, True)} … {of(low_high.high, True)}" if low_high is not None else "unknown",
        str(each.tasks),
    )


def _unit(each: Figure) -> Callable[[float | None, bool], str]:
    """How a value of a figure is written; a difference has a sign."""
    scale, unit = {"bytes": (_MIB, " MiB"), "s": (1, " s"), "USD": (1, " $")}.get(each.unit, (1, ""))

    def write(value: float | None, difference: bool) -> str:
        if value is None:
            return "unknown"
        return f"{signed(value / scale) if difference else figure(value / scale)}{unit}"

    return write


def signed(value: float) -> str:
    """A difference for people, with its sign; 0 has none."""
    text = f"{value:+.3g}"
    return "0" if float(text) == 0 else text.replace("-", "−")


def _test_lines(found: Comparison) -> list[str]:
    sign, reward = found.sign, found.reward
    p = "no task changed" if sign.p is None else f"exact sign test p = {sign.p:.3g}"
    lines = [f"success by task: {sign.higher} higher in B, {sign.lower} lower, {sign.same} the same; {p}"]
    if reward.bootstrap is not None:
        low, high = signed(reward.bootstrap.low), signed(reward.bootstrap.high)
        lines.append(f"reward, bootstrap over tasks: {low} … {high} (seed {found.seed})")
    if found.detectable is not None:
        shown = f"{found.detectable:.3g}" if found.detectable <= 1 else "none, not even from 0 to 1 with so few tasks"
        line = f"detectable in the reward with {found.power:.0%} power: {shown}"
        lines.append(line + (f"; to detect the difference seen: about {found.needed} tasks" if found.needed else ""))
    return lines


def _warning_lines(found: Comparison) -> list[str]:
    compared = len(found.tasks)
    lines = []
    if compared < 2:
        lines.append(f"{plural(compared, 'task')} compared: there is no interval of fewer than 2")
    if found.old.samples != found.new.samples:
        lines.append("the sides have different numbers of samples: each task counts once, by its mean")
    return lines


_TASK_HEAD = ("A", "B", "B − A", "passed", "task")


def _task_row(task: TaskChange) -> tuple[str, ...]:
    passed = f"{task.passed[0]}/{task.samples[0]} → {task.passed[1]}/{task.samples[1]}"
    return figure(task.old), figure(task.new), signed(task.difference), passed, task.task


def _single_lines(found: Comparison) -> list[str]:
    """That some of many tasks look changed by chance."""
    level, real = 1 - found.confidence, [task for task in found.tasks if task.adjusted <= 1 - found.confidence]
    line = f"single tasks: {found.single} of {len(found.tasks)} changed by Fisher's test at {level:.2g}"
    line += f" (by chance up to {found.by_chance:.2g}), {len(real)} by Holm's correction"
    return [line, *(f"  {task.task}: p = {task.adjusted:.2g}" for task in real[:10])]


def _ends(tasks: Sequence[TaskChange], limit: int | None) -> list[TaskChange]:
    """The worst and the best, of each as many as ``limit``."""
    if limit is None or len(tasks) <= 2 * limit:
        return list(tasks)
    return [*tasks[:limit], *tasks[len(tasks) - limit :]]


def _listed(title: str, items: Sequence[Item], limit: int | None, number: int | None = None) -> list[str]:
    """A title with a number, and as many items as ``limit``, each with its paths below it."""
    if not items:
        return []
    shown = items if limit is None else items[:limit]
    lines = ["", f"{title}: {len(items) if number is None else number}"]
    for text, paths in shown:
        lines += [_cut(f"  {text}"), *(f"    {one_line(path)}" for path in paths)]
    return [*lines, f"  … and {len(items) - len(shown)} more (--all)"] if len(shown) < len(items) else lines


def _columns(rows: Sequence[Sequence[str]], *, words: bool = False, least: Sequence[int] = ()) -> list[str]:
    """Rows in columns of figures; the first one is words, or, with ``words``, the last one."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    widths = [max(pair) for pair in zip(widths, least or widths, strict=True)]
    left = len(widths) - 1 if words else 0
    return [
        "  ".join(
            cell.ljust(width) if place == left else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _cut(text: str) -> str:
    line = one_line(text)
    return line if len(line) <= _COLUMNS else f"{line[: _COLUMNS - 1]}…"


def comparison_markdown(found: Comparison, *, limit: int | None, links: Links, promotion: Sequence[str] = ()) -> str:
    """The same for a comment: figures open, the rest in blocks that unfold, at most 60,000 characters."""
    head = [f"### {_code(found.old.name)} → {_code(found.new.name)}", ""]
    if promotion:
        word, _, rest = promotion[0].partition(": ")
        head += [f"**{word}**: {_code(rest)}", "", *(f"- {_code(line.strip())}" for line in promotion[1:]), ""]
    head += [f"- A: {_code(_side_line(found.old))}", f"- B: {_code(_side_line(found.new))}"]
    head += [f"- {_code(one_line(line))}" for line in _contrast_lines(found)] + [""]
    head += _table(_HEAD, [_row(each) for each in found.figures if each.tasks])
    head += ["", *(f"{line}\n" for line in (*_test_lines(found), *_warning_lines(found)))]
    blocks: list[tuple[str, list[str], list[str]]] = []
    changed = [task for task in found.tasks if task.difference]
    if changed:
        cells = [(*row[:-1], _code(row[-1], table=True)) for row in map(_task_row, _ends(changed, limit))]
        table = _table(_TASK_HEAD, cells)
        note = [one_line(line) for line in _single_lines(found)[:1]]
        blocks.append((f"{plural(len(changed), 'task')} changed", [*note, "", *table[:2]], table[2:]))
    for title, number, items in _failure_lists(found, links):
        blocks.append((f"{title}: {number}", [], _bullets(items, limit)))
    not_compared = [f"{each.task}: {each.why}" for each in found.changed]
    blocks.append((f"not compared: {len(not_compared)}", [], _bullets([(each, ()) for each in not_compared], limit)))
    blocks += [
        (f"{title}: {len(tasks)}", [], _bullets([(task, ()) for task in tasks], limit))
        for title, tasks in _task_lists(found)
    ]
    return _bounded(head, [block for block in blocks if block[2]])


def _bullets(items: Sequence[Item], limit: int | None) -> list[str]:
    shown = items if limit is None else items[:limit]
    lines = [line for text, paths in shown for line in (f"- {_code(text)}", *(f"  - {_code(path)}" for path in paths))]
    return [*lines, f"- … and {len(items) - len(shown)} more"] if len(shown) < len(items) else lines


def _bounded(head: list[str], blocks: Sequence[tuple[str, list[str], list[str]]]) -> str:
    """The head and as many lines of each block as there is room for."""
    made = "\n".join(head)[: _MOST // 2]
    left = _MOST - len(made) - 200 * len(blocks)
    for number, (title, first, lines) in enumerate(blocks):
        room = left // (len(blocks) - number)
        kept: list[str] = []
        for line in lines:
            room -= len(line) + 1
            if room < 0:
                break
            kept.append(line)
        more = [f"\n… and {len(lines) - len(kept)} more lines"] if len(kept) < len(lines) else []
        block = "\n".join(["", f"<details><summary>{title}</summary>", "", *first, *kept, *more, "", "</details>", ""])
        made, left = made + block, left - len(block)
    return made + "\n"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


def _code(text: str, *, table: bool = False) -> str:
    """Text as code, in which nothing is obeyed; it is on one line."""
    made = one_line(text).replace("`", "'")
    return f"`{made.replace('|', chr(92) + '|') if table else made}`"
