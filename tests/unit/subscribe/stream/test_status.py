"""What the state of a subscription asks of a stream that has a lot parked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from kafka_pubsub.model import TopicPartition
from kafka_pubsub.subscribe.partition.key_line import Entry
from kafka_pubsub.subscribe.partition.packed_lines import PackedLines
from kafka_pubsub.subscribe.stream import status
from kafka_pubsub.subscribe.stream.runner import StreamRunner
from kafka_pubsub.subscribe.stream.status import LISTED
from tests.partition_ids import P
from tests.unit.subscribe.partition.test_retry_partition import Scene, parked

IN_AN_HOUR = 3_600_000


def test_a_state_asks_for_no_more_parked_keys_than_it_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []
    peek = PackedLines.peek

    def noting(lines: PackedLines, key: bytes, at: int = 0) -> Entry | None:
        asked.append(key)
        return peek(lines, key, at)

    scene = Scene([parked(at, at, b"%d" % at, due=IN_AN_HOUR) for at in range(2 * LISTED)])
    monkeypatch.setattr(PackedLines, "peek", noting)
    owner = SimpleNamespace(
        coordinator=SimpleNamespace(partitions=SimpleNamespace(owned={P[0]: scene.partition})),
        rebalances=SimpleNamespace(place=lambda number: TopicPartition("t", number.partition)),
    )
    assert len(status._blocked_in(cast("StreamRunner", owner))) == LISTED
    assert len(asked) <= LISTED
