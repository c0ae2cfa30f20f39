"""The table of delayed messages: Spark and the client name the same waiting messages, wherever they wait."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient

from kafka_pubsub import DelayRouter, FailedPrecondition, PubSub
from kafka_pubsub.delays import records as delays
from kafka_pubsub.delays.layout import GROUP, INGEST, tier_topic
from kafka_pubsub.delays.progress import IngestProgress, Progress
from kafka_pubsub.model import Header
from tests.support import until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Partitions of the random logs, each of which is a case of its own.
CASES = 12


class Seen(NamedTuple):
    """The fields that both give of a message."""

    message_id: str
    topic: str
    ordering_key: str | None
    due: datetime | None
    tier: int | None
    size: int


def seen_by_spark(table: DataFrame) -> Counter[Seen]:
    # As a number, because a row's time is in the zone of this process.
    rows = table.selectExpr("*", "unix_millis(deliver_at) AS ms", "octet_length(data) AS size").collect()
    return Counter(
        Seen(row.message_id, row.topic, row.ordering_key, moment(row.ms), row.tier, row["size"])
        for row in rows
    )


def seen_by_client(ps: PubSub) -> Counter[Seen]:
    return Counter(
        Seen(each.id, each.topic, each.ordering_key, each.due, each.tier, each.size)
        for each in ps.delays.waiting()
    )


def moment(milliseconds: int | None) -> datetime | None:
    if milliseconds is None:
        return None
    return datetime(1970, 1, 1, tzinfo=UTC) + milliseconds * timedelta(milliseconds=1)


def test_messages_in_tiers_in_ingest_and_cancelled(spark: SparkSession, broker: str) -> None:
    from spark import waiting

    table = waiting(spark, bootstrap=broker)
    assert (table.count(), table.columns[:2]) == (0, ["message_id", "topic"]), "no topics were made yet"
    with PubSub(broker) as ps:
        topic = ps.create_topic("orders", partitions=2)
        due = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
        with DelayRouter(ps, tiers=12, partitions=3) as router:
            assert waiting(spark, bootstrap=broker).count() == 0, "nothing was delayed yet"
            attributes = {"a": "1", "b": "ü"}
            named = topic.publish(b"x", ordering_key="ann", attributes=attributes, deliver_at=due).result(30)
            plain = topic.publish(b"yy", delay=700).result(30)
            gone = topic.publish(b"zzz", ordering_key="ann", delay=3000).result(30)
            topic.publish(b"home", delay=0.2).result(30)
            assert topic.cancel(gone, timeout=60)
            until(lambda: router.metrics().get("hops", 0) >= 4 and router.metrics().get("home", 0) == 1)
        alone = topic.publish(b"no router", ordering_key="bob", delay=5).result(30)
        dated = topic.publish(b"no router", deliver_at=due).result(30)
        table = waiting(spark, bootstrap=broker)
        found = seen_by_spark(table)
        assert found == seen_by_client(ps)
        rows = {row.message_id: row for row in table.collect()}
        assert rows.keys() == {named, plain, alone, dated}
        first = rows[named]
        assert (first.topic, first.ordering_key, bytes(first.data)) == ("orders", "ann", b"x")
        assert (first.attributes, first.tier) == (attributes, 11)
        assert (rows[plain].tier, rows[plain].ordering_key, rows[plain].attributes) == (9, None, {})
        assert (rows[alone].tier, rows[alone].ordering_key) == (None, "bob")
        assert rows[alone].deliver_at is not None, "its delay has begun without a router"
        assert f"{INGEST}:{rows[alone].partition}:{rows[alone].offset}" == alone
        assert topic.cancel(named), "the answer needs no router"
        found = seen_by_spark(waiting(spark, bootstrap=broker))
        assert found == seen_by_client(ps)
        assert named not in {each.message_id for each in found}


def test_a_delayed_message_is_in_its_home_table_when_it_is_due_and_not_before(
    spark: SparkSession, broker: str
) -> None:
    from spark import messages, waiting

    def at_home() -> list[Any]:
        table = messages(spark, "orders", bootstrap=broker)
        return table.selectExpr("*", "unix_millis(publish_time) AS ms").collect()

    with PubSub(broker) as ps:
        make_topics(ps, 12, 1)
        topic = ps.create_topic("orders", partitions=1)
        began = datetime.now(UTC)
        soon = topic.publish(b"soon", ordering_key="ann", delay=1.5).result(30)
        late = topic.publish(b"late", ordering_key="ann", delay=3600).result(30)
        assert at_home() == []
        with DelayRouter(ps) as router:
            until(lambda: router.metrics().get("home", 0) == 1)
            (row,) = at_home()
            (left,) = waiting(spark, bootstrap=broker).collect()
        assert (row.message_id, row.ordering_key, bytes(row.data)) == (soon, "ann", b"soon")
        due = moment(row.ms)
        assert due is not None
        assert due >= began + timedelta(seconds=1.499)
        assert left.message_id == late


class Log:
    """Writes records of the delay topics as routers and publishers do, and commits for the routers."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap})
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    def write(
        self,
        topic: str,
        partition: int,
        headers: Sequence[Header],
        value: bytes = b"body",
        key: bytes | None = None,
    ) -> None:
        self._producer.produce(topic, value, key, partition, headers=[*headers])

    def flush(self) -> None:
        assert self._producer.flush(60) == 0

    def commit(self, topic: str, partition: int, offset: int, text: str) -> None:
        place = KafkaPartition(topic, partition, offset, metadata=text)
        answers = self._consumer.commit(offsets=[place], asynchronous=False)
        assert [each.error for each in answers or ()] == [None]

    def trim(self, topic: str, partition: int, before: int) -> None:
        (future,) = self._admin.delete_records([KafkaPartition(topic, partition, before)]).values()
        future.result(30)

    def close(self) -> None:
        self._consumer.close()


@pytest.fixture
def log(broker: str) -> Iterator[Log]:
    written = Log(broker)
    yield written
    written.close()


def make_topics(ps: PubSub, tiers: int, partitions: int) -> None:
    """As the first router does it."""
    ps._cluster.delay_topics.make(tiers, partitions)


class RandomLogs:
    """A single partition of all delay topics, with times of a few seconds, so that much happens at the same time."""

    def __init__(self, log: Log, number: int) -> None:
        self._log, self._number, self._choose = log, number, random.Random(number)
        # Brokers stamp records of ingest: a message that is due soon after that rests in a router's memory.
        self._now = int(time.time() * 1000)

    def write(self) -> None:
        for tier in range(3):
            for _ in range(25):
                self._write_delayed(tier_topic(tier))
        for offset in range(60):
            self._write_ingest(offset)

    def commit(self) -> None:
        offset = self._choose.randrange(60)
        mark = self._due(offset), offset
        for topic, most in (*((tier_topic(tier), 25) for tier in range(3)), (INGEST, 60)):
            position = self._choose.randrange(most // 2)
            handled = self._choose.randrange(position, most)
            if topic == INGEST:
                text = IngestProgress(
                    position, handled, mark, self._now + self._choose.randrange(4) * 250
                ).text("a router")
            else:
                text = Progress(position, handled).text()
            if self._number % 4:
                self._log.commit(topic, self._number, position, text if self._number % 4 > 1 else "")

    def _due(self, offset: int) -> int:
        """When the message of this offset is due; few times, so that several are due at once."""
        return self._now + (offset * 7 + self._choose.choice([0, 0, 0, 1])) % 20 * 250

    def _write_ingest(self, offset: int) -> None:
        choose, due = self._choose, self._due(offset)
        kind = choose.choice(["due", "delay", "delay", "tick", "tick", "cancel", "rubbish"])
        headers: list[Header] = [("user", b"1")]
        value = b"x" * choose.randrange(5)
        if kind == "tick":
            headers, value = [delays.TICK_HEADER], choose.choice([b"", b"\x80"])
        elif kind == "cancel":
            target = choose.randrange(60)
            cancel = delays.encode_cancel(delays.DelayCancel(self._due(target), target))
            headers = [(delays.CANCEL_HEADER, cancel)]
        elif kind == "rubbish":
            headers = self._rubbish()
        else:
            request = delays.DelayRequest(
                "orders", due if kind == "due" else None, due - self._now if kind == "delay" else None
            )
            headers = [(delays.DELAY_HEADER, delays.encode_request(request)), *headers]
        self._log.write(INGEST, self._number, headers, value, choose.choice([None, b"orders\0ann"]))

    def _write_delayed(self, topic: str) -> None:
        choose, offset = self._choose, self._choose.randrange(60)
        due = self._due(offset)
        kind = choose.choice(["delayed"] * 8 + ["cancel", "rubbish"])
        if kind == "cancel":
            headers: list[Header] = [
                (delays.CANCEL_HEADER, delays.encode_cancel(delays.DelayCancel(due, offset, 3)))
            ]
        elif kind == "rubbish":
            headers = self._rubbish()
        else:
            said = delays.Delayed("orders", due, due, choose.choice([0, 0, 0, 1, 3]), offset)
            headers = [(delays.DELAY_HEADER, delays.encode_delayed(said)), ("user", b"1")]
            if choose.random() < 0.3:
                cancel = delays.DelayCancel(due, offset, choose.randrange(60))
                self._log.write(topic, self._number, [(delays.CANCEL_HEADER, delays.encode_cancel(cancel))])
        self._log.write(topic, self._number, headers, b"y" * choose.randrange(5), b"orders\0")

    def _rubbish(self) -> list[Header]:
        good = delays.encode_delayed(delays.Delayed("orders", 9, 9, 0, 1))
        header = self._choose.choice(
            [b"", None, b"abc", bytes([9]) + good[1:], good[:-1] + bytes([good[-1] ^ 1])]
        )
        return self._choose.choice([[], [(delays.DELAY_HEADER, header)], [(delays.CANCEL_HEADER, header)]])


def test_any_logs_and_commits_say_the_same_to_spark_and_to_the_client(
    spark: SparkSession, broker: str, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spark import waiting

    with PubSub(broker) as ps:
        make_topics(ps, 3, CASES)
        cases = [RandomLogs(log, number) for number in range(CASES)]
        for each in cases:
            each.write()
        log.flush()
        for each in cases:
            each.commit()
        expected = seen_by_client(ps)
        assert len(expected) > 5 * CASES
        assert {each.tier for each in expected} == {None, 0, 1, 2}
        assert seen_by_spark(waiting(spark, bootstrap=broker)) == expected
        # Without spark-avro the executors' Python decodes.
        monkeypatch.setattr("spark.reading.avro._has_spark_avro", lambda spark: False)
        assert seen_by_spark(waiting(spark, bootstrap=broker)) == expected


def test_a_message_that_hops_and_is_deleted_while_spark_reads_is_found_where_it_waits_then(
    spark: SparkSession, broker: str, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    import spark.reading.waiting as ours
    from spark.reading import messages

    with PubSub(broker) as ps:
        make_topics(ps, 4, 1)
    due = 4_000_000_000_000

    def write(tier: int, left: int) -> None:
        said = delays.Delayed("orders", due, due - left * 1000, left, 7)
        log.write(tier_topic(tier), 0, [(delays.DELAY_HEADER, delays.encode_delayed(said))])
        log.flush()

    write(3, 2)
    read = messages.raw_records
    calls: list[Any] = []

    def read_late(*arguments: Any, **more: Any) -> DataFrame:
        calls.append(more["ending"])
        if len(calls) == 1:
            write(1, 0)
            log.trim(tier_topic(3), 0, 1)
        return read(*arguments, **more)

    monkeypatch.setattr(ours, "raw_records", read_late)
    (row,) = ours.waiting(spark, bootstrap=broker).collect()
    assert (row.message_id, row.tier, row.offset) == (f"{INGEST}:0:7", 1, 0)
    assert calls[1] == {tier_topic(1): {0: 1}}, "the second look reads only what was written meanwhile"
    (row,) = ours.waiting(spark, bootstrap=broker).collect()
    assert (row.tier, len(calls)) == (1, 3), "nothing was deleted meanwhile, so one look is enough"


def test_the_rows_stay_as_they_were_read(spark: SparkSession, broker: str) -> None:
    from spark import waiting

    with PubSub(broker) as ps:
        make_topics(ps, 2, 1)
        topic = ps.create_topic("orders", partitions=1)
        published = topic.publish(b"x", delay=0.1).result(30)
        table = waiting(spark, bootstrap=broker)
        with DelayRouter(ps) as router:
            until(lambda: router.metrics().get("home", 0) == 1)
        (place,) = ((row.partition, row.offset) for row in table.collect())
        log = Log(broker)
        log.trim(INGEST, place[0], place[1] + 1)
        log.close()
        assert [row.message_id for row in table.collect()] == [published]
        assert waiting(spark, bootstrap=broker).collect() == []


def test_a_commit_of_another_program_is_refused(spark: SparkSession, broker: str, log: Log) -> None:
    from spark import waiting

    with PubSub(broker) as ps:
        make_topics(ps, 2, 1)
    log.write(INGEST, 0, [])
    log.flush()
    log.commit(INGEST, 0, 0, "not a router's")
    with pytest.raises(FailedPrecondition, match="isn't one of a router's"):
        waiting(spark, bootstrap=broker)
