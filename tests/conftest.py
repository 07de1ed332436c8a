"""Shared by all tests: pytester, and helpers that run a suite of rollouts as a user would."""

from __future__ import annotations

import os

pytest_plugins = ["pytester"]


def pytest_configure() -> None:
    """What tests run must not speak to the CI system that runs the tests."""
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        os.environ.pop(name, None)
