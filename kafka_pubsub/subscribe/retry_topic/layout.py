"""The Kafka topics that a subscription reads, and the number that each of their partitions has in the core.

A topic with lanes is read as one: of each partition the topic's own Kafka topic, the lanes, and the retry topic of
each. Every lane has a view of the subscription, a record in which the lane is the topic. So the code that deals with a
topic and its retry topic deals with a lane in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from kafka_pubsub.config import LaneTopic, SubscriptionRecord, TopicRecord
from kafka_pubsub.errors import FailedPrecondition
from kafka_pubsub.lane_names import Lane
from kafka_pubsub.log.records import Record
from kafka_pubsub.model import Committed, StoredRecord, TopicPartition
from kafka_pubsub.partition_id import PartitionId
from kafka_pubsub.subscribe.partition.effects import CommitBoth
from kafka_pubsub.subscribe.retry_topic.retry_topics import retry_topic_of

__all__ = ["NO_LANE", "Layout", "by_number", "by_partition"]

#: Of messages of a topic without lanes.
NO_LANE = Lane(0, True)


class Layout:
    """The topics of one subscription. `topic`: the record of its topic; None: the topic has no lanes."""

    def __init__(
        self, record: SubscriptionRecord, topic: TopicRecord | None = None, retry: str | None = None
    ) -> None:
        self.record = record
        #: Each lane's view of the subscription, by `Lane.number`; 0: the topic itself.
        self.views: dict[int, SubscriptionRecord] = {0: record}
        self._retries: dict[int, str] = {0: retry_topic_of(record) if retry is None else retry}
        #: The lanes by index; empty if there is only the topic itself.
        self.lanes: dict[int, Lane] = {}
        rules = None if topic is None else topic.lane_rules
        self._default = Lane(rules.default, True) if rules is not None and rules.any else NO_LANE
        made = [] if topic is None else [each for each in topic.lanes if each.topic_id]
        if topic is not None and made:
            self.lanes[0] = self._default
            for each in made:
                index = each.lane.number
                self.lanes[index] = each.lane
                self.views[index] = view = _view(record, each)
                self._retries[index] = retry_topic_of(view)
        self._homes = {view.topic: index for index, view in self.views.items()}
        self._besides = {retry: index for index, retry in self._retries.items()}

    @property
    def laned(self) -> bool:
        """Whether it has more than the topic itself."""
        return bool(self.lanes)

    @property
    def identity(self) -> Sequence[tuple[str, str]]:
        """The ids of all topics and retry topics: a layout with others isn't the same."""
        return [(view.topic_id, _retry_id(view)) for _, view in sorted(self.views.items())]

    def extends(self, other: Layout) -> bool:
        """Returns whether it has all topics of another one."""
        return set(other.identity) <= set(self.identity)

    @property
    def topics(self) -> list[str]:
        """All topics and retry topics."""
        return [*self._homes, *self._besides]

    @property
    def retries(self) -> Iterable[str]:
        """The retry topics."""
        return self._besides.keys()

    def is_retry(self, topic: str | None) -> bool:
        """Returns whether this is a retry topic."""
        return topic in self._besides

    def lane(self, number: PartitionId) -> Lane:
        """Returns the lane of a number."""
        return self.lanes.get(number.lane, self._default)

    def number_in(self, lane: Lane, partition: int) -> PartitionId | None:
        """Returns the number of a partition of a lane; None: the layout doesn't have that lane."""
        index = 0 if lane == self._default else lane.number
        return PartitionId(index, partition) if index in self.views else None

    def topic_of(self, lane: Lane) -> str:
        """Returns the Kafka topic of a lane, whether the layout has it or not."""
        return self.record.topic + ("" if lane == self._default else lane.suffix)

    def view(self, number: PartitionId) -> SubscriptionRecord:
        """Returns the subscription as the lane of this number sees it."""
        return self.views[number.lane]

    def home(self, number: PartitionId) -> TopicPartition:
        """Returns the partition of a home topic."""
        return TopicPartition(self.views[number.lane].topic, number.partition)

    def beside(self, number: PartitionId) -> TopicPartition:
        """Returns the partition of the retry topic that belongs to it."""
        return TopicPartition(self._retries[number.lane], number.partition)

    def pair(self, number: PartitionId) -> tuple[TopicPartition, TopicPartition]:
        """Returns both."""
        return self.home(number), self.beside(number)

    def number(self, place: TopicPartition) -> PartitionId:
        """Returns the number of a partition of any of the topics."""
        index = self._homes.get(place.topic)
        return PartitionId(self._besides[place.topic] if index is None else index, place.partition)

    def numbers(self, partitions: Iterable[int]) -> list[PartitionId]:
        """Returns the numbers of these partitions in all lanes."""
        each_once = sorted(set(partitions))
        return [PartitionId(index, each) for index in sorted(self.views) for each in each_once]

    def places(self, partition: int) -> set[TopicPartition]:
        """Returns this partition of all topics."""
        return {TopicPartition(topic, partition) for topic in self.topics}

    def positions(self, number: PartitionId, commit: CommitBoth) -> dict[TopicPartition, Committed]:
        """Returns a commit of both partitions in the form that the log takes."""
        main, beside = self.pair(number)
        return {
            main: Committed(commit.offset, commit.metadata, commit.epoch),
            beside: Committed(*commit.retry),
        }

    def with_positions(
        self, record: SubscriptionRecord, homes: Mapping[PartitionId, int], retries: Mapping[PartitionId, int]
    ) -> SubscriptionRecord:
        """Returns the subscription's record with these positions, by number, where they are higher."""
        after = record
        for index, view in self.views.items():
            part = record if index == 0 else record.lanes.get(view.topic)
            if part is None:
                continue
            changes: dict[str, object] = {"positions": _highest(part.positions, homes, index)}
            if part.retry_topic is not None:
                beside = _highest(part.retry_topic.positions, retries, index)
                changes["retry_topic"] = part.retry_topic.model_copy(update={"positions": beside})
            if index:
                changes = {"lanes": {**after.lanes, view.topic: part.model_copy(update=changes)}}
            after = after.model_copy(update=changes)
        return after

    def by_view(self, places: Iterable[TopicPartition]) -> Mapping[int, list[TopicPartition]]:
        """Returns the places by the index of their lane."""
        found: dict[int, list[TopicPartition]] = {}
        for place in places:
            found.setdefault(self.number(place).lane, []).append(place)
        return found


def by_partition(records: Sequence[StoredRecord]) -> dict[PartitionId, list[Record]]:
    """Groups the records of a read of a single topic; a read is most often that, and this is faster."""
    batches: dict[int | None, list[StoredRecord]] = {}
    current: int | None = -1
    add = list[StoredRecord]().append
    for record in records:
        number = record.partition()
        if number != current:
            current = number
            add = batches.setdefault(number, []).append
        add(record)
    found = {PartitionId(0, number or 0): each for number, each in batches.items()}
    return cast("dict[PartitionId, list[Record]]", found)


def by_number(records: Sequence[StoredRecord], layout: Layout) -> dict[PartitionId, list[Record]]:
    """Groups the records of a read by the numbers that their partitions have in the core."""
    if not layout.laned:
        return by_partition(records)
    batches: dict[PartitionId, list[StoredRecord]] = {}
    topic, partition = None, None
    add = list[StoredRecord]().append
    for record in records:
        if record.partition() != partition or record.topic() != topic:
            topic, partition = record.topic(), record.partition()
            add = batches.setdefault(layout.number(TopicPartition(topic or "", partition or 0)), []).append
        add(record)
    return cast("dict[PartitionId, list[Record]]", batches)


def _highest(before: Mapping[int, int], positions: Mapping[PartitionId, int], index: int) -> dict[int, int]:
    newest = {**before}
    for number, offset in positions.items():
        if number.lane == index:
            partition = number.partition
            newest[partition] = max(offset, newest.get(partition, 0))
    return newest


def _view(record: SubscriptionRecord, lane: LaneTopic) -> SubscriptionRecord:
    part = record.lanes.get(lane.name)
    if part is None:
        raise FailedPrecondition(
            f"subscription {record.name!r} has no part of lane {lane.name!r} in the catalog: publish one message to "
            "that lane, which adds the part, then try again"
        )
    # A partition without a position is younger than the subscription, so it begins at 0.
    positions = {each: part.positions.get(each, 0) for each in range(record.partitions)}
    return record.model_copy(
        update={
            "topic": lane.name,
            "topic_id": lane.topic_id,
            "positions": positions,
            "retry_topic": part.retry_topic,
            "lanes": {},
        }
    )


def _retry_id(record: SubscriptionRecord) -> str:
    return "" if record.retry_topic is None else record.retry_topic.topic_id
