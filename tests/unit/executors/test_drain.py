"""Waiting for a tree to end while its output is read: every way in which it can end."""

from __future__ import annotations

import os
import select
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from pytest_rollout.executors import drain as module
from pytest_rollout.executors.cancel import Cancel
from pytest_rollout.executors.capture import Capture
from pytest_rollout.executors.drain import Stop, drain


class Tree:
    """A process whose streams are drained."""

    def __init__(self, folder: Path, script: str, limit: int = 1 << 20) -> None:
        self.process = subprocess.Popen(
            ["sh", "-c", script], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.pidfd = os.pidfd_open(self.process.pid)
        self.stdout, self.stderr = Capture(folder / "stdout", limit), Capture(folder / "stderr", limit)
        self.streams: Mapping[int, Capture] = {
            self.process.stdout.fileno(): self.stdout,
            self.process.stderr.fileno(): self.stderr,
        }
        self.kills = 0
        self.cancel = Cancel()

    def kill(self) -> None:
        self.kills += 1
        if self.process.poll() is None:
            self.process.kill()

    def drain(self, seconds: float = 30.0, kill: Callable[[], None] | None = None) -> tuple[Stop, bool]:
        return drain(
            self.streams,
            dead=self.pidfd,
            kill=kill or self.kill,
            deadline=time.monotonic() + seconds,
            cancel=self.cancel,
        )

    def close(self) -> None:
        with self.process:
            self.process.kill()
        os.close(self.pidfd)
        self.cancel.close()
        self.stdout.close()
        self.stderr.close()

    def output(self) -> tuple[bytes, bytes]:
        self.stdout.close()
        self.stderr.close()
        return self.stdout.path.read_bytes(), self.stderr.path.read_bytes()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Tree]]:
    """Starts a shell script."""
    trees: list[Tree] = []

    def begin(script: str, limit: int = 1 << 20) -> Tree:
        trees.append(Tree(tmp_path, script, limit))
        return trees[-1]

    yield begin
    for tree in trees:
        tree.close()


def test_both_streams_are_read_to_their_end(start: Callable[..., Tree]) -> None:
    tree = start("echo out; echo err >&2; head -c 300000 /dev/zero; head -c 300000 /dev/zero >&2; exit 3")
    assert tree.drain() == ("ended", True)
    assert tree.process.wait(10) == 3
    assert tree.output() == (b"out\n" + bytes(300000), b"err\n" + bytes(300000))
    assert tree.kills == 1  # whatever the first process left


def test_a_wall_limit_kills_and_keeps_what_was_written(start: Callable[..., Tree]) -> None:
    tree = start("echo before; exec sleep 60")
    began = time.monotonic()
    assert tree.drain(0.4) == ("wall_limit", True)
    assert 0.4 <= time.monotonic() - began < 5
    assert tree.kills == 2
    assert tree.output() == (b"before\n", b"")


def test_a_deadline_that_has_passed_kills_at_once(start: Callable[..., Tree]) -> None:
    assert start("exec sleep 60").drain(-1) == ("wall_limit", True)


def test_a_cancel_ends_the_wait(start: Callable[..., Tree]) -> None:
    tree = start("echo before; exec sleep 60")
    timer = threading.Timer(0.3, tree.cancel.set)
    timer.start()
    began = time.monotonic()
    assert tree.drain() == ("cancelled", True)
    assert time.monotonic() - began < 5
    timer.join()
    assert tree.output()[0] == b"before\n"


def test_a_cancel_that_came_before_is_seen(start: Callable[..., Tree]) -> None:
    tree = start("exec sleep 60")
    tree.cancel.set()
    assert tree.drain() == ("cancelled", True)


def test_a_cancel_after_the_limit_does_not_change_the_reason(start: Callable[..., Tree]) -> None:
    tree = start("exec sleep 60")

    def kill_and_cancel() -> None:
        tree.cancel.set()
        tree.kill()

    assert tree.drain(0.1, kill_and_cancel) == ("wall_limit", True)


def test_a_stream_that_somebody_else_holds_is_left_after_a_grace(
    start: Callable[..., Tree], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_GRACE", 0.3)
    tree = start("(exec sleep 60) & echo $!; exit 0")
    began = time.monotonic()
    assert tree.drain() == ("ended", True)
    assert 0.3 <= time.monotonic() - began < 5
    holder = int(tree.output()[0])
    os.kill(holder, 0)  # it was alive all the while
    os.kill(holder, 9)


def test_a_stream_that_is_written_for_ever_is_left_after_a_grace(
    start: Callable[..., Tree], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_GRACE", 0.3)
    tree = start("echo $$ >&2; (exec yes) & exit 0", 1000)
    began = time.monotonic()
    assert tree.drain() == ("ended", True)
    assert time.monotonic() - began < 5
    assert tree.stdout.total > 1000


def test_a_tree_that_does_not_die_is_told(start: Callable[..., Tree], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PATIENCE", 0.2)
    tree = start("exec sleep 60")
    assert tree.drain(0.1, lambda: None) == ("wall_limit", False)
    assert tree.process.poll() is None


def test_hundreds_of_megabytes_are_drained_and_the_writer_is_not_blocked(start: Callable[..., Tree]) -> None:
    tree = start("head -c 300000000 /dev/zero; echo done >&2", 1000)
    assert tree.drain() == ("ended", True)
    assert tree.output() == (
        bytes(500) + b"\n[... 299999000 bytes dropped ...]\n" + bytes(500),
        b"done\n",
    )


def test_a_clock_that_is_passed_in_decides(start: Callable[..., Tree]) -> None:
    tree = start("exec sleep 60")
    found = drain(
        tree.streams, dead=tree.pidfd, kill=tree.kill, deadline=100.0, cancel=tree.cancel, clock=lambda: 100.0
    )
    assert found == ("wall_limit", True)


def test_a_cancel_token_can_be_set_many_times_and_gives_its_descriptors_back() -> None:
    before = len(os.listdir("/proc/self/fd"))
    cancel = Cancel()
    assert not cancel.is_set
    assert select.select([cancel], [], [], 0)[0] == []
    for _ in range(70_000):  # more than a pipe holds
        cancel.set()
    assert cancel.is_set
    assert select.select([cancel], [], [], 0)[0] == [cancel]
    cancel.close()
    cancel.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_closed_token_can_still_be_set() -> None:
    cancel = Cancel()
    cancel.close()
    cancel.set()
    assert cancel.is_set
