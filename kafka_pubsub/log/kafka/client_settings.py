"""The settings of librdkafka for readers and for producers that publish: what a user may change, and what not."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_pubsub.config import Batching
from kafka_pubsub.log.kafka.configuration import ConfigValue

__all__ = ["Settings", "join_settings", "reader_settings"]

#: Defaults that a user's config may override.
_DEFAULTS: Mapping[str, ConfigValue] = {
    # Milliseconds. When the queue is full a partition waits this long before it fetches again: the default of
    # 1000 costs two thirds of the throughput.
    "fetch.queue.backoff.ms": 5,
    # Kilobytes of prefetched records in this process, all partitions together; on top of FlowControl.max_bytes.
    "queued.max.messages.kbytes": 16_384,
    # Records a partition that librdkafka tries to have ready; the limit in kilobytes above is the effective one.
    "queued.min.messages": 10_000,
    # Milliseconds. A partition that is assigned or resumed joins the next fetch, so an idle fetch must end soon; but
    # each fetch costs processor time here and at the broker, and is most of the cost of an idle subscription.
    "fetch.wait.max.ms": 500,
    # Bytes of one answer: it is held beside the queue, so it counts twice.
    "fetch.max.bytes": 16 * 1024 * 1024,
    # Milliseconds. A member that joins while the only broker restarts may lose its request for the topic's metadata,
    # and asks again only after this: with the default of 300,000 it gets no partitions for five minutes.
    "topic.metadata.refresh.interval.ms": 10_000,
}

#: With lanes, a fetch often asks for idle ones only, because of those that flow enough is here. No other fetch goes to
#: that broker until the first ends: with 500 ms the stream stood still for most of the time.
_WITH_LANES: Mapping[str, ConfigValue] = {"fetch.wait.max.ms": 20}

#: Milliseconds; only under the classic protocol, where they are the client's to choose. 6 s is the least that
#: brokers allow by default: a killed member's partitions stand still that long, and until the others' next heartbeats.
_CLASSIC_DEFAULTS: Mapping[str, ConfigValue] = {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 500}

_RULES: Mapping[str, ConfigValue] = {
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    # librdkafka reports the end of a log when an idle fetch returns nothing; only then does the position pass markers.
    "enable.partition.eof": True,
}


def reader_settings(
    group: str, member: str, group_protocol: str, *, spread: bool = False, lanes: bool = False
) -> tuple[Mapping[str, ConfigValue], Mapping[str, ConfigValue]]:
    """Returns the defaults and the fixed settings of one member; `spread` and `lanes` as in `Backend.reader`."""
    defaults = {**_DEFAULTS, **(_WITH_LANES if lanes else {})}
    rules = {**_RULES, "group.id": group, "client.id": member, "group.protocol": group_protocol}
    if group_protocol == "consumer":
        return defaults, {**rules, "group.remote.assignor": "uniform" if spread else "range"}
    strategy = "roundrobin" if spread else "range"
    return {**defaults, **_CLASSIC_DEFAULTS}, {**rules, "partition.assignment.strategy": strategy}


#: librdkafka's settings: those that a user's config may change, and those that it may not.
Settings = tuple[dict[str, ConfigValue], dict[str, ConfigValue]]


def join_settings(
    batching: Batching, max_batch_bytes: int, longest_wait: float, rules: Mapping[str, ConfigValue]
) -> Settings:
    """Returns the settings of a producer with these rules; a message waits so many seconds at most for others."""
    batches: dict[str, ConfigValue] = {
        "linger.ms": min(batching.max_latency, longest_wait) * 1000,
        "batch.num.messages": batching.max_messages,
        # The broker counts a whole batch against the topic's limit, not a message.
        "batch.size": min(batching.max_bytes, max_batch_bytes),
    }
    fixed: dict[str, ConfigValue] = {
        **rules,
        "partitioner": "murmur2_random",
        # librdkafka's estimate is a few bytes above the stored size that was checked before.
        "message.max.bytes": min(max(max_batch_bytes + 1000, 1_000_000), 1_000_000_000),
        # Publishing is bounded by the publishers' own flow control, which counts what the user configured.
        "queue.buffering.max.messages": 0,
        "queue.buffering.max.kbytes": 2_147_483_647,
    }
    if batching == Batching():
        return batches, fixed
    return {}, {**fixed, **batches}
