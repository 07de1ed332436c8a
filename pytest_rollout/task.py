"""A task: what is asked of an agent, as a frozen value, and where its workspace comes from."""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec

from pytest_rollout.identity import canonical_digest
from pytest_rollout.limits import DEFAULT_LIMITS, Limits

__all__ = ["Archive", "Folder", "Git", "Network", "ScoreOn", "Task"]

Network = Literal["none", "host"]
ScoreOn = Literal["any", "completed"]

_ADDRESS = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://|[^/@]+@[^/:]+:")


class Folder(msgspec.Struct, frozen=True, kw_only=True, tag="folder", omit_defaults=True):
    """A folder: a workspace, hidden files; ``path`` is absolute.

    Of one that was made from a repository or an archive, ``source`` says from which, and ``commit`` from which commit;
    ``notes`` are what an author should know of it.
    """

    path: str
    source: str | None = None
    commit: str | None = None
    notes: tuple[str, ...] = ()


class Git(msgspec.Struct, frozen=True, tag="git"):
    """A workspace from a repository: ``url`` is a folder beside the test file, or an address.

    ``rev`` is what git takes for a revision.
    The agent gets the files of that commit, in a repository with one commit of its own and nothing else: no history, no
    other branch, no remote.
    """

    url: str
    rev: str = "HEAD"

    @property
    def is_far(self) -> bool:
        """Whether this is an address, and not the path of a folder."""
        return _ADDRESS.match(self.url) is not None


class Archive(msgspec.Struct, frozen=True, tag="archive"):
    """A workspace from a tar or zip file beside the test file."""

    path: str


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked: the prompt, the workspace, the limits, the network; and what the evaluator has for it.

    ``limits`` is complete (no ``None``). ``workspace=None`` is an empty stage. ``seed`` is that of
    sample 0; sample k gets ``seed + k``. ``hidden`` is the evaluator's files, ``protect`` globs of
    paths that the agent may not change, ``oracle`` the path of a solution, which no agent sees.
    ``pools`` are the names of pools of which a rollout takes a place while its agent runs. ``split`` names the part of
    the suite that a task belongs to: ``held-out`` is what nothing was tuned on.
    """

    id: str
    prompt: str = ""
    workspace: Folder | None = None
    limits: Limits = DEFAULT_LIMITS
    network: Network = "none"
    env: dict[str, str] = msgspec.field(default_factory=dict)
    samples: int = 1
    seed: int = 0
    threshold: float = 1.0
    score_on: ScoreOn = "any"
    tags: tuple[str, ...] = ()
    hidden: Folder | None = None
    protect: tuple[str, ...] = ()
    oracle: str | None = None
    pools: tuple[str, ...] = ()
    split: str | None = None

    def replace(self, **changes: Any) -> Task:
        """A copy with some fields changed, for a suite that overrides the fixture ``rollout_task``."""
        return msgspec.structs.replace(self, **changes)

    def digest(self) -> str:
        """What two results must share to be of the same task; workspace and checks have revisions of their own."""
        return canonical_digest(
            {
                "prompt": self.prompt,
                "limits": self.limits.of_agent(),
                "network": self.network,
                "env": self.env,
                "threshold": self.threshold,
                "score_on": self.score_on,
                "protect": list(self.protect),
            }
        )
