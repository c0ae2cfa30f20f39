"""The inboxes of causal topics: made and deleted beside the topic.

Rules
1. An inbox has the partitions and replicas of its topic, and takes every message that the topic takes.
2. When a causal topic is deleted its inbox stays, and the sequencer answers there that the topic is gone. It goes when
   the topic is deleted a second time. A topic that is made again goes on with it: the sequencer sees the new topic's id
   and refuses no more, and its clock doesn't go back.
3. An inbox is lost when its sequencer's position is gone, though messages have passed it: what is there may have been
   delivered.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from kafka_pubsub.client.admin.companion_topics import companion_settings, keep_in_sync
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
from kafka_pubsub.model import TopicInfo, TopicPartition
from kafka_pubsub.ports import Admin

__all__ = ["await_sequencers", "check_left_inbox", "delete_inbox", "has_lost_position", "make_inbox"]

#: Seconds that sequencers may take to see a topic that was made again, and between two looks.
_PATIENCE, _LOOK = 10.0, 0.1


def make_inbox(admin: Admin, home: TopicInfo) -> bool:
    """Makes the inbox of a new causal topic; returns False if an earlier topic of this name has left one.

    With the first one the topics of receipts and of dead letters are made, for all causal topics: with the cluster's
    replication, whatever the home's is.
    """
    with contextlib.suppress(AlreadyExists):
        keep_in_sync(admin, admin.create_topic(RECEIPTS, RECEIPT_PARTITIONS, None, RECEIPT_SETTINGS))
    with contextlib.suppress(AlreadyExists):
        keep_in_sync(admin, admin.create_topic(DEAD, 1, None, DEAD_SETTINGS))
    name = inbox_topic(home.name)
    with contextlib.suppress(AlreadyExists):
        admin.create_topic(name, home.partitions, home.replication, companion_settings(home))
        return True
    return False


def check_left_inbox(admin: Admin, topic: str, partitions: int) -> None:
    """Raises if an earlier topic has left an inbox with which the new topic can't go on."""
    inbox, remove = inbox_topic(topic), Call("delete_topic", topic)
    try:
        left = admin.topic(inbox).partitions
    except NotFound:
        return
    if left != partitions:
        raise FailedPrecondition(
            f"partitions: an earlier topic {topic!r} has left its inbox {inbox!r} with {left} partitions: {remove} "
            "removes it, if nothing is published to it any more; or make the topic with as many",
            calls=(remove,),
        )
    if has_lost_position(admin, topic, left):
        raise FailedPrecondition(
            f"an earlier topic {topic!r} has left its inbox {inbox!r}, and it isn't known which messages in it were "
            f"delivered, because the broker has forgotten the sequencer's position: {remove} removes it, then make the "
            "topic",
            calls=(remove,),
        )


def has_lost_position(admin: Admin, topic: str, partitions: int) -> bool:
    """Whether the sequencers have no position for a partition of a causal topic, though messages passed.

    They did if the topic or its inbox was trimmed or holds something; without the topic, if its inbox does.
    """
    inbox = inbox_topic(topic)
    try:
        admin.topic(topic)
        holder = topic
    except NotFound:
        holder = inbox
    # Before the positions are read: a sequencer that comes now stores one first.
    ends = admin.high_watermarks([TopicPartition(holder, number) for number in range(partitions)])
    passed = {place.partition for place, end in ends.items() if end}
    committed = admin.group_offsets(GROUP, inbox)
    missing = [each for each in range(partitions) if each not in committed or committed[each].offset is None]
    return any(each in passed or admin.log_range(TopicPartition(inbox, each))[0] for each in missing)


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
