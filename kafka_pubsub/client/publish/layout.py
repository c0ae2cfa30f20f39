"""How many partitions a topic's keys are spread over, as the topic says and as the writer believes.

Rule: a writer learns another number only while nothing of the topic is queued; until it believes what the topic says,
messages with a key are refused.
"""

from __future__ import annotations

import logging

from kafka_pubsub.client.publish.topic_settings import PublishTarget
from kafka_pubsub.client.publish.writer_pool import ReportThread
from kafka_pubsub.errors import FailedPrecondition, PubSubError

__all__ = ["KeyLayout"]

_log = logging.getLogger("kafka_pubsub.publish")


class KeyLayout:
    """One topic's. The publisher's lock guards it."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        # As the topic said last; 0: nothing has said it yet.
        self._partitions = 0
        # Whether the writer may believe something else.
        self._relearn = False

    def apply(self, target: PublishTarget, *, used: bool, waiting: int, fenced: bool) -> bool:
        """Takes what the topic says now; whether the next message needs the writer to learn it first.

        `used`: something was published before. `waiting`: so many messages aren't stored yet. `fenced`: messages with a
        key were refused until now.
        """
        if target.no_keys is not None or not target.partitions:
            return False
        if target.partitions != self._partitions and used:
            if self._partitions and waiting and not fenced:
                _log.error(
                    "topic %r was given %d partitions while %d messages waited here for a broker: their keys may have "
                    "been overtaken",
                    self._topic,
                    target.partitions,
                    waiting,
                )
            self._relearn = True
        self._partitions = target.partitions
        return self._relearn

    def learn(self, reporter: ReportThread) -> FailedPrecondition | None:
        """Has the writer ask, if it must; nothing of the topic is queued. What keys are refused with, if they are."""
        if not self._relearn:
            return None
        try:
            found = reporter.writer.relearn(self._topic)
        except PubSubError as error:
            why = error.message
        else:
            if found == self._partitions:
                self._relearn = False
                return None
            why = f"a broker says {found}"
        return FailedPrecondition(
            f"topic {self._topic!r} has {self._partitions} partitions now, which this process's connection doesn't "
            f"know yet ({why}): messages with a key are refused until it does; try again in a second"
        )
