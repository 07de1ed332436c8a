"""Run a suite of hostile agents over a small and over a large baseline, and say how each ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.plugin.conftest import Ran, Suite

INI = ("rollout_controls = none", "rollout_keep = none")
SIZES = [pytest.param(1, id="small"), pytest.param(3000, id="large", marks=pytest.mark.slow)]

Ends = dict[str, tuple[str, list[str]]]
PASSED = ("passed", None, 1.0)


def run(suite: Suite, source: str, files: int, *ini: str) -> Ran:
    """A session over a baseline of so many files and one folder."""
    names = [*(f"f{number}" for number in range(files)), "folder/old"]
    suite.ini(*INI, *ini)
    suite.write({f"space/{name}": f"{name}\n" for name in names})
    space = [*names, "folder"]
    return suite.run(source + f"\n    SPACE = {space!r}\n", "-rA")


def ends(ran: Ran) -> Ends:
    """Termination and the codes of findings of each rollout."""
    found = {node: ran.bundle(node) for node in ran.results}
    return {node: (made.termination, sorted(finding.code for finding in made.findings)) for node, made in found.items()}
