"""What a reader of a bundle has to know of its output and its changes, beside what collecting them found."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_rollout.bundle import Captured, Finding
from pytest_rollout.executors.capture import Capture

__all__ = ["dropped", "forbidden", "held"]


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


def forbidden(paths: set[str]) -> list[Finding]:
    """The changes to protected paths, which no evaluation sees."""
    return [Finding(code="protected", message="changed, and restored for checks", path=path) for path in sorted(paths)]
