"""Spark's format `kafka_pubsub`: small tables of what the cluster holds beside messages, also over Spark Connect.

    register_tables(spark)
    source = spark.read.format("kafka_pubsub").option("kafka.bootstrap.servers", "localhost:9092")
    source.option("table", "subscriptions").load().show()

Theory. It is a Python data source: Spark runs it in a Python process beside the driver, and over Spark Connect beside
the server. That process reads the whole table with the client of kafka_pubsub and hands its rows to Spark. So the
executors need nothing of ours, but Python at the driver needs what kafka_pubsub itself needs (librdkafka).

Rules
1. Options are checked by `load`; an error names the option and what is allowed.
2. A table is read when its rows are asked for, each time that Spark plans a query. Nothing is made in the cluster.
3. Settings of the connection are named as for Spark's format `kafka`, and translated for librdkafka. Settings of
   Spark's reading aren't for these tables, so they are left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from kafka_pubsub.errors import FailedPrecondition, InvalidArgument

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafka_pubsub.app import PubSub

__all__ = ["DefaultSource", "client_settings", "register_tables"]

_TABLE, _SUBSCRIPTION, _ADDRESS = "table", "subscription", "kafka.bootstrap.servers"
#: The beginnings of the settings that both Java's client and librdkafka have.
_OF_A_CONNECTION = ("security.", "sasl.", "ssl.", "client.")
_JAAS = "sasl.jaas.config"

Row = tuple[Any, ...]


def register_tables(spark: SparkSession) -> None:
    """Makes the format `kafka_pubsub` known to a session; Spark finds it by itself where this package is installed.

    Options of the format: `kafka.bootstrap.servers` and `table`, which must be given; other settings of the connection
    with the prefix `kafka.`, as for Spark's format `kafka`; and `subscription`, only for the table `dead_letters`
    (default: of all subscriptions). The tables:

    `waiting`: the delayed messages that wait: `message_id`, `topic` (where a message goes), `ordering_key`, `data`,
    `attributes`, `deliver_at` (when it is due; null: its delay hasn't begun) and `tier`.

    `subscriptions`: their names and what they are configured to.

    `dead_letters`: what was given up and neither replayed nor purged: the subscription, the message, its origin, the
    reason and the attempts.

    `catalog`: all topics and subscriptions, with `record`, what is stored of them, as JSON.

    Python at the driver (over Spark Connect: at the server) needs kafka_pubsub with its dependencies.

    Example:
        register_tables(spark)
        source = spark.read.format("kafka_pubsub").option("kafka.bootstrap.servers", "localhost:9092")
        source.option("table", "dead_letters").load().groupBy("subscription", "reason").count().show()
    """
    try:
        spark.dataSource.register(DefaultSource)
    except Exception as error:
        # Spark has found it by itself.
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
            raise


class _Table(NamedTuple):
    """One table: its columns, and how its rows are read."""

    schema: str
    rows: Callable[[PubSub, str | None], Iterator[Row]]


def _waiting(pubsub: PubSub, _: str | None) -> Iterator[Row]:
    for each in pubsub.delays.waiting(bodies=True):
        attributes = dict(each.attributes)
        yield each.message_id, each.topic, each.ordering_key, each.data, attributes, each.due, each.tier


def _subscriptions(pubsub: PubSub, _: str | None) -> Iterator[Row]:
    for each in pubsub._cluster.subscriptions.records():
        options, retry = each.options, each.retry_topic
        yield (
            each.name,
            each.topic,
            each.state,
            each.detached,
            options.message_ordering,
            float(options.ack_deadline),
            None if options.dead_letter is None else options.dead_letter.topic,
            None if options.dead_letter is None else options.dead_letter.max_attempts,
            None if retry is None else retry.name,
            _moment(each.created),
            dict(options.labels),
        )


def _dead_letters(pubsub: PubSub, subscription: str | None) -> Iterator[Row]:
    of_all = pubsub._cluster.subscriptions.records()
    for name in (
        [each.name for each in of_all if each.options.dead_letter] if subscription is None else [subscription]
    ):
        for each in pubsub.subscription(name).dead_letters():
            yield (
                each.subscription,
                each.id,
                each.message_id,
                each.topic,
                each.partition,
                each.offset,
                each.ordering_key,
                each.data,
                dict(each.attributes),
                each.publish_time,
                each.died,
                each.reason,
                each.error,
                each.attempts,
                each.replays,
                each.problem,
            )


def _catalog(pubsub: PubSub, _: str | None) -> Iterator[Row]:
    cluster = pubsub._cluster
    for topic in cluster.topics.records():
        yield "topic", topic.name, topic.name, topic.state, _moment(topic.created), topic.model_dump_json()
    for each in cluster.subscriptions.records():
        yield "subscription", each.name, each.topic, each.state, _moment(each.created), each.model_dump_json()


def _moment(seconds: float) -> datetime | None:
    return datetime.fromtimestamp(seconds, UTC) if seconds else None


_TABLES = {
    "waiting": _Table(
        "message_id string, topic string, ordering_key string, data binary, attributes map<string,string>, "
        "deliver_at timestamp, tier int",
        _waiting,
    ),
    "subscriptions": _Table(
        "name string, topic string, state string, detached boolean, message_ordering boolean, ack_deadline double, "
        "dead_letter_topic string, max_attempts int, retry_topic string, created timestamp, "
        "labels map<string,string>",
        _subscriptions,
    ),
    "dead_letters": _Table(
        "subscription string, id string, message_id string, topic string, partition int, offset bigint, "
        "ordering_key string, data binary, attributes map<string,string>, publish_time timestamp, died timestamp, "
        "reason string, error string, attempts int, replays int, problem string",
        _dead_letters,
    ),
    "catalog": _Table(
        "kind string, name string, topic string, state string, created timestamp, record string", _catalog
    ),
}


class DefaultSource(DataSource):
    """The format; Spark looks for a class of this name."""

    @classmethod
    def name(cls) -> str:
        """Returns the name of the format."""
        return "kafka_pubsub"

    def schema(self) -> str:
        """Returns the columns of the table that the options name; raises `InvalidArgument` for wrong options."""
        return _TABLES[_checked(self.options)].schema

    def reader(self, schema: Any) -> DataSourceReader:
        """Returns a reader of the table."""
        return _Reader({name.lower(): value for name, value in self.options.items()})


class _Reader(DataSourceReader):
    """Reads a table beside the driver."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Reads all rows."""
        try:
            from kafka_pubsub.app import PubSub
        except ImportError as error:
            raise FailedPrecondition(
                f"the format kafka_pubsub needs the Python package {error.name} where Spark's driver runs (over Spark "
                "Connect: its server): install kafka-pubsub-orderly there"
            ) from error
        told = self._options
        with PubSub(told[_ADDRESS], config=client_settings(told), create=False) as pubsub:
            # A partition holds its rows, so Spark hands them to an executor.
            return [InputPartition(list(_TABLES[told[_TABLE]].rows(pubsub, told.get(_SUBSCRIPTION))))]

    def read(self, partition: InputPartition) -> Iterator[Row]:
        """Returns the rows; an executor calls this."""
        return iter(partition.value)


def _checked(options: Mapping[str, str]) -> str:
    """Returns the table's name; raises `InvalidArgument` for wrong options."""
    told = {name.lower(): value for name, value in options.items()}
    named = f"option {_TABLE}: name one of {', '.join(sorted(_TABLES))}"
    table = told.get(_TABLE)
    if table is None:
        raise InvalidArgument(f"{named}; it is missing")
    if table not in _TABLES:
        raise InvalidArgument(f"{named}; there is no table {table!r}")
    if not told.get(_ADDRESS):
        raise InvalidArgument(f"option {_ADDRESS} is missing: give Kafka's address, HOST:PORT")
    for name in told:
        if name == _SUBSCRIPTION and table != "dead_letters":
            raise InvalidArgument(
                f"option {name} is for the table dead_letters, not for {table}: leave it out"
            )
        if name not in (_TABLE, _SUBSCRIPTION) and not name.startswith("kafka."):
            raise InvalidArgument(
                f"option {name} is unknown: there are {_ADDRESS} and other settings kafka.*, {_TABLE}, and for "
                f"dead_letters {_SUBSCRIPTION}"
            )
    client_settings(told)
    return table


def client_settings(options: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings of the connection as librdkafka takes them, from options with the prefix `kafka.`."""
    named = {name.lower().removeprefix("kafka."): value for name, value in options.items()}
    told = {name: value for name, value in named.items() if name.startswith(_OF_A_CONNECTION)}
    jaas = told.pop(_JAAS, "")
    for name in ("username", "password"):
        if found := re.search(rf'\b{name}\s*=\s*"((?:[^"\\]|\\.)*)"', jaas):
            told[f"sasl.{name}"] = re.sub(r"\\(.)", r"\1", found[1])
    if jaas and "sasl.username" not in told:
        raise InvalidArgument(
            f"option kafka.{_JAAS}: a user and a password can be taken from it, and this one has none: give "
            "librdkafka's own settings, e.g. kafka.sasl.kerberos.principal"
        )
    if told.get("ssl.truststore.type", "").upper() == "PEM" and "ssl.truststore.location" in told:
        del told["ssl.truststore.type"]
        told["ssl.ca.location"] = told.pop("ssl.truststore.location")
    return told
