"""``python -m pytest_rollout.cli`` is ``pytest-rollout``."""

from __future__ import annotations

import sys

from pytest_rollout.cli.tool import main

sys.exit(main())
