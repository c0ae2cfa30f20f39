"""The publisher of a topic of any kind: it publishes by itself until it learns that the topic has lanes, or is causal.

Rules
1. A topic without lanes costs nothing more. One with lanes is found by the check that comes before a message is queued:
   from then on every message goes through `LaneSender`.
2. When a topic gets lanes, messages that were published before are stored before the first one goes to a lane.
3. The messages of a causal topic go to `ordered`, which has a sequencer order them.
4. A priority that the topic doesn't have is looked up once more before it is refused: it may be new.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import replace

from kafka_pubsub.config import Batching, PublishFlow
from kafka_pubsub.counters import PARTS, Reading
from kafka_pubsub.errors import BrokerUnavailable, InvalidArgument
from kafka_pubsub.lane_names import Lane, LaneRules
from kafka_pubsub.lanes.lane_publisher import LanePublisher
from kafka_pubsub.lanes.lane_sender import LaneSender
from kafka_pubsub.model import Header
from kafka_pubsub.publish.checks import encode_attributes, encode_key, refuse_causal, refuse_data
from kafka_pubsub.publish.home import Home
from kafka_pubsub.publish.many import Messages, PublishFutures, at_item
from kafka_pubsub.publish.publisher import PublishTarget, TopicPublisher
from kafka_pubsub.publish.writer_pool import WriterPool

__all__ = ["HomePublisher", "LaneTarget", "Ordered"]

#: Returns the settings of a lane's Kafka topic; makes the lane if it isn't there.
LaneTarget = Callable[[Lane], PublishTarget]
#: Publishes a body, key and headers to a causal topic; the future gives the message's id.
Ordered = Callable[[bytes, bytes | None, list[Header] | None], Future[str]]

# Seconds that `resume` waits for earlier messages, as in `publisher.py`.
_RESUME_S = 30.0


class HomePublisher(Home):
    """Publishes to one topic and its lanes. `lane_target` is called for a lane as `target` is for the topic."""

    def __init__(
        self,
        name: str,
        target: Callable[[], PublishTarget],
        writers: WriterPool,
        lane_target: LaneTarget,
        ordered: Ordered,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(name, target, writers, clock)
        self._target = target
        self._lane_target = lane_target
        self._ordered = ordered
        self._causal = False
        # None until a broker has answered.
        self._rules: LaneRules | None = None
        # None: the topic has no lanes.
        self._sender: LaneSender | None = None
        # Whether the messages from before the topic had lanes are stored.
        self._settled = False
        PARTS.add(self)

    @property
    def answered(self) -> bool:
        """Whether the cluster has ever answered a question about the topic."""
        return super().answered or any(each.answered for each in self._lanes)

    @property
    def laned(self) -> bool:
        """Whether the topic has lanes, as far as is known."""
        return self._sender is not None

    @property
    def given_up(self) -> int:
        """How many transient messages of this process have failed."""
        return 0 if self._sender is None else self._sender.given_up

    @property
    def names(self) -> list[str]:
        """The Kafka topics to which this process publishes: the topic and its lanes."""
        return list({self.name: None, **{each.name: None for each in self._lanes}})

    def readings(self) -> Iterator[Reading]:
        """Returns what it and its lanes have counted, under the topic's name."""
        yield from super().readings()
        for each in self._lanes:
            for found in each.readings():
                yield replace(found, labels={"topic": self.name})

    @property
    def _lanes(self) -> list[LanePublisher]:
        return [] if self._sender is None else self._sender.publishers

    # -- publishing ------------------------------------------------------------------------------------------------

    def publish_in(
        self,
        data: bytes,
        ordering_key: str | None,
        attributes: Mapping[str, str] | None,
        priority: int | None,
        durable: bool | None,
    ) -> Future[str]:
        """Publishes a message with a priority and a class; None takes the default."""
        lane = self.choose(priority, durable)
        if self._sender is None:
            return self.publish(data, ordering_key, attributes)
        if not isinstance(data, bytes):
            raise refuse_data(data)
        key = None if ordering_key is None else encode_key(ordering_key)
        headers = None if attributes is None else encode_attributes(attributes)
        return self._after_switch(self._sender).publish(lane, data, key, headers)

    def choose(self, priority: object, durable: object) -> Lane:
        """Returns the lane for these arguments; raises `InvalidArgument`, which names the wrong one."""
        rules = self._known_rules()
        try:
            return rules.choose(priority, durable)
        except InvalidArgument:
            self._watch.doubt()
            self._look_up()
            return self._known_rules().choose(priority, durable)

    def lane_publisher(self, lane: Lane) -> TopicPublisher:
        """Returns the publisher of a lane, which exists then."""
        return self if self._sender is None else self._sender.lane(lane)

    def _known_rules(self) -> LaneRules:
        if self._rules is None:
            self._look_up()
        if self._rules is None:
            raise BrokerUnavailable(
                f"topic {self.name!r}: it isn't known yet which priorities it has{self._watch.because}; publish again "
                "when a broker answers, or leave out priority and durable"
            )
        if self._causal:
            raise refuse_causal(self.name)
        return self._rules

    def is_causal(self) -> bool:
        """Returns whether the topic is causal; looks that up if it is time to."""
        if self._small < 0:
            self._look_up()
        return self._causal

    def _look(self, data: bytes, key: bytes | None, headers: list[Header] | None) -> None:
        super()._look(data, key, headers)
        if self._causal:
            raise refuse_causal(self.name)

    def _divert(self, data: bytes, key: bytes | None, headers: list[Header] | None) -> Future[str] | None:
        if self._sender is None and self.is_causal():
            return self._ordered(data, key, headers)
        if self._sender is None:
            super()._divert(data, key, headers)
        if self._sender is None or self._rules is None:
            return None
        return self._after_switch(self._sender).publish(Lane(self._rules.default, True), data, key, headers)

    def _after_switch(self, sender: LaneSender) -> LaneSender:
        if not self._settled:
            super().flush()
            self._settled = True
        return sender

    def check_many(self, messages: Messages) -> None:
        if self._small < 0 and self._sender is None:
            self._look_up()
        lanes = {index: self._chosen(index, messages) for index in messages.lanes}
        if self._sender is None or self._rules is None:
            super().check_many(messages)
            return
        default = Lane(self._rules.default, True)
        for index in range(len(messages.data)):
            try:
                self._sender.check(lanes.get(index, default), *messages.at(index))
            except InvalidArgument as error:
                raise at_item(index, error) from None

    def queue_run(self, messages: Messages, futures: PublishFutures, start: int, end: int) -> None:
        if self._sender is None or self._rules is None:
            super().queue_run(messages, futures, start, end)
            return
        sender, default = self._after_switch(self._sender), Lane(self._rules.default, True)
        for index in range(start, end):
            lane = self._chosen(index, messages) if index in messages.lanes else default
            futures.made[index] = sender.publish(lane, *messages.at(index))
            futures.queued = index + 1

    def home_of(self, index: int, messages: Messages) -> str:
        """Returns the Kafka topic of an item: the topic, or its lane."""
        return (
            self.lane_publisher(self._chosen(index, messages)).name if index in messages.lanes else self.name
        )

    def _chosen(self, index: int, messages: Messages) -> Lane:
        try:
            return self.choose(*messages.lanes[index])
        except InvalidArgument as error:
            raise at_item(index, error) from None

    # -- the lanes -------------------------------------------------------------------------------------------------

    def _apply(self, target: PublishTarget) -> None:
        if target.lanes is not None:
            self._rules = target.lanes
            if target.lanes.any and self._sender is None:
                self._sender = LaneSender(self.name, target.partitions, self._open_lane, lambda: self._flow)
                # From now on every message comes to `_look`.
                self._small = -1
        self._causal = target.causal
        self._laned = self._causal or self._sender is not None
        super()._apply(target)

    def _open_lane(self, lane: Lane) -> LanePublisher:
        assert self._rules is not None
        name = self._rules.name(lane)
        target = self._target if name == self.name else lambda: self._lane_target(lane)
        made = LanePublisher(name, lane, target, self._writers, self._paused)
        made.configure(batching=self._batching, flow=self._flow, message_ordering=self._configured_ordering)
        # The first answer makes the lane, or says why it can't be.
        made.renew_if_doubtful()
        return made

    # -- all messages ------------------------------------------------------------------------------------------------

    def would_block(self, size: int, priority: int | None = None, durable: bool | None = None) -> bool:
        """Returns whether publishing would have to wait now: to look something up, or for room."""
        if self._sender is None:
            return super().would_block(size)
        if not self._settled or self._rules is None:
            return True
        try:
            lane = self._rules.choose(priority, durable)
        except InvalidArgument:
            return True  # the topic is looked up before the argument is refused
        return self._sender.would_block(lane, size)

    def look_again(self) -> None:
        """Makes the next message look the topic up first, because the topic was changed."""
        super().look_again()
        for each in self._lanes:
            each.look_again()

    def resume(self, ordering_key: str) -> None:
        """Allows publishing of a key again after a failure, in all lanes."""
        if self._sender is not None and encode_key(ordering_key) in self._paused:
            self._sender.flush(_RESUME_S)
        super().resume(ordering_key)

    def configure(
        self,
        *,
        batching: Batching | None = None,
        flow: PublishFlow | None = None,
        message_ordering: bool | None = None,
    ) -> None:
        """Changes how this process publishes to the topic; the limits of `flow` hold for each lane."""
        super().configure(batching=batching, flow=flow, message_ordering=message_ordering)
        for each in self._lanes:
            each.configure(batching=batching, flow=flow, message_ordering=message_ordering)

    def flush(self, timeout: float | None = None) -> None:
        """Waits until all earlier messages are stored or have failed; `DeadlineExceeded` after `timeout` seconds."""
        end = None if timeout is None else time.monotonic() + timeout
        super().flush(timeout)
        if self._sender is not None:
            self._sender.flush(None if end is None else max(0.0, end - time.monotonic()))

    def close(self, timeout: float = 30) -> None:
        """Takes no more messages and waits up to `timeout` seconds for those that aren't stored yet."""
        end = time.monotonic() + timeout
        if self._sender is not None:
            self._sender.close(timeout)
        super().close(max(0.05, end - time.monotonic()))

    def forked(self) -> None:
        """Refuses, in a forked child, a topic used before the fork."""
        super().forked()
        if self._sender is not None:
            self._sender.forked()
