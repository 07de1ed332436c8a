"""Simulate the regression gate: how often it raises a false alarm, and how often it sees the drop that stats print.

Two runs of one policy are drawn (binomial rewards over tasks of different difficulty) and judged by the gate
``regression(base) < d``, d being 0 and 0.02; beside it the naive rule, which fails where the mean fell by more than d.
Then every task of the second run is made worse by the drop that the figures of the first print as detectable, and the
gate should see it in about 80 of 100: for tasks of middle difficulty, and for easy ones, whose rewards spread more
after the drop than before it, which the figures cannot know. Everything is seeded; the error is that of the simulation
(one standard error).
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Sequence
from typing import NamedTuple

from pytest_rollout.decisions.figures import figures_of
from pytest_rollout.decisions.gates import judge, parse_gate
from pytest_rollout.decisions.rows import Row, RowPins, Rows

SIZES = ((10, 4), (30, 1), (30, 4), (100, 1), (100, 4))  # tasks, samples
BOUNDS = (0.0, 0.02)
RATES = {"middle": (0.3, 0.9), "easy": (0.5, 1.0)}
PINS = RowPins(task_digest="t", environment_revision="e")


class Seen(NamedTuple):
    """How often the gate failed of ``turns``, and the naive rule did."""

    turns: int
    gate: int
    naive: int


def drawn(rates: Sequence[float], samples: int, draw: random.Random, name: str) -> Rows:
    """A run of tasks with these rates of success."""
    made = [
        Row(
            rollout=f"{task}-{number}",
            task=f"task {task}",
            sample=number,
            outcome="passed" if (passed := draw.random() < rate) else "failed",
            reward=float(passed),
            trusted=True,
            evaluator_revision="c",
            pins=PINS,
        )
        for task, rate in enumerate(rates)
        for number in range(samples)
    ]
    return Rows(name=name, rows=tuple(made))


def difficulties(tasks: int, draw: random.Random) -> list[float]:
    """Rates of success from Beta(2, 1.2): some hard, many easy."""
    return [draw.betavariate(2, 1.2) for _ in range(tasks)]


def fails(new: Rows, base: Rows, bound: float) -> tuple[bool, bool]:
    """Whether the gate does not hold, and whether the naive rule would have failed."""
    gate = parse_gate(f"regression(base) < {bound}", "benchmark")
    (judged, _) = judge([gate], new, {"base": base})
    fallen = mean(base) - mean(new)
    return judged.verdict == "does not hold", fallen > bound + 1e-9


def mean(rows: Rows) -> float:
    """The mean reward; every task has as many samples."""
    return math.fsum(row.reward or 0.0 for row in rows.rows) / len(rows.rows)


def false_alarms(tasks: int, samples: int, turns: int, bound: float, seed: str) -> Seen:
    """Unchanged policies."""
    draw, gate, naive = random.Random(seed), 0, 0
    for _ in range(turns):
        rates = difficulties(tasks, draw)
        failed = fails(drawn(rates, samples, draw, "new"), drawn(rates, samples, draw, "base"), bound)
        gate, naive = gate + failed[0], naive + failed[1]
    return Seen(turns, gate, naive)


def power(tasks: int, samples: int, turns: int, rates: tuple[float, float], seed: str) -> tuple[Seen, float]:
    """Policies that dropped, from rates between these, by what the figures of the other run print; and that drop."""
    draw, gate, naive, effects = random.Random(seed), 0, 0, 0.0
    for _ in range(turns):
        base_rates = [draw.uniform(*rates) for _ in range(tasks)]
        base = drawn(base_rates, samples, draw, "base")
        found = figures_of(base, seed=None).detectable
        effect = found.effect if found is not None else 0.0
        failed = fails(drawn([max(0.0, rate - effect) for rate in base_rates], samples, draw, "new"), base, 0.0)
        gate, naive, effects = gate + failed[0], naive + failed[1], effects + effect
    return Seen(turns, gate, naive), effects / turns


def share(number: int, turns: int) -> str:
    """A share in percent, with its standard error."""
    part = number / turns
    return f"{100 * part:5.1f} ± {100 * math.sqrt(max(part * (1 - part), 1 / turns) / turns):.1f} %"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--work", type=int, default=200_000, help="rollouts drawn for each line (default: 200000)")
    parser.add_argument("--seed", type=int, default=1, help="of everything that is drawn (default: 1)")
    args = parser.parse_args()
    print(f"{'tasks':>5} {'samples':>7}  {'':<24}{'the gate fails':>18}{'the naive rule fails':>24}")
    for tasks, samples in SIZES:
        turns = max(200, args.work // (2 * tasks * samples))
        lines = [
            (f"unchanged, d = {bound:g}", false_alarms(tasks, samples, turns, bound, f"{args.seed} {tasks} {samples}"))
            for bound in BOUNDS
        ]
        for name, rates in RATES.items():
            seen, effect = power(tasks, samples, turns, rates, f"{args.seed} {tasks} {samples} power")
            lines.append((f"{name}, dropped by {effect:.3f}", seen))
        for name, found in lines:
            gate, naive = share(found.gate, found.turns), share(found.naive, found.turns)
            print(f"{tasks:>5} {samples:>7}  {name:<24}{gate:>18}{naive:>24}")


if __name__ == "__main__":
    main()
