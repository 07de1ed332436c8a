"""Hostile agents: real sessions as a user runs them, and single stages where that shows the same."""

from __future__ import annotations

from tests.plugin.conftest import stage_root, suite, workers  # noqa: F401  fixtures
from tests.unit.conftest import (  # noqa: F401  fixtures
    bwrap,
    lab,
    local,
    make_record,
    private_folder,
    python,
    sandbox,
    session_folder,
    within,
)
