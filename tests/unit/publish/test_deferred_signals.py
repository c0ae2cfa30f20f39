"""Signals wait for work that they must not cut short."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from kafka_pubsub.publish.deferred_signals import signals_wait


@pytest.fixture(autouse=True)
def ctrl_c_raises() -> Iterator[None]:
    old = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, old)


def test_ctrl_c_comes_after_the_work() -> None:
    done = []

    def work() -> None:
        signal.raise_signal(signal.SIGINT)
        done.append("all of it")

    with pytest.raises(KeyboardInterrupt):
        signals_wait(work)
    assert done == ["all of it"]


def test_a_callback_that_raises_keeps_no_other_from_running() -> None:
    calls: list[int] = []
    old = signal.signal(signal.SIGUSR1, lambda number, frame: calls.append(number))

    def work() -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGUSR1)

    try:
        with pytest.raises(KeyboardInterrupt):
            signals_wait(work)
        assert calls == [signal.SIGUSR1]
    finally:
        signal.signal(signal.SIGUSR1, old)


def test_afterwards_the_callbacks_are_the_users_own() -> None:
    calls: list[int] = []
    old = signal.signal(signal.SIGUSR1, lambda number, frame: calls.append(number))
    mine = signal.getsignal(signal.SIGUSR1)
    try:
        signals_wait(lambda: signal.raise_signal(signal.SIGUSR1))
        assert calls == [signal.SIGUSR1]
        assert signal.getsignal(signal.SIGUSR1) is mine
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGUSR1, old)


def test_a_signal_that_is_ignored_or_at_its_default_is_left_alone() -> None:
    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    seen: list[object] = []
    signals_wait(lambda: seen.extend(signal.getsignal(n) for n in (signal.SIGPIPE, signal.SIGTERM)))
    assert seen == [before[signal.SIGPIPE], before[signal.SIGTERM]]
    assert {number: signal.getsignal(number) for number in signal.valid_signals()} == before


def test_a_turn_at_reports_makes_no_enumeration_of_each_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 of these cost 30 us a turn, which is 60 ns of each message."""
    made: list[object] = []
    usual = vars(signal)["_int_to_enum"]

    def make(value: object, kind: object) -> object:
        made.append(value)
        return usual(value, kind)

    monkeypatch.setattr(signal, "_int_to_enum", make)
    signals_wait(lambda: None)
    assert len(made) < 10, "only the handlers that are changed, and changed back"


def test_what_the_work_raises_comes_out_and_the_callbacks_are_back() -> None:
    def work() -> None:
        raise ValueError("the work's own")

    with pytest.raises(ValueError, match="the work's own"):
        signals_wait(work)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_on_another_thread_nothing_is_touched() -> None:
    seen: list[object] = []
    thread = threading.Thread(
        target=signals_wait, args=(lambda: seen.append(signal.getsignal(signal.SIGINT)),)
    )
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]
