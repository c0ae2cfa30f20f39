"""Topics and groups of the cluster, by Kafka's admin requests.

Rules
1. The handle is made at the first call and shared by all threads (librdkafka's is thread-safe). Where it may be at
   fault that no answer comes, the next call makes another one; a handle is closed when no call uses it any more.
2. When `create_topic` returns, the topic can be written and read: all its partitions have leaders. When
   `delete_topic` returns, the topic is gone.
3. A group's offsets are read `require_stable`: the request waits for a position inside an open transaction.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
)
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
    TopicDescription,
)

from kafka_pubsub.errors import (
    AlreadyExists,
    BrokerUnavailable,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PermissionDenied,
)
from kafka_pubsub.log.kafka.bounded_calls import DEADLINE, LOOK, ask, serving, wait_for
from kafka_pubsub.log.kafka.broker_settings import least_setting
from kafka_pubsub.log.kafka.client_factory import ClientFactory, Trouble
from kafka_pubsub.log.kafka.conversions import kafka_partition
from kafka_pubsub.log.kafka.errors import HAS_MEMBERS, STALE_LEADER, UNKNOWN_TOPIC, denied_topic, error_of
from kafka_pubsub.log.kafka.group_members import GroupMembers
from kafka_pubsub.log.kafka.readable_ends import ReadableEnds
from kafka_pubsub.log.kafka.rights import Doing, Right, creating, looking_at, of_group
from kafka_pubsub.log.kafka.stored_offsets import stored_offsets
from kafka_pubsub.log.ports import Admin
from kafka_pubsub.model import Committed, LogEnd, TopicInfo, TopicPartition

__all__ = ["KafkaAdmin", "topic_ids"]

_T = TypeVar("_T")

#: The broker's default for a topic that sets nothing; only used if a broker doesn't report it.
_DEFAULT_MAX_MESSAGE_BYTES = 1_048_588

#: Seconds until every broker knows a new topic, and between two requests that ask for it.
_SPREADS, _POLL = 10.0, 0.1
#: Seconds for which a topic counts as new; and for which other brokers are asked when one doesn't know it.
_NEW, _DOUBT = 30.0, 3.0

#: Seconds for which a change of settings is awaited; a broker gets it within some 10 ms.
_SHOW_DEADLINE = 2.0


class KafkaAdmin(Admin):
    """An `Admin` over librdkafka's admin client."""

    def __init__(self, handles: ClientFactory, *, deadline: float = DEADLINE) -> None:
        self._handles = handles
        self._deadline = deadline
        self._trouble = Trouble(reached=False)
        self._lock = threading.Lock()
        # None until the first call: a process may fork before.
        self._client: AdminClient | None = None
        # How many calls use each handle.
        self._calls: Counter[AdminClient] = Counter()
        self._closed = False
        self.ends = ReadableEnds(handles, self._connect, self._let_go)
        self._members = GroupMembers(handles, deadline, self._ask_here, self._wait, self._replace)
        # When this client last made the topic, or a broker confirmed that it exists.
        self._made: dict[str, float] = {}

    # -- topics ----------------------------------------------------------------------------------------------

    def create_topic(
        self, name: str, partitions: int, replication: int | None, config: Mapping[str, str]
    ) -> TopicInfo:
        """Makes a topic and waits until it can be used; `replication=None` takes the broker's default."""
        doing = creating(name)
        # -1 asks for the broker's default.replication.factor.
        wanted = NewTopic(
            name,
            num_partitions=partitions,
            replication_factor=-1 if replication is None else replication,
            config=dict(config),
        )
        try:
            self._ask(doing, lambda client, left: client.create_topics([wanted], request_timeout=left)[name])
        except AlreadyExists:
            self._note(name)
            raise
        except PermissionDenied as error:
            raise denied_topic(error, partitions, config) from None
        self._note(name)
        return self._ask_here(doing, lambda client, left: self._settled(client, name, left))

    def delete_topic(self, name: str) -> None:
        """Deletes a topic and waits until no broker lists it."""
        doing = Doing(f"delete topic {name!r}", Right("DELETE", "topic", name))
        self._made.pop(name, None)
        self._ask(doing, lambda client, left: client.delete_topics([name], request_timeout=left)[name])
        self._ask_here(doing, lambda client, left: self._forgotten(client, name, left))

    def topic(self, name: str, *, deadline: float | None = None) -> TopicInfo:
        """Returns the topic as it is now; raises `NotFound` if there is none. `deadline`: seconds for the answer."""
        now = time.monotonic()
        until = now + _DOUBT if now < self._made.get(name, -_NEW) + _NEW else now

        def describe(client: AdminClient, left: float) -> TopicInfo:
            try:
                return self._describe(client, name, left)
            except KafkaException as failure:
                if error_of(failure).code() not in UNKNOWN_TOPIC:
                    raise
                if time.monotonic() >= until:
                    self._made.pop(name, None)  # it is gone; the next caller gets that answer at once
                    raise
                # Each request asks a broker at random; the one that doesn't know the topic may be cut off.
                with contextlib.suppress(KafkaException):
                    client.list_topics(timeout=LOOK)
                raise _not_yet("the new topic isn't known to every broker yet") from None

        return self._ask_here(looking_at([name], "topic {}"), describe, deadline=deadline)

    def update_topic(self, name: str, config: Mapping[str, str | None]) -> None:
        """Changes the given settings only; None restores the broker's default. Waits until the change shows."""
        doing = Doing(f"update topic {name!r}", Right("ALTER_CONFIGS", "topic", name))
        entries = [
            ConfigEntry(
                key,
                value,
                incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
            )
            for key, value in config.items()
        ]
        if not entries:
            return
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
        self._ask(
            doing,
            lambda client, left: client.incremental_alter_configs([resource], request_timeout=left)[resource],
        )
        # A broker may write a value in another form; then it was accepted, and never reads as it was given.
        with contextlib.suppress(BrokerUnavailable):
            self._ask_here(
                doing, lambda client, left: self._shown(client, name, config, left), deadline=_SHOW_DEADLINE
            )

    def add_partitions(self, name: str, total: int) -> TopicInfo:
        """Raises the topic's partitions to `total` and waits until all can be used."""
        doing = Doing(f"add partitions to topic {name!r}", Right("ALTER", "topic", name))
        wanted = NewPartitions(name, total)
        self._ask(doing, lambda client, left: client.create_partitions([wanted], request_timeout=left)[name])
        return self._ask_here(doing, lambda client, left: self._settled(client, name, left, total))

    def trim(self, topic: str, before: Mapping[int, int]) -> None:
        """Deletes the records below an offset of each partition, and waits until they are gone."""
        if not before:
            return
        for partition, offset in before.items():
            # Kafka takes -1 for "all".
            if offset < 0:
                raise InvalidArgument(f"trim topic {topic!r}: before[{partition}] is {offset}, not an offset")
        wanted = [KafkaPartition(topic, partition, offset) for partition, offset in before.items()]

        def delete(client: AdminClient, left: float) -> None:
            for future in client.delete_records(wanted, request_timeout=left).values():
                self._wait(client, future, left)

        self._ask_here(Doing(f"trim topic {topic!r}", Right("DELETE", "topic", topic)), delete)

    def cluster_id(self) -> str:
        """Returns the cluster's id."""

        def find(client: AdminClient, left: float) -> str:
            return str(client.list_topics(timeout=min(left, 1.0)).cluster_id)

        return self._ask_here("the cluster's id", find)

    def topic_names(self) -> Sequence[str]:
        """Returns all topics that this client may see, Kafka's own included."""

        def names(client: AdminClient, left: float) -> list[str]:
            # A short wait, and then the call again: it blocks in C, where Ctrl-C doesn't end it.
            return sorted(client.list_topics(timeout=min(left, 1.0)).topics)

        return self._ask_here("list topics", names)

    def topic_ids(self, names: Sequence[str]) -> Mapping[str, str]:
        """Returns the ids of topics, by one request for all."""

        def ids(client: AdminClient, left: float) -> Mapping[str, str]:
            return topic_ids(client, names, left, lambda answer: self._wait(client, answer, left))

        return self._ask_here(looking_at(names, "ids of topics {}"), ids) if names else {}

    # -- positions -------------------------------------------------------------------------------------------

    def last_stable_offsets(self, topic: str) -> Mapping[int, int]:
        """Returns for each partition the offset up to which a committed reader can read now."""
        doing = looking_at([topic], "end of topic {}")
        until = time.monotonic() + _SPREADS
        while True:
            places = [TopicPartition(topic, each) for each in range(self.topic(topic).partitions)]
            try:
                ends = self._offsets(places, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED, doing)
                break
            except NotFound:
                # The topic exists, so it is new, and the partition's broker doesn't know it yet.
                if time.monotonic() > until:
                    raise
                time.sleep(_POLL)
        return {partition.partition: offset for partition, offset in ends.items()}

    def offsets_at(self, topic: str, milliseconds: int) -> Mapping[int, int]:
        """Returns the first offset of each partition with this timestamp or a later one; leaves out those without."""
        places = [TopicPartition(topic, each) for each in range(self.topic(topic).partitions)]
        found: dict[int, int] = {}
        # A broker may also answer "none" while a leader is away, so it is asked a second time.
        for _ in range(2):
            asked = [place for place in places if place.partition not in found]
            found |= self._first_since(asked, milliseconds)
        return found

    def _first_since(self, places: Sequence[TopicPartition], milliseconds: int) -> dict[int, int]:
        def look(client: AdminClient, left: float) -> dict[int, int]:
            wanted = {KafkaPartition(*each): OffsetSpec.for_timestamp(milliseconds) for each in places}
            futures = client.list_offsets(wanted, request_timeout=left) if wanted else {}
            found = {each.partition: self._wait(client, future, left) for each, future in futures.items()}
            return {number: at.offset for number, at in found.items() if at.offset >= 0}

        return self._ask_here(
            looking_at([each.topic for each in places], "offsets of a time in topic {}"), look
        )

    def log_range(self, partition: TopicPartition) -> tuple[int, int]:
        """Returns the first stored offset, and the next one to be written (open transactions included)."""
        return self.log_ranges([partition])[partition]

    def log_ranges(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, tuple[int, int]]:
        """Returns the ranges of many partitions, with two requests to each leader."""
        doing = looking_at([each.topic for each in partitions], "ranges of topic {}")
        level = IsolationLevel.READ_UNCOMMITTED
        first = self._offsets(partitions, OffsetSpec.earliest(), level, doing)
        end = self._offsets(partitions, OffsetSpec.latest(), level, doing)
        return {each: (first[each], end[each]) for each in partitions}

    def readable_ends(self, places: Sequence[TopicPartition], timeout: float) -> Mapping[TopicPartition, int]:
        """Returns the ends for a committed reader; leaves out those whose leader doesn't answer in time."""
        return self.ends.find(places, timeout)

    def high_watermarks(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Returns the next offset to be written of each, open transactions included."""
        return {place: end.offset for place, end in self.log_ends(partitions).items()}

    def log_ends(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, LogEnd]:
        """Returns the next offset to be written of each, with the last leader epoch of its log."""
        if not partitions:
            return {}
        doing = looking_at([each.topic for each in partitions], "ends of topic {}")
        return self._places(partitions, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED, doing)

    def unstable_offsets(
        self, group: str, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, Committed]:
        """Returns what the group has stored for partitions, without open transactions, so it never waits for one."""
        if not partitions:
            return {}
        found = stored_offsets(self._handles, self._deadline, group, partitions, stable=False)
        return {each: found.get(each, Committed(None, "")) for each in partitions}

    def set_positions(self, group: str, positions: Mapping[TopicPartition, int | Committed]) -> None:
        """Commits for a group in one request; raises `FailedPrecondition` if the group has members."""
        doing = of_group(group, "set the position", *(each.topic for each in positions))
        wanted = ConsumerGroupTopicPartitions(
            group, [kafka_partition(place, to) for place, to in positions.items()]
        )

        def commit(client: AdminClient, left: float) -> None:
            future = client.alter_consumer_group_offsets([wanted], request_timeout=left)[group]
            for each in self._wait(client, future, left).topic_partitions:
                if each.error is not None:
                    raise KafkaException(each.error)

        try:
            self._ask_here(doing, commit, refused=HAS_MEMBERS)
        except _Refused as refusal:
            raise FailedPrecondition(
                f"{doing}: the group has members; close every stream of the subscription first [{refusal}]"
            ) from None

    def group_offsets(self, group: str, topic: str) -> Mapping[int, Committed]:
        """Returns what the group has committed in the topic; empty if nothing, or if there is no such group."""
        try:
            count = self.topic(topic).partitions
        except NotFound:
            return {}
        found = self.group_positions(group, [TopicPartition(topic, number) for number in range(count)])
        return {where.partition: value for where, value in found.items()}

    def group_positions(
        self, group: str, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, Committed]:
        """Returns what the group has committed in partitions of any topics, by one request."""
        return stored_offsets(self._handles, self._deadline, group, partitions, stable=True)

    # -- brokers ---------------------------------------------------------------------------------------------

    def metadata_limit(self) -> int | None:
        """Returns the least `offset.metadata.max.bytes` of the brokers that show theirs; None: no broker does."""

        def least(client: AdminClient, left: float) -> int | None:
            def wait(answer: concurrent.futures.Future[_T]) -> _T:
                return self._wait(client, answer, left)

            return least_setting(client, "offset.metadata.max.bytes", wait)

        return self._ask_here(Doing("settings of the brokers", Right("DESCRIBE_CONFIGS", "cluster")), least)

    # -- groups ----------------------------------------------------------------------------------------------

    def group_members(self, group: str) -> int:
        """Returns how many members the group has now; 0 if it doesn't exist."""
        return len(self._members.hosts(group))

    def groups(self) -> Mapping[str, bool]:
        """Returns the groups that this client may see; of each, whether it has members now."""
        return self._members.groups()

    def member_hosts(self, group: str, listed: Mapping[str, bool] | None = None) -> Sequence[str]:
        """Returns the host of each member that the group has now, as its broker sees it."""
        return self._members.hosts(group, listed)

    def has_members(self, group: str) -> bool:
        """Returns whether the group has members now."""
        return self._members.any(group)

    def delete_group(self, group: str) -> None:
        """Deletes a group's offsets; raises `NotFound` if there is no group, `FailedPrecondition` if it has members."""
        self._ask(
            Doing(f"delete group {group!r}", Right("DELETE", "group", group)),
            lambda client, left: client.delete_consumer_groups([group], request_timeout=left)[group],
        )

    def close(self) -> None:
        """Closes the handle, with librdkafka's threads; a call that is running closes it when it returns."""
        self._closed = True
        self.ends.close()
        self._replace()

    # -- parts -----------------------------------------------------------------------------------------------

    def _connect(self) -> AdminClient:
        self._handles.check()
        with self._lock:
            if self._client is None:
                self._client = self._handles.admin(self._trouble.note)
            self._calls[self._client] += 1
            return self._client

    def ask(
        self,
        doing: str,
        request: Callable[[AdminClient, float], concurrent.futures.Future[_T]],
        deadline: float,
    ) -> _T:
        """Makes any request of an admin client, within `deadline` seconds."""
        return self._ask_here(
            doing, lambda client, left: self._wait(client, request(client, left), left), deadline=deadline
        )

    def _ask(self, doing: str, request: Callable[[AdminClient, float], concurrent.futures.Future[_T]]) -> _T:
        return self._ask_here(doing, lambda client, left: self._wait(client, request(client, left), left))

    def _wait(self, client: AdminClient, answer: concurrent.futures.Future[_T], left: float) -> _T:
        return wait_for(answer, left, serving(client, self._handles.address, self._trouble))

    def _ask_here(
        self,
        doing: str,
        call: Callable[[AdminClient, float], _T],
        refused: frozenset[int] = frozenset(),
        deadline: float | None = None,
    ) -> _T:
        def attempt(left: float) -> _T:
            try:
                return call(client, left)
            except KafkaException as failure:
                if error_of(failure).code() in refused:
                    raise _Refused(error_of(failure).name()) from None
                raise
            except ValueError as failure:
                # The errors of the Python client's own checks of names and numbers.
                raise KafkaException(KafkaError(KafkaError._INVALID_ARG, str(failure))) from None

        client = self._connect()
        try:
            answer = ask(
                attempt,
                doing,
                address=self._handles.address,
                trouble=self._trouble,
                deadline=deadline or self._deadline,
            )
            self._handles.check_version(client)
            return answer
        finally:
            self._handles.reached = self._trouble.reached
            self._let_go(client)

    def _replace(self) -> None:
        """Has the next call make another handle."""
        with self._lock:
            client, self._client = self._client, None
            is_idle = client is not None and not self._calls[client]
        if client is not None and is_idle:
            self._close(client)

    def _let_go(self, client: AdminClient) -> None:
        with self._lock:
            self._calls[client] -= 1
            if self._calls[client]:
                return
            if self._closed and client is self._client:
                self._client = None
            if client is self._client:
                return
        self._close(client)

    def _close(self, client: AdminClient) -> None:
        # Python's collector may run a client's destructor on a thread of librdkafka, which aborts the process.
        with self._lock:
            del self._calls[client]
        self._handles.close_admin(client)

    def _note(self, name: str) -> None:
        now = time.monotonic()
        # Each time a new dict with the topics that are still new, because other threads read it.
        self._made = {each: at for each, at in self._made.items() if now < at + _NEW} | {name: now}

    def _layout(self, client: AdminClient, name: str, left: float) -> TopicDescription:
        asked = client.describe_topics(TopicCollection([name]), request_timeout=left)[name]
        found: TopicDescription = self._wait(client, asked, left)
        return found

    def _describe(self, client: AdminClient, name: str, left: float) -> TopicInfo:
        resource = ConfigResource(ResourceType.TOPIC, name)
        # Both requests at once: they cost one round trip.
        topic = client.describe_topics(TopicCollection([name]), request_timeout=left)[name]
        settings = client.describe_configs([resource], request_timeout=left)[resource]
        found: TopicDescription = self._wait(client, topic, left)
        config = self._settings(client, settings, left)
        return TopicInfo(
            name=name,
            topic_id=str(found.topic_id),
            partitions=len(found.partitions),
            replication=max((len(each.replicas) for each in found.partitions), default=0),
            max_message_bytes=int(config.get("max.message.bytes", _DEFAULT_MAX_MESSAGE_BYTES)),
            config=config,
        )

    def _settings(
        self, client: AdminClient, asked: concurrent.futures.Future[dict[str, ConfigEntry]], left: float
    ) -> Mapping[str, str]:
        try:
            found = self._wait(client, asked, left)
        except KafkaException as failure:
            # Seeing a topic and seeing its settings are two rights; without the second the defaults are taken.
            if error_of(failure).code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                return {}
            raise
        return {key: str(entry.value) for key, entry in found.items() if entry.value is not None}

    def _shown(self, client: AdminClient, name: str, config: Mapping[str, str | None], left: float) -> None:
        resource = ConfigResource(ResourceType.TOPIC, name)
        found = self._wait(client, client.describe_configs([resource], request_timeout=left)[resource], left)
        for key, value in config.items():
            entry = found.get(key)
            own = entry is not None and entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
            if own is (value is None) or (own and str(entry.value) != value):
                raise _not_yet("the new settings don't show yet")

    def _settled(self, client: AdminClient, name: str, left: float, partitions: int = 1) -> TopicInfo:
        try:
            found = self._layout(client, name, left)
            info = self._describe(client, name, left)
        except KafkaException as failure:
            if error_of(failure).code() in UNKNOWN_TOPIC:
                raise _not_yet("the new topic isn't known to every broker yet") from None
            raise
        if len(found.partitions) < partitions or any(each.leader is None for each in found.partitions):
            raise _not_yet("not all of the new partitions have leaders yet")
        return info

    def _forgotten(self, client: AdminClient, name: str, left: float) -> None:
        try:
            self._layout(client, name, left)
        except KafkaException as failure:
            if error_of(failure).code() in UNKNOWN_TOPIC:
                return
            raise
        raise _not_yet("the topic is still being deleted")

    def _offsets(
        self, partitions: Sequence[TopicPartition], where: OffsetSpec, level: IsolationLevel, doing: str
    ) -> Mapping[TopicPartition, int]:
        return {each: at.offset for each, at in self._places(partitions, where, level, doing).items()}

    def _places(
        self, partitions: Sequence[TopicPartition], where: OffsetSpec, level: IsolationLevel, doing: str
    ) -> Mapping[TopicPartition, LogEnd]:
        def places(client: AdminClient, left: float) -> Mapping[TopicPartition, LogEnd]:
            wanted = {KafkaPartition(*each): where for each in partitions}
            futures = client.list_offsets(wanted, isolation_level=level, request_timeout=left)
            try:
                log_ends = {
                    TopicPartition(each.topic, each.partition): self._wait(client, future, left)
                    for each, future in futures.items()
                }
                if any(each.offset < 0 for each in log_ends.values()):
                    # A broker gives this without an error while a leader is away; as an end it would mean a cut log.
                    raise _not_yet("the broker didn't name an offset")
                return {place: LogEnd(each.offset, each.leader_epoch) for place, each in log_ends.items()}
            except KafkaException as failure:
                if error_of(failure).code() in STALE_LEADER:
                    # librdkafka would go on asking the leader that it remembers; this makes it look again.
                    for topic in {each.topic for each in partitions}:
                        client.list_topics(topic, timeout=min(left, 1.0))
                raise

        return self._ask_here(doing, places)


class _Refused(Exception):
    """The broker's answer means something special to this call; the text is the code's name."""


def _not_yet(why: str) -> KafkaException:
    return KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE, why))


def topic_ids(
    client: AdminClient,
    names: Sequence[str],
    seconds: float,
    wait: Callable[[concurrent.futures.Future[TopicDescription]], TopicDescription],
) -> Mapping[str, str]:
    """Returns the ids by one request; leaves out topics that the broker doesn't find."""
    found: dict[str, str] = {}
    asked = client.describe_topics(TopicCollection(list(names)), request_timeout=seconds)
    for name, answer in asked.items():
        try:
            found[name] = str(wait(answer).topic_id)
        except KafkaException as failure:
            if error_of(failure).code() not in UNKNOWN_TOPIC:
                raise
    return found
