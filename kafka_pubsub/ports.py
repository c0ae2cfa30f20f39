"""What the client needs of a log: the doors through which `kafka` and `memory` come in.

Rules
1. A port speaks our words and raises our errors (`kafka_pubsub.errors`) only.
2. A `LogReader` belongs to the thread that calls `read`: all its methods are called there, and its listener's
   methods run inside `read` (or `close`), which may call them back. Only `settle` waits for a commit.
3. A `LogWriter` may be used from any thread; delivery reports run inside `poll` or `flush`.
4. Adapters don't import this module (they are siblings): they fit its Protocols by shape, and the values that
   pass through it are in `model`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Protocol

from kafka_pubsub.config import Batching, SubscriptionRecord, TopicRecord
from kafka_pubsub.errors import PubSubError
from kafka_pubsub.model import (
    Answered,
    Committed,
    Ending,
    Fetched,
    Header,
    LogEnd,
    Membership,
    NewRecord,
    Outcome,
    Positions,
    PositionsLater,
    ReadFrom,
    StoredRecord,
    TopicInfo,
    TopicPartition,
)

__all__ = [
    "Admin",
    "Answered",
    "Backend",
    "Catalog",
    "Committed",
    "DeliveryReport",
    "Ending",
    "Fetched",
    "LogReader",
    "LogWriter",
    "Membership",
    "NewRecord",
    "Outcome",
    "RebalanceListener",
    "RecordFetch",
    "TopicInfo",
    "Transactions",
]


class RebalanceListener(Protocol):
    """Told, inside `read`, what comes and goes. When a method returns, the reader answers the group."""

    def assigned(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, ReadFrom]:
        """New partitions; returns where to read each from. One left out is assigned paused and never read."""

    def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """They go; commits are still accepted until this returns."""

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        """They are gone already (session expired): nothing may be committed."""

    def failed(self, partition: TopicPartition | None, error: PubSubError, fatal: bool) -> None:
        """The log reported an error, of one partition or of the connection."""


class LogReader(Protocol):
    """A member of a consumer group, reading committed records."""

    def subscribe(self, topics: Sequence[str], listener: RebalanceListener) -> None: ...

    def read(self, max_records: int, timeout: float) -> Sequence[StoredRecord]:
        """Up to `max_records`, waiting up to `timeout` seconds for the first; errors go to the listener."""

    def committed(
        self, partitions: Sequence[TopicPartition], timeout: float | None = None
    ) -> Mapping[TopicPartition, Committed]:
        """What the group has stored, one request for all.

        `DeadlineExceeded` or `BrokerUnavailable` after `timeout` seconds (None: the adapter's own limit). It waits
        while a transaction with offsets of any of them is open.
        """

    def committed_unstable(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, Committed]:
        """The same without waiting: what was stored before the open transactions.

        To learn who keeps one open; never a position to start from.
        """

    def membership(self) -> Membership | None:
        """Our place as of the last assignment; None before one, and once it was revoked or lost.

        It stays valid inside `revoked`, for the last transaction. Where the group moves on without calling back,
        because our share stays the same (the protocol `consumer`), `read` takes over the place that we have then.
        """

    def positions(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, LogEnd]:
        """Of each: everything below it was read, or can never be (markers, aborted records); no request is made.

        The epoch is that of the last record or marker below, if it is known. Those that aren't assigned, or have no
        position, are left out. What `read` hasn't returned yet is above it.
        """

    def at_end(self, partitions: Sequence[TopicPartition]) -> Set[TopicPartition]:
        """Those whose log had ended at our position when it was last asked for more; no request is made for it."""

    def high_watermarks(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The next offset to be written of each now, open transactions counted in; one request for all."""

    def commit(self, positions: Mapping[TopicPartition, Committed], answered: Answered) -> None:
        """Begins a commit, of which one at a time is possible; another one is answered as refused, and not sent.

        `answered` is called once, from any thread, with an error or None for each partition. Also allowed inside
        `revoked`.
        """

    def unanswered(self) -> bool:
        """Whether a commit is on its way."""

    def settle(self) -> bool:
        """Waits until a commit that is on its way was answered, and `answered` has returned.

        False: that takes too long. It may still be stored, whatever we do in between; only the end of the membership
        prevents it.
        """

    def log_range(self, partition: TopicPartition) -> tuple[int, int]:
        """The first offset still stored, and the next one to be written."""

    def log_ranges(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, tuple[int, int]]:
        """The same of many; as many requests as for one."""

    def seek(self, partition: TopicPartition, to: ReadFrom) -> None: ...
    def pause(self, partitions: Sequence[TopicPartition]) -> None: ...
    def resume(self, partitions: Sequence[TopicPartition]) -> None: ...
    def close(self) -> None:
        """Leaves the group (calls `revoked` for what it holds)."""


#: Called once for each appended record: error (the adapter's own, see `LogWriter.explain`) or None, and the
#: stored record's coordinates.
DeliveryReport = Callable[[object, StoredRecord], None]


class LogWriter(Protocol):
    """An idempotent writer that waits for all in-sync replicas."""

    def append(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Sequence[Header] | None,
        on_delivery: DeliveryReport,
    ) -> None:
        """Queues a record. `BufferError` when the queue is full: `poll` and try again."""

    def poll(self, timeout: float) -> int: ...
    def flush(self, timeout: float) -> int:
        """Waits until everything was reported; returns how many were not."""

    def relearn(self, topic: str) -> int:
        """Asks how many partitions the topic has, and spreads keys over so many from now on; returns the number.

        Only while nothing of the topic is queued: that keeps its partition. `BrokerUnavailable` if no broker answers.
        """

    def explain(self, error: object) -> PubSubError:
        """The adapter's delivery error in our words."""

    def close(self) -> None: ...


class Transactions(Protocol):
    """One transactional writer under one id. Calls may block for some seconds, so they get a thread of their own.

    Who begins anew after `UNKNOWN`: `fence` our own id, then read `committed()`, and go on from there.
    """

    @property
    def transactional_id(self) -> str:
        """For the metadata of commits: a reader that it holds up fences it."""

    def transact(
        self,
        records: Sequence[NewRecord],
        positions: Positions | PositionsLater,
        membership: Membership,
    ) -> Outcome:
        """Stores records and positions together, or neither. Nothing passes without a position: it is the fence.

        A call as `positions` is asked when the log has taken every record, within the time that a transaction may
        stay open, and is given their offsets. Answered by None, the transaction is aborted; by `Further`, it takes
        these records as well, and then what they say is committed.

        `STORED` is answered a few milliseconds before readers see it. An error is never raised, but for arguments
        that no log could take (`InvalidArgument`).
        """

    def fence(self, transactional_id: str) -> None:
        """Ends what is open under the id and shuts out its writer; returns when it is over, or raises.

        Under our own id: the same, and we have a new writer.
        """

    def close(self) -> None: ...


class RecordFetch(Protocol):
    """Reads single records again, outside of any group. For one thread at a time."""

    def fetch(
        self, partition: TopicPartition, offsets: Sequence[int], max_bytes: int, timeout: float
    ) -> Fetched:
        """Those of the offsets that are committed by now, lowest first.

        Until `max_bytes` of bodies are reached (one record at least) or the time is up. An offset that is in neither
        list of the answer: ask again.
        """

    def lost_tails(
        self, read: Mapping[TopicPartition, LogEnd], timeout: float
    ) -> Mapping[TopicPartition, int]:
        """Of the logs that were read so far, those that have lost some of it, and the first offset that is lost.

        What was lost may have been overwritten; only leader epochs tell that. What retention has deleted isn't lost.
        """

    def fetch_all(
        self, wanted: Mapping[TopicPartition, Sequence[int]], max_bytes: int, timeout: float
    ) -> Mapping[TopicPartition, Fetched]:
        """The same of many partitions at once; `max_bytes` of each."""

    def close(self) -> None: ...


class Admin(Protocol):
    """Topics and groups of the cluster."""

    def create_topic(
        self, name: str, partitions: int, replication: int | None, config: Mapping[str, str]
    ) -> TopicInfo:
        """`AlreadyExists` if there is one."""

    def delete_topic(self, name: str) -> None: ...
    def topic(self, name: str) -> TopicInfo:
        """`NotFound` if there is none."""

    def update_topic(self, name: str, config: Mapping[str, str | None]) -> None: ...
    def add_partitions(self, name: str, total: int) -> TopicInfo:
        """Raises the topic's partitions and returns when all can be used; `InvalidArgument` unless it has fewer."""

    def trim(self, topic: str, before: Mapping[int, int]) -> None:
        """Deletes the records below an offset of each partition; one below the log's start changes nothing."""

    def topic_names(self) -> Sequence[str]: ...
    def last_stable_offsets(self, topic: str) -> Mapping[int, int]:
        """Where a committed reader would stand at the end of each partition now."""

    def high_watermarks(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The next offset to be written of each now, open transactions counted in; one request for all."""

    def log_range(self, partition: TopicPartition) -> tuple[int, int]:
        """The first offset still stored, and the next one to be written."""

    def set_positions(self, group: str, positions: Mapping[TopicPartition, int | Committed]) -> None:
        """Commits for a group without members, all or none; `FailedPrecondition` if it has any."""

    def group_offsets(self, group: str, topic: str) -> Mapping[int, Committed]: ...
    def group_members(self, group: str) -> int:
        """How many members the group has now; 0 if it doesn't exist."""

    def delete_group(self, group: str) -> None: ...
    def metadata_limit(self) -> int | None:
        """The least `offset.metadata.max.bytes` of all brokers; None: they don't tell, at least not us."""

    def close(self) -> None: ...


class Catalog(Protocol):
    """What topics and subscriptions there are. Every change is checked against the latest state.

    `previous` is the record that the caller saw (None: there was none). If another writer changed it since,
    the change is refused with `FailedPrecondition` and nothing is stored.
    """

    def topics(self) -> Mapping[str, TopicRecord]: ...
    def subscriptions(self) -> Mapping[str, SubscriptionRecord]: ...
    def put_topic(self, record: TopicRecord, previous: TopicRecord | None) -> None: ...
    def remove_topic(self, previous: TopicRecord) -> None: ...
    def put_subscription(self, record: SubscriptionRecord, previous: SubscriptionRecord | None) -> None: ...
    def remove_subscription(self, previous: SubscriptionRecord) -> None: ...
    def close(self) -> None: ...


class Backend(Protocol):
    """One cluster: makes the adapters. `app.PubSub` owns one and closes it."""

    @property
    def address(self) -> str:
        """Where the cluster is, for the commands that people are told to run."""

    @property
    def admin(self) -> Admin: ...
    @property
    def catalog(self) -> Catalog: ...
    def writer(self, batching: Batching, max_batch_bytes: int) -> LogWriter: ...
    def reader(self, group: str, member: str) -> LogReader:
        """A new, unsubscribed member; `member` names it in the cluster's own tools."""

    def transactions(self, transactional_id: str) -> Transactions:
        """A transactional writer; of two under one id the later one shuts the earlier out."""

    def record_fetch(self) -> RecordFetch: ...

    def close(self) -> None: ...
