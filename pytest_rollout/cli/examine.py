"""The verb ``doctor``: how well this machine isolates agents."""

from __future__ import annotations

import argparse
from pathlib import Path

from pytest_rollout.cli.arguments import STAGES, Verbs
from pytest_rollout.cli.say import json_of, say
from pytest_rollout.doctor.examination import examine
from pytest_rollout.doctor.text import lines
from pytest_rollout.report.inert import inert_text
from pytest_rollout.store.folder import ResultsFolder

__all__ = ["add_verbs", "doctor"]


def add_verbs(verbs: Verbs[argparse.ArgumentParser]) -> None:
    """``doctor``."""
    verb = verbs.add_parser("doctor", help="say how well this machine isolates agents, and what to do about it")
    verb.add_argument("--stage-root", help=STAGES)
    verb.add_argument("--json", action="store_true", help="one JSON object")
    verb.set_defaults(action=doctor)


def doctor(options: argparse.Namespace, _: ResultsFolder) -> int:
    """``doctor``: 0 where ``--rollout-isolation=required`` runs a task without network here, else 1."""
    found = examine(Path(options.stage_root).absolute() if options.stage_root else None)
    say(json_of(found, 2) if options.json else inert_text("\n".join(lines(found))))
    return 0 if found.required_holds else 1
