"""What a reader of a bundle has to know of its output."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_rollout.bundle import Captured, Finding
from pytest_rollout.executors.capture import Capture

__all__ = ["dropped", "held"]


def dropped(captured: Sequence[Captured]) -> list[Finding]:
    """The streams that were not kept whole."""
    return [
        Finding(code="output.dropped", message=f"{stream.dropped} bytes of {stream.file} were dropped")
        for stream in captured
        if stream.dropped
    ]


def held(streams: Sequence[Capture]) -> list[Finding]:
    """The secrets that were printed, by name."""
    held = {stream.path.name: ", ".join(stream.secrets) for stream in streams if stream.secrets}
    return [Finding(code="secret", message=f"{name} held {secrets}") for name, secrets in held.items()]
