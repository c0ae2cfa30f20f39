"""The sequencers' dead letters, and how they come home.

Rules
1. Only sequencers write to causal topics. So a replay stages the message again, for the topic that refused it alone: it
   gets another place in the order, and keeps its id, key, attributes and its publisher's time.
2. What one replay stages for a topic has the same participants, so it comes home in the order of the dead letters: the
   topic, and those of all handles among these messages that are there. A message gets only handles of its own, and only
   those whose topics weren't deleted before its new place.
3. What isn't a message of ours, or was refused by its other topics, can't be replayed.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import count
from typing import NamedTuple

from kafka_pubsub.dead_letters.replay import DeadLetters
from kafka_pubsub.errors import FailedPrecondition, NotFound, PubSubError
from kafka_pubsub.log.clocks import moment
from kafka_pubsub.log.ports import Backend
from kafka_pubsub.model import (
    PUBLISHED_HEADER,
    Header,
    NewRecord,
    StoredRecord,
    decode_ordering_key,
    published_at,
)
from kafka_pubsub.multicast.arguments import MOST_TOPICS, check_inbox, target_of
from kafka_pubsub.multicast.batch import BatchMessage, encode_batch
from kafka_pubsub.multicast.layout import DEAD, GROUP, where
from kafka_pubsub.multicast.records import (
    CLOCK_HEADER,
    DEAD_REASON_HEADER,
    DEAD_TOPIC_HEADER,
    HANDLES_HEADER,
    StageRecord,
)
from kafka_pubsub.multicast.routes import Target, records_of_stage
from kafka_pubsub.multicast.values import Stage
from kafka_pubsub.publish.checks import check_size
from kafka_pubsub.services.dead_letters import ServiceDeadLetters, id_of, place_in_topic
from kafka_pubsub.subscribe.dead_letters.scan import Found, attributes_of, header_of
from kafka_pubsub.subscribe.formats.dead_letter_record import DeadLetterRecord

__all__ = ["MulticastDeadLetter", "MulticastDeadLetters"]


class MulticastDeadLetter(NamedTuple):
    """A message that a causal topic refused, or a record of its inbox that kafka_pubsub didn't write.

    `message_id` is that of what `publish_multi`'s future gave, empty for a record that isn't a message, and `id` the
    place among the dead letters: commands take both. `topic`: the one that didn't get it. `died`: when a sequencer gave
    it up, with the `reason`. `problem` says why it can't be replayed now; None: it can.
    """

    id: str
    message_id: str
    topic: str
    ordering_key: str | None
    published: datetime
    died: datetime
    reason: str
    data: bytes
    attributes: Mapping[str, str]
    handles: tuple[str, ...] = ()
    problem: str | None = None


class MulticastDeadLetters(ServiceDeadLetters[MulticastDeadLetter]):
    """The dead letters of one cluster's sequencers."""

    def __init__(self, backend: Backend, dead_letters: DeadLetters) -> None:
        super().__init__(backend, dead_letters, lambda: _Letters(backend))


class _Letters:
    """What a command knows of the causal topics."""

    group, topic = GROUP, DEAD

    def __init__(self, backend: Backend) -> None:
        self._admin, self._records = backend.admin, backend.catalog.topics()
        # By name: the topic, or why nothing can be staged for it.
        self._targets: dict[str, Target | str] = {}
        # Of what goes home, by its topic: the topics of the handles.
        self._handles: dict[str, set[str]] = {}
        self._name, self._numbers = uuid.uuid4().hex[:16], count(1)

    def read(self, record: StoredRecord) -> DeadLetterRecord | None:
        reason = header_of(record, DEAD_REASON_HEADER)
        topic = header_of(record, DEAD_TOPIC_HEADER)
        if reason is None or topic is None:
            return None
        time = max(record.timestamp()[1], 0)
        return DeadLetterRecord(GROUP, topic.decode(), reason.decode("utf-8", "replace"), time=time)

    def problem(self, found: Found) -> str | None:
        if not id_of(found.record):
            return f"it can't go home: {found.dead_letter.reason}"
        target = self._target(found.dead_letter.topic)
        if isinstance(target, str):
            return target
        record = found.record
        try:
            headers = list(record.headers() or ())
            check_size(target.name, record.value() or b"", record.key(), headers, target.max_message_bytes)
        except PubSubError as refused:
            return f"its topic refuses it: {refused.message}"
        return None

    def letter(self, found: Found, problem: str | None) -> MulticastDeadLetter:
        record = found.record
        return MulticastDeadLetter(
            place_in_topic(record),
            id_of(record),
            found.dead_letter.topic,
            decode_ordering_key(record.key()),
            moment(published_at(record)),
            moment(found.dead_letter.time),
            found.dead_letter.reason,
            record.value() or b"",
            attributes_of(record),
            _handles_of(record),
            problem,
        )

    def prepare(self, found: Found) -> None:
        self._handles.setdefault(found.dead_letter.topic, set()).update(_handles_of(found.record))

    def at_home(self, record: StoredRecord) -> Sequence[NewRecord]:
        topic = (header_of(record, DEAD_TOPIC_HEADER) or b"").decode()
        target = self._target(topic)
        assert isinstance(target, Target), "it was found to be there"
        handles = self._participants(topic)
        if len(handles) >= MOST_TOPICS:
            raise FailedPrecondition(
                f"the dead letters of topic {topic!r} carry handles to {len(handles)} topics, and at most "
                f"{MOST_TOPICS - 1} can take part in a replay: pick some of them (ids=)"
            )
        name = f"{self._name}-{next(self._numbers)}"
        number = where(record.key(), name, target.partitions)
        stage = Stage(name, (target.participant(number),), handles)
        again = BatchMessage(published_at(record), record.key(), record.value() or b"", _headers_of(record))
        return records_of_stage(StageRecord(stage, 0), encode_batch([again]))

    def _participants(self, topic: str) -> tuple[str, ...]:
        """Returns those of the handles whose topics the catalog lists."""
        found = []
        for name in filter(self._is_ready, sorted(self._handles.get(topic, ()))):
            target = self._target(name)
            if isinstance(target, str):
                raise FailedPrecondition(
                    f"dead letters of topic {topic!r} carry a handle to {name!r}: {target}"
                )
            found.append(target.participant())
        return tuple(found)

    def _is_ready(self, name: str) -> bool:
        record = self._records.get(name)
        return record is not None and record.state == "ready" and record.options.causal

    def _target(self, name: str) -> Target | str:
        """Returns a topic, or why nothing can be staged for it."""
        if name not in self._targets:
            try:
                self._targets[name] = self._look_up(name)
            except PubSubError as problem:
                self._targets[name] = problem.message
        return self._targets[name]

    def _look_up(self, name: str) -> Target:
        record = self._records.get(name)
        if record is None or record.state != "ready":
            raise NotFound(f"topic {name!r} doesn't exist: make it again, then replay")
        target = target_of("replay", record, self._admin.topic(name))
        check_inbox(self._admin, target)
        return target


def _handles_of(record: StoredRecord) -> tuple[str, ...]:
    text = (header_of(record, HANDLES_HEADER) or b"").decode()
    return tuple(text.split(",")) if text else ()


def _headers_of(record: StoredRecord) -> list[Header]:
    """Returns the headers with which a message is staged again: its id first."""
    ours = (CLOCK_HEADER, PUBLISHED_HEADER, DEAD_TOPIC_HEADER, DEAD_REASON_HEADER)
    return [each for each in record.headers() or () if each[0] not in ours]
