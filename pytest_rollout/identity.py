"""Ids, slugs and digests: how a run, a rollout and an attempt are named.

============  ==========================================  ==================================
run           ``2026-11-29T22-08-01Z-3f9ac01d``           UTC start and 32 random bits
task          ``tests/test_calc.py::test_add[x]``         the node id without the sample
task folder   ``test-add-x-5be1a09c44``                   slug and digest of the task id
rollout       ``3f9ac01d-test-add-x-5be1a09c44-s0``       run, task folder, sample
attempt       ``3f9ac01d-test-add-x-5be1a09c44-s0-a1``    and the number of the attempt
============  ==========================================  ==================================

Identity is data: nothing here, or anywhere else, reads a sample or an attempt back out of an id.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

__all__ = ["attempt_id", "canonical_digest", "new_run_id", "rollout_id", "slug", "task_folder"]

SLUG_LENGTH = 40
DIGEST_LENGTH = 10


def new_run_id(now: datetime, random_hex: Callable[[int], str]) -> str:
    """The id of a run that starts at ``now`` (aware); ``random_hex(n)`` gives n random bytes as hex."""
    return f"{now.astimezone(UTC):%Y-%m-%dT%H-%M-%SZ}-{random_hex(4)}"


def slug(text: str, length: int = SLUG_LENGTH) -> str:
    """A short, lower-case, portable form of ``text``: ``[a-z0-9-]`` only, never empty."""
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    return plain[:length].strip("-") or "task"


def task_folder(task: str) -> str:
    """The folder name of a task: unique without regard to case, because the digest knows the case."""
    last = task.rpartition("::")[2]
    digest = hashlib.sha256(task.encode("utf-8", "surrogatepass")).hexdigest()[:DIGEST_LENGTH]
    return f"{slug(last)}-{digest}"


def rollout_id(run: str, task: str, sample: int) -> str:
    """The explicit id of one (run, task, sample)."""
    return f"{run.rpartition('-')[2]}-{task_folder(task)}-s{sample}"


def attempt_id(rollout: str, attempt: int) -> str:
    """The explicit id of one attempt of a rollout; attempts count from 1."""
    return f"{rollout}-a{attempt}"


def canonical_digest(value: Any) -> str:
    """``sha256:`` and the digest of ``value`` as JSON with sorted keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
