"""The inboxes of causal topics: made and deleted beside the topic.

Rules
1. An inbox has the partitions and replicas of its topic, and takes every message that the topic takes.
2. When a causal topic is deleted its inbox stays, and the sequencer answers there that the topic is gone. It goes when
   the topic is deleted a second time, or made again.
"""

from __future__ import annotations

import contextlib

from kafka_pubsub.client.admin.companion_topics import companion_settings
from kafka_pubsub.client.admin.names import inbox_topic
from kafka_pubsub.core.multicast.layout import RECEIPT_PARTITIONS, RECEIPT_SETTINGS, RECEIPTS
from kafka_pubsub.errors import AlreadyExists, NotFound
from kafka_pubsub.model import TopicInfo
from kafka_pubsub.ports import Admin

__all__ = ["delete_inbox", "make_inbox"]


def make_inbox(admin: Admin, home: TopicInfo) -> None:
    """Makes the inbox of a new causal topic; one that an earlier topic of this name has left is made again.

    With the first one the topic of receipts is made.
    """
    with contextlib.suppress(AlreadyExists):
        admin.create_topic(RECEIPTS, RECEIPT_PARTITIONS, home.replication, RECEIPT_SETTINGS)
    name = inbox_topic(home.name)
    with contextlib.suppress(NotFound):
        left = admin.topic(name)
        if left.partitions == home.partitions and not any(admin.last_stable_offsets(name).values()):
            return  # a call that didn't end has made it
        admin.delete_topic(name)
    with contextlib.suppress(AlreadyExists):
        admin.create_topic(name, home.partitions, home.replication, companion_settings(home))


def delete_inbox(admin: Admin, topic: str) -> None:
    """Deletes the inbox of a topic, if there is one."""
    with contextlib.suppress(NotFound):
        admin.delete_topic(inbox_topic(topic))
