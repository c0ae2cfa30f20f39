"""The messages that wait for a topic whose inbox is lost: refused in its place, because no sequencer can any more.

Theory. Another client has deleted the inbox of a causal topic, and with it what its sequencer knew; or the broker has
forgotten the sequencer's position, and then the inbox is deleted here. Other topics hold messages that name the topic,
and wait for its proposals. A proposal goes to all inboxes in one transaction, so one that is missing in any inbox is
missing in all of them; and no sequencer makes another one without the inbox. So one client may say in the topic's place
that it is deleted, in one transaction for all.

Rules
1. First the transactions end that are open now: one of them may hold a proposal of the topic.
2. A proposal that didn't say yet whether the topic is deleted keeps its timestamp.
3. Where the topic's sequencer would have written the receipt, it is written here.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kafka_pubsub.client.admin.inbox_topics import delete_inbox, has_lost_position
from kafka_pubsub.client.admin.names import inbox_topic
from kafka_pubsub.client.dead_letters.reading import AT_ONCE, read_all
from kafka_pubsub.core.multicast.layout import GROUP, RECEIPTS, participant, place_of
from kafka_pubsub.core.multicast.progress import parse_progress
from kafka_pubsub.core.multicast.values import Proposal, Timestamp
from kafka_pubsub.errors import BrokerUnavailable, DeadlineExceeded, NotFound
from kafka_pubsub.model import Ending, NewRecord, StoredRecord, TopicPartition
from kafka_pubsub.ports import Backend
from kafka_pubsub.schema.multicast import (
    Receipt,
    StageRecord,
    decode_proposal,
    decode_stage,
    encode_proposal,
    encode_receipt,
)

__all__ = ["refuse_in_place_of", "why_unordered"]

#: Seconds for open transactions to end: the broker ends one of a dead process after 20.
_PATIENCE, _LOOK = 60.0, 0.1


def why_unordered(backend: Backend, topic: str, partitions: int) -> str:
    """Returns why no sequencer can give the topic's deletion a place in the order; empty: one can."""
    try:
        backend.admin.topic(inbox_topic(topic))
    except NotFound:
        return "another client has deleted its inbox"
    if has_lost_position(backend.admin, topic, partitions):
        return "the broker has forgotten which of its messages were delivered"
    return ""


def refuse_in_place_of(backend: Backend, topic: str, others: Iterable[str]) -> int:
    """Refuses what waits in the inboxes of these topics for one whose inbox is lost; returns how many batches.

    What the inbox itself holds is lost with it, so it is deleted if it is there.
    """
    delete_inbox(backend.admin, topic)
    places = list(_places(backend, others))
    _await_open_transactions(backend, places)
    waiting = _Waiting(topic)
    fetch = backend.record_fetch()
    try:
        for place, name in places:
            inbox = _Inbox(name)
            committed = backend.admin.group_offsets(GROUP, place.topic).get(place.partition)
            start, end = backend.admin.log_range(place)[0], backend.admin.last_stable_offsets(place.topic)
            if committed is not None and committed.offset is not None:
                waiting.see(parse_progress(committed.offset, committed.metadata).checkpoint.clock)
                start = max(start, committed.offset)
            for at in range(start, end[place.partition], AT_ONCE):
                chunk = list(range(at, min(end[place.partition], at + AT_ONCE)))
                for record in read_all(fetch, place, chunk):
                    inbox.take(record)
            waiting.add(inbox)
    finally:
        fetch.close()
    records = list(waiting.answers({name for _, name in places}))
    if records:
        _write(backend, records)
    return len(waiting.stages)


class _Inbox:
    """What an inbox holds that wasn't released when its position was committed, and more."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.stages: dict[str, StageRecord] = {}
        self.proposals: dict[str, dict[str, Proposal]] = {}

    def take(self, record: StoredRecord) -> None:
        headers = record.headers() or ()
        if (staged := decode_stage(headers)) is not None:
            self.stages.setdefault(staged.stage.message, staged)
        elif (proposal := decode_proposal(headers)) is not None:
            self.proposals.setdefault(proposal.message, {})[proposal.timestamp.topic] = proposal


class _Lack(NamedTuple):
    """A participant that hasn't said yet whether its topic is deleted, and its timestamp if it has proposed one."""

    participant: str
    timestamp: Timestamp | None


class _Waiting:
    """The batches that wait for a topic."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._clock = 0
        self.stages: dict[str, tuple[StageRecord, list[_Lack]]] = {}

    def see(self, clock: int) -> None:
        """The timestamps made here are above all that are known."""
        self._clock = max(self._clock, clock)

    def add(self, inbox: _Inbox) -> None:
        """Adds what one inbox holds."""
        for proposals in inbox.proposals.values():
            for proposal in proposals.values():
                self.see(proposal.timestamp.clock)
        for message, staged in inbox.stages.items():
            said = inbox.proposals.get(message, {})
            lacks = [
                _Lack(each, said[each].timestamp if each in said else None)
                for each in staged.stage.participants
                if place_of(each)[0] == self._topic and (each not in said or said[each].deleted is None)
            ]
            if lacks and inbox.name in staged.stage.participants:
                self.stages.setdefault(message, (staged, lacks))

    def answers(self, present: set[str]) -> Iterator[NewRecord]:
        """Yields the proposals and receipts for participants that are there."""
        for message, (staged, lacks) in self.stages.items():
            stage = staged.stage
            for lack in lacks:
                self._clock += 1
                timestamp = lack.timestamp or Timestamp(self._clock, lack.participant)
                proposal = Proposal(message, timestamp, not stage.deletes)
                for name in stage.participants:
                    if name in present:
                        topic, number = place_of(name)
                        yield NewRecord(inbox_topic(topic), number, None, None, [encode_proposal(proposal)])
                if lack.participant == min(stage.destinations):
                    refused = () if stage.deletes else (lack.participant,)
                    receipt = encode_receipt(Receipt(message, timestamp, refused))
                    yield NewRecord(RECEIPTS, staged.receipts, None, None, [receipt])


def _places(backend: Backend, topics: Iterable[str]) -> Iterator[tuple[TopicPartition, str]]:
    """Yields the partitions of the inboxes that are there, and the participants' names."""
    for topic in topics:
        try:
            partitions = backend.admin.topic(inbox_topic(topic)).partitions
        except NotFound:
            continue
        for number in range(partitions):
            yield TopicPartition(inbox_topic(topic), number), participant(topic, number, partitions)


def _await_open_transactions(backend: Backend, places: Iterable[tuple[TopicPartition, str]]) -> None:
    tops = backend.admin.high_watermarks([place for place, _ in places])
    until = time.monotonic() + _PATIENCE
    for place, top in tops.items():
        while backend.admin.last_stable_offsets(place.topic)[place.partition] < top:
            if time.monotonic() > until:
                raise DeadlineExceeded(
                    f"a transaction in partition {place.partition} of {place.topic!r} is still open after "
                    f"{_PATIENCE:g} s; nothing was changed: try again when it has ended"
                )
            time.sleep(_LOOK)


def _write(backend: Backend, records: list[NewRecord]) -> None:
    transactions = backend.transactions(f"_kafka_pubsub.multicast.publisher-{uuid.uuid4().hex}")
    try:
        outcome = transactions.transact(records, {}, None)
    finally:
        transactions.close()
    if outcome.ending is not Ending.STORED:
        why = "" if outcome.reason is None else f": {outcome.reason.message}"
        raise BrokerUnavailable(
            f"it isn't known whether what waits for the topic was refused; try again{why}"
        )
