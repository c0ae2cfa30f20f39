"""The settings of the retry and dead-letter topics beside a topic.

Rules
1. Every message that the home topic accepts fits here too, with our headers and if our compression is worse.
2. Kafka deletes nothing by age, size or compaction; the owner of a retry partition deletes what is below its position.
3. A record keeps its publisher's timestamp, however old it is or however wrong the publisher's clock was.
4. An acknowledged record isn't lost: as many replicas must have it as in the home topic, and no replica that lacks
   records may become the leader.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafka_pubsub.model import TopicInfo

__all__ = ["companion_settings"]

#: Bytes above the home topic's limit for this client's headers (origin, attempt, why a message was dead-lettered).
_HEADERS = 1024 * 1024

#: The factor by which a record may be larger with our compression (zstd, default level) than with its publisher's;
#: the levels of zstd differ by far less.
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
