"""Runs that were started within one second are told apart by when they were made, not by their random digits."""

from __future__ import annotations

import os
from pathlib import Path

from pytest_rollout.store.folder import ResultsFolder


def test_runs_of_one_second_are_in_the_order_in_which_they_were_made(tmp_path: Path) -> None:
    results = ResultsFolder(tmp_path)
    names = [f"2026-11-29T22-08-01Z-{digits}" for digits in ("ffffffff", "00000000", "88888888")]
    for moment, name in enumerate(names):
        record = results.open_run(name).record
        record.write_text("{}", encoding="utf-8")
        os.utime(record, ns=(moment, moment))
    later = results.open_run("2026-11-29T22-08-02Z-00000001")  # it has no record yet
    assert [run.name for run in results.all_runs()] == [*names, later.name]
    assert [run.name for run in results.surplus(2)] == names[:2]
