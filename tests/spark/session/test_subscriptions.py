"""A subscription's work, by its commits and topics; each contradiction is named, moving messages are not."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from kafka_pubsub.model import Committed, TopicPartition
from kafka_pubsub.subscribe.formats import ack_map
from kafka_pubsub.subscribe.formats.ack_map import AckMap
from kafka_pubsub.subscribe.formats.checkpoint import Named
from kafka_pubsub.subscribe.formats.record import NO_MESSAGES, Death, RetryInfo, Why, dead_headers, encode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HOME, AWAY, DEAD = "orders", "orders.sub.billing.retry", "orders.dead"
RECORDS = (
    "topic string, partition int, offset bigint, key binary, headers array<struct<key:string,value:binary>>"
)
SEEN = {TopicPartition(AWAY, 0): 100, TopicPartition(DEAD, 0): 100}


def commit(
    topic: str, offset: int, *runs: tuple[int, int], named: int | None = None
) -> dict[TopicPartition, Committed]:
    text = ack_map.encode(
        AckMap(5, tuple(runs), checkpoint=None if named is None else Named(named, 5), more=named is not None),
        offset,
    )
    return {TopicPartition(topic, 0): Committed(offset, text)}


class World:
    """A home topic of ten messages, of keys a and b in turn, and their outcomes."""

    def __init__(self, spark: SparkSession, commits: dict[TopicPartition, Committed]) -> None:
        self.spark = spark
        self.commits = commits
        self.away: list[tuple[Any, ...]] = []
        self.dead: list[tuple[Any, ...]] = []
        #: The contents of the checkpoint that the retry topic's commit names.
        self.told: dict[int, list[tuple[int, int]]] = {}

    def park(self, origin: int, offset: int, why: Why = Why.NACKED) -> None:
        headers = [("ps-retry", encode(RetryInfo("id", 0, origin, why=why)))]
        self.away.append((AWAY, 0, offset, self._key(origin), headers))

    def store_dead_letter(self, origin: int, offset: int, subscription: str = "billing") -> None:
        headers = dead_headers([], RetryInfo("id", 0, origin), Death(HOME, subscription, "exhausted"))
        self.dead.append((DEAD, 0, offset, self._key(origin), headers))

    def _key(self, offset: int) -> bytes:
        return b"ab"[offset % 2 :][:1]

    def home(self) -> DataFrame:
        from spark.audit.subscriptions import finished, positions

        rows = [(HOME, 0, offset, self._key(offset), None) for offset in range(10)]
        found = positions(self.spark, HOME, self.commits, {})
        return finished(self.spark.createDataFrame(rows, RECORDS), found)

    def findings(self, *, ordered: bool = True) -> list[tuple[str, int]]:
        from spark.audit.subscriptions import dead_letters, judged, parked, positions

        away = parked(
            self.spark.createDataFrame(self.away, RECORDS),
            positions(self.spark, AWAY, self.commits, {0: 0}, self.told),
            SEEN,
        )
        dead = dead_letters(self.spark.createDataFrame(self.dead, RECORDS), HOME, "billing", SEEN)
        found = judged(HOME, self.home(), away, dead, ordered=ordered).collect()
        return sorted((row.kind, row.offset) for row in found)


def test_finished_is_below_the_position_or_in_the_map(spark: SparkSession) -> None:
    world = World(spark, commit(HOME, 3, (5, 7)))
    rows = world.home().orderBy("offset").collect()
    assert [row.offset for row in rows if row.finished] == [0, 1, 2, 5, 6]
    nothing = World(spark, {})
    assert nothing.home().where("finished").count() == 0


def test_metadata_that_isn_t_ours_is_a_finding(spark: SparkSession) -> None:
    from spark.audit.subscriptions import positions, unreadable

    found = positions(spark, HOME, {TopicPartition(HOME, 0): Committed(4, "a stranger's")}, {})
    assert [each[:4] for each in unreadable(found)] == [("metadata", HOME, 0, -1)]


def test_a_true_world_has_no_findings(spark: SparkSession) -> None:
    world = World(spark, {**commit(HOME, 6), **commit(AWAY, 0, (1, 2))})
    world.park(4, 0)
    # Offset 1 of the retry topic is finished: that message was acked there.
    world.park(2, 1)
    world.store_dead_letter(0, 0)
    for offset, why in enumerate(sorted(NO_MESSAGES), start=5):
        world.park(1, offset, why)
        world.park(8, offset + 10, why)
    world.store_dead_letter(3, 1, subscription="another")
    assert world.findings() == []


@pytest.mark.parametrize(
    ("plant", "expected"),
    [
        (lambda world: (world.park(4, 0), world.park(4, 1)), ("parked twice", 4)),
        (lambda world: world.park(7, 0), ("two places", 7)),
        (lambda world: world.store_dead_letter(8, 0), ("two places", 8)),
        (lambda world: world.park(2, 0), ("overtaken", 4)),
    ],
    ids=["parked twice", "parked and at home", "dead and at home", "acked too early"],
)
def test_each_contradiction_is_named(spark: SparkSession, plant: Any, expected: tuple[str, int]) -> None:
    world = World(spark, commit(HOME, 6))
    plant(world)
    assert expected in world.findings()
    assert {kind for kind, _ in world.findings()} == {expected[0]}


def test_acked_past_an_unfinished_one_at_home(spark: SparkSession) -> None:
    # 2 isn't finished, 4 of its key is; 3 is, and 5 of its key too.
    world = World(spark, commit(HOME, 2, (3, 6)))
    assert world.findings() == [("overtaken", 4)]
    assert world.findings(ordered=False) == []


def test_what_moved_since_the_commits_were_read_is_no_finding(spark: SparkSession) -> None:
    world = World(spark, commit(HOME, 6))
    world.park(7, 200)
    world.store_dead_letter(8, 200)
    # 2 is parked, and 4 was parked behind it a moment ago: by the commits it looks acked.
    world.park(2, 0)
    world.park(4, 200)
    assert world.findings() == []


def test_what_is_replayed_comes_late_on_purpose(spark: SparkSession) -> None:
    world = World(spark, commit(HOME, 6))
    world.store_dead_letter(2, 0)
    world.park(2, 0, Why.REPLAYED)
    assert world.findings() == []


def test_what_a_checkpoint_tells_is_finished(spark: SparkSession) -> None:
    world = World(spark, {**commit(HOME, 6), **commit(AWAY, 0, (1, 2), named=9)})
    world.park(2, 0)
    world.park(2, 1)
    world.park(2, 2)
    world.park(4, 3)
    world.told = {0: [(0, 1), (2, 3)]}
    assert world.findings() == []
    world.told = {}
    assert ("parked twice", 2) in world.findings()


def test_a_checkpoint_that_no_commit_names_tells_nothing(spark: SparkSession) -> None:
    world = World(spark, {**commit(HOME, 6), **commit(AWAY, 0, (1, 2))})
    world.park(2, 0)
    world.park(2, 2)
    world.told = {0: [(0, 1)]}
    assert ("parked twice", 2) in world.findings()


def test_checkpoints_are_named_by_their_topic_s_commits(spark: SparkSession) -> None:
    from spark.audit.subscriptions import named_checkpoints

    commits = {**commit(HOME, 6), **commit(AWAY, 3, named=9)}
    commits[TopicPartition(AWAY, 1)] = Committed(4, "a stranger's")
    commits[TopicPartition(AWAY, 2)] = Committed(None, "")
    assert named_checkpoints(commits, [AWAY]) == {0: Named(9, 5)}
    assert named_checkpoints(commits, [HOME]) == {}


def test_runs_of_any_length_are_seen_at_their_edges(spark: SparkSession) -> None:
    from spark.audit.subscriptions import finished, positions

    told = [(255, 257), (1000, 1001), (1024, 2048), (3000, 9001)]
    found = positions(spark, AWAY, commit(AWAY, 10, named=20_000), {}, {0: told})
    offsets = spark.range(10_000).selectExpr(f"'{AWAY}' as topic", "0 as partition", "id as offset")
    done = {row.offset for row in finished(offsets, found).where("finished").collect()}
    assert done == {*range(10), *(at for start, end in told for at in range(start, end))}
    elsewhere = spark.range(10, 10_000).selectExpr("'another' as topic", "0 as partition", "id as offset")
    assert finished(elsewhere, found).where("finished").count() == 0


def test_fifty_thousand_runs_are_no_burden(spark: SparkSession) -> None:
    from spark.audit.subscriptions import finished, positions

    told = [(at, at + 1) for at in range(1, 100_000, 2)]
    found = positions(spark, AWAY, commit(AWAY, 0, named=200_000), {}, {0: told})
    offsets = spark.range(1_000_000).selectExpr(
        f"'{AWAY}' as topic", "0 as partition", "id % 100000 as offset"
    )
    began = time.monotonic()
    assert finished(offsets, found).where("finished").count() == 500_000
    # held against all of them it would take an hour
    assert time.monotonic() - began < 60


def test_a_plan_does_not_grow_with_the_partitions(spark: SparkSession) -> None:
    from spark.audit.subscriptions import dead_letters, parked, positions

    records = spark.createDataFrame([], RECORDS)

    def plans(partitions: int) -> int:
        ends = {TopicPartition(AWAY, number): 100 for number in range(partitions)}
        frames = [
            parked(records, positions(spark, AWAY, {}, {}), ends),
            dead_letters(records, HOME, "billing", ends),
        ]
        return sum(len(frame._jdf.queryExecution().analyzed().toString()) for frame in frames)

    # Names of columns have numbers, which have more digits the later they are made.
    assert plans(1000) < 1.5 * plans(1)
