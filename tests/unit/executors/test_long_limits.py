"""A wall limit longer than what the kernel waits in one call (24.8 days)."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.mark.parametrize("wall", [3e6, 9e18])
def test_a_long_wall_limit_is_waited_for_in_pieces(lab: Any, wall: float) -> None:
    trial = lab.run("echo done", wall=wall)
    assert trial.end == ("completed", 0, None)
    assert trial.text == "done\n"
