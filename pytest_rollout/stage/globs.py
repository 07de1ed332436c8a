"""Globs over the paths of a stage, matched in time that grows with the path and never with its square.

A candidate chooses its paths, 4,096 bytes each, and Python's regular expressions go back over ``**`` again and
again. So a glob is a small automaton whose sets of states are remembered as they are met.
"""

from __future__ import annotations

import re

__all__ = ["Glob"]

_MAX_KNOWN = 20_000
_SET = re.compile(r"\[(!?)([^]/]+)\]")


class Glob:
    """A glob over whole relative paths: ``*``, ``?`` and ``[…]`` stay in a folder, ``**`` does not."""

    def __init__(self, pattern: str) -> None:
        self._steps = _parse(pattern)
        self._start = self._with_empty({0})
        self._next: dict[tuple[frozenset[int], str], frozenset[int]] = {}

    def fits(self, path: str) -> bool:
        """Whether the whole of a path fits."""
        states, known = self._start, self._next
        for char in path:
            key = (states, char)
            after = known.get(key)
            if after is None:
                if len(known) >= _MAX_KNOWN:
                    known.clear()
                after = known[key] = self._after(states, char)
            if not after:
                return False
            states = after
        return len(self._steps) in states

    def _after(self, states: frozenset[int], char: str) -> frozenset[int]:
        """Where each state leads with this character."""
        found: set[int] = set()
        for state in states:
            if state == len(self._steps):
                continue
            step = self._steps[state]
            if step is _FOLDERS or step is _INSIDE:
                inside = state + (step is _FOLDERS)
                if char != "/":
                    found.add(inside)
                elif step is _INSIDE:
                    found.add(state - 1)
            elif step is _ALL or (step is _MANY and char != "/"):
                found.add(state)
            elif isinstance(step, re.Pattern) and step.fullmatch(char):
                found.add(state + 1)
        return self._with_empty(found)

    def _with_empty(self, states: set[int]) -> frozenset[int]:
        """The states, and those that are reached from them without a character."""
        pending = list(states)
        while pending:
            state = pending.pop()
            step = self._steps[state] if state < len(self._steps) else None
            skipped = state + (2 if step is _FOLDERS else 1)
            if step in (_MANY, _ALL, _FOLDERS) and skipped not in states:
                states.add(skipped)
                pending.append(skipped)
        return frozenset(states)


_MANY, _ALL, _FOLDERS, _INSIDE = "*", "**", "**/", "in a folder of **/"

Step = re.Pattern[str] | str


def _parse(pattern: str) -> list[Step]:
    """The steps of a glob: a set of single characters each, or one of the stars."""
    steps: list[Step] = []
    at = 0
    while at < len(pattern):
        rest = pattern[at:]
        if rest.startswith("**/"):
            steps += [_FOLDERS, _INSIDE]
            at += 3
        elif rest.startswith("**"):
            steps.append(_ALL)
            at += 2
        elif (group := _SET.match(rest)) is not None and _is_set(group[2]):
            inside = re.sub(r"[\\^\[&~|]", r"\\\g<0>", group[2])
            steps.append(re.compile(f"(?!/)[{'^' if group[1] else ''}{inside}]", re.DOTALL))
            at += group.end()
        else:
            single = "[^/]" if rest[0] == "?" else re.escape(rest[0])
            steps.append(_MANY if rest[0] == "*" else re.compile(single, re.DOTALL))
            at += 1
    return steps


def _is_set(inside: str) -> bool:
    """Whether the inside of brackets is a set: every range in it goes upwards."""
    ranges = re.findall(r"(.)-(.)", inside, re.DOTALL)
    return "--" not in inside and all(first <= last for first, last in ranges)
