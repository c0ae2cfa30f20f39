"""Protocols of all that the client needs of a log; `kafka` and `memory` implement them.

Rules
1. A port takes and returns our own values, and raises only our own errors (`kafka_pubsub.errors`).
2. A `LogReader` belongs to the thread that calls `read`: all its methods are called there, and its listener's
   methods run inside `read` (or `close`), which may call them back. Only `settle` waits for a commit.
3. A `LogWriter` may be used from any thread; delivery reports run inside `poll` or `flush`.
4. Adapters don't import this module (they are siblings): they have the methods of its Protocols, and the values
   that its methods take and return are in `model`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Protocol

from kafka_pubsub.config import Batching, ConnectorRecord, DelayRecord, SubscriptionRecord, TopicRecord
from kafka_pubsub.errors import PubSubError
from kafka_pubsub.model import (
    NO_RECORDS,
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
    RecordReader,
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
    "LogTail",
    "LogWriter",
    "Membership",
    "MovableClock",
    "NewRecord",
    "Outcome",
    "RebalanceListener",
    "RecordFetch",
    "Sleeper",
    "TopicInfo",
    "Transactions",
]


class RebalanceListener(Protocol):
    """A listener that a reader calls inside `read`, at a rebalance or an error.

    When `assigned`, `revoked` or `lost` returns, the reader answers the group.
    """

    def assigned(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, ReadFrom]:
        """Returns where to read each new partition from. A partition left out is assigned paused and never read."""

    def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Prepares for the revoke of the partitions; commits are accepted until this returns."""

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Notes that the partitions are lost already (the session has expired): nothing may be committed."""

    def failed(self, partition: TopicPartition | None, error: PubSubError, fatal: bool) -> None:
        """Receives an error of the log: of one partition, or of the connection (`partition` is None)."""


class LogReader(Protocol):
    """A member of a consumer group that reads committed records."""

    def subscribe(self, topics: Sequence[str], listener: RebalanceListener) -> None: ...

    def read(self, max_records: int, timeout: float) -> Sequence[StoredRecord]:
        """Returns up to `max_records` records and waits up to `timeout` seconds for the first.

        Errors are passed to the listener.
        """

    def committed(
        self, partitions: Sequence[TopicPartition], timeout: float | None = None
    ) -> Mapping[TopicPartition, Committed]:
        """Returns the positions that the group has stored, by one request for all partitions.

        Raises `DeadlineExceeded` or `BrokerUnavailable` after `timeout` seconds (None: the adapter's own limit). It
        waits while a transaction with offsets of any of the partitions is open.
        """

    def committed_unstable(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, Committed]:
        """Returns the positions stored before any open transaction, without waiting for its end.

        It serves to find the writer of the open transaction, never as a position to start from.
        """

    def membership(self) -> Membership | None:
        """Returns the membership as of the last assignment; None before one, and after a revoke or loss.

        It stays valid inside `revoked`, for the last transaction. If a rebalance leaves our partitions as they are,
        the protocol `consumer` doesn't call the listener: then `read` takes over the new membership.
        """

    def positions(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, LogEnd]:
        """Returns the end of what was read of each partition, without a request.

        Every record below it was returned by `read`, or never can be (markers, aborted records). The epoch is that of
        the last record or marker below it, if known. Partitions that aren't assigned or have no position are left out.
        """

    def at_end(self, partitions: Sequence[TopicPartition]) -> Set[TopicPartition]:
        """Returns the partitions whose log ended at our position at the last fetch, without a request."""

    def readable_ends(
        self, partitions: Sequence[TopicPartition], timeout: float
    ) -> Mapping[TopicPartition, LogEnd]:
        """Returns where a reader of committed records finds the end of each now, by one request for all.

        The epoch is that of the leader that answered, if known. Leaves out those that aren't answered for within
        `timeout` seconds.
        """

    def high_watermarks(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Returns the next offset to be written of each now, with open transactions, by one request for all."""

    def commit(self, positions: Mapping[TopicPartition, Committed], answered: Answered) -> None:
        """Begins a commit. While another one is unanswered, this one is answered as refused, and not sent.

        `answered` is called once, from any thread, with an error or None for each partition. `commit` may also be
        called inside `revoked`.
        """

    def unanswered(self) -> bool:
        """Returns whether a commit is unanswered."""

    def settle(self) -> bool:
        """Waits until an unanswered commit was answered, and `answered` has returned.

        Returns False if that takes too long. Then the commit may still be stored later; only the end of the
        membership prevents that.
        """

    def log_range(self, partition: TopicPartition) -> tuple[int, int]:
        """Returns the first offset still stored, and the next one to be written."""

    def reachable_ranges(
        self, partitions: Sequence[TopicPartition], timeout: float
    ) -> Mapping[TopicPartition, tuple[int, int]]:
        """Returns what `log_range` does for many partitions, with no more requests than for one.

        Leaves out those whose leader doesn't answer within `timeout` seconds, and those that aren't there.
        """

    def seek(self, partition: TopicPartition, to: ReadFrom) -> None: ...
    def pause(self, partitions: Sequence[TopicPartition]) -> None: ...
    def resume(self, partitions: Sequence[TopicPartition]) -> None: ...
    def close(self) -> None:
        """Leaves the group, after calling `revoked` for the assigned partitions."""


#: A callback, called once for each appended record with the adapter's error (see `LogWriter.explain`) or None,
#: and the stored record.
DeliveryReport = Callable[[object, StoredRecord], None]


class LogWriter(Protocol):
    """An idempotent writer that waits for all in-sync replicas, or a transient one (`Backend.writer`)."""

    def append(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Sequence[Header] | None,
        on_delivery: DeliveryReport,
        partition: int = -1,
    ) -> None:
        """Queues a record; raises `BufferError` when the queue is full: then call `poll` and try again.

        A record without a key goes to the given partition; -1: any. A key has its own.
        """

    def poll(self, timeout: float) -> int: ...
    def flush(self, timeout: float) -> int:
        """Waits until every record was reported, and returns how many still weren't after `timeout` seconds."""

    def relearn(self, topic: str) -> int:
        """Asks for the topic's number of partitions, spreads keys over so many from now on, and returns it.

        Call it only while no record of the topic is queued, because queued records keep their partition. Raises
        `BrokerUnavailable` if no broker answers.
        """

    def explain(self, error: object, topic: str = "") -> PubSubError:
        """Returns the adapter's delivery error of a record for the topic as one of our errors."""

    def close(self) -> None: ...


class Transactions(Protocol):
    """One transactional writer under one id. Its calls may block for seconds, so they run on a thread of their own.

    To begin anew after `UNKNOWN`, the caller fences its own id, then reads `committed()` and goes on from there.
    """

    @property
    def transactional_id(self) -> str:
        """The id that commits carry in their metadata: a reader that an open transaction holds up fences it."""

    def transact(
        self,
        records: Sequence[NewRecord],
        positions: Positions | PositionsLater,
        membership: Membership | None,
        *,
        locate: bool = True,
    ) -> Outcome:
        """Stores records and positions together, or neither.

        With a membership a position is always needed, because it is the fence. Without one (None) there are no
        positions: then only the transactional id fences.

        With `locate=False` (default: True) the answer doesn't say where the records lie, which costs less. The first
        failure of a record may then come as an unknown outcome that names no record; the next call names it.

        If `positions` is a function, it is called with the offsets when the log has taken every record, and must
        return before the transaction times out. If it returns None, the transaction is aborted; if it returns
        `Further`, the transaction takes those records too, and then commits the positions of `Further`.

        Readers see the records a few milliseconds after the answer `STORED`. The only error raised is
        `InvalidArgument`, for arguments that no log could take.
        """

    def fence(self, transactional_id: str) -> None:
        """Ends the open transaction of the id and fences its writer; returns when that is done, or raises.

        With its own id, this object gets a new writer as well.
        """

    def close(self) -> None: ...


class LogTail(Protocol):
    """A reader of one partition's committed records outside of any group, from an offset on. It is for one thread."""

    @property
    def closed(self) -> bool:
        """Whether it or its backend was closed: then every read raises `FailedPrecondition`."""

    def read(self, max_records: int, timeout: float) -> Sequence[StoredRecord]:
        """Returns up to `max_records` records and waits up to `timeout` seconds for the first."""

    def close(self) -> None: ...


class RecordFetch(Protocol):
    """A reader of single records outside of any group. It is for one thread at a time."""

    def fetch(
        self, partition: TopicPartition, offsets: Sequence[int], max_bytes: int, timeout: float
    ) -> Fetched:
        """Returns the committed records among the offsets, lowest first.

        It stops when `max_bytes` of bodies are reached (after one record at least) or the time is up. Ask again for
        an offset that is in neither list of the answer.
        """

    def lost_tails(
        self, read: Mapping[TopicPartition, LogEnd], timeout: float
    ) -> Mapping[TopicPartition, int]:
        """Returns the partitions that have lost records below the given ends, with the first lost offset of each.

        Lost records may have been overwritten; only leader epochs tell that. Records that retention has deleted
        aren't lost.
        """

    def fetch_all(
        self, wanted: Mapping[TopicPartition, Sequence[int]], max_bytes: int, timeout: float
    ) -> Mapping[TopicPartition, Fetched]:
        """Returns what `fetch` does for many partitions at once; `max_bytes` is the limit for each."""

    def close(self) -> None: ...


class Admin(Protocol):
    """Topics and groups of the cluster."""

    def create_topic(
        self, name: str, partitions: int, replication: int | None, config: Mapping[str, str]
    ) -> TopicInfo:
        """Makes a topic; raises `AlreadyExists` if there is one of that name."""

    def delete_topic(self, name: str) -> None: ...
    def topic(self, name: str) -> TopicInfo:
        """Returns the topic as it is now; raises `NotFound` if there is none."""

    def update_topic(self, name: str, config: Mapping[str, str | None]) -> None: ...
    def add_partitions(self, name: str, total: int) -> TopicInfo:
        """Raises the topic's number of partitions, and returns when all of them can be used.

        Raises `InvalidArgument` unless the topic has fewer than `total`.
        """

    def trim(self, topic: str, before: Mapping[int, int]) -> None:
        """Deletes the records below an offset of each partition; an offset below the log's start changes nothing."""

    def cluster_id(self) -> str:
        """Returns the cluster's id."""

    def topic_names(self) -> Sequence[str]: ...
    def topic_ids(self, names: Sequence[str]) -> Mapping[str, str]:
        """Returns the ids of topics, by one request for all; leaves out those that a broker doesn't find."""

    def last_stable_offsets(self, topic: str) -> Mapping[int, int]:
        """Returns the offset that a reader of committed records has at the end of each partition now."""

    def offsets_at(self, topic: str, milliseconds: int) -> Mapping[int, int]:
        """Returns the first offset of each partition whose record has this timestamp (since 1970) or a later one.

        Leaves out partitions without such a record.
        """

    def readable_ends(self, places: Sequence[TopicPartition], timeout: float) -> Mapping[TopicPartition, int]:
        """Returns the offset that a reader of committed records has at the end of each now, by one request for all.

        Leaves out those whose leader doesn't answer within `timeout` seconds.
        """

    def high_watermarks(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Returns the next offset to be written of each now, with open transactions, by one request for all."""

    def log_range(self, partition: TopicPartition) -> tuple[int, int]:
        """Returns the first offset still stored, and the next one to be written."""

    def log_ranges(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, tuple[int, int]]:
        """Returns what `log_range` does for many partitions, with no more requests than for one."""

    def unstable_offsets(
        self, group: str, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, Committed]:
        """Returns the positions that the group had stored before any open transaction, without waiting for it."""

    def set_positions(self, group: str, positions: Mapping[TopicPartition, int | Committed]) -> None:
        """Commits all positions or none for a group; raises `FailedPrecondition` if the group has members."""

    def group_offsets(self, group: str, topic: str) -> Mapping[int, Committed]: ...
    def group_positions(
        self, group: str, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, Committed]:
        """Returns what the group has stored in these partitions of any topics, by one request: as of one moment.

        Leaves out those without a position. It waits while a transaction with offsets of any of them is open.
        """

    def group_members(self, group: str) -> int:
        """Returns the number of members that the group has now; 0 if it doesn't exist."""

    def groups(self) -> Mapping[str, bool]:
        """Returns the groups that this client may see; of each, whether it has members now."""

    def member_hosts(self, group: str, listed: Mapping[str, bool] | None = None) -> Sequence[str]:
        """Returns the host of each member that the group has now, as its broker sees it.

        `listed`: the groups of a moment ago, which saves a request for those without members.
        """

    def has_members(self, group: str) -> bool:
        """Returns whether the group has members now; it may be asked all the time."""

    def delete_group(self, group: str) -> None: ...
    def metadata_limit(self) -> int | None:
        """Returns the least `offset.metadata.max.bytes` of all brokers; None if this client may not read it."""

    def close(self) -> None: ...


class Catalog(Protocol):
    """The list of all topics and subscriptions. Every change is checked against the latest state.

    `previous` is the record that the caller saw (None if there was none). If another writer has changed the record
    since, the change is refused with `FailedPrecondition` and nothing is stored.
    """

    def topics(self) -> Mapping[str, TopicRecord]: ...
    def subscriptions(self) -> Mapping[str, SubscriptionRecord]: ...
    def put_topic(self, record: TopicRecord, previous: TopicRecord | None) -> None: ...
    def remove_topic(self, previous: TopicRecord) -> None: ...
    def put_subscription(self, record: SubscriptionRecord, previous: SubscriptionRecord | None) -> None: ...
    def remove_subscription(self, previous: SubscriptionRecord) -> None: ...
    def connectors(self) -> Mapping[str, ConnectorRecord]: ...
    def put_connector(self, record: ConnectorRecord, previous: ConnectorRecord | None) -> None: ...
    def remove_connector(self, previous: ConnectorRecord) -> None: ...
    def delays(self) -> DelayRecord | None:
        """Returns the number of partitions of the delays; None: they have as many as they were made with."""

    def put_delays(self, record: DelayRecord, previous: DelayRecord | None) -> None: ...
    def close(self) -> None: ...


class Sleeper(Protocol):
    """A stream, a service, a publisher or a part of the log that does things at times of a movable clock."""

    def due_at(self) -> float | None:
        """Returns when it has something to do by itself; None: when something comes. It waits for no lock."""

    def under_way(self, *, callbacks: bool) -> str:
        """Returns what it does now, in words; empty: nothing, until something comes or is due.

        `callbacks`: whether callbacks that run count.
        """

    def wake(self) -> None:
        """Has it look at the clock, and at what has come, at once."""


class MovableClock(Protocol):
    """A clock whose time a test moves. It wakes its sleepers when it was moved."""

    def now(self) -> float:
        """Returns the seconds since the epoch."""

    def enter(self, sleeper: Sleeper) -> None:
        """Adds a sleeper, until `leave`."""

    def leave(self, sleeper: Sleeper) -> None:
        """Forgets a sleeper; one that isn't there is ignored."""


class Backend(Protocol):
    """A factory of the adapters for one cluster. `app.PubSub` owns one and closes it."""

    @property
    def address(self) -> str:
        """The cluster's address, for the commands that error texts advise."""

    @property
    def clock(self) -> MovableClock | None:
        """The clock by which the cluster's clients go; None: the machine's."""

    #: Reads the records of the client's messages.
    records: RecordReader = NO_RECORDS

    @property
    def admin(self) -> Admin: ...
    @property
    def catalog(self) -> Catalog: ...
    def writer(self, batching: Batching, max_batch_bytes: int, durable: bool = True) -> LogWriter:
        """Returns a new writer.

        With `durable=False` it is transient: a record is stored when its leader has it, and given up if no answer comes
        within a second or two. A failed record fails no other.
        """

    def reader(self, group: str, member: str, *, spread: bool = False, lanes: bool = False) -> LogReader:
        """Returns a new, unsubscribed reader; `member` is its name in the cluster's own tools.

        A member gets the same partition numbers of all topics. With `spread` (default False, and the same for all
        members of a group) each partition is given to a member by itself, so that topics of one partition are shared.
        `lanes` (default False): many of the topics are idle beside others, and must not hold up fetches of these.
        """

    def transactions(self, transactional_id: str) -> Transactions:
        """Returns a transactional writer; of two under one id the later one fences the earlier one."""

    def record_fetch(self) -> RecordFetch: ...
    def tail(self, partition: TopicPartition, offset: int) -> LogTail:
        """Returns a reader of what is stored from the offset on."""

    def close(self) -> None: ...
