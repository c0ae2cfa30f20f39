"""On a real broker: the steps at a stock Kafka Connect and at a worker of ours, and `deploy/connect` in use."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Protocol

import pytest
from confluent_kafka import Producer

from kafka_pubsub import Message, PubSub
from kafka_pubsub.local import LocalKafka
from tests.apicurio import fresh
from tests.contract.connect.steps import Answer, Server, differences, run, steps
from tests.contract.connect.stock import CONVERTER, StockConnect, asking
from tests.contract.connect.words import MORE, TOPICS, at_connect, at_worker
from tests.support import until
from tests.worker_processes import WorkerProcess

DEPLOY = Path(__file__).parents[3] / "deploy" / "connect"
PATIENCE = 90.0
JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalKafka]:
    with LocalKafka() as broker, PubSub(broker.bootstrap) as ps:
        for topic in TOPICS:
            ps.create_topic(topic, partitions=1)
        yield broker


@pytest.fixture(scope="module")
def connect(broker: LocalKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StockConnect]:
    with StockConnect(broker.bootstrap, tmp_path_factory.mktemp("connect")) as connect:
        yield connect


@pytest.fixture
def empty(connect: StockConnect) -> Iterator[StockConnect]:
    """Kafka Connect without a connector, also afterwards."""
    yield connect
    for name in connect.ask("GET", "/connectors", None, {}).value:
        connect.ask("DELETE", f"/connectors/{name}", None, {})
    until(lambda: connect.ask("GET", "/connectors", None, {}).value == [], "all are gone", PATIENCE)


def test_a_stock_kafka_connect_answers_the_steps(empty: StockConnect, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("one\ntwo\nthree\n")
    wrong = run(Server(empty.ask, at_connect(tmp_path)), steps())
    assert not wrong, "\n".join(wrong)


def test_a_worker_answers_them_but_for_the_known_differences(broker: LocalKafka, tmp_path: Path) -> None:
    (tmp_path / "worker.toml").write_text("[services]\nsequencer = true\n")
    with PubSub(broker.bootstrap) as ps, ExitStack() as stack:
        for number in range(3):
            ps.topic("facts").publish(b"%d" % number).result(PATIENCE)
        worker = WorkerProcess(broker.bootstrap, tmp_path, stack)
        until(lambda: worker.ask("/connectors") == ["sequencer"], "the worker answers", PATIENCE)
        hidden = frozenset({"sequencer"})
        words = at_worker("https://endpoint.invalid/")
        wrong = run(Server(partial(asking, worker.port), words, hidden, MORE), steps(), differences())
    assert not wrong, "\n".join(wrong)


class Asked(Protocol):
    """A Kafka Connect, wherever it runs."""

    def ask(self, method: str, path: str, content: bytes | None, headers: Mapping[str, str]) -> Answer:
        """Asks its REST interface."""


def make(connect: Asked, file: str, name: str, changes: Mapping[str, str]) -> None:
    """Makes a connector of `deploy/connect`, with another name and some other settings."""
    shown = json.loads((DEPLOY / file).read_text())
    body = {"name": name, "config": {**shown["config"], **changes}}
    answer = connect.ask("POST", "/connectors", json.dumps(body).encode(), JSON)
    assert answer.status == 201, answer.value


def test_files_and_subscriptions_meet_in_a_topic(
    broker: LocalKafka, empty: StockConnect, tmp_path: Path
) -> None:
    with PubSub(broker.bootstrap) as ps:
        ps.create_topic("orders", partitions=6)
    meet(broker.bootstrap, empty, tmp_path)


def meet(bootstrap: str, connect: Asked, tmp_path: Path) -> None:
    """Connectors of `deploy/connect` write lines of files to the topic `orders` and read it, beside clients of ours."""
    lines = {key: [f"{key} {number}" for number in range(40)] for key in ("a.txt", "b.txt", "c.txt")}
    received: dict[str, list[Message]] = defaultdict(list)
    out = tmp_path / "out.txt"
    with PubSub(bootstrap) as ps:
        topic = ps.topic("orders")
        ps.create_subscription("billing", "orders", message_ordering=True)
        for key, texts in lines.items():
            (tmp_path / key).write_text("".join(f"{text}\n" for text in texts))
            changes = {"file": str(tmp_path / key), "transforms.name.static.value": key}
            make(connect, "source.json", f"from-{key}", changes)
        make(connect, "sink.json", "to-file", {"file": str(out)})

        def keep(message: Message) -> None:
            received[message.ordering_key or ""].append(message)
            message.ack()

        def is_all() -> bool:
            return sum(map(len, received.values())) >= 240

        with ps.subscription("billing").pull(keep):
            abort(bootstrap, b"aborted")
            for number in range(40):
                for key in lines:
                    topic.publish(
                        b"ours %d" % number, ordering_key=key, attributes={"n": str(number)}
                    ).result(PATIENCE)
            until(is_all, "all are received", PATIENCE)
        until(
            lambda: len(out.read_text().splitlines()) >= 240 if out.exists() else False,
            "all are written",
            PATIENCE,
        )
    for key, texts in lines.items():
        assert len({each.partition for each in received[key]}) == 1, "both put a key where the other does"
        theirs = [each for each in received[key] if each.attributes == {"origin": "orders.txt"}]
        assert [each.data.decode() for each in theirs] == texts
        ours = [each.attributes["n"] for each in received[key] if each not in theirs]
        assert ours == [str(number) for number in range(40)]
    written = out.read_text().splitlines()
    for texts in lines.values():
        assert [line for line in written if line in texts] == texts
    assert len(written) == 240
    assert "aborted" not in written


def avro(registry: str) -> Mapping[str, str]:
    """Returns the settings of an Avro converter that frames bodies as Confluent's does."""
    settings = {
        "url": registry.replace("/ccompat/v7", "/registry/v2"),
        "as-confluent": "true",
        "use-id": "contentId",
        "headers.enabled": "false",
        "auto-register": "true",
    }
    prefix = "value.converter.apicurio.registry."
    return {"value.converter": CONVERTER, **{prefix + name: value for name, value in settings.items()}}


def test_the_avro_converter_and_records_read_each_other(
    broker: LocalKafka, empty: StockConnect, registry: str, tmp_path: Path
) -> None:
    theirs, ours = fresh("lines"), fresh("orders")
    lines, out, schema = tmp_path / "in.txt", tmp_path / "out.txt", tmp_path / "order.avsc"
    lines.write_text("one\ntwo\n")
    note = {"name": "note", "type": ["null", "string"], "default": None}
    fields = [{"name": "id", "type": "long"}, note]
    schema.write_text(json.dumps({"type": "record", "name": "Order", "fields": fields}))
    hoist = {"type": "org.apache.kafka.connect.transforms.HoistField$Value", "field": "line"}
    changes = {"transforms": "hoist", **{f"transforms.hoist.{name}": value for name, value in hoist.items()}}
    found: list[object] = []
    with PubSub(broker.bootstrap, schemas={"url": registry, "timeout": 30}) as ps:
        ps.create_topic(theirs, partitions=1)
        ps.create_subscription("reader", theirs)
        make(
            empty,
            "source.json",
            "from-lines",
            {**avro(registry), **changes, "file": str(lines), "topic": theirs},
        )
        topic = ps.create_topic(ours, partitions=1, schema=str(schema))
        topic.publish_record({"id": 1, "note": "new"}).result(PATIENCE)
        topic.publish_record({"id": 2}).result(PATIENCE)
        make(empty, "sink.json", "to-lines", {**avro(registry), "file": str(out), "topics": ours})
        with ps.subscription("reader") as reader:

            def are_read() -> bool:
                found.extend(message.record() for message in reader.receive(2, timeout=PATIENCE))
                return len(found) >= 2

            until(are_read, "both are read", PATIENCE)
    assert found == [{"line": "one"}, {"line": "two"}]
    until(lambda: out.exists() and out.read_text().count("\n") == 2, "both are written", PATIENCE)
    assert out.read_text().splitlines() == ["Struct{id=1,note=new}", "Struct{id=2}"]


def abort(bootstrap: str, body: bytes) -> None:
    """Writes a record in a transaction that is aborted."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "aborting"})
    producer.init_transactions(PATIENCE)
    producer.begin_transaction()
    producer.produce("orders", body, key=b"a.txt")
    producer.flush(PATIENCE)
    producer.abort_transaction(PATIENCE)
