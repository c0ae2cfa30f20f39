"""The settings of a topic that its publisher knows, and when the publisher asks for them again.

Rules
1. A message never asks, except the first one, the first one after a pause (`doubt`), and one a second while the topic
   refuses publishing.
2. An answer that forbids publishing is raised to the caller. A missing answer isn't: messages wait for a
   broker anyway, so Kafka's default limits are taken until one answers.
3. One question at a time; a caller that comes meanwhile waits for its answer.
4. `doubt` never waits: the question about a lane may make the lane, which puts the answers about all others in doubt.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final, NamedTuple

from kafka_pubsub.errors import BrokerUnavailable, DeadlineExceeded, PubSubError
from kafka_pubsub.lane_names import LaneRules

__all__ = ["PublishTarget", "TargetWatch", "fresh"]

#: Kafka's default of max.message.bytes.
DEFAULT_LIMIT_BYTES: Final = 1_048_588

# Seconds.
_ASK_AGAIN_S: Final = 1.0

_log = logging.getLogger("kafka_pubsub.publish")


class PublishTarget(NamedTuple):
    """The settings of a topic that its publisher needs. `ordering`: as configured, None if it was never set.

    `no_keys` is the error of a publish with a key while the topic's layout changes, or after it has changed.
    `partitions` is the number of partitions over which the keys are spread; 0 until a broker has answered. `lanes` are
    the lanes that the topic may have; None until a broker has answered. `topic_id` is Kafka's id of the topic, "" until
    then. `causal`: whether a sequencer gives the topic's messages their places.
    """

    ordering: bool | None
    max_message_bytes: int
    no_keys: PubSubError | None = None
    partitions: int = 0
    lanes: LaneRules | None = None
    topic_id: str = ""
    causal: bool = False


def fresh(error: PubSubError) -> PubSubError:
    """Returns a copy to raise, because the traceback of an exception that is raised twice grows."""
    return type(error)(error.message, code=error.code, calls=error.calls)


class TargetWatch:
    """The last answer about a topic."""

    def __init__(self, topic: str, ask: Callable[[], PublishTarget], clock: Callable[[], float]) -> None:
        self._topic = topic
        self._ask = ask
        self._clock = clock
        self._target: PublishTarget | None = None
        self._refusal: PubSubError | None = None
        self._asked_at = float("-inf")
        # Changes with each doubt; the last answer was asked for when it was `_answered_doubt`.
        self._doubt = self._answered_doubt = object()
        self.certain = False
        #: Whether the cluster has ever answered; and, in brackets, why it didn't when it was asked last. Empty: it did.
        self.answered = False
        self.because = ""
        self.renew_locks()

    def renew_locks(self) -> None:
        """After a fork: a thread that doesn't exist here may have held the lock."""
        self._asking = threading.Lock()
        self._asker: int | None = None

    @property
    def doubted(self) -> bool:
        """Whether the next `get` asks, because the last answer may be outdated."""
        return self._doubt is not self._answered_doubt

    def get(self) -> PublishTarget:
        """Returns the answer; raises the error that forbids publishing. A caller waits only if it must be asked for."""
        known = self._known()
        if known is None:
            with self._asking:
                known = self._known()
                if known is None:
                    known = self._update()
        return _answer(known)

    def doubt(self) -> None:
        """Marks the last answer as outdated: the next `get` asks, and falls back on it if no broker answers.

        Does nothing in a thread that is asking: the answer will have the changes which the question makes.
        """
        if self._asker != threading.get_ident():
            self._doubt = object()

    def waits(self, seconds: float | None) -> str:
        """What a message waits for that isn't stored after so many seconds, for people."""
        return f"topic {self._topic!r}: not stored after {seconds} s{self.because}; it is sent when a broker answers"

    def renew(self) -> PublishTarget:
        """Asks now."""
        with self._asking:
            known = self._update()
        return _answer(known)

    def _known(self) -> PublishTarget | PubSubError | None:
        """Returns the last answer; None: it must be asked for."""
        refusal, target = self._refusal, self._target
        if self.doubted:
            return None
        if refusal is None:
            return target
        return None if self._clock() - self._asked_at >= _ASK_AGAIN_S else refusal

    def _update(self) -> PublishTarget | PubSubError:
        doubt = self._doubt
        try:
            self._asker = threading.get_ident()
            self._target, self._refusal, self.certain = self._ask(), None, True
            self.answered, self.because = True, ""
        except (BrokerUnavailable, DeadlineExceeded) as error:
            self.certain, self.because = False, f" ({error.message})"
            if self.doubted:
                self._refusal = None
            if self._target is None:
                # The adapter warns that no broker answers, once for all topics.
                outage = isinstance(error, BrokerUnavailable) and error.outage
                _log.log(
                    logging.INFO if outage else logging.WARNING,
                    "topic %r can't be looked up (%s); messages wait for the broker",
                    self._topic,
                    error.message,
                )
                self._target = PublishTarget(None, DEFAULT_LIMIT_BYTES)
        except PubSubError as error:
            self._refusal, self.certain = error, True
            self.answered, self.because = True, ""
        finally:
            self._asker = None
        # Last, so that others wait for this answer and don't take the one that is in doubt.
        self._asked_at, self._answered_doubt = self._clock(), doubt
        if self._refusal is not None:
            return self._refusal
        assert self._target is not None
        return self._target


def _answer(known: PublishTarget | PubSubError) -> PublishTarget:
    if isinstance(known, PubSubError):
        raise fresh(known)
    return known
