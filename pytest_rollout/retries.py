"""How often an infrastructure failure is followed by another attempt: a number for each kind, and how it is said.

A text is numbers with commas or lines between them: ``2`` is for the kinds that are the machine's or the provider's
(those with a default above 0), ``agent=1`` for one kind. Only what another run of the agent can mend has a number.
It imports next to nothing, because settings are read in a session without rollouts too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from pytest_rollout.errors import ConfigError
from pytest_rollout.plain import nearest

__all__ = ["DEFAULT_RETRIES", "MOST_RETRIES", "NEVER_RETRIED", "read_retries"]

MOST_RETRIES = 20
DEFAULT_RETRIES: Mapping[str, int] = {
    "stage": 1,
    "host": 1,
    "worker": 1,
    "provider": 1,
    "authentication": 0,
    "isolation": 0,
    "spawn": 0,
    "agent": 0,
    "recording": 0,
}
_SUITE = "it comes from the test or its suite, so another run of the agent meets it again"
NEVER_RETRIED: Mapping[str, str] = {
    "evaluator": _SUITE,
    "vacuous": _SUITE,
    "fixture": _SUITE,
    "cancelled": "the session ended",
}


def read_retries(sources: Sequence[tuple[str, str]]) -> dict[str, int]:
    """The number for each kind, from (text, where) pairs, the weakest first; raises ConfigError.

    A plain number of a stronger source takes back everything that a weaker one said.
    """
    found = dict(DEFAULT_RETRIES)
    for text, where in sources:
        parts = [part.strip() for part in re.split(r"[,\n]", text) if part.strip()]
        plain = [part for part in parts if "=" not in part]
        if not parts:
            raise ConfigError(f"{where}: {text!r} is empty")
        if len(plain) > 1:
            raise ConfigError(f"{where}: {text!r} has {len(plain)} plain numbers: {', '.join(plain)}")
        if plain:
            number = _number(plain[0], text, where)
            found = {kind: number if default else 0 for kind, default in DEFAULT_RETRIES.items()}
        seen: set[str] = set()
        for part in parts:
            kind, equals, value = (word.strip() for word in part.partition("="))
            if equals:
                number = _number(value, text, where)
                _check(kind, number, where)
                if kind in seen:
                    raise ConfigError(f"{where}: {text!r} has {kind!r} twice")
                seen.add(kind)
                if kind in found:
                    found[kind] = number
    return found


def _number(text: str, whole: str, where: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 3 or int(text) > MOST_RETRIES:
        said = "" if text == whole else f" in {whole!r}"
        raise ConfigError(f"{where}: {text!r}{said} is not a whole number from 0 to {MOST_RETRIES}")
    return int(text)


def _check(kind: str, number: int, where: str) -> None:
    if kind in NEVER_RETRIED:
        if number:
            hint = "" if kind == "cancelled" else "Mend the suite; the evidence that there is can be scored again."
            raise ConfigError(f"{where}: infra {kind!r} is never tried again: {NEVER_RETRIED[kind]}", hint=hint)
    elif kind not in DEFAULT_RETRIES:
        valid = ", ".join(DEFAULT_RETRIES)
        raise ConfigError(f"{where}: unknown kind {kind!r}; valid: {valid}.{nearest(kind, DEFAULT_RETRIES)}")
