"""The catalog against a real broker: several writers, records it can't read, topics that are missing or wrong."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from kafka_pubsub.config import TopicOptions, TopicRecord
from kafka_pubsub.errors import FailedPrecondition
from kafka_pubsub.local.pytest_plugin import RunningKafka
from kafka_pubsub.log.kafka.backend import KafkaBackend
from kafka_pubsub.log.kafka.catalog import KafkaCatalog
from tests.acceptance.support import until
from tests.integration.kafka.conftest import MakeBackend
from tests.integration.kafka.member import PATIENCE

Unique = Callable[[str], str]


def _catalog(backend: KafkaBackend, topic: str, *, create: bool = True) -> KafkaCatalog:
    return KafkaCatalog(backend.handles, backend.admin, create=create, topic=topic)


def _record(name: str, **labels: str) -> TopicRecord:
    return TopicRecord(name=name, topic_id="id", options=TopicOptions(labels=labels))


def test_without_its_topic_it_is_empty_and_says_how_to_make_it(backend: KafkaBackend, unique: Unique) -> None:
    topic = unique("catalog")
    catalog = _catalog(backend, topic, create=False)
    assert dict(catalog.topics()) == {}
    with pytest.raises(FailedPrecondition, match=r"1 partition.*cleanup\.policy=compact"):
        catalog.put_topic(_record("a"), None)
    assert topic not in backend.admin.topic_names()
    catalog.close()


def test_a_topic_that_an_operator_made_is_used(backend: KafkaBackend, unique: Unique) -> None:
    topic = unique("catalog")
    backend.admin.create_topic(topic, 1, None, {"cleanup.policy": "compact"})
    catalog = _catalog(backend, topic, create=False)
    catalog.put_topic(_record("a"), None)
    assert dict(catalog.topics()) == {"a": _record("a")}
    catalog.close()


@pytest.mark.parametrize(("partitions", "policy"), [(1, "delete"), (1, "compact,delete"), (3, "compact")])
def test_a_topic_that_would_lose_records_is_refused(
    backend: KafkaBackend, unique: Unique, partitions: int, policy: str
) -> None:
    topic = unique("catalog")
    backend.admin.create_topic(topic, partitions, None, {"cleanup.policy": policy})
    catalog = _catalog(backend, topic)
    with pytest.raises(FailedPrecondition, match="would lose or hide records"):
        catalog.topics()
    catalog.close()


def test_of_several_processes_at_once_each_change_is_seen_by_the_next(
    make_backend: MakeBackend, unique: Unique
) -> None:
    """Each writer adds its label to the record that it read; a lost update would lose a label."""
    topic = unique("catalog")
    catalogs = [_catalog(make_backend(), topic) for _ in range(4)]
    catalogs[0].put_topic(_record("a"), None)
    finished: list[int] = []

    def add_all(number: int) -> None:
        for label in range(3):
            _add(catalogs[number], f"{number}-{label}")
        finished.append(number)

    threads = [threading.Thread(target=add_all, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE * 3)
    assert sorted(finished) == [0, 1, 2, 3]
    expected = {f"{n}-{k}" for n in range(4) for k in range(3)}
    assert [set(catalog.topics()["a"].options.labels) for catalog in catalogs] == [expected] * 4
    for catalog in catalogs:
        catalog.close()


def _add(catalog: KafkaCatalog, label: str) -> None:
    while True:
        seen = catalog.topics()["a"]
        try:
            catalog.put_topic(_record("a", **{**seen.options.labels, label: "x"}), seen)
        except FailedPrecondition:
            continue
        return


def test_what_a_loser_wrote_is_never_seen(make_backend: MakeBackend, unique: Unique) -> None:
    topic = unique("catalog")
    one, other = _catalog(make_backend(), topic), _catalog(make_backend(), topic)
    one.put_topic(_record("a", by="one"), None)
    with pytest.raises(FailedPrecondition, match="changed by another client"):
        other.put_topic(_record("a", by="other"), None)
    with pytest.raises(FailedPrecondition, match="changed by another client"):
        other.remove_topic(_record("a", by="other"))
    assert dict(one.topics()) == dict(other.topics()) == {"a": _record("a", by="one")}
    other.remove_topic(_record("a", by="one"))
    assert dict(one.topics()) == {}
    one.close()
    other.close()


@pytest.mark.parametrize(
    "value",
    [
        b"\xff not JSON",
        b"{}",
        b"[]",
        b"null",
        _record("bad").model_dump_json().replace('"version":1', '"version":2').encode(),
        _record("bad").model_dump_json().replace('"adopted"', '"a_new_field"').encode(),
    ],
)
def test_a_record_that_cannot_be_read_hides_nothing_else(
    kafka: RunningKafka, backend: KafkaBackend, unique: Unique, value: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    topic = unique("catalog")
    catalog = _catalog(backend, topic)
    catalog.put_topic(_record("good"), None)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(topic, value, b"topic:bad", partition=0)
    producer.produce(topic, b"x", b"\xff\xfe", partition=0)
    producer.produce(topic, b"x", b"another-kind:c", partition=0)
    assert producer.flush(PATIENCE) == 0
    topics = catalog.topics()
    assert list(topics) == ["good"]
    assert len(topics) == 1
    assert "absent" not in topics
    with pytest.raises(FailedPrecondition, match="topic:bad"):
        topics.get("bad")
    with pytest.raises(FailedPrecondition, match="topic:bad"):
        catalog.put_topic(_record("bad"), None)
    catalog.put_topic(_record("good", still="works"), _record("good"))
    catalog.topics()
    assert sum("topic:bad" in line.getMessage() for line in caplog.records) == 1
    catalog.close()


def test_a_catalog_that_was_deleted_and_made_again_is_read_anew(
    backend: KafkaBackend, unique: Unique
) -> None:
    topic = unique("catalog")
    catalog = _catalog(backend, topic)
    catalog.put_topic(_record("a"), None)
    catalog.put_topic(_record("b"), None)
    assert sorted(catalog.topics()) == ["a", "b"]
    backend.admin.delete_topic(topic)
    # A busy broker answers from what it knew before for a moment after it has said that the topic is gone.
    until(lambda: dict(catalog.topics()) == {}, "an empty catalog")
    catalog.put_topic(_record("c"), None)
    assert dict(catalog.topics()) == {"c": _record("c")}
    catalog.close()
