"""The inboxes of causal topics: made and deleted beside the topic.

Rules
1. An inbox has the partitions and replicas of its topic, and takes every message that the topic takes. The catalog
   names its id: another inbox of that name isn't the topic's.
2. Records behind the record `Alive` of an inbox are for the topic that it names. It is written before the topic is
   ready.
3. When a causal topic is deleted its inbox stays, and the sequencer answers there that the topic is deleted. It goes
   when the topic is deleted a second time. A topic that is made again goes on with it.
4. An inbox goes before its record: writers that could still propose for it are fenced in between. Once the record is
   gone the participants of the inbox are gone for all sequencers.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterable

from kafka_pubsub.config import TopicRecord
from kafka_pubsub.errors import (
    AlreadyExists,
    BrokerUnavailable,
    Call,
    FailedPrecondition,
    NotFound,
    PubSubError,
)
from kafka_pubsub.log.ports import Admin, Backend
from kafka_pubsub.model import Ending, NewRecord, TopicInfo, TopicPartition
from kafka_pubsub.multicast.layout import (
    DEAD,
    DEAD_SETTINGS,
    GROUP,
    RECEIPT_PARTITIONS,
    RECEIPT_SETTINGS,
    RECEIPTS,
    participant,
    publisher_id,
)
from kafka_pubsub.multicast.progress import parse_progress
from kafka_pubsub.multicast.records import encode_alive
from kafka_pubsub.multicast.values import Alive
from kafka_pubsub.topics.companion_topics import companion_settings, keep_in_sync
from kafka_pubsub.topics.names import inbox_topic

__all__ = ["InboxTopics", "participants_of", "why_unordered"]

#: Seconds after which a sequencer that stands still isn't a member of its group any more, so that it commits nothing.
_EXPELLED = 10.0
#: Seconds for an inbox to appear on a broker, or for the first position, and between two looks.
_PATIENCE, _LOOK = 5.0, 0.1


def participants_of(topics: Iterable[TopicRecord]) -> set[str]:
    """Returns the participants that the catalog lists."""
    return {
        participant(each.name, number, each.inbox_id)
        for each in topics
        if each.inbox_id
        for number in range(each.options.partitions)
    }


class InboxTopics:
    """Makes and deletes the inboxes of causal topics."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def check_left(self, record: TopicRecord, partitions: int) -> None:
        """Raises if the inbox that a deleted topic has left is one with which the new topic can't go on."""
        inbox, remove = inbox_topic(record.name), Call("delete_topic", record.name)
        left = record.options.partitions
        if left != partitions:
            raise FailedPrecondition(
                f"partitions: an earlier topic {record.name!r} has left its inbox {inbox!r} with {left} partitions: "
                f"{remove} removes it, if nothing is published to it any more; or make the topic with as many",
                calls=(remove,),
            )
        if _has_lost_position(self._backend.admin, record):
            raise FailedPrecondition(
                f"an earlier topic {record.name!r} has left its inbox {inbox!r}, and it isn't known which messages in "
                f"it were delivered, because the broker has forgotten the sequencer's position: {remove} removes it, "
                "then make the topic",
                calls=(remove,),
            )

    def make(self, home: TopicInfo, known: str) -> str:
        """Makes the inbox of a causal topic; returns its id. `known`: that of an inbox to go on with, or empty.

        With the first one the topics of receipts and of dead letters are made, for all causal topics: with the
        cluster's replication, whatever the home's is.
        """
        admin = self._backend.admin
        with contextlib.suppress(AlreadyExists):
            keep_in_sync(admin, admin.create_topic(RECEIPTS, RECEIPT_PARTITIONS, None, RECEIPT_SETTINGS))
        with contextlib.suppress(AlreadyExists):
            keep_in_sync(admin, admin.create_topic(DEAD, 1, None, DEAD_SETTINGS))
        name = inbox_topic(home.name)
        with contextlib.suppress(AlreadyExists):
            return admin.create_topic(
                name, home.partitions, home.replication, companion_settings(home)
            ).topic_id
        found = admin.topic(name)
        ends = admin.high_watermarks([TopicPartition(name, number) for number in range(found.partitions)])
        if found.topic_id != known and any(ends.values()):
            raise FailedPrecondition(
                f"inbox {name!r} isn't the one of topic {home.name!r}, and holds something: another client has made "
                "it; delete it with Kafka's own tools, then make the topic"
            )
        return found.topic_id

    def say_alive(self, home: TopicInfo) -> None:
        """Writes into each partition of a topic's inbox that the topic was made."""
        header, inbox = encode_alive(Alive(home.topic_id)), inbox_topic(home.name)
        records = [NewRecord(inbox, number, None, None, [header]) for number in range(home.partitions)]
        with contextlib.closing(self._backend.transactions(publisher_id(uuid.uuid4().hex))) as transactions:
            outcome = transactions.transact(records, {}, None)
        if outcome.ending is not Ending.STORED:
            raise outcome.reason or BrokerUnavailable(f"inbox {inbox!r} doesn't answer: try again")

    def delete(self, record: TopicRecord, sleep: Callable[[float], None]) -> None:
        """Deletes the inbox of a topic, and fences the writers that could still propose for it."""
        admin, inbox = self._backend.admin, inbox_topic(record.name)
        writers, named = set(), 0
        for each in admin.group_offsets(GROUP, inbox).values():
            with contextlib.suppress(PubSubError):
                writer = parse_progress(each.offset or 0, each.metadata).writer
                writers.add(writer)
                named += bool(writer)
        with contextlib.suppress(NotFound):
            admin.delete_topic(inbox)
        with contextlib.closing(self._backend.transactions(publisher_id(uuid.uuid4().hex))) as transactions:
            for writer in writers - {""}:
                transactions.fence(writer)
        if named < record.options.partitions and admin.group_members(GROUP):
            sleep(_EXPELLED)  # it isn't known which of them has served it


def why_unordered(admin: Admin, record: TopicRecord, sleep: Callable[[float], None]) -> str:
    """Returns why no sequencer can give the topic's deletion a place in the order; empty: one can.

    Waits for an inbox that no broker finds, and for positions, while sequencers run.
    """
    waited = 0.0
    while True:
        why = _why_unordered(admin, record)
        if not why or waited >= _PATIENCE or not admin.group_members(GROUP):
            return why
        sleep(_LOOK)
        waited += _LOOK


def _why_unordered(admin: Admin, record: TopicRecord) -> str:
    try:
        if admin.topic(inbox_topic(record.name)).topic_id != record.inbox_id:
            return "another client has deleted its inbox and made it again"
    except NotFound:
        return "another client has deleted its inbox"
    try:
        admin.topic(record.name)
    except NotFound:
        return "another client has deleted the topic from Kafka"
    if _has_lost_position(admin, record):
        return "the broker has forgotten which of its messages were delivered"
    return ""


def _has_lost_position(admin: Admin, record: TopicRecord) -> bool:
    """Whether a partition of the inbox has no position of a sequencer, though messages have passed it."""
    inbox = inbox_topic(record.name)
    try:
        ends = admin.high_watermarks(
            [TopicPartition(record.name, number) for number in range(record.options.partitions)]
        )
    except NotFound:  # only an inbox that messages have passed has no home any more
        ends = None
    # After the ends: a sequencer that comes now stores a position first.
    committed = admin.group_offsets(GROUP, inbox)
    missing = [
        each
        for each in range(record.options.partitions)
        if each not in committed or committed[each].offset is None
    ]
    return any(
        ends is None
        or ends[TopicPartition(record.name, each)] > 0
        or admin.log_range(TopicPartition(inbox, each))[0] > 0
        for each in missing
    )
