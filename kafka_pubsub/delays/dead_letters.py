"""The delay routers' dead letters, and how they come home.

A replay writes the message to the topic that has its home's name now, as a router would. What can't go home stays where
it is, and the result says why: a topic that is gone, a message that isn't due.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from kafka_pubsub.dead_letters.replay import DeadLetters
from kafka_pubsub.delays.homes import Homes
from kafka_pubsub.delays.layout import DEAD, GROUP, UNIT
from kafka_pubsub.delays.records import (
    DEAD_REASON_HEADER,
    DELAY_HEADER,
    ID_HEADER,
    decode_delayed,
    decode_request,
    parts_of,
)
from kafka_pubsub.errors import NotFound
from kafka_pubsub.log.clocks import moment
from kafka_pubsub.log.ports import Backend
from kafka_pubsub.model import NewRecord, StoredRecord, decode_ordering_key
from kafka_pubsub.services.dead_letters import ServiceDeadLetters, id_of, place_in_topic
from kafka_pubsub.subscribe.dead_letters.scan import Found, attributes_of, header_of
from kafka_pubsub.subscribe.formats.dead_letter_record import DeadLetterRecord

__all__ = ["DelayDeadLetter", "DelayDeadLetters"]

#: What routers write beside the publisher's headers.
_OURS = frozenset({DEAD_REASON_HEADER, DELAY_HEADER, ID_HEADER})


class DelayDeadLetter(NamedTuple):
    """A delayed message that no router could deliver.

    `message_id` is what `publish`'s future gave, and `id` the place among the dead letters: commands take both.
    `topic`: where it was to go; None: kafka_pubsub didn't write it. `due`: when; None: that isn't known. `died`: when a
    router gave it up, with the `reason`. `problem` says why it can't be replayed now; None: it can.
    """

    id: str
    message_id: str
    topic: str | None
    ordering_key: str | None
    due: datetime | None
    died: datetime
    reason: str
    data: bytes
    attributes: Mapping[str, str]
    problem: str | None = None


class DelayDeadLetters(ServiceDeadLetters[DelayDeadLetter]):
    """The dead letters of one cluster's delay routers."""

    def __init__(self, backend: Backend, dead_letters: DeadLetters) -> None:
        super().__init__(backend, dead_letters, lambda: _Letters(Homes(backend)))


class _Letters:
    """What a command knows of the topics to which delayed messages go."""

    group, topic = GROUP, DEAD

    def __init__(self, homes: Homes) -> None:
        self._homes = homes

    def read(self, record: StoredRecord) -> DeadLetterRecord | None:
        reason = header_of(record, DEAD_REASON_HEADER)
        if reason is None:
            return None
        home, _ = _aim(record)
        return DeadLetterRecord(
            GROUP, home or "", reason.decode("utf-8", "replace"), time=max(record.timestamp()[1], 0)
        )

    def problem(self, found: Found) -> str | None:
        return _problem(found, self._homes)

    def letter(self, found: Found, problem: str | None) -> DelayDeadLetter:
        return _letter(found, problem)

    def prepare(self, found: Found) -> None:
        pass

    def at_home(self, record: StoredRecord) -> Sequence[NewRecord]:
        return [_at_home(record, self._homes)]


def _aim(record: StoredRecord) -> tuple[str | None, int | None]:
    """Returns the name of the topic where the message was to go, and when; None: that isn't known."""
    said = header_of(record, DELAY_HEADER)
    hop = decode_delayed(said)
    if hop is not None:
        return parts_of(hop.home)[0], hop.due
    request = decode_request(said)
    if request is None:
        return None, None
    if request.due is not None:
        return parts_of(request.home)[0], request.due
    # What hadn't begun its whole seconds died when it was due, or because they were too many.
    delay = request.delay or 0
    return parts_of(request.home)[0], record.timestamp()[1] + (delay if delay >= UNIT else 0)


def _problem(found: Found, homes: Homes) -> str | None:
    home, due = _aim(found.record)
    if home is None:
        return f"it can't go home: {found.dead_letter.reason}"
    if due is not None and due > homes.now() * 1000:
        return f"{found.dead_letter.reason}; it isn't due before {moment(due).isoformat(timespec='seconds')}"
    topic = homes.find(home)
    if topic.refused:
        return topic.refused if topic.partitions else f"{topic.refused}: make it again, then replay"
    return topic.held or None if found.record.key() is not None or not topic.partitions else None


def _letter(found: Found, problem: str | None) -> DelayDeadLetter:
    record = found.record
    home, due = _aim(record)
    key = record.key() if home is None else _own_key(record)
    return DelayDeadLetter(
        place_in_topic(record),
        id_of(record),
        home,
        decode_ordering_key(key),
        None if due is None else moment(due),
        moment(found.dead_letter.time),
        found.dead_letter.reason,
        record.value() or b"",
        attributes_of(record),
        problem,
    )


def _at_home(record: StoredRecord, homes: Homes) -> NewRecord:
    """Returns the record as a router would have written it."""
    home, key = homes.find(_aim(record)[0] or ""), _own_key(record)
    if home.refused:
        raise NotFound(f"{home.refused}: make it again, then replay")
    headers = [
        (ID_HEADER, header_of(record, ID_HEADER)),
        *(header for header in record.headers() or () if header[0] not in _OURS),
    ]
    partition = homes.partition(home, key)
    return NewRecord(home.name, partition, key, record.value(), headers, round(homes.now() * 1000))


def _own_key(record: StoredRecord) -> bytes | None:
    key = record.key()
    return None if key is None else key.partition(b"\0")[2]
