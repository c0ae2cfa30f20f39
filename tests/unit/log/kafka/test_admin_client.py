"""An admin client asks for metadata while no request to leaders is being made, and the other way round."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from kafka_pubsub.log.kafka.admin_client import LockedAdminClient
from tests.support import until

PLACE = TopicPartition("orders", 0)
CALLS: dict[str, Callable[[LockedAdminClient], object]] = {
    "list_topics": lambda client: client.list_topics("orders", timeout=1.0),
    "list_offsets": lambda client: client.list_offsets({PLACE: OffsetSpec.latest()}),
    "delete_records": lambda client: client.delete_records([PLACE]),
}


@pytest.mark.parametrize("second", CALLS)
@pytest.mark.parametrize("first", CALLS)
def test_one_request_is_made_after_the_other(
    monkeypatch: pytest.MonkeyPatch, first: str, second: str
) -> None:
    events: list[str] = []
    go_on = threading.Event()

    def noting(name: str) -> Callable[..., None]:
        def make(*asked: object, **options: object) -> None:
            events.append(f"{name} begins")
            if len(events) == 1:
                go_on.wait(60)
            events.append(f"{name} is made")

        return make

    for name in CALLS:
        monkeypatch.setattr(AdminClient, name, noting(name))
    client = LockedAdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    threads = [threading.Thread(target=CALLS[name], args=(client,)) for name in (first, second)]
    threads[0].start()
    until(lambda: events)
    threads[1].start()
    until(client._making.locked)
    go_on.set()
    for thread in threads:
        thread.join(60)
    assert events == [f"{first} begins", f"{first} is made", f"{second} begins", f"{second} is made"]
