"""The state of the in-memory Kafka: topics, logs, groups, and the catalog's records.

One lock, `changed`, guards the whole state. Every change notifies it, and a thread that waits for records, a rebalance
or a report waits on it. No user code (listeners, reports, fault plans) runs under the lock.

Several backends over one cluster behave like several processes over one Kafka.

The methods under "What the world does" are for tests: they do what a real cluster does by itself (retention,
compaction, markers, forgotten offsets), at a time that the test chooses.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

from kafka_pubsub.errors import AlreadyExists, DeadlineExceeded, InvalidArgument, NotFound, PubSubError
from kafka_pubsub.log.memory.clock import Clock, SystemClock, VirtualClock
from kafka_pubsub.log.memory.groups import Group
from kafka_pubsub.log.memory.log import PartitionLog
from kafka_pubsub.log.memory.record import MemoryRecord
from kafka_pubsub.log.memory.schedule import Later
from kafka_pubsub.log.memory.transaction_log import TransactionLog
from kafka_pubsub.model import Committed, Header, TopicInfo, TopicPartition

__all__ = ["MemoryCluster", "refusal"]

#: A broker's default `max.message.bytes`: 1 MiB and the overhead of a batch.
_MAX_MESSAGE_BYTES = 1_048_588

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class _Topic:
    __slots__ = ("config", "id", "logs", "name", "replication")

    def __init__(self, name: str, topic_id: str, partitions: int, replication: int) -> None:
        self.name = name
        self.id = topic_id
        self.replication = replication
        self.config: dict[str, str] = {}
        self.logs = [PartitionLog(name, number) for number in range(partitions)]

    def info(self) -> TopicInfo:
        limit = int(self.config.get("max.message.bytes", _MAX_MESSAGE_BYTES))
        return TopicInfo(self.name, self.id, len(self.logs), self.replication, limit, dict(self.config))


class MemoryCluster:
    """The whole state of a cluster.

    `clock` (default: the real time) dates what is stored. `blocking` (default True): calls wait for each other in real
    time, as threads do; sessions and transactions end by the real time, too. With False nothing ever waits: a call does
    what can be done now and returns, and everything goes by `clock`, for a simulation on one thread.
    """

    def __init__(self, clock: Clock | None = None, *, blocking: bool = True) -> None:
        self.clock: Clock = clock if clock is not None else SystemClock()
        self.blocking = blocking
        #: The clock of sessions, transactions and waits.
        self.real: Clock = (
            SystemClock() if blocking and not isinstance(self.clock, SystemClock) else self.clock
        )
        #: The clock if a test moves it while threads wait.
        self.moved = self.clock if blocking and isinstance(self.clock, VirtualClock) else None
        self.changed = threading.Condition(threading.RLock())
        #: Rises with every change, so that a waiting thread knows whether it missed one.
        self.version = 0
        #: The catalog's records as JSON by (kind, name); as text, so that no caller can change what is stored.
        self.catalog: dict[tuple[str, str], str] = {}
        #: Rises when the clock was moved: threads that wait look what has become due.
        self.wakes = 0
        self._seen = -1
        #: Scheduled events: markers, late requests, ends of forgotten transactions.
        self.later = Later(self.real)
        self.transactions = TransactionLog(self.later, self._mark)
        self._topics: dict[str, _Topic] = {}
        self._groups: dict[str, Group] = {}
        self._topics_made = 0
        if self.moved is not None:
            self.moved.enter(self)

    # As a sleeper of the clock

    def due_at(self) -> None:
        """Returns None: scheduled events come in real time."""

    def under_way(self, *, callbacks: bool) -> str:
        """Returns that something was changed, if it was since the last call."""
        seen, self._seen = self._seen, self.version
        return "" if seen == self._seen else "records are written or groups change"

    def wake(self) -> None:
        """Lets all calls that wait return."""
        with self.changed:
            self.wakes += 1
            self.changed.notify_all()

    @contextmanager
    def change(self) -> Iterator[float]:
        """Holds the lock for a change and wakes all waiting threads; yields the time of `real`."""
        with self.changed:
            self.catch_up()
            yield self.real.now()
            self.version += 1
            self.changed.notify_all()

    # Topics; call these under `changed`

    def info(self, topic: str) -> TopicInfo:
        """Returns the topic as it is; raises `NotFound` if there is none."""
        return self._topic(topic).info()

    def names(self) -> Sequence[str]:
        """Returns the names of all topics."""
        return sorted(self._topics)

    def partitions_of(self, topic: str) -> int | None:
        """Returns the topic's number of partitions, or None if there is no such topic."""
        entry = self._topics.get(topic)
        return None if entry is None else len(entry.logs)

    def log(self, partition: TopicPartition) -> PartitionLog:
        """Returns a partition's log; raises `NotFound` if there is none."""
        self.catch_up()
        logs = self._topic(partition.topic).logs
        if not 0 <= partition.partition < len(logs):
            raise NotFound(f"topic {partition.topic} has no partition {partition.partition}")
        return logs[partition.partition]

    def create(self, name: str, partitions: int, replication: int, config: Mapping[str, str]) -> TopicInfo:
        """Makes a topic; its name must keep a broker's rules."""
        if name in self._topics:
            raise AlreadyExists(f"topic {name} exists already")
        self._check_name(name)
        if partitions < 1:
            raise InvalidArgument(f"partitions: {partitions} is below 1")
        self._topics_made += 1
        # Base64, as a broker's ids, with the two characters that this package's own ids don't have.
        topic = _Topic(name, f"memory/{self._topics_made}+", partitions, replication)
        topic.config.update(config)
        self._stamp(topic)
        self._topics[name] = topic
        self._topic_changed(name)
        return topic.info()

    def configure(self, name: str, config: Mapping[str, str | None]) -> None:
        """Changes settings; None restores the default."""
        topic = self._topic(name)
        for setting, value in config.items():
            if value is None:
                topic.config.pop(setting, None)
            else:
                topic.config[setting] = value
        self._stamp(topic)

    def delete(self, name: str) -> None:
        """Deletes a topic, its records and every group's positions in it."""
        del self._topics[self._topic(name).name]
        for group in self._groups.values():
            group.offsets = {at: value for at, value in group.offsets.items() if at.topic != name}
        self._topic_changed(name)

    # Groups; call these under `changed`

    def group(self, name: str) -> Group:
        """Returns the group of that name without its dead members; makes it at the first call."""
        self.catch_up()
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = Group(name, self.partitions_of)
        if group.expire(self.real.now()):
            self.version += 1
            self.changed.notify_all()
        return group

    def has_group(self, name: str) -> bool:
        """Returns whether the group has been used, and not deleted since."""
        return name in self._groups

    def group_names(self) -> Sequence[str]:
        """Returns the names of the groups that have been used, and not deleted since."""
        return sorted(self._groups)

    def delete_group(self, name: str) -> None:
        """Removes a group and its positions."""
        del self._groups[name]

    def stored(
        self, name: str, partitions: Sequence[TopicPartition] | None, timeout: float
    ) -> Mapping[TopicPartition, Committed]:
        """Returns a group's positions when no open transaction holds one of `partitions` (None: any).

        Raises `DeadlineExceeded` after `timeout` seconds; at once where calls don't wait, because then no transaction
        could end during the wait.
        """
        deadline = self.real.now() + timeout
        while (group := self.group(name)).unsettled(partitions):
            left = deadline - self.real.now()
            if left <= 0 or not self.blocking:
                raise DeadlineExceeded(
                    f"a transaction with positions of group {name} is open: what is stored isn't settled yet"
                )
            self.wait(left)
        return group.offsets

    def now_ms(self) -> int:
        """Returns the milliseconds since the epoch, for timestamps."""
        # A virtual time is a sum of seconds, which may be too low by a binary fraction.
        return int(self.clock.now() * 1000 + (0.0 if self.moved is None else 0.001))

    def wait(self, seconds: float) -> None:
        """Waits for a change, or for the next scheduled event."""
        self.changed.wait(max(0.0, min(seconds, self.later.next_in())))
        self.catch_up()

    def catch_up(self) -> None:
        """Runs the scheduled events that are due; every access to a log or a group begins with it."""
        if self.later.run():
            self.version += 1
            self.changed.notify_all()

    def _mark(self, transaction: str, target: TopicPartition | str, committed: bool) -> None:
        if isinstance(target, str):
            if target in self._groups:
                self._groups[target].settle(transaction, committed)
            return
        topic = self._topics.get(target.topic)
        if topic is not None:
            topic.logs[target.partition].finish(transaction, committed)

    # Acts of the cluster and of other clients; for tests, from any thread

    def append(
        self,
        topic: str,
        partition: int,
        value: bytes | None,
        key: bytes | None = None,
        headers: Sequence[Header] | None = None,
        timestamp: float | None = None,
        transaction: str | None = None,
    ) -> MemoryRecord:
        """Writes a record of another producer; `timestamp` in seconds, now by default."""
        with self.change():
            milliseconds = self.now_ms() if timestamp is None else int(timestamp * 1000)
            log = self.log(TopicPartition(topic, partition))
            return log.append(key, value, headers, milliseconds, transaction)

    def finish_transaction(self, topic: str, partition: int, transaction: str, committed: bool) -> None:
        """Writes a transaction's marker into a partition: only now its records become visible, or go."""
        with self.change():
            self.log(TopicPartition(topic, partition)).finish(transaction, committed)

    def skip_offsets(self, topic: str, partition: int, count: int = 1) -> None:
        """Leaves offsets without records, as markers and aborted batches do."""
        with self.change():
            self.log(TopicPartition(topic, partition)).skip(count)

    def compact(self, topic: str, partition: int, offsets: Collection[int]) -> None:
        """Removes records, as compaction does."""
        with self.change():
            self.log(TopicPartition(topic, partition)).remove(offsets)

    def truncate(self, topic: str, partition: int, before: int) -> None:
        """Deletes the records before the offset, as retention does."""
        with self.change():
            self.log(TopicPartition(topic, partition)).truncate(before)

    def lose_tail(self, topic: str, partition: int, end: int) -> None:
        """Elects a leader whose log ends at `end`, though other replicas had more."""
        with self.change():
            self.log(TopicPartition(topic, partition)).lose(end)

    def add_partitions(self, topic: str, total: int) -> None:
        """Raises the topic's number of partitions to `total`."""
        with self.change():
            found = self._topic(topic)
            logs = found.logs
            if total <= len(logs):
                raise InvalidArgument(f"total: topic {topic} has {len(logs)} partitions already")
            logs.extend(PartitionLog(topic, number) for number in range(len(logs), total))
            self._stamp(found)
            self._topic_changed(topic)

    def forget_offsets(self, group: str) -> None:
        """Deletes an idle group's positions with their metadata, as a broker does in time."""
        with self.change():
            self.group(group).offsets.clear()

    def raise_epoch(self, group: str) -> None:
        """Raises the group's epoch while all members keep their partitions, as under Kafka's protocol `consumer`."""
        with self.change():
            self.group(group).raise_epoch()

    def evict(self, group: str, member: str | None = None) -> None:
        """Ends the sessions of a group's member (or of all) now; `member` is the reader's client name."""
        with self.change():
            entry = self.group(group)
            for name in entry.members:
                if member is None or name.rpartition("-")[0] == member:
                    entry.remove(name)

    def _topic(self, name: str) -> _Topic:
        topic = self._topics.get(name)
        if topic is None:
            raise NotFound(f"no topic {name} in this cluster")
        return topic

    def _stamp(self, topic: _Topic) -> None:
        """Lets the topic's logs stamp records if its settings say so."""
        stamped = topic.config.get("message.timestamp.type") == "LogAppendTime"
        for log in topic.logs:
            log.stamp = self.now_ms if stamped else None

    def _check_name(self, name: str) -> None:
        if name in (".", "..") or not _LEGAL_NAME.fullmatch(name):
            raise InvalidArgument(
                f"name: {name!r:.80} can't be a topic: 1 to 249 of the characters a-z A-Z 0-9 . _ -"
            )
        in_metrics = name.replace(".", "_")
        for other in self._topics:
            if other.replace(".", "_") == in_metrics:
                raise InvalidArgument(f"name: {name} and the topic {other} differ only in '.' and '_'")

    def _topic_changed(self, name: str) -> None:
        for group in self._groups.values():
            group.topic_changed(name)


#: Bytes of a batch of one record beside key, value and headers (a broker counts the batch).
_BATCH_OVERHEAD = 70


def refusal(
    cluster: MemoryCluster,
    topic: str,
    value: bytes | None,
    key: bytes | None,
    headers: Sequence[Header] | None,
) -> PubSubError | None:
    """Returns why the topic refuses the record; None if it takes it. Call it under `changed`."""
    try:
        limit = cluster.info(topic).max_message_bytes
    except PubSubError as error:
        return error
    size = _BATCH_OVERHEAD + len(value or b"") + len(key or b"")
    size += sum(len(name) + len(content or b"") for name, content in headers or ())
    if size <= limit:
        return None
    return InvalidArgument(f"the message has about {size} bytes, topic {topic} takes at most {limit}")
