"""What Kafka knows, for a scrape: of the subscriptions in use, or of everything, asked for in the background."""

from __future__ import annotations

import time

import pytest

from kafka_pubsub import PubSub
from kafka_pubsub.counters import Reading
from kafka_pubsub.errors import BrokerUnavailable
from kafka_pubsub.observe import kafka_view
from kafka_pubsub.observe.kafka_view import KafkaView


def figures(readings: list[Reading], **labels: str) -> dict[str, float]:
    return {name: value for each in readings if each.labels == labels for name, value in each.gauges.items()}


def test_of_everything_there_are_subscriptions_delays_and_causal_topics() -> None:
    with PubSub.in_memory() as ps:
        ps.create_topic("orders", retention=3600)
        ps.create_topic("chat", causal=True)
        ps.create_subscription("billing", topic="orders")
        ps.topic("orders").publish(b"x").result(10)
        ps.topic("orders").publish(b"later", delay=600).result(10)
        ps.publish_multi(["chat"], b"hello").result(10)
        view = KafkaView(everything=True, clusters=lambda: [ps._cluster])
        view.look()
        found = view.readings()
    billing = figures(found, subscription="billing", topic="orders")
    assert billing["backlog"] == 1
    assert billing["lag"] == 1
    assert billing["members"] == 0
    assert billing["retention"] == 3600
    assert 0 <= billing["oldest_age"] < 60
    assert billing["oldest_parked"] == 0
    assert figures(found)["delayed_waiting"] >= 1
    assert figures(found)["routers"] == 1
    assert figures(found)["sequencers"] == 1
    assert figures(found, topic="chat") == {"causal_pending": 0, "causal_block": 0}


def test_otherwise_only_the_subscriptions_in_use_are_asked_about() -> None:
    with PubSub.in_memory() as ps:
        ps.create_topic("orders")
        for name in ("billing", "audit"):
            ps.create_subscription(name, topic="orders")
        view = KafkaView(clusters=lambda: [ps._cluster])
        with ps.subscription("billing").pull(lambda message: message.ack()):
            view.look()
            found = view.readings()
        assert {each.labels.get("subscription") for each in found} == {None, "billing"}
        view.look()
        assert figures(view.readings(), subscription="billing", topic="orders") == {}


def test_only_the_first_scrape_waits_for_a_broker_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(self: KafkaView) -> None:
        time.sleep(5)

    monkeypatch.setattr(KafkaView, "look", hang)
    view = KafkaView(clusters=list)
    began = time.monotonic()
    view.readings()
    first = time.monotonic() - began
    view.readings()
    assert first < 3
    assert time.monotonic() - began - first < 0.5


def test_figures_that_are_too_old_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    with PubSub.in_memory() as ps:
        ps.create_topic("orders")
        ps.create_subscription("billing", topic="orders")
        view = KafkaView(everything=True, every=1000, clusters=lambda: [ps._cluster])
        view.look()

        def refuse(*_: object) -> object:
            raise BrokerUnavailable("no broker answers")

        monkeypatch.setattr(kafka_view, "state_of", refuse)
        assert figures(view.readings(), subscription="billing", topic="orders")
        monkeypatch.setattr(kafka_view, "FORGET", -1.0)
        assert figures(view.readings(), subscription="billing", topic="orders") == {}


def test_a_client_that_was_never_used_is_not_asked() -> None:
    with PubSub("127.0.0.1:9") as ps:
        view = KafkaView(everything=True, clusters=lambda: [ps._cluster])
        view.look()
        assert view.readings()[0].counts["view_failures"] == 0
