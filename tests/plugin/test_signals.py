"""Signals of one process: handlers of others are left alone, and what must be whole is not interrupted."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from unittest.mock import Mock

import pytest

from pytest_rollout import _signals as module
from pytest_rollout._signals import ENDING, Signals
from pytest_rollout._xdist import Controller


@pytest.fixture
def signals(pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch) -> Iterator[Signals]:
    """As in a process that is no worker; whoever runs this may have other handlers."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in ENDING}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.default_int_handler)
    made = Signals(pytestconfig)
    made.of_worker = False
    yield made
    made.restore()
    for number, handler in before.items():
        signal.signal(number, handler)


def send(number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(0)  # Python runs a handler between two of its steps


def test_the_first_ends_and_the_second_changes_nothing(signals: Signals) -> None:
    signals.install()
    with pytest.raises(KeyboardInterrupt, match="ended by SIGTERM"):
        send(signal.SIGTERM)
    send(signal.SIGHUP)
    assert signals.received == signal.SIGTERM


def test_what_others_handle_or_ignore_is_theirs(signals: Signals) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    signals.install()
    send(signal.SIGHUP)
    assert signals.received is None
    signals.restore()
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)] == [signal.SIG_DFL, signal.SIG_IGN]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_must_be_whole_is_done_first(signals: Signals, number: int) -> None:
    signals.install()
    done = []
    with pytest.raises(KeyboardInterrupt), signals.held(), signals.held():
        send(number)
        send(number)
        done.append("all of it")
    assert done == ["all of it"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_that_comes_much_later_does_not_wait(signals: Signals, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LONG", 0.0)
    with pytest.raises(KeyboardInterrupt), signals.held():
        send(signal.SIGINT)
        time.sleep(0.01)
        send(signal.SIGINT)
        pytest.fail("it waited")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize(
    ("handler", "sent"),
    [
        pytest.param(signal.default_int_handler, signal.SIGINT, id="as ever"),
        pytest.param(signal.SIG_IGN, signal.SIGTERM, id="in the background of a script"),
    ],
)
def test_workers_are_told_in_a_way_that_they_heed(
    signals: Signals, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch, handler: signal.Handlers, sent: int
) -> None:
    node, got = Mock(), list[int]()
    node.gateway._io.popen.send_signal = got.append
    controller = Controller(pytestconfig)
    controller.pytest_testnodeready(node)
    monkeypatch.setattr(controller, "_signals", signals)
    signal.signal(signal.SIGINT, handler)
    controller.pytest_keyboard_interrupt()
    assert got == []  # a Ctrl-C reaches workers by itself
    signals.received = signal.SIGTERM
    controller.pytest_keyboard_interrupt()
    assert got == [sent]
