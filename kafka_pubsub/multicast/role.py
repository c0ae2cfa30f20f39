"""The sequencer of causal topics: `sequencer.py` on the service's engine, a task for each partition of an inbox.

Rules
1. An inbox with another id than the catalog's isn't read, nor one that has lost records which sequencers have handled,
   or of which messages were deleted that wait. This is said in health; the partition waits, and the others go on.
2. Where messages have come home and no position is known, a task doesn't begin: it isn't known which these were.
3. New topics are taken up beside the others. Where one was deleted, or has another inbox, the service begins again.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Mapping, Sequence

from kafka_pubsub.errors import Call, FailedPrecondition, PubSubError
from kafka_pubsub.log.ports import Backend
from kafka_pubsub.model import Committed, LogEnd, TopicPartition
from kafka_pubsub.multicast.causal_topics import CausalTopic
from kafka_pubsub.multicast.layout import GROUP, participant
from kafka_pubsub.multicast.progress import SequencerProgress, parse_progress
from kafka_pubsub.multicast.sequencer import START
from kafka_pubsub.multicast.task import Common, SequencerTask, not_listed
from kafka_pubsub.services.metrics import ServiceMetrics
from kafka_pubsub.services.role import Beginning

__all__ = ["SequencerRole"]

#: Seconds between two looks for new topics, and for asking whether an inbox has lost records.
_LOOK, _TAILS = 1.0, 3.0


class SequencerRole:
    """What a sequencer does, for the causal topics that there are now."""

    name = "sequencer"
    group = GROUP
    at_once = 12_000
    kept = ()

    def __init__(self, backend: Backend, metrics: ServiceMetrics) -> None:
        self.backend, self.metrics = backend, metrics
        self._common = Common(backend, metrics)
        self.causal = self._common.causal
        # As of when the membership began, or was extended.
        self._served: dict[str, CausalTopic] = {}
        self.sets: list[tuple[str]] = []
        # The inboxes that were the catalog's when they were first served.
        self._checked: set[str] = set()
        # The ids of the inboxes whose tasks begin now; those that aren't here are asked for one by one.
        self._ids: Mapping[str, str] = {}
        # A topic was deleted, or its inbox was made again.
        self._has_lost = False
        self._look_at = time.monotonic() + _LOOK
        self._take_up()

    def grow(self) -> bool:
        """Looks once a second for other causal topics, and takes new ones up."""
        if time.monotonic() < self._look_at:
            return False
        self._look_at = time.monotonic() + _LOOK
        self.causal.look()
        now = self.causal.inboxes
        self._has_lost = self._check_next() or any(
            inbox not in now or now[inbox].inbox_id != each.inbox_id for inbox, each in self._served.items()
        )
        return not self._has_lost and self._take_up()

    def close(self) -> None:
        """Does nothing."""

    def outdated(self) -> bool:
        """Whether a causal topic has another inbox now, or none."""
        return self._has_lost

    def _check_next(self) -> bool:
        """Looks at one inbox after the other; returns whether it isn't the catalog's any more."""
        mine = sorted(self._checked)
        if not mine:
            return False
        inbox = mine[self.causal.looks % len(mine)]
        try:
            return self.backend.admin.topic(inbox).topic_id != self._served[inbox].inbox_id
        except PubSubError:
            return False  # it is away

    def _take_up(self) -> bool:
        """Serves the inboxes that brokers find; returns whether there are others than before."""
        new = self.causal.inboxes.keys() - self._served.keys()
        there = new.intersection(self.backend.admin.topic_names()) if new else ()
        self.metrics.waits_for = "; ".join(
            f"no broker finds inbox {each!r}: it is asked for again" for each in sorted(new.difference(there))
        )
        self._served |= {inbox: self.causal.inboxes[inbox] for inbox in there}
        self.sets = [(inbox,) for inbox in sorted(self._served)]
        self._common.inboxes = max(1, len(self.sets))
        return bool(there)

    def writer_of(self, committed: Sequence[Committed]) -> str | None:
        """The id that the commit names."""
        offset, text, _ = committed[0]
        return None if offset is None else parse_progress(offset, text).writer or None

    def expect(self, topics: Collection[str]) -> None:
        """Asks for the ids of these inboxes at once: with each new topic the tasks of all begin again."""
        self._ids = {}
        with contextlib.suppress(PubSubError):
            self._ids = self.backend.admin.topic_ids(sorted(topics)) if topics else {}

    def begin(
        self, topics: Sequence[str], number: int, beginnings: Sequence[Beginning], writer: str
    ) -> SequencerTask:
        """The task of a partition; refuses an inbox that isn't the catalog's, and to guess a missing position."""
        (inbox,), (beginning,) = topics, beginnings
        causal = self._served[inbox]
        name = participant(causal.name, number, causal.inbox_id)
        if not self.causal.finds(name):
            raise not_listed(inbox)
        if (self._ids.get(inbox) or self.backend.admin.topic(inbox).topic_id) != causal.inbox_id:
            raise _made_again(causal, f"inbox {inbox!r} was deleted and made again by another client")
        self._checked.add(inbox)
        committed = beginning.committed
        progress = parse_progress(committed.offset or 0, committed.metadata)
        if committed.offset is None or progress.inbox_id != causal.inbox_id:
            if beginning.start > 0 or self._has_delivered(causal.name, number):
                raise _made_again(
                    causal,
                    f"group {GROUP!r} has no offset for partition {number} of {inbox!r}, although messages have passed "
                    "it: the broker has forgotten it, as it does a week after the last sequencer has ended "
                    "(offsets.retention.minutes). Nothing is delivered, because it isn't known what was",
                )
            progress = SequencerProgress(START)
        if self._has_lost_records(TopicPartition(inbox, number), progress, beginning.end):
            raise _made_again(
                causal, f"partition {number} of {inbox!r} has lost records that sequencers have handled"
            )
        if progress.checkpoint.oldest < beginning.start:
            raise _made_again(
                causal, f"partition {number} of {inbox!r} has lost records that no sequencer has delivered"
            )
        progress = progress._replace(inbox_id=causal.inbox_id, writer=writer)
        return SequencerTask(self._common, name, progress, beginning.end)

    def _has_lost_records(self, place: TopicPartition, progress: SequencerProgress, end: int) -> bool:
        position = progress.checkpoint.position
        if end < position or progress.epoch is None:
            return end < position
        fetch = self.backend.record_fetch()
        try:
            return bool(fetch.lost_tails({place: LogEnd(position, progress.epoch)}, _TAILS))
        finally:
            fetch.close()

    def _has_delivered(self, topic: str, number: int) -> bool:
        """Whether a sequencer has written to the home partition: only sequencers may."""
        return self.backend.admin.log_range(TopicPartition(topic, number))[1] > 0

    def trimmable(self, positions: Mapping[int, Committed]) -> Mapping[int, int]:
        """Everything below the oldest message that isn't released."""
        return {topic: to.offset for topic, to in positions.items() if to.offset}


def _made_again(topic: CausalTopic, why: str) -> FailedPrecondition:
    delete, make = Call("delete_topic", topic.name), Call("create_topic", topic.name, (("causal", True),))
    return FailedPrecondition(
        f"sequencer: {why}: read what topic {topic.name!r} holds, then {delete}, and {make}",
        calls=(delete, make),
    )
