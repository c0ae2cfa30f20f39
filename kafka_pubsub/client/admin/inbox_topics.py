"""The inboxes of causal topics: made and deleted beside the topic.

Rules
1. An inbox has the partitions and replicas of its topic, and takes every message that the topic takes.
2. When a causal topic is deleted its inbox stays, and the sequencer answers there that the topic is gone. It goes when
   the topic is deleted a second time. A topic that is made again goes on with it: the sequencer sees the new topic's id
   and refuses no more, and its clock doesn't go back.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from kafka_pubsub.client.admin.companion_topics import companion_settings
from kafka_pubsub.client.admin.names import inbox_topic
from kafka_pubsub.core.multicast.layout import (
    DEAD,
    DEAD_SETTINGS,
    GROUP,
    RECEIPT_PARTITIONS,
    RECEIPT_SETTINGS,
    RECEIPTS,
)
from kafka_pubsub.core.multicast.progress import parse_progress
from kafka_pubsub.errors import AlreadyExists, Call, FailedPrecondition, NotFound
from kafka_pubsub.model import TopicInfo
from kafka_pubsub.ports import Admin

__all__ = ["await_sequencers", "delete_inbox", "make_inbox"]

#: Seconds that sequencers may take to see a topic that was made again, and between two looks.
_PATIENCE, _LOOK = 10.0, 0.1


def make_inbox(admin: Admin, home: TopicInfo) -> bool:
    """Makes the inbox of a new causal topic; returns False if an earlier topic of this name has left one that fits.

    With the first one the topics of receipts and of dead letters are made.
    """
    with contextlib.suppress(AlreadyExists):
        admin.create_topic(RECEIPTS, RECEIPT_PARTITIONS, home.replication, RECEIPT_SETTINGS)
    with contextlib.suppress(AlreadyExists):
        admin.create_topic(DEAD, 1, home.replication, DEAD_SETTINGS)
    name = inbox_topic(home.name)
    with contextlib.suppress(AlreadyExists):
        admin.create_topic(name, home.partitions, home.replication, companion_settings(home))
        return True
    left = admin.topic(name)
    if left.partitions != home.partitions:
        again = Call("delete_topic", home.name)
        raise FailedPrecondition(
            f"partitions: an earlier topic {home.name!r} has left its inbox {name!r} with {left.partitions} "
            f"partitions: {again} removes it, if nothing is published to it any more; or make the topic with as many",
            calls=(again,),
        )
    return False


def await_sequencers(admin: Admin, home: TopicInfo, sleep: Callable[[float], None]) -> None:
    """Waits until the sequencers know that the topic was made again, if any run."""
    end = time.monotonic() + _PATIENCE
    while admin.group_members(GROUP) and time.monotonic() < end:
        found = admin.group_offsets(GROUP, inbox_topic(home.name)).values()
        known = [each for each in found if each.offset is not None and each.metadata]
        if len(known) == home.partitions and all(
            parse_progress(each.offset or 0, each.metadata).topic_id == home.topic_id for each in known
        ):
            return
        sleep(_LOOK)


def delete_inbox(admin: Admin, topic: str) -> None:
    """Deletes the inbox of a topic, if there is one."""
    with contextlib.suppress(NotFound):
        admin.delete_topic(inbox_topic(topic))
