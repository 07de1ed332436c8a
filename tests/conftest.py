"""Shared by all tests: pytester, and helpers that run a suite of rollouts as a user would."""

from __future__ import annotations

pytest_plugins = ["pytester"]
