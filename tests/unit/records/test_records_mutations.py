"""Each rule of records is needed: without it a scene fails that passes with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from dataclasses_avroschema.pydantic import AvroBaseModel

from kafka_pubsub import App, DeadLetterPolicy, FailedPrecondition, PubSub, RetryPolicy, SchemaError
from kafka_pubsub.records.codec import Codec
from kafka_pubsub.records.folder import Folder
from kafka_pubsub.records.parsing import parse_schema
from kafka_pubsub.subscribe.workers import lease_runner
from tests.registry_server import RegistryServer
from tests.support import until
from tests.unit.records.records_mutations import MUTATIONS, Patch


class Order(AvroBaseModel):
    user_id: str


class Other(AvroBaseModel):
    user_id: str
    note: str = ""


ADA = Order(user_id="ada")
DEAD = DeadLetterPolicy(topic="dead", max_attempts=2)
SOON = RetryPolicy(min_backoff=0.01, max_backoff=0.01)


@contextmanager
def shop() -> Iterator[tuple[PubSub, RegistryServer]]:
    settings: dict[str, str | int | float | bool]
    with RegistryServer() as server:
        settings = {"url": server.address, "max.retries": 0}
        with PubSub.in_memory(schemas=settings) as ps:
            ps.create_topic("dead")
            ps.create_topic("orders", schema=Order)
            ps.create_subscription("billing", "orders", dead_letter=DEAD, retry=SOON)
            yield ps, server


def bad_record() -> None:
    """A body that is no record is a dead letter after one attempt."""
    with shop() as (ps, _):
        ps.topic("orders").publish(b"hello").result(5)
        billing = ps.subscription("billing")
        with billing.pull(lambda message: message.record(Order)):
            until(lambda: list(billing.dead_letters()))
        assert [each.attempts for each in billing.dead_letters()] == [1]


def outage() -> None:
    """A handler whose registry is away gets the message later."""
    with shop() as (ps, server):
        ps.topic("orders").publish_record(ADA).result(5)
        number = next(iter(server.schemas))
        text = server.schemas[number].text
        source = ps._cluster.records.source
        source._codecs.clear()  # type: ignore[attr-defined]
        seen: list[Order] = []
        app = App(pubsub=ps)

        @app.subscriber("billing", topic="orders", dead_letter=DEAD, retry=SOON)
        def charge(order: Order) -> None:
            seen.append(order)

        find = source.find

        def away_at_first(schema: object) -> Codec:
            source.find = find  # type: ignore[method-assign]
            with server.failing(503):
                return find(schema)  # type: ignore[arg-type]

        source.find = away_at_first  # type: ignore[method-assign]
        source._now = iter(range(0, 1000, 10)).__next__  # type: ignore[attr-defined]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(lease_runner, "AWAY", 0.01)
            app.start()
            try:
                until(lambda: seen or list(ps.subscription("billing").dead_letters()))
            finally:
                app.stop()
        assert seen == [ADA], text


def requests() -> None:
    """Neither a value nor a message costs a request, once a class and a schema are known."""
    with shop() as (ps, server), PubSub.in_memory(schemas=server.address) as other:
        topic = ps.topic("orders")
        topic.publish_record(ADA).result(5)
        message = next(iter(topic.tail(1)))
        other.decode(message)
        asked = len(server.requests)
        for _ in range(3):
            topic.publish_record(ADA).result(5)
            assert other.decode(message) == {"user_id": "ada"}
        assert len(server.requests) == asked


def registered() -> None:
    """Publishing a class that the subject doesn't have registers nothing."""
    with shop() as (ps, server):
        with pytest.raises(SchemaError, match="note"):
            ps.topic("orders").publish_record(Other(user_id="ada"))
        assert len(server.schemas) == 1


def edited() -> None:
    """A released file that was edited is refused."""
    with TemporaryDirectory() as name:
        path = Path(name, "orders")
        path.mkdir()
        (path / "v1.avsc").write_text('"long"')
        Folder(path.parent).release("orders")
        (path / "v1.avsc").write_text('"string"')
        with pytest.raises(SchemaError, match="was edited"):
            Folder(path.parent).latest("orders")


def bare() -> None:
    """A bare body is read by its header, whatever it begins with."""
    with TemporaryDirectory() as name:
        path = Path(name, "orders")
        path.mkdir()
        (path / "v1.avsc").write_text('"string"')
        with PubSub.in_memory(schemas=name) as ps:
            topic = ps.create_topic("orders", schema="orders")
            topic.publish_record("").result(5)  # one zero byte
            (message,) = topic.tail(1)
            assert message.data == parse_schema("avro", '"string"').encode("")
            assert message.record() == ""


SCENES: dict[str, Callable[[], None]] = {
    "bad_record": bad_record,
    "outage": outage,
    "requests": requests,
    "registered": registered,
    "edited": edited,
    "bare": bare,
}


@pytest.mark.parametrize("scene", SCENES)
def test_a_scene_passes(scene: str) -> None:
    SCENES[scene]()


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_missing_rule_is_noticed(name: str, monkeypatch: Patch) -> None:
    scene, mutate = MUTATIONS[name]
    mutate(monkeypatch)
    with pytest.raises((AssertionError, SchemaError, FailedPrecondition, pytest.fail.Exception)):
        SCENES[scene]()
