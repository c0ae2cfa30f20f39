"""The `Admin` port for the in-memory Kafka: topics and groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafka_pubsub.errors import FailedPrecondition, InvalidArgument, NotFound
from kafka_pubsub.log.memory import groups
from kafka_pubsub.log.memory.cluster import MemoryCluster
from kafka_pubsub.log.memory.faults import FaultPlan
from kafka_pubsub.log.ports import Admin
from kafka_pubsub.model import Committed, TopicInfo, TopicPartition

__all__ = ["MemoryAdmin"]

#: Seconds to wait for an open transaction, as in Kafka's adapter.
_PATIENCE = 15.0


class MemoryAdmin(Admin):
    """An `Admin` in memory. It takes any replication and stores one copy of each record."""

    def __init__(self, cluster: MemoryCluster, faults: FaultPlan) -> None:
        self._cluster = cluster
        self._faults = faults

    def create_topic(
        self, name: str, partitions: int, replication: int | None, config: Mapping[str, str]
    ) -> TopicInfo:
        """Makes a topic; raises `AlreadyExists` if it exists."""
        self._may("create_topic", name)
        with self._cluster.change():
            return self._cluster.create(name, partitions, replication or 1, config)

    def delete_topic(self, name: str) -> None:
        """Deletes a topic; raises `NotFound` if there is none."""
        self._may("delete_topic", name)
        with self._cluster.change():
            self._cluster.delete(name)

    def topic(self, name: str) -> TopicInfo:
        """Returns the topic as it is now; raises `NotFound` if there is none."""
        self._may("topic", name)
        with self._cluster.changed:
            return self._cluster.info(name)

    def update_topic(self, name: str, config: Mapping[str, str | None]) -> None:
        """Changes settings; None restores the default."""
        self._may("update_topic", name)
        with self._cluster.change():
            self._cluster.configure(name, config)

    def add_partitions(self, name: str, total: int) -> TopicInfo:
        """Raises the topic's number of partitions to `total`."""
        self._may("add_partitions", name)
        self._cluster.add_partitions(name, total)
        with self._cluster.changed:
            return self._cluster.info(name)

    def trim(self, topic: str, before: Mapping[int, int]) -> None:
        """Deletes the records below an offset of each partition; an offset below the log's start changes nothing."""
        self._may("trim", topic)
        with self._cluster.change():
            for partition, offset in before.items():
                log = self._cluster.log(TopicPartition(topic, partition))
                if offset < 0:
                    raise InvalidArgument(f"before[{partition}]: {offset} isn't an offset")
                if offset > log.end:
                    raise FailedPrecondition(f"{topic}[{partition}] ends at {log.end}, {offset} is beyond it")
                log.truncate(offset)

    def cluster_id(self) -> str:
        """Returns the same for each cluster in memory."""
        return "memory"

    def topic_names(self) -> Sequence[str]:
        """Returns the names of all topics."""
        self._may("topic_names", "")
        with self._cluster.changed:
            return self._cluster.names()

    def topic_ids(self, names: Sequence[str]) -> Mapping[str, str]:
        """Returns the ids of the topics that there are."""
        self._may("topic_ids", "")
        with self._cluster.changed:
            there = set(self._cluster.names())
            return {name: self._cluster.info(name).topic_id for name in names if name in there}

    def last_stable_offsets(self, topic: str) -> Mapping[int, int]:
        """Returns for each partition the offset up to which a committed reader can read now."""
        self._may("last_stable_offsets", topic)
        with self._cluster.changed:
            count = self._cluster.info(topic).partitions
            logs = [self._cluster.log(TopicPartition(topic, number)) for number in range(count)]
            return {log.partition: log.stable_end for log in logs}

    def offsets_at(self, topic: str, milliseconds: int) -> Mapping[int, int]:
        """Returns the first offset of each partition with this timestamp or a later one; leaves out those without."""
        self._may("offsets_at", topic)
        with self._cluster.changed:
            count = self._cluster.info(topic).partitions
            logs = [self._cluster.log(TopicPartition(topic, number)) for number in range(count)]
            found = {log.partition: log.first_at(milliseconds) for log in logs}
            return {number: offset for number, offset in found.items() if offset is not None}

    def readable_ends(self, places: Sequence[TopicPartition], timeout: float) -> Mapping[TopicPartition, int]:
        """Returns the ends for a committed reader; leaves out those that are gone or have no leader."""
        self._may("readable_ends", "")
        near = [place for place in places if self._faults.away(place) is None]
        with self._cluster.changed:
            names = set(self._cluster.names())
            return {place: self._cluster.log(place).stable_end for place in near if place.topic in names}

    def set_positions(self, group: str, positions: Mapping[TopicPartition, int | Committed]) -> None:
        """Commits for a group in one request; raises `FailedPrecondition` if the group has members."""
        self._may("set_positions", group)
        with self._cluster.change():
            entry = self._cluster.group(group)
            if entry.members:
                raise FailedPrecondition(f"group {group} has {len(entry.members)} members: close them first")
            wanted = {at: Committed(to, "") if isinstance(to, int) else to for at, to in positions.items()}
            for partition, value in wanted.items():
                problem = entry.problem(partition, value)
                if problem is not None:
                    raise problem
            for partition, value in wanted.items():
                entry.store(partition, value)

    def high_watermarks(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Returns the next offset to be written of each, open transactions included."""
        self._may("high_watermarks", "")
        with self._cluster.changed:
            return {partition: self._cluster.log(partition).end for partition in partitions}

    def log_range(self, partition: TopicPartition) -> tuple[int, int]:
        """Returns the first stored offset, and the next one to be written."""
        self._may("log_range", partition.topic)
        return self._ranges([partition])[partition]

    def log_ranges(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, tuple[int, int]]:
        """Returns the ranges of many partitions."""
        self._may("log_ranges", "")
        return self._ranges(partitions)

    def _ranges(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, tuple[int, int]]:
        with self._cluster.changed:
            logs = {partition: self._cluster.log(partition) for partition in partitions}
            return {partition: (log.start, log.end) for partition, log in logs.items()}

    def group_offsets(self, group: str, topic: str) -> Mapping[int, Committed]:
        """Returns what the group has committed in the topic; empty if nothing, or if there is no such group."""
        self._may("group_offsets", group)
        with self._cluster.changed:
            stored = self._cluster.stored(group, None, _PATIENCE) if self._cluster.has_group(group) else {}
            return {at.partition: value for at, value in sorted(stored.items()) if at.topic == topic}

    def unstable_offsets(
        self, group: str, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, Committed]:
        """Returns the commits of the group, without the transactions that are open now."""
        self._may("unstable_offsets", group)
        with self._cluster.changed:
            there = self._cluster.has_group(group)
            stored = self._cluster.group(group).offsets if there else {}
            return {each: stored.get(each, Committed(None, "")) for each in partitions}

    def group_positions(
        self, group: str, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, Committed]:
        """Returns what the group has committed in partitions of any topics."""
        self._may("group_positions", group)
        with self._cluster.changed:
            if not self._cluster.has_group(group):
                return {}
            stored = self._cluster.stored(group, partitions, _PATIENCE)
            return {place: stored[place] for place in partitions if place in stored}

    def group_members(self, group: str) -> int:
        """Returns how many members the group has now; 0 if it doesn't exist."""
        self._may("group_members", group)
        with self._cluster.changed:
            return len(self._cluster.group(group).members) if self._cluster.has_group(group) else 0

    def groups(self) -> Mapping[str, bool]:
        """Returns all groups; of each, whether it has members now."""
        self._may("groups", "")
        with self._cluster.changed:
            names = self._cluster.group_names()
            return {name: len(self._cluster.group(name).members) > 0 for name in names}

    def member_hosts(self, group: str, listed: Mapping[str, bool] | None = None) -> Sequence[str]:
        """Returns this process's host for each member that the group has now."""
        return ["localhost"] * self.group_members(group)

    def has_members(self, group: str) -> bool:
        """Returns whether the group has members now."""
        return self.group_members(group) > 0

    def delete_group(self, group: str) -> None:
        """Deletes a group with its positions; raises `NotFound`, or `FailedPrecondition` while it has members."""
        self._may("delete_group", group)
        with self._cluster.change():
            if not self._cluster.has_group(group):
                raise NotFound(f"no group {group} in this cluster")
            members = self._cluster.group(group).members
            if members:
                raise FailedPrecondition(f"group {group} has {len(members)} members: close them first")
            self._cluster.delete_group(group)

    def metadata_limit(self) -> int | None:
        """Returns the limit of a broker with default settings."""
        return groups.METADATA_LIMIT + 1

    def close(self) -> None:
        """Does nothing: there is no connection."""

    def _may(self, operation: str, name: str) -> None:
        error = self._faults.request(operation, name)
        if error is not None:
            raise error
