"""A consumer of librdkafka's that never finds its broker again is replaced, and only such a consumer."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from kafka_pubsub.errors import BrokerUnavailable, PubSubError
from kafka_pubsub.log.kafka import reader
from kafka_pubsub.log.kafka.client_factory import ClientFactory
from kafka_pubsub.log.kafka.reader import KafkaLogReader
from kafka_pubsub.model import ReadFrom, TopicPartition
from tests.support import until

UNREACHED = KafkaException(KafkaError(KafkaError._TRANSPORT))
PLACE = TopicPartition("t", 0)


class Client:
    """A consumer or an admin client; `finds`: whether the client knows a broker."""

    def __init__(self, on_error: Any, finds: bool) -> None:
        self.on_error, self.finds = on_error, finds
        self.asked = 0
        self.topics: list[str] = []
        self._assign: Any = None
        self.records: list[Any] = []

    def subscribe(self, topics: list[str], on_assign: Any, on_revoke: Any, on_lost: Any) -> None:
        self.topics, self._assign = topics, on_assign

    def consume(self, count: int, timeout: float) -> list[Any]:
        on_assign, self._assign = self._assign, None
        if on_assign is not None:
            on_assign(self, [KafkaPartition(*PLACE)])
        records, self.records = self.records, []
        return records

    def list_topics(self, topic: str = "", timeout: float = -1) -> None:
        self.asked += 1
        if not self.finds:
            raise UNREACHED

    def assign(self, partitions: object) -> None: ...
    def resume(self, partitions: object) -> None: ...
    def consumer_group_metadata(self) -> bytes:
        return b""

    def memberid(self) -> str:
        return "m"


class Record:
    """A record without an error."""

    def error(self) -> None: ...
    def topic(self) -> str:
        return PLACE.topic

    def partition(self) -> int:
        return PLACE.partition


class Handles:
    """Makes clients: the first consumer finds what `first_finds` says, all others find brokers unless `down`."""

    address = "nowhere"

    def __init__(self) -> None:
        self.down = self.first_finds = False
        self.consumers: list[Client] = []
        self.abandoned: list[Client] = []
        self.asked = self.failures = 0

    def check(self) -> None: ...

    def consumer(self, defaults: object, rules: object, on_error: object = None) -> Client:
        if self.consumers and self.failures:
            self.failures -= 1
            raise BrokerUnavailable("not now")
        finds = not self.down and (bool(self.consumers) or self.first_finds)
        self.consumers.append(Client(on_error, finds))
        return self.consumers[-1]

    def admin(self) -> Client:
        self.asked += 1
        return Client(None, not self.down)

    def close_admin(self, client: Client) -> None: ...

    def abandon(self, consumer: Client) -> None:
        self.abandoned.append(consumer)


class Listener:
    def __init__(self) -> None:
        self.events: list[str] = []

    def assigned(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, ReadFrom]:
        self.events.append("assigned")
        return dict.fromkeys(partitions, 0)

    def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.events.append("revoked")

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        assert list(partitions) == [PLACE]
        self.events.append("lost")

    def failed(self, partition: TopicPartition | None, error: PubSubError, fatal: bool) -> None:
        assert not fatal


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(reader, "LOST_S", 0.02)
    yield
    until(lambda: "kafka_pubsub-find-brokers" not in {each.name for each in threading.enumerate()})


def started(handles: Handles) -> tuple[KafkaLogReader, Listener]:
    opened = KafkaLogReader(cast("ClientFactory", handles), cast("Any", None), "g", "m", "classic")
    listener = Listener()
    opened.subscribe(["t"], listener)
    opened.read(1, 0)
    handles.consumers[0].on_error(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    return opened, listener


def read_for(opened: KafkaLogReader, seconds: float) -> None:
    end = time.monotonic() + seconds
    until(lambda: opened.read(1, 0) or time.monotonic() > end)


def test_a_consumer_that_lost_its_brokers_is_replaced_by_a_new_member() -> None:
    handles = Handles()
    opened, listener = started(handles)
    until(lambda: opened.read(1, 0) or len(handles.consumers) == 2, "a new consumer")
    opened.read(1, 0)
    assert handles.abandoned == handles.consumers[:1]
    assert handles.consumers[1].topics == ["t"]
    assert listener.events == ["assigned", "lost", "assigned"]
    read_for(opened, 0.1)
    assert len(handles.consumers) == 2


def test_while_no_broker_is_there_a_consumer_is_kept() -> None:
    handles = Handles()
    handles.down = True
    opened, listener = started(handles)
    until(lambda: opened.read(1, 0) or handles.asked > 2)
    assert len(handles.consumers) == 1
    handles.down, handles.consumers[0].finds = False, True
    read_for(opened, 0.1)
    assert (len(handles.consumers), listener.events) == (1, ["assigned"])


def test_a_consumer_that_finds_a_broker_again_is_asked_no_more() -> None:
    handles = Handles()
    handles.first_finds = True
    opened, _ = started(handles)
    until(lambda: opened.read(1, 0) or handles.consumers[0].asked)
    read_for(opened, 0.2)
    assert (handles.consumers[0].asked, handles.asked, len(handles.consumers)) == (1, 0, 1)


def test_a_record_that_was_fetched_before_ends_no_watch() -> None:
    handles = Handles()
    opened, _ = started(handles)
    handles.consumers[0].records.append(Record())
    until(lambda: opened.read(1, 0))
    until(lambda: opened.read(1, 0) or len(handles.consumers) == 2, "a new consumer")


def test_a_new_consumer_that_cannot_be_made_is_tried_again() -> None:
    handles = Handles()
    opened, listener = started(handles)
    handles.failures = 1
    with pytest.raises(BrokerUnavailable):
        read_for(opened, 60)
    until(lambda: opened.read(1, 0) or len(handles.consumers) == 2, "a new consumer")
    opened.read(1, 0)
    assert listener.events == ["assigned", "lost", "assigned"]
