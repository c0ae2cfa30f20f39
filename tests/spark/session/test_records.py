"""Spark reads records of confluent-kafka's serializer and of ours, by a registry and by a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from kafka_pubsub import PubSub, TopicSchema
from kafka_pubsub.local.pytest_plugin import RunningKafka

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ONE: dict[str, Any] = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
#: A later version of it.
TWO = {**ONE, "fields": [*ONE["fields"], {"name": "note", "type": "string", "default": "-"}]}
PATIENCE = 60


def rows_of(frame: DataFrame) -> list[tuple[int, str, str]]:
    """The id, the note, and what is known of its schema, of each message."""
    rows = frame.select("record.id", "record.note", "schema_id", "problem").orderBy("id").collect()
    assert [row.problem for row in rows] == [None] * len(rows)
    return [(row.id, row.note, str(row.schema_id)) for row in rows]


def test_both_serializers_and_both_framings(
    spark: SparkSession, kafka: RunningKafka, registry: str, name: str
) -> None:
    from spark import decoded, messages, registered

    bare = f"{name}-bare"
    with SchemaRegistryClient({"url": registry, "timeout": 30}) as client:
        theirs = AvroSerializer(client, json.dumps(ONE))
        body = theirs({"id": 1}, SerializationContext(name, MessageField.VALUE))
        producer = Producer({"bootstrap.servers": kafka.bootstrap})
        with PubSub(kafka.bootstrap, schemas={"url": registry, "timeout": 30}) as ps:
            topic = ps.create_topic(name, partitions=1, schema=f"{name}-value")
            producer.produce(name, body, key=b"k")
            producer.flush(PATIENCE)
            topic.publish_record({"id": 2}).result(PATIENCE)
            AvroSerializer(client, json.dumps(TWO))({"id": 0}, SerializationContext(name, MessageField.VALUE))
            ps.update_topic(name, schema=f"{name}-value")
            topic.publish_record({"id": 3, "note": "new"}).result(PATIENCE)
            schema = TopicSchema(subject=f"{name}-value", framing="header")
            ps.create_topic(bare, partitions=1, schema=schema).publish_record({"id": 4}).result(PATIENCE)

    writers = registered(registry, f"{name}-value")
    (first, second) = map(str, sorted(writers))

    def read(topic: str, framing: Any) -> list[tuple[int, str, str]]:
        found = messages(spark, topic, bootstrap=kafka.bootstrap)
        return rows_of(decoded(found, json.dumps(TWO), framing=framing, writers=writers))

    assert read(name, "confluent") == [(1, "-", first), (2, "-", first), (3, "new", second)]
    assert read(bare, "header") == [(4, "-", second)]


def test_a_folder(spark: SparkSession, kafka: RunningKafka, name: str, tmp_path: Path) -> None:
    from spark import decoded, messages, schemas_in

    (tmp_path / name).mkdir()
    (tmp_path / name / "v1.avsc").write_text(json.dumps(ONE))
    with PubSub(kafka.bootstrap, schemas=tmp_path) as ps:
        ps.create_topic(name, partitions=1, schema=name).publish_record({"id": 1}).result(PATIENCE)
    (tmp_path / name / "v2.avsc").write_text(json.dumps(TWO))
    with PubSub(kafka.bootstrap, schemas=tmp_path) as ps:
        ps.topic(name).publish_record({"id": 2, "note": "new"}).result(PATIENCE)
    found = messages(spark, name, bootstrap=kafka.bootstrap)
    writers = schemas_in(tmp_path, name)
    assert rows_of(decoded(found, json.dumps(TWO), framing="header", writers=writers)) == [
        (1, "-", f"{name}/1"),
        (2, "new", f"{name}/2"),
    ]
