"""How often the rule of promotion is wrong about an unchanged policy, and how often its numbers decide.

False promotions: both sides have the same success rate in each task. Power: B is better, the number of tasks is what
``tasks_needed`` says for the true spread, and the rule should promote in about 80 % of comparisons::

    python benchmarks/promote.py            # some minutes
    python benchmarks/promote.py --quick    # a quarter of that, and rough
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Sequence
from functools import partial

from pytest_rollout.decisions import statistics
from pytest_rollout.decisions.pairs import Pair, Pairing, Side
from pytest_rollout.decisions.promote import Promotion, Rule, promote
from pytest_rollout.decisions.rows import Row
from pytest_rollout.store.heldout import HELD_OUT

RULE = Rule()
HARDNESS: dict[str, Callable[[random.Random], float]] = {
    "0.5": lambda _: 0.5,
    "0.1": lambda _: 0.1,
    "mixed": lambda draw: draw.choice((0.05, 0.3, 0.7, 0.95)),
}


def rows(task: str, rate: float, samples: int, draw: random.Random) -> list[Row]:
    """The rollouts of one task on one side."""
    rewards = [float(draw.random() < rate) for _ in range(samples)]
    return [
        Row(rollout="", task=task, sample=n, outcome="passed" if each else "failed", reward=each, split=HELD_OUT)
        for n, each in enumerate(rewards)
    ]


def side(name: str, number: int) -> Side:
    """A side that measured everything."""
    nothing = dict.fromkeys(("infra", "missing", "forgeable", "untrusted", "broken"), 0)
    return Side(name=name, rollouts=number, measured=number, samples=(1, 1), folder=None, **nothing)


def answered(rates: Sequence[tuple[float, float]], samples: int, draw: random.Random) -> Promotion:
    """The rule's answer on one comparison of tasks with these rates of A and B."""
    pairs = tuple(
        Pair(task=str(n), old=rows(str(n), old, samples, draw), new=rows(str(n), new, samples, draw))
        for n, (old, new) in enumerate(rates)
    )
    number = len(rates) * samples
    pairing = Pairing(
        old=side("A", number), new=side("B", number), contrasts=(), pairs=pairs, changed=(), only_old=(), only_new=()
    )
    return promote(pairing, RULE)


def share(rounds: int, make: Callable[[], Promotion], answer: str = "promote") -> float:
    """How many of the answers are this one."""
    return sum(make().answer == answer for _ in range(rounds)) / rounds


def same(hardness: Callable[[random.Random], float], tasks: int, samples: int, draw: random.Random) -> Promotion:
    """One comparison of a policy with itself."""
    rates = [hardness(draw) for _ in range(tasks)]
    return answered([(rate, rate) for rate in rates], samples, draw)


def unchanged(rounds: int, draw: random.Random) -> None:
    """False promotions."""
    print("an unchanged policy: share promoted (5 % is nominal)")
    for tasks in (5, 10, 20, 50):
        for samples in (1, 4):
            found = [share(rounds, partial(same, each, tasks, samples, draw)) for each in HARDNESS.values()]
            shown = "  ".join(f"{name}: {each:.3f}" for name, each in zip(HARDNESS, found, strict=True))
            print(f"{tasks:>4} tasks × {samples}   {shown}", flush=True)


def better(rounds: int, draw: random.Random) -> None:
    """Power at the number of tasks that is said to decide."""
    print("B is better by this much: share promoted with as many tasks as would decide (80 % is nominal)")
    for gain, samples in ((0.1, 1), (0.1, 4), (0.2, 1), (0.2, 4)):
        old, new = 0.4, 0.4 + gain
        deviation = ((old * (1 - old) + new * (1 - new)) / samples) ** 0.5
        tasks = statistics.tasks_needed(deviation, gain, confidence=RULE.confidence, power=RULE.power, sides=1)
        assert tasks is not None
        found = share(rounds, partial(answered, [(old, new)] * tasks, samples, draw))
        print(f"  +{gain:g}: {tasks:>4} tasks × {samples}   {found:.3f}", flush=True)


def main() -> None:
    """Simulate."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer comparisons")
    rounds = 500 if parser.parse_args().quick else 2000
    draw = random.Random(1)
    unchanged(rounds, draw)
    better(rounds, draw)


if __name__ == "__main__":
    main()
