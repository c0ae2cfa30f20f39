"""An assignment that a process learns of when the group has given the partition away again."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_pubsub.history.history import HistoryFile, fingerprint
from tests.checker.check import check


@pytest.mark.parametrize(
    ("gated", "begins", "accepted", "fine"),
    [
        (True, False, False, True),
        (True, False, None, True),
        (False, False, False, False),
        (True, True, False, False),
        (True, False, True, False),
    ],
    ids=[
        "begins nothing",
        "begins nothing, and its commit has no answer",
        "nothing keeps it from beginning",
        "begins all the same",
        "is taken for the owner",
    ],
)
def test_an_assignment_that_was_never_one(
    gated: bool, begins: bool, accepted: bool | None, fine: bool, tmp_path: Path
) -> None:
    paths = [tmp_path / f"{name}.jsonl" for name in ("publisher", "driver", "owner", "slow")]

    def file(number: int, role: str) -> HistoryFile:
        subscription = None if role == "publisher" else "s"
        return HistoryFile(
            paths[number], role=role, topic="t", subscription=subscription, pid=number + 1, host="here"
        )

    retry = (0, ()) if gated else None
    publisher, driver = file(0, "publisher"), file(1, "driver")
    owner, slow = file(2, "subscriber"), file(3, "subscriber")
    driver.subscribe({0: 0})
    sha = fingerprint(b"k", b"body", {})
    for number in range(2):
        publisher.send(number, "k", sha)
        publisher.stored(number, 0, number)
    owner.assign(0, 1, (0, ()), retry, 0)
    owner.delivered(0, 0, 1, 1, sha)
    owner.ack(0, 0, 1, 1)
    owner.handler_end(0, 0, 1)
    owner.commit(1, 0, 1, (1, ()), retry)
    owner.answer(1, 0, 1, accepted=True)

    slow.assign(0, 1, (0, ()), retry, 0)
    if begins:
        slow.delivered(0, 0, 1, 1, sha)
        slow.handler_end(0, 0, 1)
    slow.commit(1, 0, 1, (0, ()), retry)
    slow.answer(1, 0, 1, accepted=accepted)
    slow.revoke(0, 1, lost=True)

    owner.delivered(0, 1, 1, 1, sha)
    owner.ack(0, 1, 1, 1)
    owner.handler_end(0, 1, 1)
    owner.commit(2, 0, 1, (2, ()), retry)
    owner.answer(2, 0, 1, accepted=True)
    owner.revoke(0, 1, lost=False)
    for each in (publisher, driver, owner, slow):
        each.close()
    report = check(paths)
    assert report.ok is fine, report.summary()
