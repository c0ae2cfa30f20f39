"""`PubSub`: the composition root, the only place that wires a cluster and its adapters together.

Rules
1. Making a `PubSub` opens no connection: the first call that needs the cluster reports a wrong address.
2. A method checks its arguments, calls the part that does the work, and returns a handle.
3. A method refuses an option that isn't supported yet by name, and never ignores it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self, TypeVar, Unpack, overload

from kafka_pubsub.cluster import Cluster
from kafka_pubsub.config import Settings, SubscriptionOptions, TopicOptions, TopicSchema, load_settings
from kafka_pubsub.delays.calls import Delays
from kafka_pubsub.delays.layout import PARTITIONS, SMALL_PARTITIONS
from kafka_pubsub.errors import Call, FailedPrecondition, InvalidArgument, NotFound
from kafka_pubsub.flat_names import FlatNames
from kafka_pubsub.history.protocol import Histories
from kafka_pubsub.local.address import choose_address
from kafka_pubsub.log.ports import Backend, MovableClock
from kafka_pubsub.multicast.calls import CausalTopics
from kafka_pubsub.multicast.future import Sent
from kafka_pubsub.options import Start, SubscriptionSettings, TopicChanges, TopicSettings, check_names
from kafka_pubsub.records.opening import SchemaPlace, open_records
from kafka_pubsub.records.records import Declared, Records
from kafka_pubsub.repartition.repartition import RepartitionProgress
from kafka_pubsub.subscribe.retry_topic.lost_tails import LostTail
from kafka_pubsub.subscription import Subscription
from kafka_pubsub.topic import Topic, names_of, new_topic
from kafka_pubsub.topics.catalog_changes import options_of

if TYPE_CHECKING:
    from kafka_pubsub.dead_letters.model import DeadLetterMessage
    from kafka_pubsub.log.memory.clock import VirtualClock
    from kafka_pubsub.model import Message
    from kafka_pubsub.records.codec import Format

__all__ = ["PubSub"]

T = TypeVar("T")

#: A login token, when it expires (seconds since the epoch), and if it has them its principal and extensions.
Token = tuple[str, float] | tuple[str, float, str] | tuple[str, float, str, Mapping[str, str]]
#: The value of a setting; `oauth_cb` is a function that gets the value of `sasl.oauthbearer.config`, or its name.
ConfigValue = str | int | float | bool | Callable[[str], Token]


class PubSub(FlatNames):
    """A client for the topics and subscriptions of one Kafka cluster.

    Example:
        with PubSub("localhost:9092") as ps:
            topic = ps.create_topic("orders", message_ordering=True)
            sub = ps.create_subscription("billing", topic="orders", message_ordering=True)

    `bootstrap`: the cluster's address. If you leave it out, it comes from `config["bootstrap.servers"]`, else from
        `KAFKA_PUBSUB_BOOTSTRAP`, else it is the embedded broker that `kafka-pubsub up` started.
    `config`: further settings of librdkafka, added to those of `KAFKA_PUBSUB_CONFIG`. `oauth_cb`, a function
        or its name as "module:function", gives login tokens (docs/connecting.md).
    `config_file`: a file with settings, in the properties format of Kafka's own tools. By default that of
        `KAFKA_PUBSUB_CONFIG_FILE`, if there is one; a setting in `config` wins over the file's.
    `create`: with False the client never makes topics or groups, for clusters where clients may not. The default is
        True, unless `KAFKA_PUBSUB_CREATE` says otherwise.
    `group_protocol`: "classic" (the default) or "consumer", Kafka's newer protocol for groups.
    `schemas`: where the schemas of records lie: a registry's address, a mapping of settings for its client
        (`{"url": ..., "basic.auth.user.info": ...}`), or a folder (docs/records.md). By default what
        `KAFKA_PUBSUB_SCHEMAS` says; without it there are no records.
    `history`: a directory in which each stream and publisher records what it does (docs/operations.md). By default
        they record nothing.
    """

    def __init__(
        self,
        bootstrap: str | None = None,
        *,
        config: Mapping[str, ConfigValue] | None = None,
        config_file: str | PathLike[str] | None = None,
        create: bool | None = None,
        group_protocol: Literal["classic", "consumer"] | None = None,
        history: str | PathLike[str] | None = None,
        schemas: SchemaPlace | None = None,
    ) -> None:
        settings = load_settings()
        merged = _join_config(settings, bootstrap, config or {}, config_file)
        address = choose_address(bootstrap, merged, settings)
        may_create = settings.create if create is None else create
        protocol = settings.group_protocol if group_protocol is None else group_protocol
        if protocol not in {"classic", "consumer"}:
            raise InvalidArgument(f"group_protocol must be 'classic' or 'consumer', not {protocol!r}")

        def connect() -> Backend:
            from kafka_pubsub.log.kafka.backend import KafkaBackend

            return KafkaBackend(address, merged, create=may_create, group_protocol=protocol)

        folder = (settings.history or None) if history is None else history
        records = open_records(settings.schemas if schemas is None else schemas)
        self._open(connect, may_create=may_create, where=address, history=folder, records=records)

    @classmethod
    def in_memory(
        cls,
        backend: Backend | None = None,
        *,
        clock: VirtualClock | None = None,
        create: bool = True,
        history: str | PathLike[str] | None = None,
        schemas: SchemaPlace | None = None,
        services: bool = True,
    ) -> Self:
        """Returns a `PubSub` that works in memory, without a broker, for tests (docs/testing.md).

        Several of them with backends of one `kafka_pubsub.log.memory` cluster behave like processes on one Kafka. With
        `services`, the default, it runs a delay router and a sequencer itself, from the first message that needs one.
        `clock` (default: the real time): delays, backoffs and deadlines pass when a test moves this clock. `schemas` is
        that of `PubSub`, by default none.
        """
        from kafka_pubsub.log.memory.backend import MemoryBackend
        from kafka_pubsub.own_services import run_own_services

        if backend is not None and clock is not None:
            raise InvalidArgument("clock: a backend has its cluster's; give the clock to the MemoryBackend")
        used = MemoryBackend(clock) if backend is None else backend
        self = cls.__new__(cls)
        self._open(
            lambda: used,
            may_create=create,
            where="memory",
            history=history,
            clock=used.clock,
            delay_partitions=SMALL_PARTITIONS,
            records=open_records(schemas),
        )
        if services:
            run_own_services(self._cluster)
        return self

    def _open(
        self,
        connect: Callable[[], Backend],
        *,
        may_create: bool,
        where: str,
        history: str | PathLike[str] | None,
        clock: MovableClock | None = None,
        delay_partitions: int = PARTITIONS,
        records: Records | None = None,
    ) -> None:
        self._cluster = Cluster(
            connect,
            may_create=may_create,
            histories=_histories(history),
            clock=clock,
            delay_partitions=delay_partitions,
            records=records,
        )
        self._where = where

    # -- topics ----------------------------------------------------------------------------------------------

    def create_topic(self, name: str, *, exist_ok: bool = False, **settings: Unpack[TopicSettings]) -> Topic:
        """Makes a topic.

        `partitions`: their number, by default 8, of a causal topic 1. `replication`: the copies of each message, by
        default the broker's default. `message_ordering`: None, the default, accepts ordering keys; True declares that
        the topic uses them, and False refuses them. `retention`: the seconds for which messages are kept, by default
        the broker's. `priorities`: how many there are, 1 (the default) to 10; the highest goes first. `transient`
        (default False): whether the topic takes messages that may be lost (`publish(durable=False)`). A topic with
        either has lanes (docs/lanes.md). `causal` (default False): whether it takes part in the one order of messages
        to several topics (`publish_multi`, docs/multicast.md). `schema` (default none): that of the topic's records,
        for `publish_record`: a class that brings one, a file (`order.avsc`), a subject that exists, or a `TopicSchema`
        (docs/records.md). `labels`: your own names and values, by default none.

        Raises `AlreadyExists` if the topic exists; with `exist_ok` (default False) only if it differs in a setting
        that you give.
        """
        check_names("create_topic", settings, TopicSettings.__optional_keys__)
        if settings.get("causal") and settings.get("partitions") is None:
            settings["partitions"] = 1

        def refuse_another(schema: TopicSchema) -> None:
            """Lets a topic that exists answer by itself, before anything is registered for it."""
            with contextlib.suppress(NotFound):
                self._cluster.topics.record(name)
                wanted = options_of(TopicOptions, {**settings, "schema": None, "record_schema": schema})
                self._cluster.topics.create(name, wanted, exist_ok=exist_ok)

        declared, fields = self._declare(name, settings, refuse_another)
        wanted = options_of(TopicOptions, fields)
        self._cluster.topics.create(name, wanted, exist_ok=exist_ok)
        if declared is not None:
            self._cluster.records.use(name, declared)
        return self.topic(name)

    def _declare(
        self,
        name: str,
        settings: TopicSettings | TopicChanges,
        before: Callable[[TopicSchema], object] = lambda schema: None,
    ) -> tuple[Declared | None, Mapping[str, object]]:
        """Returns the schema that settings declare (None: they don't), and the settings as the catalog has them.

        `before` may refuse the schema before it is registered.
        """
        fields = dict[str, object](settings)
        if "schema" not in fields:
            return None, fields
        given = fields.pop("schema")
        declared = None if given is None else self._cluster.declare_schema(name, given, before=before)
        return declared, fields | {"record_schema": None if declared is None else declared.schema}

    def adopt_topic(
        self,
        name: str,
        *,
        message_ordering: bool | None = None,
        labels: Mapping[str, str] | None = None,
        exist_ok: bool = False,
        check_keys: bool = True,
    ) -> Topic:
        """Takes a topic that Kafka already has into the catalog, with its partitions, settings and messages.

        `delete_topic` removes such a topic from the catalog only, and leaves the Kafka topic as it is. `check_keys`
        (default True) looks at a sample of its records, and logs a warning if keys lie in other partitions than
        `publish` would choose; `topic.key_places()` gives the same answer at any time.
        """
        wanted = options_of(TopicOptions, {"message_ordering": message_ordering, "labels": labels})
        self._cluster.topics.adopt(name, wanted, exist_ok=exist_ok, check_keys=check_keys)
        return self.topic(name)

    def topic(self, name: str) -> Topic:
        """Returns a handle, without checking that the topic exists."""
        cluster = self._cluster
        return new_topic(
            name,
            admin=lambda: cluster.topics,
            publisher=partial(cluster.publisher, name),
            publishers=cluster.publishers,
            delayed=lambda: cluster.delayed,
            multicast=lambda: cluster.multicast,
            delete=partial(cluster.delete_topic, name),
            records=lambda: cluster.records,
            wall=cluster.wall_time,
        )

    def publish_multi(
        self,
        topics: Iterable[str | Topic],
        data: bytes,
        *,
        ordering_key: str | None = None,
        attributes: Mapping[str, str] | None = None,
        handles: Iterable[str | Topic] = (),
    ) -> Future[Sent]:
        """Publishes one message to several causal topics, to all or to none, at one place in the order of messages.

        `topics`: their names, each once. `ordering_key` and `attributes` are those of `Topic.publish`, none by default.
        `handles` (default none): causal topics of which the message carries a handle; `message.handles` gives those
        that weren't deleted before it. The future gives the message's id and timestamp once a topic has delivered it,
        and fails after 30 seconds without that; it needs a running sequencer (docs/multicast.md). Until then only
        messages to exactly the same topics are sent; others wait, because what is published later comes later.

        Wrong arguments are raised by the call itself, everything later by the future.
        """
        return self._cluster.multicast.publish(
            names_of(topics), data, ordering_key, attributes, names_of(handles)
        )

    @property
    def delays(self) -> Delays:
        """Returns the delayed messages of all topics: what waits, what couldn't be delivered, the routers that run."""
        cluster = self._cluster
        return Delays(
            lambda: cluster.delayed, lambda: cluster.delay_topics, lambda: cluster.delay_dead_letters
        )

    @property
    def multicast(self) -> CausalTopics:
        """Returns the causal topics: their status, what they refused, and the sequencers that run."""
        cluster = self._cluster
        return CausalTopics(lambda: cluster.multicast, lambda: cluster.multicast_dead_letters)

    def update_topic(self, name: str, **changes: Unpack[TopicChanges]) -> Topic:
        """Changes only the settings that you give; None returns a setting to its default.

        `priorities` can be raised and `transient` switched on at any time, and neither can be taken back. The default
        priority stays what it was when the topic got lanes, because it is that of the messages in the topic itself. A
        `schema` holds for what is published from now on; records that are there name the schema that they have.
        """
        check_names("update_topic", changes, TopicChanges.__optional_keys__)
        declared, fields = self._declare(name, changes)
        self._cluster.topics.update(name, fields)
        if declared is not None:
            self._cluster.records.use(name, declared)
        return self.topic(name)

    def repartition_topic(
        self,
        name: str,
        partitions: int,
        *,
        timeout: float | None = None,
        on_progress: Callable[[RepartitionProgress], object] | None = None,
    ) -> Topic:
        """Gives a topic more partitions without reordering a key, which takes a minute at least.

        Publishers refuse messages with a key meanwhile, and every ordered subscription must finish what was published
        before. After `timeout` seconds (default: no limit) it raises `DeadlineExceeded`; call it again to go on. A
        call with the number of partitions that the topic has now gives the change up.
        """
        self._cluster.repartitioner.run(
            name, partitions, timeout=timeout, on_progress=on_progress or (lambda progress: None)
        )
        return self.topic(name)

    def repartition_progress(self, name: str) -> RepartitionProgress | None:
        """Returns how far a change of the topic's partitions is; None if no change is under way."""
        return self._cluster.repartitioner.look(name)

    def delete_topic(self, name: str, *, notify: Iterable[str | Topic] = ()) -> bool:
        """Deletes a topic and its messages; its subscriptions become detached.

        The deletion of a causal topic has its place in the order of messages: those before it are delivered, those
        after it fail. `notify` (default none): causal topics that get a message about it, whose `event` is
        "topic_deleted" and whose body is the topic's name.

        An adopted topic is removed from the catalog only: Kafka keeps it and its messages. Then the call returns
        True, and logs it too.
        """
        return self._cluster.delete_topic(name, names_of(notify))

    def list_topics(self) -> list[Topic]:
        """Returns all topics of the catalog, sorted by name."""
        return [self.topic(record.name) for record in self._cluster.topics.records()]

    # -- subscriptions ---------------------------------------------------------------------------------------

    def create_subscription(
        self,
        name: str,
        topic: str | Topic,
        *,
        start: Start = "latest",
        exist_ok: bool = False,
        **settings: Unpack[SubscriptionSettings],
    ) -> Subscription:
        """Makes a subscription, which receives the messages that are published after this call has returned.

        `start`: "earliest" begins at the oldest message of the topic that is left instead, a datetime with a time zone
        at the first one that was published then or later, a timedelta so long ago; "latest" is the default. The
        positions are stored by this call, for each lane too; a subscription that exists stays where it is.
        `ack_deadline`: the seconds (1 to 600, default 10) after which a message without an ack is delivered again.
        `max_extension`: the seconds (up to a week, default 3600) for which a running callback keeps its message.
        `message_ordering`: True delivers the messages of one key one after the other; default False. `retry`: the
        backoff between deliveries; with None, the default, messages are delivered again as soon as possible.
        `dead_letter`: what happens when attempts are used up; with None, the default, messages are delivered again
        for ever. `exactly_once` (default False): `acknowledge` waits until the acks are stored. `ageing`: the seconds
        (up to 3600, default 5) for which messages of a low priority are passed over before they get a tenth of the
        deliveries; `strict=True` (default False): they wait for as long as higher ones come (docs/lanes.md).
        `labels`: your own names and values, by default none.

        Raises `AlreadyExists` if the subscription exists; with `exist_ok` (default False) only if it differs in a
        setting that you give.
        """
        check_names("create_subscription", settings, SubscriptionSettings.__optional_keys__)
        wanted = options_of(SubscriptionOptions, settings)
        home = topic.name if isinstance(topic, Topic) else topic
        self._cluster.subscriptions.create(name, home, wanted, exist_ok=exist_ok, start=start)
        return self.subscription(name)

    def subscription(self, name: str) -> Subscription:
        """Returns a handle, without checking that the subscription exists."""
        cluster = self._cluster
        return Subscription(
            name,
            admin=lambda: cluster.subscriptions,
            subscriber=partial(cluster.subscriber, name),
            dead_letters=lambda: cluster.dead_letters,
            delete=partial(cluster.delete_subscription, name),
        )

    def update_subscription(
        self, name: str, *, remake_retry_topic: bool = False, **changes: Unpack[SubscriptionSettings]
    ) -> Subscription:
        """Changes only the settings that you give, for streams opened from now on; None returns one to its default.

        The settings are those of `create_subscription`; `retry=None` removes the backoff.
        `remake_retry_topic=True` makes a retry topic for a subscription that has none, or whose retry topic was
        deleted; the messages that waited in the deleted topic are lost.
        """
        check_names("update_subscription", changes, SubscriptionSettings.__optional_keys__)
        if remake_retry_topic:
            self._cluster.subscriptions.remake_retry_topic(name)
        self._cluster.subscriptions.update(name, changes)
        return self.subscription(name)

    def recover_subscription(
        self, name: str, *, start: Literal["oldest", "end"] = "oldest"
    ) -> list[LostTail]:
        """Repairs the positions of a subscription without open streams after a log has lost its last records.

        After an unclean leader election, or when a single broker lost its disk, a stream ends with
        `FailedPrecondition`: an offset that was finished may hold another message now. `start="oldest"`, the default,
        delivers all messages that were written to the topic since; `start="end"` skips them. Messages that still wait
        in the retry topic are delivered in both cases. Returns a `LostTail` for each partition that lost records.
        """
        return self._cluster.subscriptions.recover(name, start)

    def delete_subscription(self, name: str) -> None:
        """Deletes a subscription, its position and its retry topic; its streams end with `NotFound`."""
        self._cluster.delete_subscription(name)

    def list_subscriptions(self) -> list[Subscription]:
        """Returns all subscriptions of the catalog, sorted by name."""
        return [self.subscription(record.name) for record in self._cluster.subscriptions.records()]

    # -- records ---------------------------------------------------------------------------------------------

    @overload
    def decode(self, message: Message | DeadLetterMessage) -> object: ...
    @overload
    def decode(self, message: Message | DeadLetterMessage, kind: type[T]) -> T: ...
    def decode(self, message: Message | DeadLetterMessage, kind: type[T] | None = None) -> object:
        """Returns the record of a message or dead letter, as `message.record()` does.

        `kind`: the type as which it is returned; None, the default, gives plain values.
        """
        return self._cluster.records.decode(message.headers, message.data, kind)

    def _use_schema(self, topic: str, given: object, format_: Format | None) -> None:
        """Declares a topic's schema for an app: makes the topic, or gives it the schema, if it has none."""
        cluster, change = self._cluster, Call("update_topic", topic, (("schema", ...),))

        def is_stored(schema: TopicSchema) -> bool:
            stored = self.topic(topic).options.record_schema
            if stored not in (None, schema):
                raise FailedPrecondition(
                    f"topic {topic!r} has the schema {stored}, not {schema}: declare the one that it has, or change it "
                    f"with {change}",
                    calls=(change,),
                )
            return stored == schema

        def check(schema: TopicSchema) -> None:
            with contextlib.suppress(NotFound):
                is_stored(schema)

        declared = cluster.declare_schema(topic, given, format_, before=check)
        try:
            stored = is_stored(declared.schema)
        except NotFound:
            wanted = options_of(TopicOptions, {"record_schema": declared.schema})
            cluster.topics.create(topic, wanted, exist_ok=True)
            stored = True
        if not stored and not cluster.may_create:
            raise FailedPrecondition(f"topic {topic!r} has no schema: {change} gives it one", calls=(change,))
        if not stored:
            cluster.topics.update(topic, {"record_schema": declared.schema})
        cluster.records.use(topic, declared)

    # -- the end ---------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Closes streams, flushes publishers and disconnects. A second call does nothing."""
        self._cluster.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<PubSub {self._where}>"


def _join_config(
    settings: Settings,
    bootstrap: object,
    config: Mapping[str, ConfigValue],
    config_file: str | PathLike[str] | None,
) -> dict[str, ConfigValue]:
    if config_file is None and not settings.config_file:
        return {**settings.config, **config}
    from kafka_pubsub.log.kafka.config_file import join_config

    return join_config(settings, bootstrap, config, config_file)


def _histories(directory: str | PathLike[str] | None) -> Histories | None:
    if directory is None:
        return None
    from kafka_pubsub.history.histories import HistoryFolder

    return HistoryFolder(directory)
