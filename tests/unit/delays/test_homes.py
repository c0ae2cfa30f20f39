"""The catalog says where a delayed message may go; brokers and other programs don't."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import count
from zlib import crc32

import pytest

from kafka_pubsub import PubSub
from kafka_pubsub.config import Batching
from kafka_pubsub.delays import homes
from kafka_pubsub.delays.layout import DEAD, INGEST, tier_topic
from kafka_pubsub.delays.records import (
    DELAY_HEADER,
    VERSION,
    DelayRequest,
    address,
    encode_delayed,
    encode_request,
    parts_of,
)
from kafka_pubsub.delays.service import DelayRouter
from kafka_pubsub.errors import BrokerUnavailable, NotFound, PermissionDenied, PubSubError
from kafka_pubsub.log.memory import FaultPlan, MemoryBackend
from kafka_pubsub.multicast.service import Sequencer
from tests.support import until
from tests.unit.delays.test_role import bodies, stored

TIERS = 5


def reasons(backend: MemoryBackend) -> list[str]:
    found = [dict(each.headers() or ())["ps-delay-dead"] or b"" for each in stored(backend, DEAD)]
    return [each.decode() for each in found]


class Answers(FaultPlan):
    """A broker answers questions about `orders` so; the catalog is read all the same."""

    def __init__(self, error: PubSubError) -> None:
        self.error = error
        self.asked = 0

    def request(self, operation: str, name: str) -> PubSubError | None:
        if operation != "topic" or name != "orders":
            return None
        self.asked += 1
        return self.error


@pytest.mark.parametrize(
    "error",
    [NotFound("topic 'orders' not found: a broker that has just started"), PermissionDenied("no right")],
    ids=["not found", "no right"],
)
def test_what_a_broker_says_of_a_home_topic_makes_no_dead_letter(
    backend: MemoryBackend, error: PubSubError
) -> None:
    routers = MemoryBackend(cluster=backend.cluster, faults=Answers(error))
    with (
        PubSub.in_memory(backend, services=False) as ps,
        PubSub.in_memory(routers, services=False) as other,
        DelayRouter(other, tiers=TIERS, partitions=1) as router,
    ):
        topic = ps.create_topic("orders", partitions=1)
        router.wait_until_running()
        for number in range(10):
            topic.publish(b"%d" % number, ordering_key="k", delay=0.01).result(10)
        until(lambda: len(bodies(backend)) == 10)
        assert bodies(backend, DEAD) == []


def test_a_topic_that_was_made_again_gets_its_own_messages_and_none_of_the_one_before(
    ps: PubSub, backend: MemoryBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(homes, "KNOWN_S", 0.0)
    topic = ps.create_topic("orders", partitions=1)
    with DelayRouter(ps, tiers=TIERS, partitions=1):
        topic.publish(b"at once", delay=0.01).result(10)
        until(lambda: bodies(backend) == [b"at once"])
    old = [topic.publish(b"old", ordering_key="k", delay=each).result(10) for each in (0.9, 1.8)]
    ps.delete_topic("orders")
    topic = ps.create_topic("orders", partitions=1)
    for _ in range(2):
        topic.publish(b"new", ordering_key="k", delay=1.0).result(10)
    topic.publish_many([{"data": b"new", "delay": 1.5}]).result(10)
    with DelayRouter(ps, tiers=TIERS, partitions=1):
        until(lambda: len(bodies(backend)) + len(bodies(backend, DEAD)) == 5)
    assert bodies(backend) == [b"new"] * 3
    assert bodies(backend, DEAD) == [b"old"] * 2
    assert set(reasons(backend)) == {
        "home topic 'orders' was deleted; the present one of that name was made later"
    }
    assert [each.message_id for each in ps.delays.dead_letters()] == old
    assert ps.delays.replay().count == 2, "an operator may decide otherwise"


def test_a_topic_that_is_held_from_one_look_to_the_next_has_no_dead_letters(
    ps: PubSub, backend: MemoryBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, real, looks = ps.create_topic("orders", partitions=1), homes.Homes.find, count()

    def find(self: homes.Homes, home: str) -> homes.Home:
        found = real(self, home)
        return found._replace(partitions=0, held="it is being made") if next(looks) == 1 else found

    monkeypatch.setattr(homes.Homes, "find", find)
    with DelayRouter(ps, tiers=TIERS, partitions=1):
        topic.publish(b"x", delay=0.01).result(10)
        until(lambda: bodies(backend) == [b"x"] or bodies(backend, DEAD) != [])
    assert bodies(backend, DEAD) == []


def test_a_topic_that_was_made_again_as_a_causal_one_gets_messages_from_its_sequencer_only(
    ps: PubSub, backend: MemoryBackend
) -> None:
    topic = ps.create_topic("x", partitions=1)
    idle = DelayRouter(ps, tiers=TIERS, partitions=1)
    topic.publish(b"of the first topic", delay=0.9).result(10)
    ps.delete_topic("x")
    ps.create_topic("x", causal=True)
    with idle as router, Sequencer(ps) as sequencer:
        sequencer.wait_until_running()
        # As a publisher of an older version writes, without the topic's id.
        write(backend, INGEST, encode_request(DelayRequest("x", None, 100)))
        ps.publish_multi(["x"], b"ordered").result(20)
        until(lambda: router.metrics().get("dead") == 2)
    assert bodies(backend, "x") == [b"ordered"]
    assert set(reasons(backend)) == {"home topic 'x' is causal: its messages come from its sequencer only"}


def write(backend: MemoryBackend, topic: str, header: bytes, *more: tuple[str, bytes | None]) -> None:
    """Writes a record as any program may that has the right to."""
    writer = backend.writer(Batching(), 10**6)
    writer.append(topic, b"forged", b"x\0k", [(DELAY_HEADER, header), *more], lambda *_: None)
    writer.close()


def test_a_forged_record_is_a_dead_letter_and_stops_nothing(ps: PubSub, backend: MemoryBackend) -> None:
    topic = ps.create_topic("orders", partitions=1)
    with DelayRouter(ps, tiers=TIERS, partitions=1) as router:
        router.wait_until_running()
        subscription = ps.create_subscription("s", "orders", message_ordering=True)
        retry = f"orders.sub.{subscription.name}.retry"
        for home in ("not a name", "x" * 300, "#", "ghost#id", INGEST, tier_topic(0), DEAD, retry, "\x00"):
            write(backend, INGEST, encode_request(DelayRequest(home, None, 50)))
        write(backend, tier_topic(0), encode_delayed(("orders", 5, 5, 2**40, 3)))
        write(backend, tier_topic(1), encode_delayed(("orders", 5, 5, 2, 3)))
        topic.publish(b"good", ordering_key="k", delay=1.2).result(10)
        until(lambda: bodies(backend) == [b"good"])
        until(lambda: router.metrics().get("dead") == 11)
        assert router.metrics()["aborted"] == 0
        assert router.health().ok


def as_newer(header: bytes) -> bytes:
    """The header as sealed by a later version of ours."""
    body = bytes([VERSION + 1]) + header[1:-4]
    return body + crc32(body).to_bytes(4, "big")


@pytest.mark.parametrize("topic", [INGEST, tier_topic(1)])
def test_a_record_of_a_newer_version_is_waited_for_and_never_a_dead_letter(
    ps: PubSub, backend: MemoryBackend, topic: str
) -> None:
    ps.create_topic("orders", partitions=1)
    newer = as_newer(
        encode_request(DelayRequest("orders", None, 50))
        if topic == INGEST
        else encode_delayed(("orders", 5, 5, 0, 3))
    )
    with DelayRouter(ps, tiers=TIERS, partitions=1) as router:
        router.wait_until_running()
        write(backend, topic, newer)
        until(
            lambda: f"{topic!r} is of version {VERSION + 1}, and this router reads" in router.health().error
        )
        until(lambda: not router.health().ok)
        assert bodies(backend, DEAD) == []


def test_what_is_gone_is_looked_for_once_more_at_the_catalog(
    ps: PubSub, backend: MemoryBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic was made a moment ago, and the known catalog is older."""
    monkeypatch.setattr(homes, "KNOWN_S", 1000.0)
    first = ps.create_topic("first", partitions=1)
    with (
        DelayRouter(ps, tiers=TIERS, partitions=1) as router,
        PubSub.in_memory(MemoryBackend(cluster=backend.cluster), services=False) as other,
    ):
        first.publish(b"x", delay=0.01).result(10)
        until(lambda: router.metrics().get("home") == 1)
        other.create_topic("second", partitions=1).publish(b"y", delay=0.01).result(10)
        until(lambda: bodies(backend, "second") == [b"y"])


class NoCatalog(FaultPlan):
    """The catalog can't be read."""

    def __init__(self) -> None:
        self.broken = False
        self.asked = 0

    def request(self, operation: str, name: str) -> PubSubError | None:
        if operation != "topics":
            return None
        self.asked += 1
        return BrokerUnavailable("no leader") if self.broken else None


@pytest.fixture
def faults() -> NoCatalog:
    return NoCatalog()


@pytest.fixture
def router(backend: MemoryBackend, faults: NoCatalog) -> Iterator[DelayRouter]:
    """A router that meets `faults`, and the publisher `ps` doesn't."""
    routers = MemoryBackend(cluster=backend.cluster, faults=faults)
    with (
        PubSub.in_memory(routers, services=False) as other,
        DelayRouter(other, tiers=TIERS, partitions=1) as router,
    ):
        yield router


def test_while_the_catalog_is_away_messages_go_to_the_topics_that_are_known(
    backend: MemoryBackend,
    ps: PubSub,
    faults: NoCatalog,
    router: DelayRouter,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(homes, "_TRY_AGAIN_S", 0.1)
    topic, gone = ps.create_topic("orders", partitions=1), ps.create_topic("gone", partitions=1)
    router.wait_until_running()
    topic.publish(b"1", ordering_key="k", delay=0.01).result(10)
    until(lambda: bodies(backend) == [b"1"])
    faults.broken = True
    topic.publish(b"2", ordering_key="k", delay=0.01).result(10)
    until(lambda: bodies(backend) == [b"1", b"2"])
    gone.publish(b"dead", delay=0.5).result(10)
    ps.delete_topic("gone")
    faults.broken = False
    until(lambda: bodies(backend, DEAD) == [b"dead"])


def test_the_catalog_is_read_once_a_second_and_not_once_a_topic(
    ps: PubSub, faults: NoCatalog, router: DelayRouter
) -> None:
    router.wait_until_running()
    topics = [ps.create_topic(f"orders{number}", partitions=1) for number in range(50)]
    faults.asked, began = 0, time.monotonic()
    for topic in topics:
        topic.publish(b"x", delay=0.5).result(10)
    until(lambda: router.metrics().get("home") == 50)
    assert faults.asked <= (time.monotonic() - began) / homes.KNOWN_S + 3


def test_a_catalog_that_is_away_is_asked_once_for_many_messages(
    backend: MemoryBackend, faults: NoCatalog
) -> None:
    faults.broken = True
    found = homes.Homes(MemoryBackend(cluster=backend.cluster, faults=faults))
    assert [found.address("orders") for _ in range(3)] == ["orders"] * 3
    assert faults.asked == 1
    with pytest.raises(BrokerUnavailable):
        found.find("orders")


def test_an_address_comes_back_in_its_parts() -> None:
    assert address("orders", "id") == "orders#id"
    assert parts_of("orders#id") == ("orders", "id")
    assert parts_of("orders") == ("orders", "")
