"""The three examples of message ordering, as users write them: user events, database changes, devices."""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import Any, cast

from kafka_pubsub import Message
from tests.acceptance.support import PATIENCE, Room, until


def test_example_user_event_stream(room: Room) -> None:
    topic = room.topic(message_ordering=True)
    subscription = room.subscription(topic)
    states: defaultdict[str | None, list[str]] = defaultdict(list)

    def process(message: Message) -> None:
        event = cast("dict[str, Any]", message.json())
        states[message.ordering_key].append(event["type"])
        message.ack()

    with subscription.pull(process):
        for event in (
            {"type": "login", "timestamp": 1},
            {"type": "page_view", "page": "/home", "timestamp": 2},
            {"type": "logout", "timestamp": 3},
        ):
            topic.publish_json(event, ordering_key="user-123")
        until(lambda: len(states["user-123"]) == 3)
    assert states == {"user-123": ["login", "page_view", "logout"]}


def test_example_database_change_stream(room: Room) -> None:
    topic = room.topic(message_ordering=True)
    subscription = room.subscription(topic)
    # A replica of the tables is right only if a row's changes are applied in their order.
    rows: dict[str | None, object] = {}
    applied: list[str | None] = []

    def apply(message: Message) -> None:
        change = cast("dict[str, Any]", message.json())
        row = message.ordering_key
        if change["action"] == "INSERT":
            assert row not in rows
            rows[row] = change["data"]
        elif change["action"] == "UPDATE":
            assert row in rows
            rows[row] = change["data"]
        else:
            del rows[row]
        applied.append(row)
        message.ack()

    def publish_change(table: str, row: str, change: dict[str, object]) -> None:
        topic.publish_json(change, ordering_key=f"{table}:{row}")

    with subscription.pull(apply):
        publish_change("users", "123", {"action": "INSERT", "data": {"name": "Ann"}})
        publish_change("users", "123", {"action": "UPDATE", "data": {"name": "Anna"}})
        publish_change("users", "123", {"action": "DELETE"})
        publish_change("users", "456", {"action": "INSERT", "data": {"name": "Bob"}})
        publish_change("orders", "789", {"action": "INSERT", "data": {"total": 12}})
        publish_change("orders", "789", {"action": "UPDATE", "data": {"total": 13}})
        until(lambda: len(applied) == 6)
    assert rows == {"users:456": {"name": "Bob"}, "orders:789": {"total": 13}}


def test_example_iot_device_telemetry(room: Room) -> None:
    topic = room.topic(message_ordering=True)
    subscription = room.subscription(topic)
    readings: defaultdict[str | None, list[float]] = defaultdict(list)
    devices = threading.Barrier(3)

    def record(message: Message) -> None:
        reading = cast("dict[str, float]", message.json())
        if not readings[message.ordering_key]:
            devices.wait(PATIENCE)  # different devices are processed concurrently: all three are here at once
        readings[message.ordering_key].append(reading["temp"])
        message.ack()

    with subscription.pull(record):
        for device, temp, humidity in (
            ("device-001", 20.5, 65),
            ("device-001", 21.0, 64),
            ("device-001", 21.5, 63),
            ("device-002", 18.5, 70),
            ("device-003", 22.0, 60),
        ):
            topic.publish_json({"temp": temp, "humidity": humidity}, ordering_key=device)
        topic.flush(PATIENCE)
        until(lambda: sum(map(len, readings.values())) == 5)
    assert readings == {"device-001": [20.5, 21.0, 21.5], "device-002": [18.5], "device-003": [22.0]}
