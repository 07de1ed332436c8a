"""Which runs nobody can go on with."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_rollout.errors import ConfigError
from pytest_rollout.store.folder import ResultsFolder, RunFolder, write_record
from pytest_rollout.store.records import RunRecord, SourceRun
from pytest_rollout.store.resumed import refuse_made


def made(tmp_path: Path, source: SourceRun | None = None, merged: tuple[dict[str, str], ...] = ()) -> RunFolder:
    run = ResultsFolder(tmp_path).open_run("r1")
    record = RunRecord(
        run="r1",
        started="",
        plugin_version="",
        options={},
        pins={},
        environment={},
        source=source,
        merged=merged,
    )
    write_record(run.record, record)
    return run


def test_a_run_that_was_made_of_others_is_refused(tmp_path: Path) -> None:
    refuse_made(made(tmp_path / "a"))
    with pytest.raises(ConfigError) as caught:
        refuse_made(made(tmp_path / "b", source=SourceRun(run="r0", folder="/r0")))
    assert str(caught.value) == (
        "--rollout-resume: r1 is r0 scored again: no agent ran\nResume that one, or score it again."
    )
    with pytest.raises(ConfigError) as caught:
        refuse_made(made(tmp_path / "c", merged=tuple({"run": f"s{number}"} for number in range(4))))
    assert str(caught.value) == (
        "--rollout-resume: r1 was merged of other runs (s0, s1, s2 …)\n"
        "Resume those, each with its shard, and merge them again."
    )


def test_a_record_that_cant_be_read_is_left_to_others(tmp_path: Path) -> None:
    refuse_made(ResultsFolder(tmp_path).open_run("r1"))
