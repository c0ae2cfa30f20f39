"""The settings of the retry and dead-letter topics that are made beside a topic.

Rules
1. Whatever fits the home topic fits here, our headers and another compressor's worse ratio included.
2. Nothing disappears by age, size or compaction; the owner trims below what it has committed.
3. A record keeps its publisher's timestamp, however old it is or however wrong its clock was.
4. What was acknowledged stays: as many replicas must have it as in the home topic, and no replica that lacks a part of
   the log may lead.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafka_pubsub.model import TopicInfo

__all__ = ["companion_settings"]

#: Bytes above the home topic's limit for this client's headers (origin, attempt, why a message is dead).
_HEADERS = 1024 * 1024

#: How many times larger our compression (zstd, default level) may leave a record than its publisher's best did;
#: levels of zstd differ by far less.
_WORSE = 2

#: Kafka's settings are 32-bit and 64-bit integers.
_INT32, _INT64 = 2**31 - 1, 2**63 - 1


def companion_settings(home: TopicInfo) -> Mapping[str, str]:
    """Returns the settings for `Admin.create_topic`; partitions and replication are the home topic's."""
    settings = {
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "retention.bytes": "-1",
        "max.message.bytes": str(min(_WORSE * home.max_message_bytes + _HEADERS, _INT32)),
        "message.timestamp.type": "CreateTime",
        "message.timestamp.before.max.ms": str(_INT64),
        "message.timestamp.after.max.ms": str(_INT64),
        "compression.type": "producer",
        "unclean.leader.election.enable": "false",
    }
    # A client without the right to see settings leaves this to the broker's default.
    if replicas := home.config.get("min.insync.replicas"):
        settings["min.insync.replicas"] = replicas
    return settings
