"""The machine while an agent ran: how long work waited for it, and whether it ran out of memory.

``/proc/pressure`` is the kernel's pressure stall information (psi.rst): ``some`` is time in which at
least one task of the machine waited for the resource.
"""

from __future__ import annotations

import time
from pathlib import Path

__all__ = ["Machine"]

_KINDS = ("cpu", "memory", "io")


class Machine:
    """Looks at the machine now, and later tells what happened since."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._began = time.monotonic()
        self._waited, self._kills = self._totals(), self._oom_kills()

    def pressure(self) -> dict[str, float] | None:
        """The share of the time since then, 0 to 1, in which something waited; None where the kernel doesn't tell."""
        elapsed = (time.monotonic() - self._began) * 1e6
        now = self._totals()
        if not self._waited or elapsed <= 0:
            return None
        return {kind: round(min(max(now[kind] - was, 0) / elapsed, 1.0), 4) for kind, was in self._waited.items()}

    def ran_out(self) -> bool:
        """Whether the kernel killed a process since then because memory ran out, anywhere on the machine."""
        return self._oom_kills() > self._kills

    def _totals(self) -> dict[str, int]:
        found = {}
        for kind in _KINDS:
            for line in self._text(f"pressure/{kind}").splitlines():
                if line.startswith("some "):
                    found[kind] = int(line.rpartition("total=")[2])
        return found if len(found) == len(_KINDS) else {}

    def _oom_kills(self) -> int:
        lines = self._text("vmstat").splitlines()
        return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)

    def _text(self, name: str) -> str:
        try:
            return (self._proc / name).read_text("utf-8")
        except OSError:
            return ""
