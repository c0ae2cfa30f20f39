"""A thread that doesn't end holds nobody up, and is named with its work."""

from __future__ import annotations

import logging
import threading
import time

import pytest

from kafka_pubsub.log.joining import join


def test_a_thread_that_hangs_is_left_behind_and_named(caplog: pytest.LogCaptureFixture) -> None:
    begun, never = threading.Event(), threading.Event()

    def hangs_here() -> None:
        begun.set()
        never.wait()

    thread = threading.Thread(target=hangs_here, name="the-fetcher", daemon=True)
    thread.start()
    begun.wait()
    with caplog.at_level(logging.WARNING, "kafka_pubsub"):
        join(thread, time.monotonic(), "billing")
    (said,) = caplog.messages
    assert said.startswith("subscription 'billing': its thread the-fetcher is left behind: it is in ")
    assert "hangs_here" in said
    never.set()
    join(thread, None, "billing")
    assert not thread.is_alive()
    assert len(caplog.messages) == 1


def test_nobody_waits_for_himself() -> None:
    join(threading.current_thread(), None, "billing")
    join(None, None, "billing")
