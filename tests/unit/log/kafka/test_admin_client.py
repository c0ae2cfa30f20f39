"""An admin client asks for metadata while no request to leaders is being made, and the other way round; in its time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from kafka_pubsub.log.kafka.admin_client import LockedAdminClient
from tests.support import until

PLACE = TopicPartition("orders", 0)
CALLS: dict[str, Callable[[LockedAdminClient, float], object]] = {
    "list_topics": lambda client, seconds: client.list_topics("orders", timeout=seconds),
    "list_offsets": lambda client, seconds: client.list_offsets(
        {PLACE: OffsetSpec.latest()}, request_timeout=seconds
    ),
    "delete_records": lambda client, seconds: client.delete_records([PLACE], request_timeout=seconds),
}


class Librdkafka:
    """Notes each request; the first takes until `go_on`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.events: list[str] = []
        self.seconds: list[float] = []
        self.go_on = threading.Event()
        for name in CALLS:
            monkeypatch.setattr(AdminClient, name, partial(self._make, name))

    def _make(self, name: str, *asked: object, **options: float) -> None:
        if threading.current_thread().name.startswith("kafka_pubsub"):
            return  # a client of another test that hasn't ended yet
        self.seconds += options.values()
        self.events.append(f"{name} begins")
        if len(self.events) == 1:
            self.go_on.wait(60)
        self.events.append(f"{name} is made")


@pytest.mark.parametrize("second", CALLS)
@pytest.mark.parametrize("first", CALLS)
def test_one_request_is_made_after_the_other(
    monkeypatch: pytest.MonkeyPatch, first: str, second: str
) -> None:
    librdkafka, client = Librdkafka(monkeypatch), make_client()
    threads = [threading.Thread(target=CALLS[name], args=(client, 60.0)) for name in (first, second)]
    threads[0].start()
    until(lambda: librdkafka.events)
    threads[1].start()
    librdkafka.go_on.set()
    for thread in threads:
        thread.join(60)
    made = [f"{first} begins", f"{first} is made", f"{second} begins", f"{second} is made"]
    assert librdkafka.events == made


@pytest.mark.parametrize("second", CALLS)
def test_waiting_for_another_request_counts_as_time_of_ones_own(
    monkeypatch: pytest.MonkeyPatch, second: str
) -> None:
    librdkafka, client = Librdkafka(monkeypatch), make_client()
    thread = threading.Thread(target=client.list_topics)
    thread.start()
    until(lambda: librdkafka.events)
    with pytest.raises(KafkaException) as raised:
        CALLS[second](client, 0.01)
    librdkafka.go_on.set()
    thread.join(60)
    assert raised.value.args[0].code() == KafkaError._TIMED_OUT
    assert librdkafka.events == ["list_topics begins", "list_topics is made"]


@pytest.mark.parametrize("name", CALLS)
def test_a_request_gets_the_seconds_that_are_left(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    librdkafka, client = Librdkafka(monkeypatch), make_client()
    librdkafka.go_on.set()
    CALLS[name](client, 60.0)
    (left,) = librdkafka.seconds
    assert 0 < left < 60


def make_client() -> LockedAdminClient:
    return LockedAdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
