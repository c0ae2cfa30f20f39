"""Home topics that took no messages, and when each is tried again; by partition of the delays.

Rules
1. A try that fails costs its partition seconds. The next comes after a pause, doubled while tries fail. A try counts
   once, however many of its messages weren't taken.
2. No try is made before the leader answers a question. A thread asks, because a leader that is away takes seconds.
   Where the catalog says that the topic has no such partition any more, it isn't asked for.
3. Each partition of the delays makes its own tries: a partition that has failed goes in its own transactions, so its
   next try holds up no other partition (`services/troubles.py`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

from kafka_pubsub.delays.homes import Home
from kafka_pubsub.errors import PubSubError
from kafka_pubsub.log.ports import Admin
from kafka_pubsub.model import NewRecord, TopicPartition

__all__ = ["AwayHomes"]

_log = logging.getLogger("kafka_pubsub.service")

#: Seconds between two tries; between two questions to the leader, and for its answer.
_PAUSE, _LONGEST_PAUSE = 0.5, 60.0
_ASK, _ANSWER = 1.0, 3.0


@dataclass
class _Away:
    """A home topic that took no message, and the partition that didn't."""

    place: TopicPartition
    failures: int = 0
    again_at: float = 0.0
    closed: bool = False
    asked: bool = False


class AwayHomes:
    """The home topics that have refused a message, or haven't answered, since they last took a message."""

    def __init__(self, admin: Admin, clock: Callable[[], float] = time.monotonic) -> None:
        self._admin, self._clock = admin, clock
        # By partition of the delays and topic. Empty: as a rule.
        self._of: dict[tuple[int, str], _Away] = {}

    def fail(self, number: int, record: NewRecord) -> None:
        """A message of this partition of the delays wasn't taken."""
        place = TopicPartition(record.topic, record.partition)
        away = self._of.setdefault((number, record.topic), _Away(place))
        if away.closed:
            return  # another message of the same try
        away.place, away.closed = place, True
        away.again_at = self._clock() + min(_LONGEST_PAUSE, _PAUSE * 2**away.failures)
        away.failures = min(away.failures + 1, 20)

    def stored(self, number: int, records: Iterable[NewRecord]) -> None:
        """The topics of these records took them."""
        for topic in {record.topic for record in records} if self._of else ():
            self._of.pop((number, topic), None)

    def is_away(self, number: int, home: Home) -> bool:
        """Whether nothing is to be sent there now."""
        away = self._of.get((number, home.name)) if self._of else None
        if away is None or not away.closed:
            return False
        if away.place.partition >= home.partitions:  # the topic was made again, with fewer
            del self._of[number, home.name]
            return False
        if not away.asked and self._clock() >= away.again_at:
            self._begin_to_ask(away)
        return True

    def _begin_to_ask(self, away: _Away) -> None:
        away.asked = True
        asking = threading.Thread(target=self._ask, args=(away,), name="kafka_pubsub-homes", daemon=True)
        try:
            asking.start()
        except Exception:  # as a rule the process may have no more threads
            _log.exception("the leader of %s can't be asked; trying again", away.place)
            self._end_asking(away)

    def _ask(self, away: _Away) -> None:
        try:
            with suppress(PubSubError):
                away.closed = away.place not in self._admin.readable_ends([away.place], _ANSWER)
        except Exception:
            _log.exception("asking the leader of %s failed; trying again", away.place)
        finally:
            self._end_asking(away)

    def _end_asking(self, away: _Away) -> None:
        away.again_at, away.asked = self._clock() + _ASK, False
