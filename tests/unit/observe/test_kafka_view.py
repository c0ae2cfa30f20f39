"""What Kafka knows, for a scrape: of the subscriptions in use, or of everything, asked for in the background."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_pubsub import Message, PubSub, RetryPolicy
from kafka_pubsub.config import SubscriptionRecord
from kafka_pubsub.counters import Reading
from kafka_pubsub.errors import BrokerUnavailable, PermissionDenied, PubSubError
from kafka_pubsub.log.memory.backend import MemoryBackend
from kafka_pubsub.log.memory.faults import FaultPlan
from kafka_pubsub.log.ports import Backend
from kafka_pubsub.observe import kafka_view
from kafka_pubsub.observe.kafka_view import KafkaView
from kafka_pubsub.subscribe.stream.status import SubscriptionState, state_of
from tests.support import until


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


def test_the_age_of_the_newest_answer_is_told_when_nothing_is_known_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with PubSub.in_memory() as ps:
        ps.create_topic("orders")
        ps.create_subscription("billing", topic="orders")
        view = KafkaView(everything=True, every=1000, clusters=lambda: [ps._cluster])

        def refuse(*_: object) -> object:
            raise BrokerUnavailable("no broker answers")

        for name in ("_subscription", "_delays", "_causal"):
            monkeypatch.setattr(kafka_view, name, refuse)
        view.readings()
        time.sleep(0.1)
        view.look()
        monkeypatch.setattr(kafka_view, "FORGET", -1.0)
        assert 0.1 <= figures(view.readings())["view_age"] < 60


def test_one_subscription_that_is_not_known_makes_the_others_no_older(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with PubSub.in_memory() as ps:
        ps.create_topic("orders")
        for name in ("billing", "audit"):
            ps.create_subscription(name, topic="orders")
        view = KafkaView(everything=True, every=1000, clusters=lambda: [ps._cluster])
        view.readings()
        plain = state_of

        def refuse(backend: Backend, record: SubscriptionRecord, *more: Any) -> SubscriptionState:
            if record.name == "audit":
                raise ZeroDivisionError
            return plain(backend, record, *more)

        monkeypatch.setattr(kafka_view, "state_of", refuse)
        view._found.clear()
        view._answered_at = time.monotonic() - 100
        view.look()
        found = view.readings()
        assert figures(found)["view_age"] < 60
        assert figures(found, subscription="billing", topic="orders")
        assert figures(found, subscription="audit", topic="orders") == {}


def test_a_message_in_the_retry_topic_is_not_old_at_home() -> None:
    with PubSub.in_memory() as ps:
        ps.create_topic("orders")
        sub = ps.create_subscription("billing", topic="orders", retry=RetryPolicy(min_backoff=600))
        ps.topic("orders").publish(b"x").result(10)
        with sub.pull(lambda message: message.nack()):
            until(lambda: sub.state().waiting_retry == 1, "the move")
        state = sub.state()
        assert state.oldest is not None
        assert state.oldest_at_home is None
        assert state.retry_due is not None
        assert 500 < (state.retry_due - datetime.now(UTC)).total_seconds() <= 601
        assert kafka_view._figures(state)["retry_overdue"] == 0
    over = replace(state, retry_due=datetime.now(UTC) - timedelta(seconds=30))
    assert 30 <= kafka_view._figures(over)["retry_overdue"] < 60
    assert kafka_view._figures(replace(state, retry_due=None))["retry_overdue"] == 0


def test_a_view_of_everything_has_an_age_before_any_answer() -> None:
    assert {"view_age", "whole_view"} <= figures(KafkaView(everything=True, clusters=list).readings()).keys()
    assert figures(KafkaView(clusters=list).readings()) == {}


def test_a_process_without_subscriptions_has_no_view_that_could_hide_a_blind_one() -> None:
    with PubSub.in_memory() as ps:
        ps.create_topic("orders")
        ps.create_subscription("billing", topic="orders")
        view = KafkaView(every=1000, clusters=lambda: [ps._cluster])
        with ps.subscription("billing").pull(lambda message: message.ack()):
            view.look()
            assert "view_age" in figures(view.readings())
        view.look()
        assert "view_age" not in figures(view.readings())


def test_a_question_that_hangs_delays_no_other_and_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ask, gone_on, hanging = state_of, threading.Event(), list[str]()

    def some(backend: Any, record: Any, *rest: Any) -> Any:
        if record.name == "a-frozen-one":
            hanging.append(record.name)
            assert gone_on.wait(60)
        return ask(backend, record, *rest)

    monkeypatch.setattr(kafka_view, "state_of", some)
    monkeypatch.setattr(kafka_view, "PATIENCE", 0.3)
    with PubSub.in_memory() as ps:
        ps.create_topic("orders")
        names = ["a-frozen-one", *(f"sub-{number}" for number in range(20))]
        for name in names:
            ps.create_subscription(name, topic="orders")
        view = KafkaView(everything=True, every=1000, clusters=lambda: [ps._cluster])
        view.look()
        until(
            lambda: len({each.labels.get("subscription") for each in view.readings()}) == len(names),
            "the others",
        )
        view.look()
        assert hanging == ["a-frozen-one"]
        gone_on.set()
        until(
            lambda: figures(view.readings(), subscription="a-frozen-one", topic="orders") != {},
            "the frozen one",
        )


def test_a_catalog_that_can_not_be_read_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> object:
        raise PermissionDenied("may not read the catalog")

    with PubSub.in_memory() as ps:
        ps.create_topic("orders")
        ps.create_subscription("billing", topic="orders")
        view = KafkaView(everything=True, every=1000, clusters=lambda: [ps._cluster])
        view.look()
        monkeypatch.setattr(type(ps._cluster.backend.catalog), "subscriptions", refuse)
        view.look()
        found = view.readings()
        assert found[0].counts["view_failures"] >= 1
        assert figures(found, subscription="billing", topic="orders")


def test_a_subscription_whose_topic_was_deleted_is_no_failure() -> None:
    with PubSub.in_memory() as ps:
        ps.create_topic("orders")
        ps.create_subscription("billing", topic="orders")
        ps.delete_topic("orders")
        view = KafkaView(everything=True, every=1000, clusters=lambda: [ps._cluster])
        view.look()
        assert view.readings()[0].counts["view_failures"] == 0


def test_the_groups_are_listed_once_a_look() -> None:
    class Counted(FaultPlan):
        listed = 0

        def request(self, operation: str, name: str) -> PubSubError | None:
            self.listed += operation == "groups"
            return None

    plan = Counted()
    with PubSub.in_memory(MemoryBackend(faults=plan)) as ps:
        ps.create_topic("orders")
        for number in range(5):
            ps.create_subscription(f"sub-{number}", topic="orders")
        view = KafkaView(everything=True, every=1000, clusters=lambda: [ps._cluster])
        for looks in (1, 2):
            view.look()
            assert plan.listed == looks
        assert figures(view.readings(), subscription="sub-4", topic="orders")["members"] == 0


def test_a_process_without_the_rights_of_a_monitor_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object, record: SubscriptionRecord, *more: object) -> Any:
        raise PermissionDenied(f"this client needs READ on topic {record.name!r}")

    lines: list[str] = []

    def note(level: int, text: str, *arguments: object) -> None:
        if level >= logging.WARNING:
            lines.append(text % arguments)

    with PubSub.in_memory() as ps:
        ps.create_topic("orders")
        for name in ("billing", "audit"):
            ps.create_subscription(name, topic="orders")
        monkeypatch.setattr(kafka_view, "state_of", refuse)
        monkeypatch.setattr(kafka_view, "_log", SimpleNamespace(log=note))
        view = KafkaView(everything=True, every=1000, clusters=lambda: [ps._cluster])
        for _ in range(3):
            view.look()
    assert len(lines) == 1
    assert "the rights of the role monitor" in lines[0]
    assert "this client needs READ on topic" in lines[0]


def test_a_parked_message_is_not_overdue() -> None:
    with PubSub.in_memory() as ps:
        ps.create_topic("orders")
        sub = ps.create_subscription("billing", topic="orders")
        ps.topic("orders").publish(b"x").result(10)
        with sub.pull(lambda message: message.dead_letter("not an order")):
            until(lambda: sub.state().parked == 1, "the move")
        assert sub.state().retry_due is None


def test_a_message_whose_retry_runs_is_not_overdue() -> None:
    gone_on = threading.Event()

    def handle(message: Message) -> None:
        if message.delivery_attempt == 1:
            message.nack()
            return
        gone_on.wait(60)
        message.ack()

    with PubSub.in_memory() as ps:
        ps.create_topic("orders")
        at_once = RetryPolicy(min_backoff=0, max_backoff=0)
        sub = ps.create_subscription("billing", topic="orders", retry=at_once)
        ps.topic("orders").publish(b"x").result(10)
        with sub.pull(handle):
            try:
                until(lambda: sub.state().waiting_retry == 1, "the move")
                until(lambda: sub.state().retry_due is None, "the second delivery")
                assert sub.state().waiting_retry == 1
            finally:
                gone_on.set()
