"""A message that the log has twice: excused only where the log was in trouble, and only at the same partition."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_pubsub.history.history import HistoryFile, fingerprint
from tests.checker.check import check


@pytest.mark.parametrize(
    ("trouble", "copy", "found"),
    [
        (True, b"body", set()),
        (False, b"body", {"phantom", "stray"}),
        (True, b"another", {"phantom", "stray"}),
    ],
    ids=["while a broker was away", "in peace", "never sent"],
)
def test_a_message_that_is_stored_twice(trouble: bool, copy: bytes, found: set[str], tmp_path: Path) -> None:
    paths = [tmp_path / f"{name}.jsonl" for name in ("publisher", "driver", "subscriber")]

    def file(number: int, role: str) -> HistoryFile:
        subscription = None if role == "publisher" else "s"
        return HistoryFile(
            paths[number], role=role, topic="t", subscription=subscription, pid=number + 1, host="here"
        )

    publisher, driver, subscriber = file(0, "publisher"), file(1, "driver"), file(2, "subscriber")
    driver.subscribe({0: 0})
    publisher.send(0, "k", fingerprint(b"k", b"body", {}))
    if trouble:
        driver.fault("kill-broker", [3])
        driver.mend("kill-broker")
    publisher.stored(0, 0, 1)
    subscriber.assign(0, 1, (0, ()), None, 0)
    for offset, body in enumerate((copy, b"body")):
        subscriber.delivered(0, offset, 1, 1, fingerprint(b"k", body, {}))
        subscriber.ack(0, offset, 1, 1)
        subscriber.handler_end(0, offset, 1)
    subscriber.commit(1, 0, 1, (2, ()), None)
    subscriber.answer(1, 0, 1, accepted=True)
    subscriber.revoke(0, 1, lost=False)
    for each in (publisher, driver, subscriber):
        each.close()
    report = check(paths)
    assert set(report.counts) == found
    assert report.stored_twice == (not found)
