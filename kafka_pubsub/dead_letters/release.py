"""Releases messages that wait in the retry topic: for delivery at once, with attempts from 1, or as dead letters.

Under `on_exhausted="park"` a message whose attempts are used up stays in the retry topic and blocks its key until it
is released. Other messages wait for their due time, which may be far away if a clock was wrong. Only the partition's
owner may move a message, so this module writes a request to the owner: a record in the same retry partition that names
the message by key and origin (`maintenance.py` rule 4). Without an owner the request waits there for one.

Rules
1. A request for a message that no longer waits is finished without effect. The only effect of a second request is
   that a message that fails again gets its attempts a second time.
2. A release takes every message with a due time, whatever the time: no clock is read. A drop takes only messages whose
   attempts are used up.
3. Requests are written in the subscription's exclusive session (`exclusive_session.py`), like every change to dead or
   parked messages.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from itertools import islice

from kafka_pubsub.config import SubscriptionRecord
from kafka_pubsub.dead_letters.model import DeadLetterProgress, DeadLetterResult, Selection, Tell
from kafka_pubsub.dead_letters.replay import DeadLetters
from kafka_pubsub.errors import FailedPrecondition
from kafka_pubsub.log.ports import Backend
from kafka_pubsub.model import NewRecord, message_id_of
from kafka_pubsub.subscribe.admin.exclusive_session import ExclusiveSession
from kafka_pubsub.subscribe.admin.subscriptions import SubscriptionAdmin
from kafka_pubsub.subscribe.dead_letters.processed_marks import ProcessedMarks
from kafka_pubsub.subscribe.formats.record import FOREVER, RetryInfo, RetryRecord, Why, retry_headers
from kafka_pubsub.subscribe.retry_topic.key_states import RetryContents
from kafka_pubsub.subscribe.retry_topic.retry_topics import retry_topic_of

__all__ = ["Releases"]

#: Requests in one transaction; they have no bodies.
BATCH = 1000


class Releases:
    """Releases parked and waiting messages of one cluster."""

    def __init__(
        self,
        backend: Backend,
        subscriptions: SubscriptionAdmin,
        dead_letters: DeadLetters,
        *,
        may_create: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._backend = backend
        self._subscriptions = subscriptions
        self._dead_letters = dead_letters
        self._may_create = may_create
        self._clock = clock

    def release(
        self, name: str, selection: Selection, tell: Tell, *, drop: bool, dry_run: bool
    ) -> DeadLetterResult:
        """Asks the owners to release the selected messages; `dry_run` only counts them."""
        record = self._subscriptions.usable(name)
        if drop and record.options.dead_letter is None:
            raise FailedPrecondition(
                f"subscription {name!r} has no dead-letter policy, so there is nowhere to drop a message: update it "
                "with one first"
            )
        requests = self._requests(record, selection, tell, Why.DROP if drop else Why.RELEASE)
        result = DeadLetterResult(len(requests), len({each.key for each in requests} - {None}))
        if not dry_run and requests:
            self._write(name, requests, tell)
        return result

    def _requests(
        self, record: SubscriptionRecord, selection: Selection, tell: Tell, why: Why
    ) -> list[NewRecord]:
        found: list[NewRecord] = []
        # A message that only waits behind another one has no due time (rule 2).
        least = FOREVER if why is Why.DROP else 1
        views = list(self._dead_letters.views(record))
        total = sum(view.partitions for view in views)
        with closing(self._backend.record_fetch()) as fetch:
            rooms = ((view, RetryContents(self._backend, view, fetch)) for view in views)
            places = ((view, room, number) for view, room in rooms for number in room.numbers())
            for at, (view, room, number) in enumerate(places):
                tell(DeadLetterProgress("reading", at, total))
                prefixes = [f"{view.topic}:", ""] if view.topic == record.topic else [f"{view.topic}:"]
                found += [
                    _request(view, message, why)
                    for message in room.messages(number)
                    if message.info.due >= least and _picks(selection, prefixes, message)
                ]
        return found

    def _write(self, name: str, requests: list[NewRecord], tell: Tell) -> None:
        with closing(self._backend.record_fetch()) as fetch:
            marks = ProcessedMarks(fetch)
            with ExclusiveSession(
                self._backend, name, marks, may_create=self._may_create, clock=self._clock
            ) as session:
                done, rest = 0, iter(requests)
                while batch := list(islice(rest, BATCH)):
                    tell(DeadLetterProgress("releasing", done, len(requests)))
                    self._dead_letters.store(session, partial(list, batch), marks)
                    done += len(batch)
                tell(DeadLetterProgress("releasing", done, len(requests)))


def _request(record: SubscriptionRecord, message: RetryRecord, why: Why) -> NewRecord:
    retry = retry_topic_of(record)
    info = RetryInfo(record.topic_id, message.partition(), message.offset(), why=why)
    return NewRecord(retry, message.partition(), message.key(), None, retry_headers(None, info))


def _picks(selection: Selection, prefixes: Sequence[str], message: RetryRecord) -> bool:
    """Tells whether a message is selected; the prefixes make a place of its partition and offset."""
    info = message.info

    def ids() -> list[str]:
        return [message_id_of(message), *(f"{each}{info.partition}:{info.origin}" for each in prefixes)]

    return selection.picks(ids, message.key(), info.failed, lambda: info.error)
