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
from typing import Final

from kafka_pubsub.log.ports import Admin
from kafka_pubsub.model import TopicInfo

__all__ = ["BROKER_TIME", "companion_settings", "in_sync_settings", "keep_in_sync"]

#: The setting with which a broker dates each record when it comes in.
BROKER_TIME: Final[Mapping[str, str]] = {"message.timestamp.type": "LogAppendTime"}

#: Bytes above the home topic's limit for this client's headers (origin, attempt, why a message was dead-lettered).
_HEADERS = 1024 * 1024

#: The factor by which a record may be larger with our compression (zstd, default level) than with its publisher's;
#: the levels of zstd differ by far less.
_WORSE = 2

_IN_SYNC = "min.insync.replicas"
#: Copies from which on one may be away, and the others still have what counts.
_COPIES = 3
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
    if replicas := home.config.get(_IN_SYNC):
        settings[_IN_SYNC] = replicas
    return settings


def in_sync_settings(info: TopicInfo) -> Mapping[str, str]:
    """Returns what a topic that all home topics share needs beside its own settings: as much as a careful home has.

    Where there are three copies, two must have a record before it counts.
    """
    if info.replication < _COPIES:
        return {}
    return {_IN_SYNC: str(max(2, int(info.config.get(_IN_SYNC, 2))))}


def keep_in_sync(admin: Admin, info: TopicInfo) -> None:
    """Gives a topic that was just made what `in_sync_settings` says."""
    settings = in_sync_settings(info)
    if not settings.items() <= info.config.items():
        admin.update_topic(info.name, settings)
