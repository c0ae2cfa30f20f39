"""The broker has forgotten how far routers were: they refuse to guess, and begin again where they are told to."""

from __future__ import annotations

import logging
from collections import Counter

import pytest

from kafka_pubsub import PubSub
from kafka_pubsub.delays.layout import GROUP, INGEST
from kafka_pubsub.delays.service import DelayRouter
from kafka_pubsub.errors import FailedPrecondition
from kafka_pubsub.log.memory import MemoryBackend
from kafka_pubsub.model import TopicPartition
from kafka_pubsub.services.trimming import Trimming
from tests.support import until
from tests.unit.delays.test_role import bodies, ids_of

TIERS, COUNT = 3, 60


def run_for_a_while(ps: PubSub) -> list[str]:
    """Publishes for up to 4 seconds and has a router bring some messages home; then the group's offsets are gone."""
    topic = ps.create_topic("orders", partitions=2, exist_ok=True)
    with DelayRouter(ps, tiers=TIERS, partitions=1) as router:
        futures = [topic.publish(b"%d" % n, ordering_key=f"k{n % 3}", delay=n / 15) for n in range(COUNT)]
        ids = [future.result(10) for future in futures]
        until(lambda: router.metrics().get("home", 0) > COUNT / 3)
    ps._cluster.backend.admin.delete_group(GROUP)
    # The first has no delay, and its id is that of its place at home.
    return ids[1:]


def test_a_router_refuses_to_guess_and_names_the_command(ps: PubSub, backend: MemoryBackend) -> None:
    run_for_a_while(ps)
    before = bodies(backend)
    with DelayRouter(ps) as router, pytest.raises(FailedPrecondition) as refused:
        router.wait_until_running(timeout=0.5)
    assert "the broker has forgotten it" in refused.value.message
    assert "`kafka-pubsub service router --begin-again`" in refused.value.message
    assert bodies(backend) == before


def test_where_what_was_handled_is_deleted_nearly_nothing_comes_twice(
    ps: PubSub, backend: MemoryBackend, caplog: pytest.LogCaptureFixture
) -> None:
    """A router that ends in order deletes its handled messages; messages that rested in memory hold some of them."""
    ids = run_for_a_while(ps)
    before = {each for each in ids if each in delayed(backend)}
    with (
        caplog.at_level(logging.WARNING, "kafka_pubsub.service"),
        DelayRouter(ps, begin_again=True) as router,
    ):
        router.wait_until_running()
        until(lambda: set(delayed(backend)) == set(ids))
    counts = Counter(delayed(backend))
    assert {each for each, count in counts.items() if count > 1} <= before
    assert "begins again at the start of what is left" in caplog.text


def test_where_nothing_was_deleted_all_come_at_least_once(
    ps: PubSub, backend: MemoryBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Trimming, "_trim", lambda self: None)
        ids = run_for_a_while(ps)
    assert backend.admin.log_range(TopicPartition(INGEST, 0))[0] == 0
    with DelayRouter(ps, begin_again=True):
        topic = ps.topic("orders")
        later = [topic.publish(b"later", ordering_key="k1", delay=n / 10).result(10) for n in range(1, 30)]
        until(lambda: set(delayed(backend)) >= {*ids, *later})
    counts = Counter(delayed(backend))
    for n, each in enumerate(ids, 1):
        places = 1 + int(n / 15).bit_count()
        assert counts[each] <= 1 + places, "from each place that it has passed once more at most"
    new = [each for each in delayed(backend) if each in later]
    assert new == later, "only what was handled before may be doubled or out of order"


def test_where_nothing_is_missing_begin_again_changes_nothing(ps: PubSub, backend: MemoryBackend) -> None:
    topic = ps.create_topic("orders")
    for _ in range(2):
        with DelayRouter(ps, tiers=TIERS, begin_again=True) as router:
            topic.publish(b"x", delay=0.2).result(10)
            until(lambda: router.metrics().get("home") == 1)
    assert bodies(backend) == [b"x", b"x"]


def delayed(backend: MemoryBackend) -> list[str]:
    return [each for each in ids_of(backend, "orders") if each]
