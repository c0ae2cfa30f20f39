"""Settings, policies and resources, which pydantic checks when they are made.

Rules
1. Every value object is frozen; a wrong value raises `InvalidArgument`, which names the field and what is allowed.
2. Durations are seconds (int or float) unless the name says otherwise; `timedelta` is accepted too.
3. The records that the catalog stores (`TopicRecord`, `SubscriptionRecord`) carry a version and refuse unknown
   fields: a record of a newer version is refused, never guessed. Fields that came later aren't stored while they have
   their default, so that an older version reads the records that don't use them.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, ClassVar, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    field_validator,
    model_serializer,
    model_validator,
)

from kafka_pubsub.errors import InvalidArgument
from kafka_pubsub.lane_names import AGEING, MOST_PRIORITIES, Lane, LaneRules, middle_priority

__all__ = [
    "Batching",
    "DeadLetterPolicy",
    "DelayRecord",
    "FlowControl",
    "LaneTopic",
    "PublishFlow",
    "Repartition",
    "ResourceState",
    "RetryPolicy",
    "RetryTopic",
    "Settings",
    "SubscriptionLane",
    "SubscriptionOptions",
    "SubscriptionRecord",
    "TopicOptions",
    "TopicRecord",
    "TopicSchema",
    "Value",
    "load_settings",
]


def _seconds(value: object) -> object:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("must be a finite number of seconds")
    return value


#: How the names of our environment variables begin.
_PREFIX = "KAFKA_PUBSUB_"

Seconds = Annotated[float, BeforeValidator(_seconds)]


#: Plain texts for pydantic's error types; an error of another type keeps pydantic's own text.
_WORDS: Mapping[str, str] = {
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "dict_type": "must be an object of names and values",
    "extra_forbidden": "is no setting",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "greater_than": "must be more than {gt:g}",
    "greater_than_equal": "must be at least {ge:g}",
    "int_from_float": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "less_than_equal": "must be at most {le:g}",
    "literal_error": "must be {expected}",
    "missing": "is missing",
    "string_type": "must be text",
}


def explain(error: ValidationError, what: str, *, prefix: str = "") -> InvalidArgument:
    """Returns an error of one line that names each wrong field, what is wrong with it, and the value given.

    With a `prefix` the fields are environment variables, whose names begin with it.
    """
    problems = []
    for item in error.errors(include_url=False):
        field = ".".join(str(part) for part in item["loc"])
        if prefix:
            name, *rest = field.split(".")
            field = ".".join([prefix + name.upper(), *rest])
        words, text = _WORDS.get(item["type"]), item["msg"].removeprefix("Value error, ")
        wrong = f"{field}: {text}" if words is None else f"{field} {words.format(**item.get('ctx', {}))}"
        # An error between several fields has no location; its text names the fields.
        problems.append(f"{wrong} (got {item['input']!r:.80})" if item["loc"] else text)
    return InvalidArgument(f"{what}: " + "; ".join(problems))


class Value(BaseModel):
    """A frozen value whose wrong fields raise `InvalidArgument`."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False)

    #: Fields that older versions don't know; they aren't stored while they have their default.
    later_fields: ClassVar[frozenset[str]] = frozenset()

    @model_serializer(mode="wrap")
    def _leave_out(self, dump: SerializerFunctionWrapHandler) -> dict[str, object]:
        fields: dict[str, object] = dump(self)
        for name in self.later_fields:
            if getattr(self, name) == type(self).model_fields[name].get_default(call_default_factory=True):
                fields.pop(name, None)
        return fields

    def __init__(self, **fields: object) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise explain(error, type(self).__name__) from None


class FlowControl(Value):
    """The limits on what one stream has in flight and buffered.

    `max_messages` (default 1000) limits the messages that were started and aren't finished; `max_bytes` (default
    64 MiB) limits what this process buffers.
    """

    max_messages: int = Field(default=1000, ge=1, le=1_000_000)
    max_bytes: int = Field(default=64 * 1024 * 1024, ge=64 * 1024)


class Batching(Value):
    """The limits of a batch of published messages; the first limit that is reached sends the batch.

    `max_messages` (default 10,000) and `max_bytes` (default 1,000,000) limit the size of one batch. `max_latency`
    (seconds, default 0.001) limits how long a message waits for others. The default keeps the time from publish to
    callback below 5 ms at 5,000 messages a second, which librdkafka's own default of 5 ms doesn't. It costs no
    throughput: under load, batches fill while others are on their way.
    """

    max_messages: int = Field(default=10_000, ge=1, le=1_000_000)
    max_bytes: int = Field(default=1_000_000, ge=1, le=100_000_000)
    max_latency: Seconds = Field(default=0.001, ge=0, le=60)


class PublishFlow(Value):
    """The limits on what may wait to be published, and what `publish` does at a limit.

    `max_messages` (default 100,000) and `max_bytes` (default 256 MiB) limit what waits. At a limit `publish` waits
    (`on_limit="block"`, the default), raises `ResourceExhausted` ("error"), or queues the message anyway ("ignore").
    """

    max_messages: int = Field(default=100_000, ge=1)
    max_bytes: int = Field(default=256 * 1024 * 1024, ge=1)
    on_limit: Literal["block", "error", "ignore"] = "block"


class RetryPolicy(Value):
    """The backoff between redeliveries, which is drawn at random.

    The backoff lies between `min_backoff` (0 to 600 seconds, default 0.1) and a ceiling that doubles with every
    attempt and ends at `max_backoff` (0 to 86,400 seconds, default 600).
    """

    min_backoff: Seconds = Field(default=0.1, ge=0, le=600)
    max_backoff: Seconds = Field(default=600, ge=0, le=86_400)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min_backoff > self.max_backoff:
            raise ValueError(
                f"min_backoff {self.min_backoff:g} s is above max_backoff {self.max_backoff:g} s: give both, "
                "the smaller one as min_backoff"
            )
        return self


class DeadLetterPolicy(Value):
    """What a subscription does with a message whose attempts are used up.

    `topic` is the dead-letter topic, which must exist. `max_attempts` (1 to 100, default 5) is the number of attempts
    that a message has; with 1 its first failure is its last. `on_exhausted="dead_letter"`, the default, writes the
    message to the dead-letter topic; `"park"` keeps it, and the later messages of its key behind it, in the retry
    topic until you release it.
    """

    topic: str
    max_attempts: int = Field(default=5, ge=1, le=100)
    on_exhausted: Literal["dead_letter", "park"] = "dead_letter"


class TopicSchema(Value):
    """The schema of a topic's records, as `PubSub.create_topic(schema=...)` takes it and the catalog stores it.

    `format`: "avro", "json" or "protobuf"; None, the default, is the one that the subject, file or class has.
    `subject`: the schema's name in the registry, by default the topic's with `-value`, or the sub-folder, by default
    the topic's name. `framing`: "confluent" puts the schema's number before the body, "header" into the header
    `record-schema`; None, the default, is "confluent" with a registry, and "header" with a folder. `file`: the schema's
    file (`.avsc`, `.json`, `.proto`), or `kind`: the class that brings it; both None by default, and not stored.
    """

    format: Literal["avro", "json", "protobuf"] | None = None
    subject: str = Field(default="", max_length=249)
    framing: Literal["confluent", "header"] | None = None
    file: str | None = Field(default=None, exclude=True)
    kind: type | None = Field(default=None, exclude=True)

    def __repr__(self) -> str:
        return f"TopicSchema({self})"

    def __str__(self) -> str:
        return f"{self.subject} ({self.format}, {self.framing})"


class TopicOptions(Value):
    """A topic's stored configuration; `PubSub.create_topic` explains each setting.

    With None, `replication` and `retention` are the broker's. With None as `message_ordering`, keys are accepted.
    `default_priority` is the priority of messages in the topic's own Kafka topic, fixed when the topic gets lanes;
    None: it has none.
    """

    later_fields = frozenset({"priorities", "transient", "default_priority", "causal", "record_schema"})

    partitions: int = Field(default=8, ge=1, le=10_000)
    replication: int | None = Field(default=None, ge=1, le=100)
    message_ordering: bool | None = None
    retention: Seconds | None = Field(default=None, gt=0)
    priorities: int = Field(default=1, ge=1, le=MOST_PRIORITIES)
    transient: bool = False
    default_priority: int | None = Field(default=None, ge=0, lt=MOST_PRIORITIES)
    causal: bool = False
    record_schema: TopicSchema | None = None
    labels: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_order(self) -> Self:
        if self.causal and (self.priorities > 1 or self.transient):
            name = "transient" if self.transient else "priorities"
            raise ValueError(
                f"{name}: a causal topic has one order, in which no message overtakes another, so it can't have lanes; "
                "leave it out, or make a topic that isn't causal"
            )
        return self

    def lane_rules(self, topic: str) -> LaneRules:
        """Returns the lanes that a topic with these options may have."""
        default = self.default_priority
        return LaneRules(
            topic,
            self.priorities,
            self.transient,
            middle_priority(self.priorities) if default is None else default,
        )

    def with_lanes_fixed(self) -> Self:
        """Returns the options with their default priority written down if they allow lanes."""
        rules = self.lane_rules("")
        return self.model_copy(update={"default_priority": rules.default}) if rules.any else self


class SubscriptionOptions(Value):
    """A subscription's stored configuration; `PubSub.create_subscription` explains each setting."""

    later_fields = frozenset({"ageing", "strict"})

    ack_deadline: Seconds = Field(default=10, ge=1, le=600)
    max_extension: Seconds = Field(default=3600, ge=0, le=7 * 86_400)
    message_ordering: bool = False
    retry: RetryPolicy | None = None
    dead_letter: DeadLetterPolicy | None = None
    exactly_once: bool = False
    ageing: Seconds = Field(default=AGEING, gt=0, le=3600)
    strict: bool = False
    labels: dict[str, str] = Field(default_factory=dict)


#: A resource consists of several objects in the cluster, made and deleted one after the other. After a crash in
#: between, a record in state `creating` or `deleting` tells the next caller what to finish.
ResourceState = Literal["creating", "ready", "deleting"]


class Repartition(Value):
    """A change of a topic's number of partitions that is under way; see `repartition/repartition.py`.

    `barrier` holds the end offset of each old partition at the time when publishers had stopped using keys: messages
    below it must be finished before the topic grows. It is empty until all publishers have stopped.
    """

    partitions: int = Field(ge=1, le=10_000)
    phase: Literal["fencing", "draining", "growing"] = "fencing"
    barrier: dict[int, int] = Field(default_factory=dict)
    started: float = 0.0


class LaneTopic(Value):
    """A lane's Kafka topic as the catalog stores it; `topic_id` is Kafka's id, empty while the lane is being made."""

    name: str
    priority: int = Field(ge=0, lt=MOST_PRIORITIES)
    durable: bool
    topic_id: str = ""

    @property
    def lane(self) -> Lane:
        """Returns the lane."""
        return Lane(self.priority, self.durable)


class TopicRecord(Value):
    """A topic as the catalog stores it.

    `topic_id` is Kafka's id, by which a topic that was deleted and made again is recognised. It is empty while the
    topic is `creating`. `lanes` are the lanes that were used, beside the topic's own Kafka topic. `inbox_id` is the
    same of a causal topic's inbox; it stays while the inbox of a deleted topic answers.
    """

    later_fields = frozenset({"inbox_id", "lanes"})

    version: Literal[1] = 1
    name: str
    topic_id: str
    options: TopicOptions
    adopted: bool = False
    created: float = 0.0
    state: ResourceState = "ready"
    repartition: Repartition | None = None
    lanes: tuple[LaneTopic, ...] = ()
    inbox_id: str = ""

    @property
    def lane_rules(self) -> LaneRules:
        """Returns the lanes that the topic may have."""
        return self.options.lane_rules(self.name)

    def lane(self, name: str) -> LaneTopic | None:
        """Returns the lane whose Kafka topic has this name."""
        return next((each for each in self.lanes if each.name == name), None)


class RetryTopic(Value):
    """A subscription's retry topic as the catalog stores it.

    `topic_id` is Kafka's id, empty while the topic is being made. An `adopted` retry topic existed before the
    subscription, and remains when the subscription is deleted. `positions` is a copy of the committed offsets in the
    retry topic, like `SubscriptionRecord.positions` for the home topic.
    """

    name: str
    topic_id: str = ""
    adopted: bool = False
    positions: dict[int, int] = Field(default_factory=dict)


class SubscriptionLane(Value):
    """A subscription's part of one lane: a copy of its positions, and the lane's retry topic.

    A partition without a position begins at 0, because the lane is younger than the subscription.
    """

    retry_topic: RetryTopic
    positions: dict[int, int] = Field(default_factory=dict)


class SubscriptionRecord(Value):
    """A subscription as the catalog stores it.

    `positions` is a copy of the committed offsets (partition -> offset), used when the broker has deleted those of an
    idle group. It is written at creation and at each close. A record of an early version has no `retry_topic`: call
    `update_subscription(remake_retry_topic=True)` before you receive from such a subscription. `lanes` has an entry for
    each lane of the topic, by the name of its Kafka topic.
    """

    later_fields = frozenset({"lanes"})

    version: Literal[1] = 1
    name: str
    topic: str
    topic_id: str
    partitions: int = Field(ge=1)
    options: SubscriptionOptions
    positions: dict[int, int] = Field(default_factory=dict)
    retry_topic: RetryTopic | None = None
    detached: bool = False
    created: float = 0.0
    state: ResourceState = "ready"
    lanes: dict[str, SubscriptionLane] = Field(default_factory=dict)


class ConnectorRecord(Value):
    """A unit of the workers as the catalog stores it.

    `config` has the settings of a connector that was made by REST, names of secrets instead of them; None: the unit
    stands in the workers' file, and only its state is stored. `state`: the one that every worker brings it to.
    `restarts`: how often a restart was asked for; `failed_restarts`: only where the unit has failed.
    """

    version: Literal[1] = 1
    name: str
    config: dict[str, str] | None = None
    state: Literal["running", "paused", "stopped"] = "running"
    restarts: int = Field(0, ge=0)
    failed_restarts: int = Field(0, ge=0)
    created: float = 0.0


class DelayRecord(Value):
    """The number of partitions of the delays as the catalog stores it, once they were given more.

    Routers go by it from when it is stored, which is before the topics get the partitions: those that share keys walk
    in step. `grown` is when ingest had its partitions, in seconds since 1970 (0: not yet). `over` says that nothing
    from before waits any more, so that they needn't. A router of a version that doesn't know the record's version lets
    everything wait.
    """

    version: Literal[1] = 1
    former: int = Field(ge=1)
    partitions: int = Field(ge=1)
    grown: float = 0.0
    over: bool = False
    created: float = 0.0


class Settings(BaseModel):
    """The settings from the environment variables `KAFKA_PUBSUB_*`; docs/operations.md explains each.

    An argument takes the place of its variable.
    """

    model_config = ConfigDict(extra="ignore")

    bootstrap: str | None = None
    create: bool = True
    group_protocol: Literal["classic", "consumer"] = "classic"
    config: dict[str, str | int | float | bool] = Field(default_factory=dict)
    config_file: str | None = None
    history: str | None = None
    schemas: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _with_environment(cls, given: dict[str, object]) -> dict[str, object]:
        variables = {name.upper(): value for name, value in os.environ.items()}
        found = {name: variables.get(_PREFIX + name.upper()) for name in cls.model_fields}
        return {name: value for name, value in found.items() if value is not None} | given

    @field_validator("config", mode="before")
    @classmethod
    def _parse(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        try:
            return json.loads(value)
        except ValueError:
            # Not a `ValueError`, with which the text would quote the value: it may hold a password.
            raise InvalidArgument(
                f"environment: {_PREFIX}CONFIG isn't JSON: write an object, such as "
                '{"security.protocol": "SASL_SSL"}'
            ) from None


def load_settings() -> Settings:
    """Returns the settings of this process; raises `InvalidArgument`, which names a wrong one."""
    try:
        return Settings()
    except ValidationError as error:
        raise explain(error, "environment", prefix=_PREFIX) from None
