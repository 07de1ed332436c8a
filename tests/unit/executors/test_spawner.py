"""Processes are started from one thread that outlives the threads that ask for them."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_rollout.executors.spawner import spawn


def test_a_process_outlives_the_thread_that_asked_for_it() -> None:
    """A child with a parent-death signal lives on when the asking thread ends, and dies with a spawning one."""

    def start(way: Callable[..., subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
        found: list[subprocess.Popen[bytes]] = []

        def ask() -> None:
            found.append(
                way(
                    ["setpriv", "--pdeathsig", "KILL", "sh", "-c", "echo up; read line; echo alive"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                )
            )
            assert found[0].stdout is not None
            assert found[0].stdout.readline() == b"up\n"

        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
        return found[0]

    with start(subprocess.Popen) as mortal:
        assert mortal.wait(10) == -9
    with start(spawn) as lasting:
        assert lasting.communicate(b"\n", timeout=10)[0] == b"alive\n"
        assert lasting.returncode == 0


def test_the_thread_lives_on_and_is_one() -> None:
    for _ in range(3):
        threads: list[int] = []
        asking = threading.Thread(target=lambda threads=threads: threads.append(spawn(["true"]).wait()))
        asking.start()
        asking.join()
        assert threads == [0]
    assert [thread.name for thread in threading.enumerate()].count("rollout-spawner") == 1


def test_what_can_not_be_started_is_raised_where_it_was_asked_for(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        spawn([str(tmp_path / "none")])
    (tmp_path / "text").write_text("x")
    with pytest.raises(PermissionError):
        spawn([str(tmp_path / "text")])
    with pytest.raises(ValueError, match="null byte"):
        spawn(["a\0b"])
    assert spawn(["true"]).wait() == 0


def test_options_are_those_of_popen(tmp_path: Path) -> None:
    process = spawn(["pwd"], cwd=tmp_path, stdout=subprocess.PIPE)
    assert process.communicate()[0] == f"{tmp_path}\n".encode()


def test_many_threads_at_once() -> None:
    codes: list[int] = []

    def ask(number: int) -> None:
        codes.append(spawn(["sh", "-c", f"exit {number}"]).wait())

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(codes) == list(range(16))
