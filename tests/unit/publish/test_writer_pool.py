"""Who serves delivery reports, and which exceptions may not cut a report short."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Sequence

import pytest

from kafka_pubsub.errors import PubSubError
from kafka_pubsub.log.ports import DeliveryReport
from kafka_pubsub.model import Header
from kafka_pubsub.publish.writer_pool import ReportThread

PATIENCE = 20.0


class Reports:
    """A writer whose reports are cut in two by Ctrl-C, whenever the main thread serves them."""

    def __init__(self) -> None:
        self.begun = 0
        self.done = 0
        self.idle = threading.Event()

    def append(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Sequence[Header] | None,
        on_delivery: DeliveryReport,
        partition: int = -1,
    ) -> None: ...

    def poll(self, timeout: float) -> int:
        if threading.current_thread() is not threading.main_thread():
            self.idle.wait(timeout)
            return 0
        self.begun += 1
        signal.raise_signal(signal.SIGINT)
        self.done += 1
        return 1

    def flush(self, timeout: float) -> int:
        return 0

    def relearn(self, topic: str) -> int:
        return 1

    def explain(self, error: object, topic: str = "") -> PubSubError:
        return PubSubError(str(error))

    def close(self) -> None: ...


def publish_until_reported(reporter: ReportThread) -> None:
    until = time.monotonic() + PATIENCE
    while not reporter.take_turn() and time.monotonic() < until:
        pass


def test_ctrl_c_does_not_cut_a_report_short() -> None:
    """A report that is lost leaves a future that never resolves, and a flush that never returns."""
    old = signal.signal(signal.SIGINT, signal.default_int_handler)
    writer = Reports()
    reporter = ReportThread(writer, "pump of a test")
    try:
        with pytest.raises(KeyboardInterrupt):
            publish_until_reported(reporter)
        assert (writer.begun, writer.done) == (1, 1)
    finally:
        signal.signal(signal.SIGINT, old)
        writer.idle.set()
        reporter.stop()
