"""Gates: what a run has to reach, written as ``mean_reward >= 0.8 for tag:smoke``, and the judgement of a run by them.

A gate holds, does not hold, or is undecided because nothing that it is about was measured. Every gate implies a second
one over the same rollouts, ``measured >= 0.95``, unless one is given for them; ``infra_rate <= 0.2`` makes it 0.8. What
infrastructure may have failed only because the candidate brought it about (forgeable) must not make a gate hold: the
figure with all of it as 0 has to hold too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import msgspec

from pytest_rollout.decisions.figures import Figures, counted, figures_of, forged, task_figures
from pytest_rollout.decisions.regression import Regression, regression
from pytest_rollout.decisions.rows import Row, Rows
from pytest_rollout.decisions.selection import selected
from pytest_rollout.errors import ConfigError
from pytest_rollout.outcome import SLACK
from pytest_rollout.plain import nearest

__all__ = [
    "BROKEN",
    "FIGURES",
    "MEASURED",
    "UNDECIDED",
    "Gate",
    "Judged",
    "Verdict",
    "judge",
    "parse_gate",
    "status_of",
]

MEASURED = 0.95  # what every gate implies
BROKEN = 76  # exit status: a gate does not hold
UNDECIDED = 75  # none is broken, and one is undecided
Verdict = Literal["holds", "does not hold", "undecided"]
Operator = Literal[">=", ">", "<=", "<"]

FIGURES = (
    "mean_reward",
    "success_rate",
    "pass@K",
    "pass^K",
    "infra_rate",
    "measured",
    "regression(RUN)",
    "cost",
    "wall",
)
_OF_REWARDS = ("mean_reward", "success_rate", "pass@", "pass^")
_AMOUNTS = ("cost", "wall")
_UNITS = {"cost": " USD", "wall": " s"}
_GATE = re.compile(
    r"\s*(?P<name>[A-Za-z_]+(?:[@^][^\s<>=]*)?)\s*(?:\((?P<of>.*?)\))?\s*(?P<operator>>=|<=|>|<|[^\w\s]+)"
    r"\s*(?P<bound>[^\s<>=]\S*)(?:\s+for\s+(?P<what>tag|split):(?P<name_of>.*\S))?\s*"
)
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_HOLDS: dict[str, Callable[[float, float], bool]] = {
    ">=": lambda value, bound: value >= bound - SLACK,
    ">": lambda value, bound: value > bound + SLACK,
    "<=": lambda value, bound: value <= bound + SLACK,
    "<": lambda value, bound: value < bound - SLACK,
}


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """One gate. ``figure`` is one of :data:`FIGURES`; ``k`` is of pass@k and pass^k, ``base`` of a regression."""

    text: str
    figure: str
    operator: Operator
    bound: float
    k: int = 0
    base: str = ""
    tag: str | None = None
    split: str | None = None
    implied: bool = False

    @property
    def part(self) -> str:
        """What it is about, as it is written: `` for tag:smoke``, or nothing."""
        return f" for tag:{self.tag}" if self.tag is not None else f" for split:{self.split}" if self.split else ""


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """A gate with its figure, the same with forgeable infra as 0 where that differs, and why."""

    gate: Gate
    verdict: Verdict
    value: float | None
    forgeable: float | None = None
    said: str = ""

    def line(self) -> str:
        """For people, on one line."""
        unit = _UNITS.get(self.gate.figure, "")
        bound = self.gate.bound
        words = (
            [f"{_shown(self.value, bound)}{unit}"]
            if self.value is not None and self.gate.figure != "regression"
            else []
        )
        if self.forgeable is not None:
            drop = "a drop of " if self.gate.figure == "regression" else ""
            words.append(f"with forgeable infra as 0: {drop}{_shown(self.forgeable, bound)}")
        words += [self.said] if self.said else []
        implied = " (implied)" if self.gate.implied else ""
        return f"gate {self.gate.text}{implied}: {self.verdict}{''.join(f'; {word}' for word in words)}"


def parse_gate(text: str, where: str) -> Gate:
    """A gate as it was written, ``where`` being its source; raises ConfigError that says what is wrong and valid."""
    match = _GATE.fullmatch(text)
    if match is None:
        raise ConfigError(
            f"{where}: {text!r} is not a gate",
            hint="Gates are written like 'mean_reward >= 0.8' or 'pass@1 > 0.5 for tag:smoke'.",
        )
    figure, k = _figure(match["name"], text, where)
    base = (match["of"] or "").strip()
    if (figure == "regression") is not bool(base):
        needs = "needs a run or a file: regression(last)" if figure == "regression" else "takes nothing in parentheses"
        raise ConfigError(f"{where}: {text!r}: {match['name']} {needs}")
    operator = _operator(match["operator"], figure, text, where)
    return Gate(
        text=" ".join(text.split()),
        figure=figure,
        operator=operator,
        bound=_bound(match["bound"], figure, text, where),
        k=k,
        base=base,
        tag=match["name_of"] if match["what"] == "tag" else None,
        split=match["name_of"] if match["what"] == "split" else None,
    )


def _figure(name: str, text: str, where: str) -> tuple[str, int]:
    """The figure, and its k."""
    head, k = name[:5], name[5:]
    if head in ("pass@", "pass^"):
        if not k.isascii() or not k.isdigit() or not 1 <= len(k) <= 6 or int(k) < 1:
            raise ConfigError(f"{where}: {text!r}: {head}{k} needs a number of samples from 1: {head}4")
        return head, int(k)
    known = [figure.partition("(")[0] for figure in FIGURES]
    if name not in known:
        raise ConfigError(
            f"{where}: {text!r}: unknown figure {name!r}; valid: {', '.join(FIGURES)}.{nearest(name, known)}"
        )
    return name, 0


def _operator(found: str, figure: str, text: str, where: str) -> Operator:
    valid = ("<", "<=") if figure == "regression" else tuple(_HOLDS)
    if found not in valid:
        raise ConfigError(f"{where}: {text!r}: {found!r} can't be asked of {figure}; valid: {', '.join(valid)}")
    operators: dict[str, Operator] = {">=": ">=", ">": ">", "<=": "<=", "<": "<"}
    return operators[found]


def _bound(found: str, figure: str, text: str, where: str) -> float:
    most = None if figure in _AMOUNTS else 1.0
    bound = float(found) if _NUMBER.fullmatch(found) else -1.0
    if not 0 <= bound < float("inf") or (most is not None and bound > most):
        valid = "a number from 0" if most is None else "a number from 0 to 1"
        raise ConfigError(f"{where}: {text!r}: the bound {found!r} is not {valid}")
    return bound


# -- judging


def judge(gates: Sequence[Gate], rows: Rows, bases: Mapping[str, Rows], *, untrusted: bool = False) -> list[Judged]:
    """The verdict of each gate over a run, and of those that they imply; ``bases`` are the other runs by name."""
    asked = [*gates, *_implied(gates)]
    return [_judged(gate, rows, bases, untrusted) for gate in asked]


def _implied(gates: Sequence[Gate]) -> list[Gate]:
    """A floor of what is measured for every part that has none of its own."""
    floors: dict[tuple[str | None, str | None], float] = {}
    for gate in gates:
        floor = 1 - gate.bound if gate.figure == "infra_rate" and gate.operator in ("<=", "<") else MEASURED
        part = (gate.tag, gate.split)
        floors[part] = min(floors.get(part, MEASURED), floor)
    for gate in gates:
        if gate.figure == "measured" and gate.operator in (">=", ">"):
            floors.pop((gate.tag, gate.split), None)
    made = (
        Gate(text="", figure="measured", operator=">=", bound=floor, tag=tag, split=split, implied=True)
        for (tag, split), floor in floors.items()
    )
    return [msgspec.structs.replace(gate, text=f"measured >= {gate.bound:.4g}{gate.part}") for gate in made]


def status_of(judged: Sequence[Judged]) -> int:
    """The exit status: 76 where a gate does not hold, else 75 where one is undecided, else 0."""
    verdicts = {each.verdict for each in judged}
    return BROKEN if "does not hold" in verdicts else UNDECIDED if "undecided" in verdicts else 0


def _judged(gate: Gate, rows: Rows, bases: Mapping[str, Rows], untrusted: bool) -> Judged:
    part = selected(rows, tag=gate.tag, split=gate.split)
    if not any(counted(row, untrusted=untrusted) for row in part.rows):
        return Judged(gate=gate, verdict="undecided", value=None, said=_nothing(gate, part))
    if gate.figure == "regression":
        return _regression(gate, part, bases[gate.base], untrusted)
    if gate.figure in _AMOUNTS:
        return _amount(gate, part)
    found = figures_of(part, ks=(gate.k,) if gate.k else (), untrusted=untrusted, seed=None)
    value = _value(gate, found)
    if value is None:
        return Judged(gate=gate, verdict="undecided", value=None, said=f"no task has {gate.k} measured samples")
    pessimist = None
    if found.forgeable and gate.figure in _OF_REWARDS:
        pessimist = _value(
            gate, figures_of(forged(part), ks=(gate.k,) if gate.k else (), untrusted=untrusted, seed=None)
        )
    judged = _verdict(gate, value, pessimist, _about(gate, found))
    return _doubted(judged, _short_of_tasks(gate, part, found.passes[0].tasks) if gate.k else "")


def _doubted(judged: Judged, why: str) -> Judged:
    """A gate that holds is undecided where what it may hide is too much."""
    if judged.verdict != "holds" or not why:
        return judged
    return msgspec.structs.replace(judged, verdict="undecided", said=f"{judged.said}; {why}")


def _short_of_tasks(gate: Gate, part: Rows, known: int) -> str:
    """Why pass@k says too little: a task that lost a sample would be left out of it, and it may be a hard one."""
    asked = sum(task.planned >= gate.k for task in task_figures(part))
    if known >= MEASURED * asked:
        return ""
    return f"of the {asked} tasks with so many samples {asked - known} lost some, and {1 - MEASURED:.0%} may"


def _nothing(gate: Gate, part: Rows) -> str:
    if not part.rows and not part.missing:
        return f"no rollout was selected{gate.part}"
    apart = sum(row.reward is not None for row in part.rows)
    if apart:
        return f"nothing was measured: {apart} untrusted results count only with --rollout-gate-untrusted"
    return "nothing was measured"


def _value(gate: Gate, found: Figures) -> float | None:
    if gate.k:
        return found.passes[0].at if gate.figure == "pass@" else found.passes[0].hat
    values = {
        "mean_reward": found.mean_reward,
        "success_rate": found.success_rate,
        "infra_rate": found.infra_rate,
        "measured": found.measured_share,
    }
    return values[gate.figure]


def _about(gate: Gate, found: Figures) -> str:
    """What the figure is of."""
    if gate.figure == "infra_rate":
        return f"{found.infra} of {found.planned - found.missing}"
    if gate.figure == "measured":
        said = f"{found.measured} of {found.planned}"
        apart = [(found.infra, "infra"), (found.missing, "missing"), (found.untrusted, "untrusted")]
        return said + "".join(f", {number} {what}" for number, what in apart if number)
    if gate.k:
        return f"{found.passes[0].tasks} of {found.tasks} tasks"
    return f"{found.measured} measured of {found.planned}"


def _verdict(gate: Gate, value: float, pessimist: float | None, said: str) -> Judged:
    """The first of what holds; with the forgeable figure only where it differs."""
    holds = _HOLDS[gate.operator](value, gate.bound)
    if pessimist is not None and abs(pessimist - value) <= SLACK:
        pessimist = None
    if holds and pessimist is not None and not _HOLDS[gate.operator](pessimist, gate.bound):
        holds, said = False, f"{said}; it holds only without what the candidate may have brought about"
    return Judged(gate=gate, verdict="holds" if holds else "does not hold", value=value, forgeable=pessimist, said=said)


def _regression(gate: Gate, part: Rows, base: Rows, untrusted: bool) -> Judged:
    """Not below the bound only where the drop is shown: the upper bound of new − base lies below −d."""
    if gate.part:  # the other side has the part that it had, and what this one has
        tasks = {row.task for row in part.rows}
        others = {row.task for row in selected(base, tag=gate.tag, split=gate.split).rows}
        rows = tuple(row for row in base.rows if row.task in tasks | others)
        base = msgspec.structs.replace(base, rows=rows)
    found = regression(part, base, untrusted=untrusted)
    pairs = _pairs(found)
    if found.upper is None or found.difference is None:
        return Judged(gate=gate, verdict="undecided", value=None, said=f"{pairs}: at least 2 are needed")
    pessimist = None
    if any(row.reward is None and row.forgeable for row in part.rows):
        pessimist = regression(forged(part), forged(base), untrusted=untrusted).upper
    said = f"{found.difference.mean:+.4f}, at most {found.upper:+.4f} (95 %), on the mean of {pairs}"
    certain = None if pessimist is None else -pessimist
    judged = _verdict(msgspec.structs.replace(gate, operator="<="), -found.upper, certain, said)
    there = len(found.common) + len(found.changed) + len(found.only_base)
    few = len(found.only_base) <= (1 - MEASURED) * there
    why = "" if few else f"of the {there} tasks of {found.base} {1 - MEASURED:.0%} may lack here"
    return msgspec.structs.replace(_doubted(judged, why), gate=gate)


def _pairs(found: Regression) -> str:
    said = f"{len(found.common)} common task{'' if len(found.common) == 1 else 's'}"
    left = [
        (found.changed, "left out because the task, its environment or its checks changed"),
        (found.only_new, f"not in {found.base}"),
        (found.only_base, "only there"),
    ]
    return said + "".join(f", {len(tasks)} {what}" for tasks, what in left if tasks)


def _amount(gate: Gate, part: Rows) -> Judged:
    """The sum over all attempts; undecided where what is not known could change the verdict."""
    known = [value for row in part.rows for value in _amounts(row, gate.figure)]
    total = sum(value for value in known if value is not None)
    unknown = sum(value is None for value in known)
    holds = _HOLDS[gate.operator](total, gate.bound)
    said = f"{len(known)} attempts" + (f", of {unknown} it is not known" if unknown else "")
    decided = not unknown or holds is gate.operator.startswith(">")  # more can only be added
    verdict: Verdict = ("holds" if holds else "does not hold") if decided else "undecided"
    return Judged(gate=gate, verdict=verdict, value=None if known and unknown == len(known) else total, said=said)


def _amounts(row: Row, figure: str) -> list[float | None]:
    """Of each attempt that used something, the last one also where nothing is known of it."""
    uses = [earlier.usage for earlier in row.earlier if earlier.usage is not None]
    values = [getattr(use, figure) for use in (*uses, row.usage) if use is not None]
    return values if row.usage is not None or row.reward is None else [*values, None]


def _shown(value: float, bound: float) -> str:
    """Four digits, and more where these would be those of a bound from which the value differs."""
    short = f"{value:.4g}"
    return f"{value:.12g}" if float(short) == bound and abs(value - bound) > SLACK else short
