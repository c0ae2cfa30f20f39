"""Reorders, gaps and duplicates: each is named where it lies, and nothing else is."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from kafka_pubsub import InvalidArgument
from kafka_pubsub.log.partitioner import partition_of
from kafka_pubsub.model import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NUMBERED = "topic string, partition int, offset bigint, key binary, number bigint"
MESSAGES = (
    "topic string, partition int, offset bigint, key binary, data binary, "
    "headers array<struct<key:string,value:binary>>"
)


def find(frame: DataFrame, first: int | None = None) -> list[tuple[str, int, str]]:
    from spark.audit.order import out_of_order

    return sorted((row.kind, row.offset, row.said) for row in out_of_order(frame, first=first).collect())


def log(spark: SparkSession, numbers: list[int | None], key: bytes = b"k") -> DataFrame:
    rows = [("t", 0, offset, key, number) for offset, number in enumerate(numbers)]
    return spark.createDataFrame(rows, NUMBERED)


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ([1, 2, 3, 4], []),
        ([7, 8, 9], []),
        ([1, 3, 2, 4], [("reorder", 2, "number 2 comes after 3")]),
        ([1, 2, 5, 6], [("gap", 2, "numbers 3 to 4 are missing")]),
        ([1, 2, 2, 3], [("duplicate", 2, "number 2 comes twice")]),
        ([1, 2, 3, 1, 2, 3, 4], [("duplicate", 3 + n, f"number {n + 1} comes twice") for n in range(3)]),
        ([3, 1, 2], [("reorder", 1, "number 1 comes after 3"), ("reorder", 2, "number 2 comes after 3")]),
        ([1, None, 2], [("unnumbered", 1, "has no number")]),
        (
            [2, 1, 1, 4],
            [
                ("duplicate", 2, "number 1 comes twice"),
                ("gap", 3, "numbers 3 to 3 are missing"),
                ("reorder", 1, "number 1 comes after 2"),
            ],
        ),
    ],
    ids=str,
)
def test_one_key(spark: SparkSession, numbers: list[int | None], expected: list[Any]) -> None:
    assert find(log(spark, numbers)) == expected


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ([1, 2], []),
        ([0, 1, 2], []),
        ([2, 1], [("reorder", 1, "number 1 comes after 2")]),
        ([3, 4], [("gap", 0, "numbers 1 to 2 are missing")]),
        (
            [None, 4, 2],
            [
                ("gap", 1, "numbers 3 to 3 are missing"),
                ("gap", 2, "numbers 1 to 1 are missing"),
                ("reorder", 2, "number 2 comes after 4"),
                ("unnumbered", 0, "has no number"),
            ],
        ),
    ],
    ids=str,
)
def test_one_key_whose_numbers_begin_with_one(
    spark: SparkSession, numbers: list[int | None], expected: list[Any]
) -> None:
    assert find(log(spark, numbers), 1) == expected


def test_keys_don_t_know_each_other_and_three_plants_are_found_among_many(spark: SparkSession) -> None:
    dice = random.Random(3)
    rows: list[tuple[Any, ...]] = []
    for key in range(50):
        rows += [("t", key % 4, 0, f"k{key}".encode(), number) for number in range(1, 41)]
    order = list(range(50)) * 40
    dice.shuffle(order)
    queues = {key: rows[key * 40 : key * 40 + 40] for key in range(50)}
    mixed = [queues[key].pop(0) for key in order]
    clean = [
        (topic, partition, offset, key, number)
        for offset, (topic, partition, _, key, number) in enumerate(mixed)
    ]
    assert find(spark.createDataFrame(clean, NUMBERED)) == []

    def at(key: bytes, number: int) -> int:
        return next(n for n, row in enumerate(clean) if row[3:] == (key, number))

    planted = list(clean)
    first, second = at(b"k7", 10), at(b"k7", 11)
    planted[first], planted[second] = ((*clean[first][:4], 11), (*clean[second][:4], 10))
    planted.append(("t", 0, 5000, b"k9", 20))
    del planted[at(b"k3", 30)]
    found = find(spark.createDataFrame(planted, NUMBERED))
    assert [(kind, said) for kind, _, said in found] == [
        ("duplicate", "number 20 comes twice"),
        ("gap", "numbers 30 to 30 are missing"),
        ("reorder", "number 10 comes after 11"),
    ]


def test_a_number_is_any_expression_and_a_wrong_one_is_said(spark: SparkSession) -> None:
    from spark.audit.order import numbered

    frame = spark.createDataFrame(
        [("t", 0, 0, b"k", b'{"n": 5}', None), ("t", 0, 1, b"k", b"x", None)], MESSAGES
    )
    found = numbered(frame, "get_json_object(cast(data as string), '$.n')").orderBy("offset").collect()
    assert [row.number for row in found] == [5, None]
    with pytest.raises(InvalidArgument, match="sequence 'nonsense' isn't an expression"):
        numbered(frame, "nonsense")


def test_keys_that_are_split_or_lie_where_publishing_does_not_put_them(spark: SparkSession) -> None:
    from spark.audit.order import keys_out_of_place

    home = {key: partition_of(key, 3) for key in (b"a", b"b", b"c")}
    elsewhere = (home[b"c"] + 1) % 3
    rows = [
        ("t", 0, 5, b"a", 1),
        ("t", 2, 7, b"a", 2),
        ("t", home[b"b"], 1, b"b", 1),
        ("t", elsewhere, 1, b"c", 1),
        ("t", 0, 1, None, 1),
        ("t", 1, 2, None, 1),
    ]
    found = keys_out_of_place(spark.createDataFrame(rows, NUMBERED), 3).collect()
    assert sorted((bytes(row.key), row.kind, row.said) for row in found) == [
        (b"a", "split", "lies in partitions 0, 2"),
        (b"c", "misplaced", f"lies in partition {elsewhere}, publishing puts it into {home[b'c']}"),
    ]


def test_the_expression_and_the_publisher_agree_on_the_partition_of_every_key(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    from spark.audit import partitioner

    keys = [bytes(random.Random(number).randbytes(number % 41)) for number in range(2000)]
    frame = spark.createDataFrame([(key,) for key in keys], "key binary")
    for partitions in (1, 7, 1000):
        told = frame.select("key", partitioner.partition_of(F.col("key"), partitions).alias("told")).collect()
        assert [row.told for row in told] == [partition_of(bytes(row.key), partitions) for row in told]


def test_an_archive_that_isn_t_the_log(spark: SparkSession) -> None:
    from spark.archive.blocks import compared, within

    def message(offset: int, body: str) -> tuple[Any, ...]:
        return ("t", 0, offset, b"k", body.encode(), [("h", b"1")])

    log = [message(offset, f"m{offset}") for offset in range(25_000)]
    kept = list(log)
    assert (
        compared(spark.createDataFrame(log, MESSAGES), spark.createDataFrame(kept, MESSAGES)).collect() == []
    )
    kept[7], kept[8] = message(7, "m8"), message(8, "m7")
    kept[12_000] = message(12_000, "other")
    kept.append(message(20_001, "m20001"))
    kept.append(message(90_000, "more"))
    del kept[100]
    found = compared(spark.createDataFrame(log, MESSAGES), spark.createDataFrame(kept, MESSAGES)).collect()
    assert sorted((row.offset, row.kind, row.said) for row in found) == [
        (7, "reorder", "holds the message that was published at 8"),
        (8, "reorder", "holds the message that was published at 7"),
        (100, "gap", "isn't in the archive"),
        (12_000, "altered", "holds other bytes"),
        (20_001, "duplicate", "is there 2 times"),
        (90_000, "foreign", "the log has no such message"),
    ]
    ranges = {TopicPartition("t", 0): (9, 12_000)}
    some = compared(
        within(spark.createDataFrame(log, MESSAGES), ranges),
        within(spark.createDataFrame(kept, MESSAGES), ranges),
    )
    assert [row.offset for row in some.collect()] == [100]
