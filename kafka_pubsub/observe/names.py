"""The metrics by name: what each counts, its labels, and how the figures of several processes are put together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

__all__ = ["HIGHEST", "METRICS", "PREFIX", "Metric"]

PREFIX: Final = "kafka_pubsub_"
_SUB, _TOPIC, _UNIT = ("subscription", "topic"), ("topic",), ("unit",)


class Metric(NamedTuple):
    """A metric: `field` is its name in a `counters.Reading`, `name` its name without the prefix."""

    field: str
    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: Sequence[str]
    meaning: str
    #: Whether Kafka knows it, so that processes tell the same, and the highest of them counts; else they add up.
    of_kafka: bool = False


METRICS: Final[Sequence[Metric]] = (
    # Publishing
    Metric("published", "published", "counter", _TOPIC, "Messages that were stored."),
    Metric("publish_failed", "publish_failed", "counter", _TOPIC, "Messages that failed, or were refused."),
    Metric("publishing", "publishing", "gauge", _TOPIC, "Messages that wait to be stored."),
    Metric(
        "publish",
        "publish_seconds",
        "histogram",
        _TOPIC,
        "From publish to the broker's answer; one message is measured for a run of them.",
    ),
    # Receiving
    Metric("received", "received", "counter", _SUB, "Messages that were read."),
    Metric("acked", "acked", "counter", _SUB, "Messages that were finished."),
    Metric("redelivered", "redelivered", "counter", _SUB, "Deliveries after the first."),
    Metric("moved", "moved", "counter", _SUB, "Messages that went to the retry topic."),
    Metric("dead_lettered", "dead_lettered", "counter", _SUB, "Messages that became dead letters."),
    Metric(
        "dead_letter_reasons",
        "dead_letters_by_reason",
        "counter",
        (*_SUB, "reason"),
        "The same by the class of the reason: attempts_used_up, rejected, dropped, unreadable.",
    ),
    Metric("stale_acks", "stale_acks", "counter", _SUB, "Acks and nacks that came too late."),
    Metric("commit_failures", "commit_failures", "counter", _SUB, "Commits that Kafka didn't take."),
    Metric(
        "move_failures", "move_failures", "counter", _SUB, "Moves to the retry topic that weren't stored."
    ),
    Metric("rebalances", "rebalances", "counter", _SUB, "Assignments of partitions."),
    Metric(
        "takeovers",
        "takeovers",
        "counter",
        _SUB,
        "Partitions whose last owner didn't leave in good order.",
    ),
    Metric("in_flight", "in_flight", "gauge", _SUB, "Messages that are leased now."),
    Metric("buffered_bytes", "buffered_bytes", "gauge", _SUB, "Bytes of messages in memory."),
    Metric(
        "partitions", "partitions", "gauge", _SUB, "Partitions that are held now, those of lanes included."
    ),
    Metric(
        "paused_partitions", "paused_partitions", "gauge", _SUB, "Those that aren't read for want of room."
    ),
    Metric(
        "callback",
        "callback_seconds",
        "histogram",
        _SUB,
        "The time of callbacks; of quick ones the mean of a run counts for each.",
    ),
    Metric(
        "open_transaction",
        "open_transaction_seconds",
        "gauge",
        _SUB,
        "For how long a transaction that isn't ours, or hangs, has held up the retry topic.",
        of_kafka=True,
    ),
    # What runs
    Metric("up", "up", "gauge", _UNIT, "How many of this unit do their work; 0: none that was started does."),
    Metric(
        "transactions", "service_transactions", "counter", _UNIT, "Transactions that a service has stored."
    ),
    Metric(
        "transaction_failures", "service_transaction_failures", "counter", _UNIT, "Those that weren't stored."
    ),
    Metric("records", "service_records", "counter", _UNIT, "Records in the transactions that were stored."),
    Metric(
        "silent_workers", "silent_workers", "gauge", (), "Processes of `run` that didn't answer this scrape."
    ),
    # What Kafka knows
    Metric("lag", "lag", "gauge", _SUB, "Kafka's lag: the log's end less the committed position.", True),
    Metric(
        "backlog",
        "backlog",
        "gauge",
        _SUB,
        "Messages that aren't finished; a large one is an upper bound.",
        True,
    ),
    Metric(
        "oldest_age",
        "oldest_age_seconds",
        "gauge",
        _SUB,
        "For how long the oldest of them has waited; 0: none.",
        True,
    ),
    Metric(
        "oldest_at_home",
        "oldest_at_home_age_seconds",
        "gauge",
        _SUB,
        "The same without those in retry topics, which wait on purpose.",
        True,
    ),
    Metric(
        "waiting_retry", "waiting_retry", "gauge", _SUB, "Messages that wait for their next delivery.", True
    ),
    Metric(
        "retry_overdue",
        "retry_overdue_seconds",
        "gauge",
        _SUB,
        "For how long the first of them has been due; 0: none is.",
        True,
    ),
    Metric("parked", "parked", "gauge", _SUB, "Messages that wait until they are released.", True),
    Metric(
        "oldest_parked", "oldest_parked_age_seconds", "gauge", _SUB, "The age of the oldest of these.", True
    ),
    Metric("blocked_keys", "blocked_keys", "gauge", _SUB, "Ordering keys whose later messages wait.", True),
    Metric("dead_letters", "dead_letters", "gauge", _SUB, "Dead letters neither replayed nor purged.", True),
    Metric("members", "members", "gauge", _SUB, "Processes that receive.", True),
    Metric("retention", "retention_seconds", "gauge", _SUB, "How long the topic keeps messages.", True),
    Metric("delayed_waiting", "delayed_waiting", "gauge", (), "Delayed messages that wait, at most.", True),
    Metric(
        "delayed_overdue",
        "delayed_overdue_seconds",
        "gauge",
        (),
        "For how long the first delayed message that is due has been due.",
        True,
    ),
    Metric("routers", "routers", "gauge", (), "Delay routers that run, in any process.", True),
    Metric("sequencers", "sequencers", "gauge", (), "Sequencers that run, in any process.", True),
    Metric("causal_pending", "causal_pending", "gauge", _TOPIC, "Messages staged at a causal topic.", True),
    Metric(
        "causal_block",
        "causal_block_age_seconds",
        "gauge",
        _TOPIC,
        "For how long the message has waited that holds up the others.",
        True,
    ),
    Metric(
        "view_age",
        "view_age_seconds",
        "gauge",
        (),
        "For how long Kafka has answered none of these questions.",
        True,
    ),
    Metric(
        "whole_view", "whole_view", "gauge", (), "1: all subscriptions and services are asked about.", True
    ),
    Metric(
        "view_failures", "view_failures", "counter", (), "Questions to Kafka for these figures that failed."
    ),
)

#: The gauges of which the highest counts.
HIGHEST: Final = frozenset(each.field for each in METRICS if each.of_kafka)
