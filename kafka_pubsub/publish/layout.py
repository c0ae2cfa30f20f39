"""The number of partitions over which the keys of a topic are spread: in the topic's settings, and in the writer.

Rule: a writer learns another number only while no message of the topic is queued. Until its number is that of the
topic, messages with a key are refused.
"""

from __future__ import annotations

import logging

from kafka_pubsub.errors import FailedPrecondition, PubSubError
from kafka_pubsub.publish.topic_settings import PublishTarget
from kafka_pubsub.publish.writer_pool import ReportThread

__all__ = ["KeyLayout"]

_log = logging.getLogger("kafka_pubsub.publish")


class KeyLayout:
    """The partition count of one topic, guarded by the publisher's lock."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        # As in the topic's last settings; 0 until they are known.
        self._partitions = 0
        # Whether the writer may have another number.
        self._relearn = False

    @property
    def partitions(self) -> int:
        """How many partitions the topic has, as far as is known; 0: it isn't."""
        return self._partitions

    def apply(self, target: PublishTarget, *, used: bool, waiting: int, fenced: bool) -> bool:
        """Takes the topic's settings; returns whether the writer must learn them before the next message.

        `used`: messages were published before. `waiting`: the number of messages that aren't stored yet. `fenced`:
        messages with a key were refused until now.
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
        """Makes the writer learn the number if it must; returns the error of messages with a key, or None.

        No message of the topic may be queued.
        """
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
